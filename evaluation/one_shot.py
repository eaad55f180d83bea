"""The baseline without a policy: one search with the raw request, whose first k hits are the answer."""

from collections.abc import Sequence
from typing import Any

from autotools.schema import Event, EventKind, StopReason, Task, Trajectory
from evaluation.selection import score_tasks

ONE_SHOT_KS = (1, 2, 3, 4, 5)


def one_shot(tasks: Sequence[Task], engine: Any, shown: int, k: int) -> list[Trajectory]:
    """One search with the raw request that shows ``shown`` hits; the first ``k`` of them are the answer."""
    results = engine.search_batch([task.query for task in tasks], None, max(shown, k))
    trajectories = []
    for task, hits in zip(tasks, results, strict=True):
        ids = tuple(hit.id for hit in hits)
        search = Event(kind=EventKind.SEARCH, text=task.query, query=task.query, hits=ids)
        answer = Event(kind=EventKind.ANSWER, text=", ".join(str(tool) for tool in ids[:k]))
        trajectories.append(
            Trajectory(
                task_id=task.id,
                query=task.query,
                targets=tuple(dict.fromkeys(task.targets)),
                events=(search, answer),
                selection=ids[:k],
                stop_reason=StopReason.ANSWERED,
                level=task.level,
                meta=task.meta,
            )
        )
    return trajectories


def choose_k(dev: Sequence[Task], engine: Any, ks: Sequence[int] = ONE_SHOT_KS) -> tuple[int, dict[int, float]]:
    """The k with the best mean F1 on the dev tasks (the smaller one on a tie), and the F1 of each k."""
    f1 = {}
    for k in ks:
        scores = [s.values["f1"] for s in score_tasks(one_shot(dev, engine, max(ks), k)) if not s.unseen]
        f1[k] = sum(scores) / len(scores) if scores else 0.0
    return max(f1, key=lambda k: (f1[k], -k)), f1
