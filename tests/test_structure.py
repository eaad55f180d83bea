"""The shape of the tree: who may import whom, names that would hide a library, configs against their own schema."""

import ast
import importlib
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from autotools.config import file_problems

ROOT = Path(__file__).resolve().parents[1]
ENTRY_FOLDERS = ("training", "rl", "data_synthesis", "evaluation", "retriever", "launch", "toolworld")
_LOWER = {"autotools": set(), "toolworld": {"autotools"}, "retriever": {"autotools", "toolworld"}}
_LOWER["evaluation"] = {*_LOWER["retriever"], "retriever"}
_TOP = {*_LOWER["evaluation"], "evaluation"}
MAY_IMPORT = {**_LOWER, "data_synthesis": _TOP, "training": _TOP, "rl": _TOP}
# rl may use training's adapters, and the glue that starts a run on CPU ranks; nothing else of it
RL_FROM_TRAINING = {"training.lora", "training.runtime", "training.compiled_ops"}
HEAVY = {"torch", "trl", "transformers", "datasets", "deepspeed", "accelerate", "peft", "sentence_transformers", "vllm"}
MAX_LINES = 450


def tracked(*suffixes: str) -> list[Path]:
    """Files of the project: what git tracks or would track, or everything where there is no git."""
    command = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True)
    if listed.returncode == 0:
        files = [ROOT / name for name in listed.stdout.splitlines()]
    else:
        hidden = {".venv", "runs", "__pycache__"}
        files = [p for p in ROOT.rglob("*") if not hidden & set(p.relative_to(ROOT).parts)]
    return sorted(p for p in files if p.is_file() and (not suffixes or p.suffix in suffixes))


def imports(path: Path, *, top_level_only: bool = False) -> Iterator[str]:
    """Dotted names of the modules that a file imports (``from a import b`` gives ``a.b``: b may be a module)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes: list[ast.AST] = list(tree.body) if top_level_only else list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; a file started by its path cannot resolve it"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def project_files() -> list[Path]:
    return [p for p in tracked(".py") if p.relative_to(ROOT).parts[0] in MAY_IMPORT]


def wrong_imports(package: str, names: list[str]) -> list[str]:
    """The imports of ``names`` that a file of ``package`` may not have."""
    out = []
    for name in names:
        owner = name.partition(".")[0]
        if owner not in MAY_IMPORT or owner == package or owner in MAY_IMPORT[package]:
            continue
        allowed = package == "rl" and any(name == m or name.startswith(f"{m}.") for m in RL_FROM_TRAINING)
        if not allowed:
            out.append(name)
    return out


def test_imports_go_one_way() -> None:
    found = {}
    for path in project_files():
        inside = path.relative_to(ROOT)
        if names := wrong_imports(inside.parts[0], list(imports(path))):
            found[str(inside)] = names
    assert found == {}


def test_the_import_rule_can_fail() -> None:
    assert wrong_imports("autotools", ["toolworld.world", "json", "autotools.errors"]) == ["toolworld.world"]
    assert wrong_imports("evaluation", ["rl.credit", "retriever.bm25"]) == ["rl.credit"]
    assert wrong_imports("training", ["rl.credit", "data_synthesis.build"]) == ["rl.credit", "data_synthesis.build"]
    assert wrong_imports("rl", ["training.lora.load", "training.sft", "training.runtime"]) == ["training.sft"]


def test_metrics_are_a_pure_leaf() -> None:
    owners = {name.partition(".")[0] for name in imports(ROOT / "evaluation" / "metrics.py")}
    assert owners <= set(sys.stdlib_module_names) | {"numpy"}


def test_bottom_layer_imports_no_heavy_library_at_module_level() -> None:
    found = {
        str(p.relative_to(ROOT)): sorted(heavy)
        for p in project_files()
        if p.relative_to(ROOT).parts[0] == "autotools"
        and (heavy := {n.partition(".")[0] for n in imports(p, top_level_only=True)} & HEAVY)
    }
    assert found == {}


# --- entry points -------------------------------------------------------------------------------------------------


def entry_modules() -> list[Path]:
    """Files that a person starts: they have a main() and a guard."""
    out = []
    for path in tracked(".py"):
        text = path.read_text(encoding="utf-8")
        if path.relative_to(ROOT).parts[0] in ENTRY_FOLDERS and re.search(r"^if __name__ == .__main__.:", text, re.M):
            out.append(path)
    return out


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def load(path: Path) -> ModuleType:
    """Import an entry module: by name where its folder is a package, else by path, as ``python PATH`` would."""
    if (path.parent / "__init__.py").exists():
        return importlib.import_module(name_of(path))
    spec = importlib.util.spec_from_file_location(f"entry_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


class _Stop(Exception):
    pass


def sections_of(path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The sections with which an entry point calls load_config: its schema, as it really uses it."""
    module = load(path)
    seen: list[dict[str, Any]] = []

    def record(argv: Any, sections: dict[str, Any], **kwargs: Any) -> None:
        seen.append(sections)
        raise _Stop

    monkeypatch.setattr(module, "load_config", record)
    with pytest.raises(_Stop):
        module.main([])
    return seen[0]


