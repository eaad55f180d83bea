"""Run folders and stage manifests: every run tells what it is, and stages meet in files.

A manifest is written last and in one step, so its presence means "complete". It holds no time and no path of this
machine: the same inputs and seed give the same bytes.
"""

import functools
import hashlib
import json
import math
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from autotools.errors import DataError, RunFolderError, WriteError
from autotools.own_inputs import refuse_own_inputs

M = TypeVar("M", bound=BaseModel)
Keys = Collection[str]
_PACKAGES = ("torch", "transformers", "trl", "deepspeed", "peft", "accelerate", "datasets")
_HOW_TO_RUN = {"resume", "overwrite", "dry_run", "resume_from_checkpoint"}  # may differ on resuming
_MARKERS = ("run.json", "run_config.json", "manifest.json")
_NO_WORK = {"run.json", "run_config.json", "rejected.jsonl"}  # a folder with nothing else holds no result
_claimed: dict[Path, str] = {}  # folders that this process claimed, newest last -> "made", "found" or "resumed"


# --- small files ------------------------------------------------------------------------------------------------


@contextmanager
def _blaming(path: Path) -> Iterator[None]:
    """A failed write names the file that was asked for, not the temporary one, and never no file at all."""
    try:
        yield
    except OSError as error:
        raise WriteError(f"{path}: cannot write ({error.strerror or error})") from error


def write_text(path: Path | str, text: str) -> None:
    """Write a whole text file in one step (temporary file, then rename), making its folder if needed.

    Raises WriteError naming ``path``.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with _blaming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_text(text, encoding="utf-8", newline="\n")
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def write_json(path: Path | str, value: Any) -> None:
    """Write indented JSON in one step; keys keep their order."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _line(row: dict[str, Any] | BaseModel, path: Path, number: int) -> str:
    value = row.model_dump(mode="json") if isinstance(row, BaseModel) else row
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate, legal in JSON only as an escape
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: row {number} cannot be written as JSON: {error}") from error
    return text


def write_jsonl(path: Path | str, rows: Iterable[dict[str, Any] | BaseModel]) -> int:
    """Write rows (mappings or pydantic models) as JSON lines in one step; returns how many. Raises DataError."""
    path = Path(path)
    lines = [_line(row, path, number) for number, row in enumerate(rows, 1)]
    write_text(path, "".join(f"{line}\n" for line in lines))
    return len(lines)


def read_jsonl(path: Path | str, model: type[M] | None = None) -> list[Any]:
    """Read JSON lines as mappings, or as ``model`` objects. Raises DataError naming file and line."""
    path = Path(path)
    out: list[Any] = []
    try:
        # newline="\n": a line ends at \n only, never at the U+2028 or \r that a text may hold
        with path.open(encoding="utf-8", newline="\n") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    out.append(_parse(line, model, f"{path}:{number}"))
    except OSError as error:
        raise DataError(f"{path}: cannot read ({error.strerror}); run the stage that makes it") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text ({error.reason})") from error
    return out


def _parse(line: str, model: type[M] | None, where: str) -> Any:
    try:
        return model.model_validate_json(line) if model else json.loads(line)
    except ValidationError as error:
        raise DataError(f"{where}: {_fault(error, model)}") from error
    except ValueError as error:
        raise DataError(f"{where}: not JSON: {error}") from error


def _fault(error: ValidationError, model: type[BaseModel] | None) -> str:
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return f"not JSON: {first['msg'].removeprefix('Invalid JSON: ')}"
    field = ".".join(str(part) for part in first["loc"])
    return f"not a {model.__name__ if model else 'record'}: {f'{field}: ' if field else ''}{first['msg']}"


def sort_jsonl(path: Path | str, model: type[M]) -> tuple[list[tuple[int, M]], list[dict[str, Any]]]:
    """Usable rows as (line, object), the others as rejects {"source", "line", "reason"}; kept + rejected = read.

    For files that people write: one bad line does not spoil the rest. Raises DataError if the file cannot be read.
    """
    path = Path(path)
    kept: list[tuple[int, M]] = []
    rejects: list[dict[str, Any]] = []
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    kept.append((number, model.model_validate_json(line.decode("utf-8"))))
                except ValidationError as error:
                    rejects.append({"source": path.name, "line": number, "reason": _fault(error, model)})
                except UnicodeDecodeError as error:
                    rejects.append({"source": path.name, "line": number, "reason": f"not UTF-8 ({error.reason})"})
    except OSError as error:
        raise DataError(f"{path}: cannot read ({error.strerror}); run the stage that makes it") from error
    return kept, rejects


