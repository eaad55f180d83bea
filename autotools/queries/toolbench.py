"""Query files of ToolBench, StableToolBench and AnyToolBench: one JSON list of requests each."""

from pathlib import Path
from typing import Any

from autotools.docs.reading import as_list, shown
from autotools.queries.files import read_list
from autotools.queries.found import RequestFile, RequestProblem, id_of, list_of, query_of, target_of
from autotools.schema import Task, ToolId


def read_toolbench(path: str | Path, *, suite: str, split: str) -> RequestFile:
    """A ToolBench or StableToolBench query file; the level is the file's stem (``G1_instruction``).

    ``relevant APIs`` are pairs of names without category: it is looked up in the record's own ``api_list``.
    Raises DataError if the file is not a JSON list.
    """
    path = Path(path)

    def task_of(record: Any, line: int, repaired: list[str]) -> Task:
        query = query_of(record)
        targets = _named_pairs(record, list_of(record, "relevant APIs", query))
        task_id = f"{suite}/{path.stem}/{id_of(record, 'query_id', line, repaired)}"
        return Task(id=task_id, suite=suite, split=split, level=path.stem, query=query, targets=tuple(targets))

    return read_list(path, suite, task_of)


def read_anytoolbench(path: str | Path, *, split: str, suite: str = "anytoolbench") -> RequestFile:
    """An AnyToolBench file: ``gt_api_list`` holds whole names. For training only (AnyTool's own evaluation data).

    Raises DataError if the file is not a JSON list.
    """

    def task_of(record: Any, line: int, repaired: list[str]) -> Task:
        query = query_of(record)
        names = [_api_names(api) for api in list_of(record, "gt_api_list", query)]
        if None in names:
            raise RequestProblem("target without names", record["gt_api_list"][names.index(None)])
        targets = tuple(target_of(*name) for name in names if name)
        task_id = f"{suite}/{id_of(record, 'query_id', line, repaired)}"
        return Task(id=task_id, suite=suite, split=split, level="AnyToolBench", query=query, targets=targets)

    return read_list(Path(path), suite, task_of)


def _named_pairs(record: dict[str, Any], pairs: list[Any]) -> list[ToolId]:
    """Targets of ``relevant APIs``. Raises RequestProblem if a pair is not (clearly) in the ``api_list``."""
    categories: dict[tuple[str, str], set[str]] = {}
    for names in filter(None, map(_api_names, as_list(record.get("api_list")))):
        categories.setdefault(names[1:], set()).add(names[0])
    targets = []
    for pair in pairs:
        parts = pair if isinstance(pair, list) else [pair]
        key = tuple(part if isinstance(part, str) else shown(part) for part in parts)
        found = categories.get(key, set())
        if len(found) != 1:
            reason = "relevant API in two categories" if found else "relevant API not in the api_list"
            raise RequestProblem(reason, " / ".join(key))
        targets.append(target_of(*found, *key))
    return targets


def _api_names(api: Any) -> tuple[str, str, str] | None:
    if not isinstance(api, dict):
        return None
    names = tuple(api.get(key) for key in ("category_name", "tool_name", "api_name"))
    return names if all(isinstance(name, str) and name for name in names) else None
