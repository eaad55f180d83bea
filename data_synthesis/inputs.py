"""Reads a tool world folder for data synthesis; test tasks are never opened, so they cannot leak into training."""

import ast
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from autotools.docs import EVALUATION_NOTE
from autotools.errors import DataError
from autotools.rundir import sort_jsonl
from autotools.schema import Task, ToolId, ToolSpec, VerifiedFunction
from data_synthesis.filters import Ledger, Problem, source_problem, task_problem
from retriever.corpus import read_corpus

SPLITS = ("train", "dev")
Noun = TypeVar("Noun", bound=BaseModel)


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Usable content of a world folder; what was not usable is in the ledger.

    ``functions`` is empty where the folder has no functions.jsonl: real tools are documents that nothing can call.
    """

    folder: Path
    specs: tuple[ToolSpec, ...]
    tasks: dict[str, tuple[Task, ...]]
    functions: dict[ToolId, VerifiedFunction]  # verified ones only

    @property
    def by_id(self) -> dict[ToolId, ToolSpec]:
        """Tool documents by id."""
        return {spec.id: spec for spec in self.specs}

    @property
    def parameters(self) -> dict[str, set[str]]:
        """Parameter names of each verified function, read from its source."""
        return {function.name: parameter_names(function) for function in self.functions.values()}

    @property
    def files(self) -> list[Path]:
        """Files that the output depends on."""
        names = ["tools.jsonl", *(f"tasks/{split}.jsonl" for split in SPLITS), "functions.jsonl"]
        return [self.folder / name for name in names if (self.folder / name).exists()]


def read_inputs(folder: Path, ledger: Ledger, max_query_chars: int = -1) -> Inputs:
    """Read corpus, tasks and functions. Raises DataError if a file is missing or holds nothing usable.

    Only functions.jsonl may be missing.
    """
    corpus = read_corpus(folder)
    for reject in corpus.rejects:
        ledger.reject("tools", reject["source"], reject["line"], ("unusable tool document", reject["reason"]))
    specs = []
    for spec in corpus.specs:
        if EVALUATION_NOTE in spec.notes:
            ledger.reject("tools", "tools.jsonl", str(spec.id), ("tool for evaluation only", str(spec.id)))
        else:
            ledger.keep("tools")
            specs.append(spec)
    known = {spec.id for spec in specs}

    def check(task: Task) -> Problem | None:
        if 0 <= max_query_chars < len(task.query):
            return "request longer than max_query_chars", f"{task.id}: {len(task.query)} characters"
        return task_problem(task, known)

    tasks = {}
    for split in SPLITS:
        tasks[split] = _read(folder, f"tasks/{split}.jsonl", Task, lambda t: t.id, check, ledger)
    functions: tuple[VerifiedFunction, ...] = ()
    if (folder / "functions.jsonl").exists():
        functions = _read(folder, "functions.jsonl", VerifiedFunction, lambda f: f.tool, _function_check(known), ledger)
    by_tool = {function.tool: function for function in functions}
    return Inputs(folder=folder, specs=tuple(specs), tasks=tasks, functions=by_tool)


def function_node(function: VerifiedFunction) -> ast.FunctionDef:
    """Definition of the function itself in its source (which may hold imports and helpers, too)."""
    nodes = ast.parse(function.source).body
    return next(node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == function.name)


def parameter_names(function: VerifiedFunction) -> set[str]:
    """Names a call may use as keyword arguments."""
    arguments = function_node(function).args
    return {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}


def _function_check(known: set[ToolId]) -> Callable[[VerifiedFunction], Problem | None]:
    def check(function: VerifiedFunction) -> Problem | None:
        if function.tool not in known:
            return "function's tool not in corpus", str(function.tool)
        if not function.verified:
            return "function not verified", f"{function.name}: {function.reason}"
        return source_problem(function.source, function.name)

    return check


def _read(
    folder: Path,
    name: str,
    kind: type[Noun],
    key: Callable[[Noun], object],
    check: Callable[[Noun], Problem | None],
    ledger: Ledger,
) -> tuple[Noun, ...]:
    file = folder / name
    if not file.is_file():
        raise DataError(f"{file} does not exist; --world must be a folder made by python -m toolworld.build")
    kept: dict[object, Noun] = {}
    stage = name.removesuffix(".jsonl")
    rows, rejects = sort_jsonl(file, kind)
    for reject in rejects:
        reason, _, detail = reject["reason"].partition(": ")
        ledger.reject(stage, name, reject["line"], (reason, detail))
    for number, item in rows:
        problem = check(item)
        if problem is None and key(item) in kept:
            problem = ("duplicate id", str(key(item)))
        if problem is None:
            kept[key(item)] = item
            ledger.keep(stage)
        else:
            ledger.reject(stage, name, number, problem)
    if not kept:
        raise DataError(f"{file} holds no usable record; see the reasons with: python -m toolworld.build --out NEW")
    return tuple(kept.values())
