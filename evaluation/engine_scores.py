"""What the retriever gives on the same requests, to stand beside a policy's scores: ceiling, equal budget, confusion.

- ``ceiling_*``: the share of a request's targets that ``max_turns - 1`` searches can show (``retriever/ceiling.py``),
  each target's own document as the query (``ceiling_document``) or the request as it is (``ceiling_request``).
- ``same_*``: the plain retriever, given as many documents as the policy saw (summed over its searches, repeated ones
  counted), all of which count as selected: the ToolSearcher repository's eval_same_topk.
- ``confusion_*``: ``evaluation/metrics.confusion_scores`` over the vectors of a dense index.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from autotools.errors import DataError
from autotools.schema import Task, ToolId, ToolSpec, Trajectory
from evaluation import metrics
from evaluation.selection import TaskScore
from retriever.ceiling import shares_seen
from retriever.engine import SearchEngine

CEILINGS = {"ceiling_document": "own_document", "ceiling_request": "user_query"}
SAME = ("same_f1", "same_recall", "same_match")
CONFUSION = ("confusion_max", "confusion_top", "confusion_mean")

Extra = dict[str, dict[str, float]]  # task id -> further scores of it


def with_extra(scores: Sequence[TaskScore], extras: Iterable[Extra]) -> list[TaskScore]:
    """The same scores, each with the further values of its task."""
    extras = list(extras)
    return [replace(s, values={**s.values, **{k: v for e in extras for k, v in e[s.task_id].items()}}) for s in scores]


def requests_of(trajectories: Iterable[Trajectory]) -> list[Task]:
    """The tasks that predictions tell of, where no task file is given."""
    return [
        Task(id=t.task_id, suite="", split="", level=t.level, query=t.query, targets=tuple(dict.fromkeys(t.targets)))
        for t in trajectories
    ]


# --- ceiling ------------------------------------------------------------------------------------------------------


def ceilings(
    engine: SearchEngine, tasks: Sequence[Task], specs: Mapping[ToolId, ToolSpec], *, turns: int, k: int
) -> Extra:
    """``{task id: {ceiling_document, ceiling_request}}``. Raises DataError for a target that ``specs`` lacks."""
    for task in tasks:
        if lost := [str(target) for target in task.targets if target not in specs]:
            raise DataError(
                f"target {lost[0]} of task {task.id!r} is not in the corpus; give the corpus that was played"
            )
    shares = shares_seen(engine, tasks, specs, turns=turns, k=k)
    return {task.id: {key: shares[name][i] for key, name in CEILINGS.items()} for i, task in enumerate(tasks)}


def read_ceilings(path: Path, encoder: str, ids: Sequence[str]) -> tuple[Extra, dict[str, Any]]:
    """Ceilings of the tasks ``ids`` from a file of ``retriever.evaluate --out``, and ``{"turns", "k"}`` of it.

    ``encoder``: whose, if the file holds several. Raises DataError if the file, the encoder or a task is not there.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if "encoders" in content:
            if encoder not in content["encoders"]:
                raise DataError(
                    f"{path} holds {', '.join(content['encoders'])}, not {encoder}; name one with --encoder"
                )
            content = content["encoders"][encoder]
        found = content["ceiling"]
        rows, limits = found["by_request"], {"turns": int(found["turns"]), "k": int(found["k"])}
        if lost := [task_id for task_id in ids if task_id not in rows]:
            raise DataError(f"{path} has no ceiling for {len(lost)} of {len(ids)} tasks, first {lost[0]!r}")
        return {i: {key: float(rows[i][name]) for key, name in CEILINGS.items()} for i in ids}, limits
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        hint = "write it with python -m retriever.evaluate ... --out FILE"
        raise DataError(
            f"{path} is no result of retriever.evaluate with ceilings per request ({error!r}); {hint}"
        ) from error


# --- equal budget -------------------------------------------------------------------------------------------------


def same_budget(engine: SearchEngine, tasks: Sequence[Task], shown: Mapping[str, Sequence[Sequence[ToolId]]]) -> Extra:
    """``{task id: {same_f1, same_recall, same_match}}``: the retriever's first n documents for the raw request.

    ``shown``: per task id, what each search showed; n is their number in all. No document (nothing searched, or no
    prediction) scores 0.
    """
    budgets = {task.id: sum(map(len, shown.get(task.id, ()))) for task in tasks}
    deepest = max(budgets.values(), default=0)
    asked = [task for task in tasks if budgets[task.id]]
    results = engine.search_batch([task.query for task in asked], None, deepest) if asked else []
    first = {task.id: [hit.id for hit in hits[: budgets[task.id]]] for task, hits in zip(asked, results, strict=True)}
    out = {}
    for task in tasks:
        scores = metrics.selection_scores(first.get(task.id, ()), task.targets)
        out[task.id] = {name: scores[name.removeprefix("same_")] for name in SAME}
    return out


# --- confusion ----------------------------------------------------------------------------------------------------


def confusion(
    tasks: Sequence[Task], shown: Mapping[str, Sequence[Sequence[ToolId]]], vectors: Mapping[str, np.ndarray]
) -> Extra:
    """``{task id: {confusion_max, confusion_top, confusion_mean}}``; ``vectors``: tool id as text -> [d].

    Raises DataError for a tool without a vector.
    """
    out = {}
    for task in tasks:
        targets, seen = set(task.targets), {tool for hits in shown.get(task.id, ()) for tool in hits}
        found, others = _rows(targets & seen, vectors), _rows(seen - targets, vectors)
        out[task.id] = metrics.confusion_scores(found, others, len(targets - seen))
    return out


def _rows(tools: Iterable[ToolId], vectors: Mapping[str, np.ndarray]) -> np.ndarray:
    """Vectors of ``tools`` in order of their names, [n, d]; [0, 0] for none."""
    names = sorted(map(str, tools))
    if lost := [name for name in names if name not in vectors]:
        raise DataError(f"no vector for {lost[0]}: the index was built of another corpus; build it again")
    return np.array([vectors[name] for name in names]) if names else np.empty((0, 0))


def index_vectors(folder: str | Path) -> dict[str, np.ndarray]:
    """Vector of every tool of an index folder. Raises RetrieverError if there is none or it is broken."""
    from retriever.index import load_index

    stored = load_index(folder)
    return dict(zip(stored.ids, stored.matrix, strict=True))
