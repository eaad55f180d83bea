"""Readers of public request files with known target tools: ToolBench, StableToolBench, AnyToolBench and COLT.

Each gives Tasks whose targets are ToolIds made from the names in the file (category as it is, tool and API name
standardised). The readers know no corpus: ``sort_out`` sets aside requests with targets that it does not hold. Every
record is either a task or a reject with source, line (record number, from 1) and reason.
"""

import csv
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotools.errors import DataError
from autotools.rundir import read_jsonl
from autotools.schema import Task, ToolId

_COLT_DOCUMENT = re.compile(  # cut by its key words: descriptions hold commas and colons themselves
    r"category_name:(.*?), tool_name:(.*?), api_name:(.*?), api_description:.*, required_params: ", re.S
)


@dataclass(kw_only=True)
class RequestFile:
    """What one file gave. ``tasks`` holds (line, task); ``repaired`` counts what was mended in tasks that were kept."""

    source: str
    tasks: list[tuple[int, Task]] = field(default_factory=list)
    rejects: list[dict[str, Any]] = field(default_factory=list)
    repaired: Counter[str] = field(default_factory=Counter)

    @property
    def read(self) -> int:
        """Records of the file: kept + rejected."""
        return len(self.tasks) + len(self.rejects)

    def reject(self, line: int, reason: str, detail: str = "") -> None:
        """One record cannot be used."""
        self.rejects.append({"source": self.source, "line": line, "reason": reason, "detail": detail})

    def keep(self, line: int, task: Task) -> None:
        """One usable record. Targets named twice count once."""
        unique = tuple(dict.fromkeys(task.targets))
        if len(unique) < len(task.targets):
            self.repaired["target named twice"] += 1
            task = task.model_copy(update={"targets": unique})
        self.tasks.append((line, task))


def normalised(query: str) -> str:
    """Words of a request in lower case, blanks between: two requests with the same form count as the same."""
    return " ".join(re.findall(r"[^\W_]+", query.casefold()))


def read_toolbench(path: str | Path, *, suite: str, split: str) -> RequestFile:
    """A ToolBench or StableToolBench query file; the level is the file's stem (``G1_instruction``).

    ``relevant APIs`` are pairs of names without category: it is looked up in the record's own ``api_list``.
    Raises DataError if the file is not a JSON list.
    """
    path = Path(path)
    out = RequestFile(source=f"{suite}/{path.name}")
    for line, record in enumerate(_json_list(path), 1):
        problem = _query_problem(record, "relevant APIs")
        targets: list[ToolId] = []
        if not problem:
            problem = _named_pairs(record, targets)
        if problem:
            out.reject(line, *problem)
            continue
        task_id = f"{suite}/{path.stem}/{record.get('query_id', line)}"
        out.keep(line, _task(task_id, suite, split, path.stem, record["query"], targets))
    return out


def read_anytoolbench(path: str | Path, *, split: str) -> RequestFile:
    """An AnyToolBench file: ``gt_api_list`` holds whole names. For training only (AnyTool's own evaluation data)."""
    path = Path(path)
    out = RequestFile(source=f"anytoolbench/{path.name}")
    for line, record in enumerate(_json_list(path), 1):
        problem = _query_problem(record, "gt_api_list")
        if not problem:
            names = [_api_names(api) for api in record["gt_api_list"]]
            if None in names:
                problem = ("target without names", str(record["gt_api_list"])[:200])
        if problem:
            out.reject(line, *problem)
            continue
        targets = [ToolId.make(*name) for name in names if name]
        task_id = f"anytoolbench/{record.get('query_id', line)}"
        out.keep(line, _task(task_id, "anytoolbench", split, "AnyToolBench", record["query"], targets))
    return out