def sha256_file(path: Path | str) -> str:
    """Hex SHA-256 of a file's bytes. Raises DataError if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot read ({error.strerror})") from error


# --- what code ran ----------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def _versions() -> tuple[tuple[str, str], ...]:
    found = []
    for name in _PACKAGES:
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return (("python", ".".join(str(part) for part in sys.version_info[:3])), *found)


def versions() -> dict[str, str]:
    """Installed versions of Python and the libraries that decide a run's numbers (read without importing them)."""
    return dict(_versions())


@functools.lru_cache(maxsize=1)
def commit() -> str:
    """The checkout's commit, with ``-dirty`` for uncommitted changes; ``unknown`` outside git."""
    here = Path(__file__).resolve().parent
    command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


# --- manifests --------------------------------------------------------------------------------------------------


def _input_hashes(inputs: Iterable[Path | str]) -> dict[str, str]:
    """{name: sha256}; a folder is named by its manifest. Names are relative to what all inputs share."""
    paths = sorted({Path(path).resolve() for path in inputs})
    files = [path / "manifest.json" if path.is_dir() else path for path in paths]
    if not files:
        return {}
    shared = Path(os.path.commonpath([file.parent for file in files]))
    return {file.relative_to(shared).as_posix(): sha256_file(file) for file in files}


def write_manifest(
    folder: Path | str,
    *,
    stage: str,
    inputs: Iterable[Path | str],
    counts: dict[str, Any],
    seed: int,
    extra: dict[str, Any] | None = None,
) -> Path:
    """Write ``folder/manifest.json``, the mark that a stage's output is complete; call it last.

    ``inputs`` are the files (or finished stage folders) that were read. Raises DataError if one cannot be read.
    """
    content = {"stage": stage, "inputs": _input_hashes(inputs), "counts": counts, "seed": seed, "versions": versions()}
    path = Path(folder) / "manifest.json"
    write_json(path, {**content, **(extra or {})})
    return path


def read_manifest(folder: Path | str) -> dict[str, Any]:
    """The manifest of a finished stage. Raises DataError if there is none, so half-made folders are never read."""
    path = Path(folder) / "manifest.json"
    if not path.is_file():
        state = "is not complete (no manifest.json)" if Path(folder).is_dir() else "does not exist"
        raise DataError(f"{folder} {state}; run the stage that makes it")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path}: not JSON ({error}); run the stage that makes it again") from error


def refuse_half(folder: Path | str) -> None:
    """Raise DataError for one of our run folders whose run has not finished; any other folder or name passes.

    For readers of models and corpora, which need not come from us and so need no manifest.
    """
    path = Path(folder)
    if (path / "run_config.json").is_file():
        read_manifest(path)


# --- run folders ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunDir:
    """One run's folder. ``main`` is False on ranks other than 0, which read the folder but never write to it."""

    path: Path
    main: bool = True

    def log(self, row: dict[str, Any]) -> None:
        """Append one row to ``metrics.jsonl``; a number that is not finite is written as text (``"nan"``)."""
        if not self.main:
            return
        clean = {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        path = self.path / "metrics.jsonl"
        with _blaming(path), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(clean, ensure_ascii=False) + "\n")


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            out.update(_flat(value, f"{prefix}{key}."))
        elif key not in _HOW_TO_RUN:
            out[prefix + key] = value
    return out


