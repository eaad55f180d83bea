"""RestBench and AutoTools-Eval: the known solution is an ordered list of endpoints, with repetitions and counts.

Task.calls needs arguments, which these sets lack. So the whole solution stands in ``meta["solution"]``, as
``[[tool id text, number of calls], ...]`` in calling order; ``targets`` are its tools, each once.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotools.docs.files import stem_of
from autotools.docs.reading import as_list
from autotools.queries.files import read_list
from autotools.queries.found import RequestFile, RequestProblem, id_of, list_of, query_of, target_of
from autotools.schema import Task, ToolId, ToolSpec

_ENDPOINT = re.compile(r"(GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS)\s+(/\S*)", re.I)
_VARIABLE = re.compile(r"\{[^{}/]*\}|:[A-Za-z_]\w*")


def read_autotools(path: str | Path, *, suite: str = "autotools_eval", split: str = "test") -> RequestFile:
    """A file of the AutoTools repository: AutoTools-Eval, or RestBench with its endpoints renamed (give ``suite``).

    Tools are endpoint names of the file ``DATASET.json``: category = tool = ``dataset``, api = the name. An entry of
    ``solution`` is a name or a pair of name and count. ``qid`` is unique only with data set and file, so the task id
    is ``suite/dataset/qid``. ``meta["candidates"]``: ids of ``api_list``, sorted, because in some files the
    solution stands first. Raises DataError if the file is not a JSON list.
    """

    def task_of(record: Any, line: int, repaired: list[str]) -> Task:
        query = query_of(record)
        dataset = record.get("dataset")
        if not isinstance(dataset, str) or not dataset.strip():
            raise RequestProblem("request without dataset", dataset)
        solution = [_counted(entry, dataset) for entry in list_of(record, "solution", query)]
        candidates = _candidates(record.get("api_list"), dataset, repaired)
        if candidates and not {str(tool) for tool, _ in solution} <= set(candidates):
            repaired.append("a tool of the solution is not in its api_list; kept")
        dataset = solution[0][0].category
        task_id = f"{suite}/{dataset}/{id_of(record, 'qid', line, repaired)}"
        return _task(task_id, suite, split, dataset, query, solution, {"candidates": candidates})

    return read_list(Path(path), suite, task_of)


def read_restbench(
    path: str | Path, specs: Sequence[ToolSpec] = (), *, suite: str = "restbench", split: str = "test"
) -> RequestFile:
    """A RestBench file in its first form: ``solution`` is an ordered list of ``METHOD /path``.

    Ids are those of ``specs`` (its OpenAPI document, read by ``autotools.docs``) with that method and path; the names
    of path variables may differ, which counts as repaired. An endpoint that no spec has becomes
    ``restbench.STEM.get_path`` and is found dangling later; one that two specs have makes the request a reject.
    Task ids are ``suite/STEM/NUMBER``: the form has no ids. Raises DataError if the file is not a JSON list.
    """
    path = Path(path)
    stem = stem_of(path)
    exact: dict[str, set[ToolId]] = {}
    by_shape: dict[str, set[ToolId]] = {}
    for spec in (spec for spec in specs if spec.path):
        exact.setdefault(_key(spec.method, spec.path), set()).add(spec.id)
        by_shape.setdefault(_shape(_key(spec.method, spec.path)), set()).add(spec.id)

    def task_of(record: Any, line: int, repaired: list[str]) -> Task:
        query = query_of(record)
        entries = list_of(record, "solution", query)
        solution = [(_resolve(entry, exact, by_shape, stem, repaired), 1) for entry in entries]
        return _task(f"{suite}/{stem}/{line}", suite, split, stem, query, solution, {})

    return read_list(path, suite, task_of)


def _task(
    task_id: str, suite: str, split: str, level: str, query: str, solution: list[tuple[ToolId, int]], meta: dict
) -> Task:
    targets = tuple(dict.fromkeys(tool for tool, _ in solution))  # a tool called again is no fault in these sets
    meta = {"solution": [[str(tool), number] for tool, number in solution], **meta}
    return Task(id=task_id, suite=suite, split=split, level=level, query=query, targets=targets, meta=meta)


def _counted(entry: Any, dataset: str) -> tuple[ToolId, int]:
    name, number = entry if isinstance(entry, list) and len(entry) == 2 else (entry, 1)
    if not isinstance(name, str):
        raise RequestProblem("solution entry is neither a name nor a pair of name and count", entry)
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise RequestProblem("count of a solution entry is no number above 0", f"{name}: {type(number).__name__}")
    return target_of(dataset, dataset, name), number


def _candidates(api_list: Any, dataset: str, repaired: list[str]) -> list[str]:
    """Ids of ``api_list``: names, objects with ``api_name``, or a map from name to URL."""
    entries = list(api_list) if isinstance(api_list, dict) else as_list(api_list)
    out = set()
    for entry in entries:
        try:
            out.add(str(target_of(dataset, dataset, entry.get("api_name") if isinstance(entry, dict) else entry)))
        except RequestProblem:
            repaired.append("candidate without a name left out")
    return sorted(out)


def _key(method: str, path: str) -> str:
    return f"{method.upper()} {path.rstrip('/') or '/'}"


def _shape(key: str) -> str:
    return _VARIABLE.sub("{}", key)


def _resolve(
    entry: Any, exact: dict[str, set[ToolId]], by_shape: dict[str, set[ToolId]], stem: str, repaired: list[str]
) -> ToolId:
    match = _ENDPOINT.fullmatch(entry.strip()) if isinstance(entry, str) else None
    if not match:
        raise RequestProblem("solution entry is not METHOD /path", entry)
    key = _key(*match.groups())
    found = exact.get(key)
    if not found and (found := by_shape.get(_shape(key))):
        repaired.append("path variable has another name in the document")
    if not found:
        return target_of("restbench", stem, key)
    if len(found) > 1:
        raise RequestProblem("endpoint of two tools", f"{key}: {', '.join(sorted(map(str, found)))}")
    return next(iter(found))