@pytest.mark.parametrize("path", entry_modules(), ids=name_of)
def test_entry_point_answers_help_without_heavy_imports(path: Path) -> None:
    code = (
        "import runpy, sys\n"
        f"sys.argv = ['x', '--help']; sys.path.insert(0, {str(path.parent)!r})\n"
        f"try: runpy.run_path({str(path)!r}, run_name='__main__')\n"
        f"except SystemExit as leave: print('CODE', leave.code, sorted({HEAVY!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1:] == ["CODE 0 []"], done.stderr
    assert done.stdout.startswith("usage: ")


def test_no_module_hides_a_library() -> None:
    """``python rl/train.py`` puts rl/ first on the path, so rl/queue.py would replace the standard library's."""
    ours = {"autotools", *ENTRY_FOLDERS, "tests"}
    installed = {name.partition(".")[0] for name in metadata.packages_distributions()} - ours
    hidden = set(sys.stdlib_module_names) | installed
    allowed = {"retriever/evaluate.py"}  # the plan's name; always started with -m
    wrong = []
    for path in tracked(".py"):
        parts = path.relative_to(ROOT).parts
        if parts[0] in ENTRY_FOLDERS and len(parts) == 2 and "/".join(parts) not in allowed:
            if path.stem in hidden | {"evaluate"}:
                wrong.append("/".join(parts))
        elif parts[0] in ENTRY_FOLDERS and len(parts) == 3 and parts[1] in hidden:
            wrong.append("/".join(parts[:2]))
    assert wrong == []
    assert {"types", "queue", "trace", "datasets", "yaml"} <= hidden


# --- configs ------------------------------------------------------------------------------------------------------

SCHEMA_OF = {  # folder (or folder/file name) below configs/ -> the entry point whose keys its files hold
    "data": "data_synthesis/build.py",
    "sft": "training/sft.py",
    "rl": "rl/train.py",
    "eval": "evaluation/run.py",
    "quickstart": "launch/quickstart.py",
    "ablation": "launch/ablation.py",
    "retriever/serve": "retriever/serve.py",
    "retriever/build_minilm": "retriever/build.py",
    "retriever/build_qwen3": "retriever/build.py",
}
OTHER_TOOLS = {"accelerate", "deepspeed"}  # read by accelerate and DeepSpeed, checked below
CONFIGS = sorted(p for p in (ROOT / "configs").rglob("*") if p.suffix in (".yaml", ".yml", ".json"))


def schema_key(path: Path) -> str:
    """The key of SCHEMA_OF for a config file: a row of its own, or its folder's."""
    inside = path.relative_to(ROOT / "configs")
    own = inside.with_suffix("").as_posix()
    return own if own in SCHEMA_OF else inside.parts[0]


def test_every_config_folder_has_a_schema() -> None:
    assert CONFIGS
    assert {schema_key(p) for p in CONFIGS} <= set(SCHEMA_OF) | OTHER_TOOLS


@pytest.mark.parametrize(
    "path",
    [p for p in CONFIGS if p.relative_to(ROOT / "configs").parts[0] not in OTHER_TOOLS],
    ids=lambda p: str(p.relative_to(ROOT / "configs")),
)
def test_config_loads_by_its_own_schema(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = ROOT / SCHEMA_OF[schema_key(path)]
    assert file_problems(str(path), sections_of(entry, monkeypatch)) == []


def test_files_named_in_the_quickstart_config_exist() -> None:
    for path in (ROOT / "configs" / "quickstart").glob("*.yaml"):
        values = yaml.safe_load(path.read_text(encoding="utf-8")).values()
        assert [v for v in values if isinstance(v, str) and v.endswith(".yaml") and not (ROOT / v).is_file()] == []


@pytest.mark.parametrize("path", [p for p in CONFIGS if p.parent.name == "accelerate"], ids=lambda p: p.name)
def test_accelerate_config_loads(path: Path) -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    loaded = load_config_from_file(str(path))
    assert loaded.num_processes >= 1
    given = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert set(given) <= set(vars(loaded))


@pytest.mark.parametrize("path", [p for p in CONFIGS if p.parent.name == "deepspeed"], ids=lambda p: p.name)
def test_deepspeed_config_has_only_known_keys(path: Path) -> None:
    from deepspeed.runtime import constants
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    content = json.loads(path.read_text(encoding="utf-8"))
    known = {v for v in vars(constants).values() if isinstance(v, str)} | {"zero_optimization", "bf16", "fp16"}
    assert set(content) <= known
    settings = {k: v for k, v in content["zero_optimization"].items() if v != "auto"}
    assert DeepSpeedZeroConfig(**settings).stage == 3
    fields = DeepSpeedZeroConfig.model_fields
    assert set(content["zero_optimization"]) <= set(fields) | {field.alias for field in fields.values()}


# --- files --------------------------------------------------------------------------------------------------------


def test_no_file_is_too_long() -> None:
    lengths = {str(p.relative_to(ROOT)): len(p.read_text("utf-8").splitlines()) for p in tracked(".py", ".sh")}
    assert {name: length for name, length in lengths.items() if length > MAX_LINES} == {}


def test_no_machine_paths_or_package_hosts() -> None:
    # written in pieces, so that this file does not find itself
    words = ["/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/", "/tm" + "p/", "/opt/whe" + "els"]
    words += ["py" + "pi.org", "pythonhos" + "ted", "download.py" + "torch.org", "extra-index" + "-url"]
    pattern = re.compile("|".join(re.escape(word) for word in words))
    found = []
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        name = path.relative_to(ROOT)
        found += [f"{name}:{number}" for number, line in enumerate(text.splitlines(), 1) if pattern.search(line)]
    assert found == []