def config_differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Dotted keys whose values differ between two nested configs; how a run is started (resume ...) is left out."""
    missing = object()
    a, b = _flat(json.loads(json.dumps(old))), _flat(json.loads(json.dumps(new)))
    return sorted(key for key in a.keys() | b.keys() if a.get(key, missing) != b.get(key, missing))


def _named(path: Path | str) -> Path:
    if not str(path):  # Path("") is the current folder, which --overwrite could delete
        raise RunFolderError("the name of the run folder is empty; name one")
    return Path(path)


def check_run(
    path: Path | str, config: dict[str, Any], *, resume: bool | None = None, overwrite: bool = False, free: Keys = ()
) -> str:
    """What claiming ``path`` would do: ``start``, ``overwrite`` or ``resume``. Changes nothing; so for ``--dry_run``.

    ``free``: dotted keys of the config that a resumption may change.
    Raises RunFolderError where ``open_run`` would: a used folder without ``resume`` or ``overwrite``, an overwrite of
    a folder without our marker, a resumption under another config.
    """
    path = _named(path)
    if resume and overwrite:
        raise RunFolderError("--resume and --overwrite exclude each other; pass one of them")
    if path.exists() and not path.is_dir():
        raise RunFolderError(f"{path} is a file; a run needs a folder, so name another")
    # halves of files that a killed run was writing are nothing to resume
    used = path.is_dir() and any(not (resume and _is_half(entry)) for entry in path.iterdir())
    if used and overwrite:
        if not any((path / marker).is_file() for marker in _MARKERS):
            raise RunFolderError(f"{path} was not made by this project (no run.json); --overwrite will not delete it")
        refuse_own_inputs(path, _flat(config))
        return "overwrite"
    if used and resume:
        saved = path / "run_config.json"
        if not saved.is_file():
            raise RunFolderError(f"{path} has no run_config.json, so it cannot be resumed; choose another folder")
        differences = config_differences(json.loads(saved.read_text(encoding="utf-8")), config)
        if differing := [key for key in differences if key not in free]:
            keys = ", ".join(differing)
            raise RunFolderError(
                f"config differs in [{keys}]; start a new run, or continue with --resume --config {saved}"
            )
        return "resume"
    if used:
        continued = "" if resume is None else "--resume to continue it, "
        raise RunFolderError(f"run folder {path} is in use; pass {continued}--overwrite to start anew, or name another")
    return "start"


def _is_half(path: Path) -> bool:
    return path.name.startswith(".") and path.suffix == ".tmp"


def _claim(path: Path, config: dict[str, Any], resume: bool | None, overwrite: bool, free: Keys) -> bool:
    """Make ``path`` this run's folder; True if it continues an earlier run. Raises RunFolderError as ``check_run``."""
    what = check_run(path, config, resume=resume, overwrite=overwrite, free=free)
    if resume and path.is_dir():
        for half in filter(_is_half, list(path.iterdir())):
            half.unlink(missing_ok=True)
    if what == "overwrite":
        shutil.rmtree(path)
    made = not path.is_dir()
    with _blaming(path):
        path.mkdir(parents=True, exist_ok=True)
    _claimed.pop(path, None)
    _claimed[path] = "resumed" if what == "resume" else "made" if made else "found"
    return what == "resume"


def release_unused() -> None:
    """Give back the folders that this process claimed and wrote no result into, so that a second try needs no flag.

    For a command that failed (``run_main`` calls it); a resumed run keeps its folder.
    """
    for path, how in _claimed.items():
        try:
            if how != "resumed" and {entry.name for entry in path.iterdir()} <= _NO_WORK:
                for name in _NO_WORK:
                    (path / name).unlink(missing_ok=True)
                if how == "made":
                    path.rmdir()
        except OSError:  # tidying up must not hide why the command failed
            continue
    _claimed.clear()


def claimed_folder() -> Path | None:
    """The run folder that this process claimed last, or None."""
    return next(reversed(_claimed), None)


def open_run(
    path: Path | str,
    config: dict[str, Any],
    *,
    seed: int,
    resume: bool | None = None,
    overwrite: bool = False,
    free: Keys = (),
) -> RunDir:
    """Claim a run folder; write ``run_config.json`` (resolved) and ``run.json`` (command, commit, versions, seed).

    ``resume`` is None for commands that cannot continue a run; ``free`` as in ``check_run``. Only rank 0 claims and
    writes; other ranks get a read-only RunDir. Raises RunFolderError on a folder in use, a resume under another
    config, or an overwrite of a folder that is not ours.
    """
    path = _named(path)
    if int(os.environ.get("RANK", "0")) != 0:
        return RunDir(path, main=False)
    start = {
        "command": shlex.join(["python", *sys.orig_argv[1:]]),
        "commit": commit(),
        "versions": versions(),
        "seed": seed,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    record = path / "run.json"
    if _claim(path, config, resume, overwrite, free):
        first = json.loads(record.read_text(encoding="utf-8")) if record.is_file() else {**start}
        first.setdefault("resumed", []).append(start)
        write_json(record, first)
    else:
        write_json(path / "run_config.json", config)  # first: a run killed between the two can be resumed
        write_json(record, start)
    return RunDir(path)
