"""Opening request files: a file that cannot be read as a whole is a DataError, one bad line is a reject."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from autotools.docs.files import json_lines, parse_json, read_json
from autotools.errors import DataError, ToolDocError
from autotools.queries.found import RequestFile, RequestProblem
from autotools.schema import Task


def json_list(path: Path) -> list[Any]:
    """The records of a JSON file. Raises DataError if it cannot be read or is not one list."""
    content = read_json(path)
    if not isinstance(content, list):
        raise DataError(f"{path}: not a list of requests")
    return content


def json_rows(path: Path, out: RequestFile) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object of every usable line of a ``.jsonl`` file; each other line is rejected in ``out``.

    Raises DataError if the file cannot be read, or has lines but not one usable.
    """
    source = f"{path.parent.name}/{path.name}"
    first_bad, usable = "", False
    for number, text in json_lines(path):
        try:
            row = parse_json(text)
            reason, detail = "line is not an object", row
        except ToolDocError as error:
            row, reason, detail = None, "line is not JSON", str(error).removeprefix("not JSON: ")
        if isinstance(row, dict):
            usable = True
            yield number, row
        else:
            first_bad = first_bad or f"line {number}: {reason}"
            out.reject(number, reason, detail, source=source)
    if first_bad and not usable:
        raise DataError(f"{path}: no usable line ({first_bad})")


def read_list(path: Path, suite: str, task_of: Callable[[Any, int, list[str]], Task]) -> RequestFile:
    """A file that is one JSON list: every record is kept as ``task_of(record, line, repaired)``, or rejected.

    ``task_of`` appends what it mended to ``repaired`` and raises RequestProblem for a record that cannot be used.
    Raises DataError if the file is not a JSON list.
    """
    out = RequestFile(source=f"{suite}/{path.name}")
    for line, record in enumerate(json_list(path), 1):
        repaired: list[str] = []
        try:
            task = task_of(record, line, repaired)
        except RequestProblem as problem:
            out.reject(line, problem.reason, problem.detail)
        else:
            out.keep(line, task, repaired)
    return out
