"""Which form a request file has, by its content, and reading it: one table for the command and other users."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from autotools.docs.files import json_lines, parse_json, read_json, suffix_of
from autotools.docs.reading import as_dict, as_list
from autotools.errors import DataError, ToolDocError
from autotools.queries.colt import SPLITS, read_colt
from autotools.queries.files import json_list
from autotools.queries.found import RequestFile
from autotools.queries.restbench import read_autotools, read_restbench
from autotools.queries.toolbench import read_anytoolbench, read_toolbench
from autotools.queries.worldtasks import read_tasks
from autotools.schema import ToolSpec

FORMS = ("toolbench", "anytoolbench", "autotools", "restbench", "colt", "tasks")
_LOOK = 20  # records looked at: the first may be a broken one
_TASK_KEYS = {"id", "suite", "split", "level", "query", "targets"}
_VERB = re.compile(r"(GET|POST|PUT|PATCH|DELETE) ", re.I)


def walk(path: Path, seen: set[Path] | None = None) -> Iterator[Path]:
    """What is read below ``path``: files in order, a COLT folder as one. Raises DataError if ``path`` is missing.

    A file or folder that several names or links lead to comes once; ``seen`` holds what earlier walks have given.
    """
    seen = set() if seen is None else seen
    if path.is_dir() or path.is_file():
        real = path.resolve()
        if real in seen:
            return
        seen.add(real)
    if is_colt(path) or path.is_file():
        yield path
    elif path.is_dir():
        for child in sorted(path.iterdir()):
            if child.is_dir() or child.is_file():
                yield from walk(child, seen)
    else:
        raise DataError(f"{path} does not exist; give a request file or a folder of them")


def is_colt(path: Path) -> bool:
    """Whether this is a COLT data set: a folder with corpus and relevance judgements."""
    return path.is_dir() and (path / "qrels").is_dir() and any(path.glob("corpus.jsonl*"))


def detect(path: Path) -> str | None:
    """The form of a file (or COLT folder), one of ``FORMS``; None if none fits. Raises DataError if unreadable."""
    if is_colt(path):
        return "colt"
    if suffix_of(path) == ".jsonl":
        rows = (_object(text) for _, text in json_lines(path))
        return "tasks" if any(set(row) >= _TASK_KEYS for row in islice(rows, _LOOK)) else None
    if suffix_of(path) != ".json":
        return None
    content = read_json(path)
    records = [record for record in as_list(content)[:_LOOK] if isinstance(record, dict)]
    for form, has in _HAS.items():
        if any(has(record) for record in records):
            return form
    return None


_HAS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "toolbench": lambda record: "relevant APIs" in record,
    "anytoolbench": lambda record: "gt_api_list" in record,
    "autotools": lambda record: "solution" in record and "dataset" in record and "query" in record,
    "restbench": lambda record: "query" in record and _is_endpoints(record.get("solution")),
}


def _object(text: str) -> dict[str, Any]:
    try:
        return as_dict(parse_json(text))
    except ToolDocError:
        return {}


def _is_endpoints(solution: Any) -> bool:
    return isinstance(solution, list) and any(isinstance(entry, str) and _VERB.match(entry) for entry in solution)


def suite_of(path: Path, form: str) -> str:
    """Name of the suite. ToolBench's files do not say which they are; StableToolBench's lie in ``solvable_queries``."""
    if form == "toolbench":
        return "stabletoolbench" if {"stabletoolbench", "solvable_queries"} & set(path.parts) else "toolbench"
    if form == "autotools":  # RestBench's URLs begin with the verb, those of AutoTools-Eval do not
        urls = [record["url"] for record in json_list(path) if isinstance(record, dict) and "url" in record]
        return "restbench" if any(map(_is_endpoints, urls)) else "autotools_eval"
    return {"colt": path.name.lower(), "tasks": "toolworld"}.get(form, form)


def read_any(path: Path, form: str, *, suite: str | None = None, specs: Sequence[ToolSpec] = ()) -> list[RequestFile]:
    """Read a file (or COLT folder: one result per split) of that form. Raises DataError as the readers do.

    ``suite`` replaces the name that the content gives; rows of ``tasks`` keep their own. The split is train for
    AnyToolBench and for files in a folder with ``train`` in its name, else test.
    """
    name = suite or suite_of(path, form)
    split = "train" if form == "anytoolbench" or "train" in path.parent.name else "test"
    if form == "colt":
        return [read_colt(path, split=each, suite=name) for each in SPLITS]
    if form == "tasks":
        return [read_tasks(path)]
    if form == "restbench":
        return [read_restbench(path, specs, suite=name, split=split)]
    reader = {"toolbench": read_toolbench, "anytoolbench": read_anytoolbench, "autotools": read_autotools}[form]
    return [reader(path, suite=name, split=split)]
