"""docs/faults.md: every test that it names exists, no fault is missing, and the rules that hold for whole folders."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (B\d+) \|(.*)\|$", PAGE, re.MULTILINE)
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))
LAYERS = ("autotools", "toolworld", "retriever", "evaluation", "data_synthesis", "training", "rl")


def sources(*folders: str) -> Iterator[tuple[Path, ast.AST]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8"))


def test_all_41_faults_have_their_row() -> None:
    assert [name for name, _ in ROWS] == [f"B{number}" for number in range(1, 42)]
    assert all("`tests/" in row for _, row in ROWS)


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_a_named_test_exists(file: str, test: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def broad(node: ast.AST) -> bool:
    """Whether an ``except`` takes any exception and does not raise again."""
    if not isinstance(node, ast.ExceptHandler):
        return False
    names = {n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)} if node.type else {"BaseException"}
    raises = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
    return bool(names & {"Exception", "BaseException"}) and not raises


def test_no_error_is_swallowed() -> None:
    """In what makes rollouts, rewards, credit and scores."""
    swallowed = [
        f"{path}:{node.lineno}"
        for path, tree in sources("rl", "autotools/search", "evaluation")
        for node in ast.walk(tree)
        if broad(node)
    ]
    assert swallowed == []
    planted = ast.parse("try:\n    a()\nexcept Exception as error:\n    print(error)")
    assert any(map(broad, ast.walk(planted)))


MAKERS = {"tensor", "as_tensor", "zeros", "ones", "full", "arange", "empty", "rand", "randn"}


def without_device(tree: ast.AST) -> list[int]:
    """Lines of calls such as ``torch.tensor(...)`` that do not name a device."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    return [
        call.lineno
        for call in calls
        if isinstance(call.func.value, ast.Name)  # type: ignore[attr-defined]
        and call.func.value.id == "torch"  # type: ignore[attr-defined]
        and call.func.attr in MAKERS  # type: ignore[attr-defined]
        and "device" not in {keyword.arg for keyword in call.keywords}
    ]


def test_tensors_of_the_trainer_name_their_device() -> None:
    assert {str(path): lines for path, tree in sources("rl") if (lines := without_device(tree))} == {}
    assert without_device(ast.parse("x = torch.zeros(3)")) == [1]


def test_nothing_waits_for_a_key() -> None:
    """No ``input()`` or breakpoint, but for the prompt of the one command that has one."""
    asks = [
        f"{path}"
        for path, tree in sources(*LAYERS)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("input", "breakpoint")
    ]
    assert asks == ["retriever/search.py"]


def test_lists_are_read_in_one_place() -> None:
    """The mark of a list stands in the code of the episode and in one prompt text, and nowhere else."""
    marked = {
        str(path)
        for path, tree in sources(*LAYERS)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "tool_list>" in node.value
        if not is_docstring(tree, node)
    }
    home = {f"autotools/search/{name}.py" for name in ("answer", "episode", "parser", "prompt")}
    assert marked == home | {"data_synthesis/tasks/relevance.py"}


def is_docstring(tree: ast.AST, node: ast.Constant) -> bool:
    return any(isinstance(parent, ast.Expr) and parent.value is node for parent in ast.walk(tree))
