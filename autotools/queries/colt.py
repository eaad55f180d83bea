"""COLT data sets (ToolLens, ToolBenchG2, ToolBenchG3) in BEIR form: corpus, queries and relevance judgements."""

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotools.docs.files import text_of
from autotools.docs.reading import shown
from autotools.errors import DataError
from autotools.queries.files import json_rows
from autotools.queries.found import RequestFile, RequestProblem, query_of, target_of
from autotools.schema import Task, ToolId

_NAMES = re.compile(  # cut by its key words: descriptions hold commas and colons themselves; the rest may be broken
    r"category_name:(.*?), tool_name:(.*?), api_name:(.*?), api_description:.*, required_params: ", re.S
)
_COLUMNS = ("query-id", "corpus-id", "score")
SPLITS = ("train", "test")


@dataclass
class _Relevance:
    """One qrels file: request -> documents with a score above 0, and requests that a broken line speaks of."""

    documents: dict[str, list[str]] = field(default_factory=dict)
    broken: dict[str, int] = field(default_factory=dict)


def read_colt(folder: str | Path, *, split: str, suite: str | None = None) -> RequestFile:
    """A COLT data set in BEIR form: the requests of ``qrels/SPLIT.tsv``, with the set's name as level.

    Targets are the documents with a score above 0, as ToolIds made from the names in their text; documents never
    become tools of their own. A document that is missing, broken or names no API stays as ``colt.document.NUMBER`` and
    is found dangling later. A broken line of one of the three files is a reject of that file; a request whose own
    judgements are broken is one, too, for its targets are not known. Lines are those of ``queries.jsonl`` (0 where the
    request has no text). Raises DataError if a file is missing, or no line of it can be used.
    """
    folder = Path(folder)
    suite = suite or folder.name.lower()
    if split not in SPLITS:
        raise DataError(f"{folder} has no split {split!r}; give train or test")
    out = RequestFile(source=f"{folder.name}/queries.jsonl")
    documents = _documents(folder, out)  # document -> tool
    relevance = {name: _qrels(folder, name, out if name == split else None) for name in SPLITS}
    mine = relevance[split]
    open_requests = dict.fromkeys([*mine.documents, *mine.broken])
    seen: set[str] = set()
    for line, row in json_rows(_file(folder, "queries.jsonl"), out):
        name = _name(row)
        if not name:
            out.reject(line, "request without id", row)
        elif not any(name in part.documents or name in part.broken for part in relevance.values()):
            out.reject(line, "request without relevant documents", name)
        elif name in mine.documents or name in mine.broken:
            if name in seen:
                out.reject(line, "id of an earlier request", name)
                continue
            seen.add(name)
            open_requests.pop(name)
            try:
                query = _query(row, name, mine)
                targets = [documents.get(number) or _unknown(number) for number in mine.documents[name]]
            except RequestProblem as problem:
                out.reject(line, problem.reason, problem.detail)
                continue
            task_id = f"{suite}/{name}"
            task = Task(id=task_id, suite=suite, split=split, level=folder.name, query=query, targets=tuple(targets))
            out.keep(line, task)
    for name in open_requests:
        out.reject(0, "request of the qrels has no text", name)
    return out


def _query(row: dict[str, Any], name: str, relevance: _Relevance) -> str:
    if name in relevance.broken:
        raise RequestProblem("its relevance judgement is broken", f"{name}: line {relevance.broken[name]} of the qrels")
    try:
        return query_of(row, "text")
    except RequestProblem as problem:
        raise RequestProblem(problem.reason, name) from problem


def _file(folder: Path, name: str) -> Path:
    """The file or, where only that exists, its packed form."""
    packed = folder / f"{name}.gz"
    return packed if packed.is_file() and not (folder / name).is_file() else folder / name


def _name(row: dict[str, Any]) -> str:
    value = row.get("_id")
    return shown(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _documents(folder: Path, out: RequestFile) -> dict[str, ToolId]:
    """Document -> tool; a document without names of a tool stays out."""
    tools: dict[str, ToolId] = {}
    lines: dict[str, tuple[int, Any]] = {}
    path = _file(folder, "corpus.jsonl")
    source = f"{folder.name}/{path.name}"
    for line, row in json_rows(path, out):
        name, text = _name(row), row.get("text")
        if not name:
            out.reject(line, "document without id", row, source=source)
            continue
        first, first_text = lines.setdefault(name, (line, text))
        if first != line:
            if text != first_text:
                out.reject(line, "another document of an id that was read before", name, source=source)
            continue
        match = _NAMES.match(text) if isinstance(text, str) else None
        with suppress(RequestProblem):  # names without a letter: dangling, as a document without names
            if match:
                tools[name] = target_of(*match.groups())
    return tools


def _unknown(number: str) -> ToolId:
    return ToolId(category="colt", tool="document", api=number)


def _qrels(folder: Path, split: str, out: RequestFile | None) -> _Relevance:
    """Read one qrels file; broken lines are rejected in ``out`` (None: the other split's reading tells them)."""
    path = _file(folder, f"qrels/{split}.tsv")
    source = f"{folder.name}/qrels/{path.name}"
    found = _Relevance()
    broken, usable = 0, False
    for line, query, document, score in _judgements(path):
        if query and document and score is not None:
            usable = True
            if score > 0:
                found.documents.setdefault(query, []).append(document)
            continue
        broken = broken or line
        if out:
            out.reject(line, "line is not query-id, corpus-id, score", f"request {query!r}", source=source)
        if query:
            found.broken.setdefault(query, line)
    if broken and not usable:
        raise DataError(f"{path}:{broken}: not query-id, corpus-id, score, and no other line is")
    return found


def _judgements(path: Path) -> Iterator[tuple[int, str, str, float | None]]:
    """Line, request, document and score (None: no number) of every line; the first names the columns."""
    columns: list[str] = []
    for line, text in enumerate(text_of(path).split("\n"), 1):  # not json_lines: an empty first cell is a fault here
        if not text.strip():
            continue
        cells = [cell.strip() for cell in text.split("\t")]
        if not columns:
            columns = cells
            if not set(_COLUMNS) <= set(columns):
                raise DataError(f"{path}:{line}: not query-id, corpus-id, score")
            continue
        row = dict(zip(columns, cells, strict=False))
        query, document, score = (row.get(column, "") for column in _COLUMNS)
        yield line, query, document, _number(score) if len(cells) == len(columns) else None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
