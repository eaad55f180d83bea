"""What reading a request file gives, and what every reader of request files uses."""

import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from autotools.docs.reading import clean, shown, tool_id
from autotools.errors import ToolDocError
from autotools.schema import Task, ToolId


class RequestProblem(Exception):
    """A record cannot be used; never leaves a reader."""

    def __init__(self, reason: str, detail: Any = "") -> None:
        super().__init__(reason)
        self.reason, self.detail = reason, shown(detail)


@dataclass(kw_only=True)
class RequestFile:
    """What one file gave. ``tasks`` holds (line, task); ``repaired`` counts what was mended in tasks that were kept.

    ``rejects`` rows: {"source", "line" (or record number, from 1), "reason", "detail"}.
    """

    source: str
    tasks: list[tuple[int, Task]] = field(default_factory=list)
    rejects: list[dict[str, Any]] = field(default_factory=list)
    repaired: Counter[str] = field(default_factory=Counter)
    _line_of: dict[str, int] = field(default_factory=dict, repr=False)

    @property
    def read(self) -> int:
        """Records of the file: kept + rejected."""
        return len(self.tasks) + len(self.rejects)

    def reject(self, line: int, reason: str, detail: Any = "", source: str = "") -> None:
        """One record cannot be used. ``source`` where it is of another file of the set (its relevance judgements)."""
        row = {"source": source or self.source, "line": line, "reason": reason, "detail": shown(detail)}
        self.rejects.append(row)

    def keep(self, line: int, task: Task, repaired: Iterable[str] = ()) -> None:
        """One usable record. Targets named twice count once; an id that an earlier record has makes it a reject."""
        first = self._line_of.setdefault(task.id, line)
        if first != line:
            self.reject(line, "id of an earlier request", f"{task.id} stands in {first}")
            return
        self.repaired.update(repaired)
        unique = tuple(dict.fromkeys(task.targets))
        if len(unique) < len(task.targets):
            self.repaired["target named twice"] += 1
            task = task.model_copy(update={"targets": unique})
        self.tasks.append((line, task))


@dataclass(frozen=True, kw_only=True)
class Dangling:
    """A target that the corpus does not hold: how many requests want it, and the first of them."""

    target: ToolId
    requests: int
    source: str
    line: int
    example: str  # id of the first request


def normalised(query: str) -> str:
    """Words of a request in lower case, blanks between: two requests with the same form count as the same."""
    return " ".join(re.findall(r"[^\W_]+", query.casefold()))


def sort_out(found: RequestFile, corpus: Collection[ToolId]) -> RequestFile:
    """The same file with every request whose targets are not all in ``corpus`` moved to the rejects, all named."""
    out = RequestFile(source=found.source, rejects=list(found.rejects), repaired=Counter(found.repaired))
    for line, task in found.tasks:
        missing = [str(target) for target in task.targets if target not in corpus]
        if missing:
            row = {"source": found.source, "line": line, "reason": "target not in the corpus"}
            out.rejects.append({**row, "detail": ", ".join(missing)})  # in full: nothing that dangles goes unnamed
        else:
            out.tasks.append((line, task))
    return out


def once(found: RequestFile, first: dict[tuple[Any, ...], str]) -> RequestFile:
    """The same file with every request that an earlier file has, too, moved to the rejects.

    Same means id, text and targets: files of two RestBench forms give different requests the same ids. ``first``:
    the requests of earlier files, and in which file they stand; those of this one are added.
    """
    out = RequestFile(source=found.source, rejects=list(found.rejects), repaired=Counter(found.repaired))
    for line, task in found.tasks:
        if file := first.get((task.id, task.query, task.targets)):
            out.reject(line, "request of an earlier file", f"{task.id} stands in {file}")
        else:
            out.tasks.append((line, task))
    first.update(((task.id, task.query, task.targets), found.source) for _, task in out.tasks)
    return out


def dangling(found: RequestFile | Iterable[RequestFile], corpus: Collection[ToolId]) -> list[Dangling]:
    """The targets of kept requests that ``corpus`` does not hold, those that most requests want first."""
    wanted: dict[ToolId, list[tuple[str, int, str]]] = {}
    for part in [found] if isinstance(found, RequestFile) else found:
        for line, task in part.tasks:
            for target in task.targets:
                if target not in corpus:
                    wanted.setdefault(target, []).append((part.source, line, task.id))
    rows = [
        Dangling(target=target, requests=len(users), source=users[0][0], line=users[0][1], example=users[0][2])
        for target, users in wanted.items()
    ]
    return sorted(rows, key=lambda row: (-row.requests, str(row.target)))


# --- pieces of a record -------------------------------------------------------------------------------------------


def query_of(record: Any, key: str = "query") -> str:
    """The request as one line of text. Raises RequestProblem if the record is no object or has no such text."""
    if not isinstance(record, dict):
        raise RequestProblem("not an object", record)
    query = record.get(key)
    if not isinstance(query, str) or not query.strip():
        raise RequestProblem("request is not text", query)
    return " ".join(clean(query).split())


def list_of(record: dict[str, Any], key: str, query: str) -> list[Any]:
    """The list of targets. Raises RequestProblem if there is none or it is empty."""
    entries = record.get(key)
    if not isinstance(entries, list) or not entries:
        raise RequestProblem("request without targets", query)
    return entries


def id_of(record: dict[str, Any], key: str, line: int, repaired: list[str]) -> str:
    """The record's own id as text; without one ``line-N``, which counts as repaired."""
    value = record.get(key)
    text = shown(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not text:
        repaired.append("request without id; its line was taken")
    return text or f"line-{line}"


def target_of(category: Any, tool: Any, api: Any) -> ToolId:
    """Id of raw names, as the documentation readers make it. Raises RequestProblem where a name is empty."""
    try:
        return tool_id(category, tool, api)
    except (ToolDocError, ValidationError) as error:
        raise RequestProblem("target without names", " / ".join(map(shown, (category, tool, api)))) from error