def read_colt(folder: str | Path, *, split: str) -> RequestFile:
    """A COLT data set in BEIR form: the requests of ``qrels/SPLIT.tsv``, with the set's name as level.

    Targets are the documents with a score above 0, as ToolIds made from the names in their text; documents never
    become tools of their own. A document that names no API stays as ``colt.document.NUMBER`` and is found dangling
    later. Lines are those of ``queries.jsonl`` (of the qrels file where the request has no text).
    """
    folder = Path(folder)
    suite, out = folder.name.lower(), RequestFile(source=f"{folder.name}/queries.jsonl")
    documents = {str(row.get("_id")): row for row in _rows(folder / "corpus.jsonl")}
    relevant = {name: _qrels(folder / "qrels" / f"{name}.tsv") for name in ("train", "test")}
    if split not in relevant:
        raise DataError(f"{folder} has no split {split!r}; give train or test")
    wanted = dict(relevant[split])
    for line, row in enumerate(_rows(folder / "queries.jsonl"), 1):
        name, text = str(row.get("_id")), row.get("text")
        if not any(name in qrels for qrels in relevant.values()):
            out.reject(line, "request without relevant documents", name)
        if name not in wanted:
            continue
        found = wanted.pop(name)
        if not isinstance(text, str) or not text.strip():
            out.reject(line, "request is not text", name)
        else:
            targets = [_colt_id(documents.get(number), number) for number in found]
            out.keep(line, _task(f"{suite}/{name}", suite, split, folder.name, text, targets))
    for name in wanted:
        out.reject(0, "request of the qrels has no text", name)
    return out


def sort_out(found: RequestFile, corpus: Collection[ToolId]) -> RequestFile:
    """The same file with every request whose targets are not all in ``corpus`` moved to the rejects, named."""
    out = RequestFile(source=found.source, rejects=list(found.rejects), repaired=Counter(found.repaired))
    for line, task in found.tasks:
        missing = [str(target) for target in task.targets if target not in corpus]
        if missing:
            out.reject(line, "target not in the corpus", ", ".join(missing))
        else:
            out.tasks.append((line, task))
    return out


def _task(task_id: str, suite: str, split: str, level: str, query: str, targets: Iterable[ToolId]) -> Task:
    query = " ".join(query.split())
    return Task(id=task_id, suite=suite, split=split, level=level, query=query, targets=tuple(targets))


def _query_problem(record: Any, targets: str) -> tuple[str, str] | None:
    if not isinstance(record, dict):
        return "not an object", str(record)[:200]
    query = record.get("query")
    if not isinstance(query, str) or not query.strip():
        return "request is not text", str(query)[:200]
    if not isinstance(record.get(targets), list) or not record[targets]:
        return "request without targets", query[:200]
    return None


def _named_pairs(record: dict[str, Any], targets: list[ToolId]) -> tuple[str, str] | None:
    """Fill ``targets`` from ``relevant APIs``; the problem if a pair is not (clearly) in the ``api_list``."""
    categories: dict[tuple[str, str], set[str]] = {}
    for names in filter(None, map(_api_names, record.get("api_list") or [])):
        categories.setdefault(names[1:], set()).add(names[0])
    for pair in record["relevant APIs"]:
        key = tuple(pair) if isinstance(pair, list) else (pair,)
        found = categories.get(key, set())
        if len(found) != 1:
            reason = "relevant API not in the api_list" if not found else "relevant API in two categories"
            return reason, " / ".join(map(str, key))
        targets.append(ToolId.make(*found, *key))
    return None


def _api_names(api: Any) -> tuple[str, str, str] | None:
    if not isinstance(api, dict):
        return None
    names = tuple(api.get(key) for key in ("category_name", "tool_name", "api_name"))
    return names if all(isinstance(name, str) and name for name in names) else None


def _colt_id(document: dict[str, Any] | None, number: str) -> ToolId:
    match = _COLT_DOCUMENT.match(str((document or {}).get("text")))
    return ToolId.make(*match.groups()) if match else ToolId(category="colt", tool="document", api=number)


def _json_list(path: Path) -> list[Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot read ({error.strerror})") from error
    except ValueError as error:
        raise DataError(f"{path}: not JSON: {error}") from error
    if not isinstance(content, list):
        raise DataError(f"{path}: not a list of requests")
    return content


def _rows(path: Path) -> list[dict[str, Any]]:
    rows = read_jsonl(path)
    bad = next((number for number, row in enumerate(rows, 1) if not isinstance(row, dict)), None)
    if bad:
        raise DataError(f"{path}: record {bad} is not an object")
    return rows


def _qrels(path: Path) -> dict[str, list[str]]:
    """Request -> documents with a score above 0, in file order."""
    out: dict[str, list[str]] = {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for number, row in enumerate(csv.DictReader(file, delimiter="\t"), 2):
                try:
                    relevant = float(row["score"]) > 0
                    query, document = row["query-id"], row["corpus-id"]
                except (KeyError, TypeError, ValueError) as error:
                    raise DataError(f"{path}:{number}: not query-id, corpus-id, score") from error
                if relevant:
                    out.setdefault(query, []).append(document)
    except OSError as error:
        raise DataError(f"{path}: cannot read ({error.strerror})") from error
    return out
