"""Scores of tool selection from trajectories: per group, with fixed denominators, intervals and paired differences.

``python -m evaluation.selection PREDICTIONS.jsonl`` computes them anew (``evaluation/selection_command.py``).

Contract: one `Trajectory` row per task. A task without a row, or without an answer, counts 0 in every score and stays
in the denominator. Tasks of the test-only domain (``meta["domain"] == "unseen"``) are a group of their own and never
part of ``overall``. All numbers are means over tasks (pooled, not means of level means).
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotools.config import run_main
from autotools.errors import DataError
from autotools.rundir import read_jsonl, sort_jsonl
from autotools.schema import EventKind, Task, Trajectory
from evaluation import metrics

UNSEEN = "unseen"
OVERALL = "overall"
LEVELS = ("I1", "I2", "I3")
PER_TASK = ("f1", "precision", "recall", "match", "srecall", "searches", "useless_searches", "answered")
MATCH_GIVEN_COMPLETE = "match_given_complete"
MATCH_BOTH_COMPLETE = "match_both_complete"
"""Match of two runs on the tasks whose targets both have seen: equal tasks, where two values of "match given complete"
are means over different ones (a run that finds more is also judged on the harder tasks)."""
SUMMARY = ("f1", "recall", "precision", "match", "srecall", "n")


@dataclass(frozen=True, kw_only=True)
class TaskScore:
    """All scores of one task. ``values`` has the keys of PER_TASK; ``complete`` = every target was shown.

    ``suite`` is "" where only predictions are known: they do not name it.
    """

    task_id: str
    level: str
    unseen: bool
    values: dict[str, float]
    complete: bool
    missing: bool = False
    num_targets: int = 0
    suite: str = ""


def grounded_prediction(trajectory: Trajectory) -> set[str]:
    """The selection as a set of names in which only grounded names can be hits.

    A name counts as grounded if some search of the trajectory has shown it. A selected tool that was never shown, and
    a name that no tool has, each become a marked text: they keep their place in the size of the set (so precision
    falls) but equal no target. Without this rule a small model can compose names from the request and skip the search.
    Rewards use this same function. Unanswered gives the empty set.
    """
    shown = {tool for event in trajectory.events for tool in event.hits}
    grounded = {str(tool) if tool in shown else f"(never shown) {tool}" for tool in trajectory.selection or ()}
    return grounded | {f"(no such tool) {name}" for name in trajectory.unknown_names}


def score_trajectory(trajectory: Trajectory) -> dict[str, float]:
    """Scores of one trajectory under the keys PER_TASK (shares in [0, 1]; the two search figures are counts)."""
    targets = {str(tool) for tool in trajectory.targets}
    answered = trajectory.selection is not None
    searches = [event.hits for event in trajectory.events if event.kind is EventKind.SEARCH]
    values = metrics.selection_scores(grounded_prediction(trajectory), targets)
    if not answered:
        values = dict.fromkeys(values, 0.0)
    values["srecall"] = metrics.srecall({str(tool) for tool in trajectory.found()}, targets)
    values["searches"] = float(len(searches))
    values["useless_searches"] = float(metrics.useless_searches(searches, trajectory.targets))
    values["answered"] = float(answered)
    return values


def _task_score(trajectory: Trajectory, task: Task | None = None) -> TaskScore:
    source = task or trajectory
    return TaskScore(
        task_id=trajectory.task_id,
        level=source.level,
        unseen=source.meta.get("domain") == UNSEEN,
        values=score_trajectory(trajectory),
        complete=set(trajectory.targets) <= trajectory.found(),
        num_targets=len(set(trajectory.targets)),
        suite=task.suite if task else "",
    )


def _missing_score(task: Task) -> TaskScore:
    return TaskScore(
        task_id=task.id,
        level=task.level,
        unseen=task.meta.get("domain") == UNSEEN,
        values=dict.fromkeys(PER_TASK, 0.0),
        complete=False,
        missing=True,
        num_targets=len(set(task.targets)),
        suite=task.suite,
    )


def score_tasks(trajectories: Iterable[Trajectory], tasks: Sequence[Task] | None = None) -> list[TaskScore]:
    """One score per task, in the order of ``tasks`` (or of the trajectories when no tasks are given).

    Raises DataError for two trajectories of one task, a trajectory of a task that is not in ``tasks``, or one that was
    played for other targets than its task has.
    """
    by_id: dict[str, Trajectory] = {}
    for trajectory in trajectories:
        if trajectory.task_id in by_id:
            raise DataError(f"two predictions for task {trajectory.task_id!r}; keep one row per task")
        by_id[trajectory.task_id] = trajectory
    if tasks is None:
        return [_task_score(trajectory) for trajectory in by_id.values()]
    stray = sorted(by_id.keys() - {task.id for task in tasks})
    if stray:
        raise DataError(f"{len(stray)} predictions of tasks that are not in the task file, first {stray[0]!r}")
    changed = [task.id for task in tasks if task.id in by_id and set(by_id[task.id].targets) != set(task.targets)]
    if changed:
        raise DataError(
            f"{len(changed)} predictions have other targets than the task file, first {changed[0]!r}; "
            "give the file that was played"
        )
    return [_task_score(by_id[task.id], task) if task.id in by_id else _missing_score(task) for task in tasks]


def group_scores(scores: Sequence[TaskScore]) -> dict[str, list[TaskScore]]:
    """Split into ``overall`` (without the unseen domain), each level (likewise), and ``unseen`` if there is one.

    The tool world's three levels all show, also without a task; another suite has the groups that its tasks name.
    Several suites: each has a group, and its levels are called ``suite/level``.
    """
    seen = [score for score in scores if not score.unseen]
    groups = {OVERALL: seen}
    suites = sorted({score.suite for score in seen})
    if len(suites) > 1:
        for suite in suites:
            groups[suite] = [score for score in seen if score.suite == suite]
            for level in sorted({score.level for score in groups[suite]}):
                groups[f"{suite}/{level}"] = [score for score in groups[suite] if score.level == level]
    else:
        found = {score.level for score in seen}
        for level in sorted({*LEVELS, *found} if found <= set(LEVELS) else found):
            groups[level] = [score for score in seen if score.level == level]
    unseen = [score for score in scores if score.unseen]
    return {**groups, UNSEEN: unseen} if unseen else groups


def target_groups(scores: Sequence[TaskScore]) -> dict[str, list[TaskScore]]:
    """Split ``overall`` by the number of targets: ``{"1 target": [...], "2 targets": [...]}``, fewest first."""
    seen = [score for score in scores if not score.unseen]
    return {
        f"{count} target{'' if count == 1 else 's'}": [score for score in seen if score.num_targets == count]
        for count in sorted({score.num_targets for score in seen})
    }


def metrics_table(scores: Sequence[TaskScore], *, seed: int) -> dict[str, dict[str, Any]]:
    """``table_of`` the groups of ``group_scores``."""
    return table_of(group_scores(scores), seed=seed)


def table_of(
    groups: Mapping[str, Sequence[TaskScore]], *, seed: int, keys: Sequence[str] = PER_TASK
) -> dict[str, dict[str, Any]]:
    """Per group: every mean, ``n``, ``missing``, ``complete`` (the count behind match_given_complete), and intervals.

    A mean over no tasks is None. ``intervals`` maps each score to its 95 % bootstrap interval ``[low, high]``.
    """
    table = {}
    for name, members in groups.items():
        columns = {key: [score.values[key] for score in members] for key in keys}
        columns[MATCH_GIVEN_COMPLETE] = [score.values["match"] for score in members if score.complete]
        row: dict[str, Any] = {key: metrics.mean(values) for key, values in columns.items()}
        row["n"] = len(members)
        row["missing"] = sum(score.missing for score in members)
        row["complete"] = len(columns[MATCH_GIVEN_COMPLETE])
        intervals = {key: metrics.bootstrap_interval(values, seed=seed) for key, values in columns.items()}
        row["intervals"] = {key: list(pair) if pair else None for key, pair in intervals.items()}
        table[name] = row
    return table


def paired_table(
    later: Sequence[TaskScore], earlier: Sequence[TaskScore], *, seed: int
) -> dict[str, dict[str, dict[str, Any]]]:
    """Per group and score of PER_TASK: ``{"diff": mean of later - earlier, "interval": [low, high]}`` over same tasks.

    ``MATCH_BOTH_COMPLETE`` as well, over the ``n`` tasks for which search was complete in both runs.

    Raises DataError if the two runs do not cover the same tasks (the names of the first few are given).
    """
    other = {score.task_id: score for score in earlier}
    odd = sorted(other.keys() ^ {score.task_id for score in later})
    if odd:
        raise DataError(
            f"paired difference needs the same tasks in both runs; {len(odd)} differ, e.g. {odd[:3]}; "
            "with the task file (--tasks) one that is missing counts as failed"
        )
    table: dict[str, dict[str, dict[str, Any]]] = {}
    for name, members in group_scores(later).items():
        table[name] = {
            key: metrics.paired_bootstrap(
                [score.values[key] for score in members],
                [other[score.task_id].values[key] for score in members],
                seed=seed,
            )
            for key in PER_TASK
        }
        shared = both_complete(members, other)
        pairs = [[run[task].values["match"] for task in shared] for run in ({s.task_id: s for s in members}, other)]
        table[name][MATCH_BOTH_COMPLETE] = {**metrics.paired_bootstrap(*pairs, seed=seed), "n": len(shared)}
    return table


def both_complete(scores: Iterable[TaskScore], other: Mapping[str, TaskScore]) -> list[str]:
    """Ids of the tasks whose targets were all seen in both runs."""
    return [score.task_id for score in scores if score.complete and other[score.task_id].complete]


def compare(runs: dict[str, Sequence[TaskScore]], *, seed: int) -> dict[str, Any]:
    """``{"policies": {name: metrics_table}, "paired": {"later-earlier": paired_table}}``; order of ``runs`` counts."""
    names = list(runs)
    pairs = [(later, earlier) for i, earlier in enumerate(names) for later in names[i + 1 :]]
    return {
        "policies": {name: metrics_table(scores, seed=seed) for name, scores in runs.items()},
        "paired": {f"{a}-{b}": paired_table(runs[a], runs[b], seed=seed) for a, b in pairs},
    }


def summary_form(table: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The short form for summary.json: ``{"overall": {f1, recall, precision, match, srecall, n}, "I1": ..}``."""
    return {name: {key: row[key] for key in SUMMARY} for name, row in table.items()}


def read_trajectories(path: Path, *, empty_ok: bool = False) -> list[Trajectory]:
    """Read ``predictions.jsonl``. Raises DataError naming the line: a dropped row would change the denominators.

    ``empty_ok``: the tasks are known, so that no prediction at all means that every task has failed.
    """
    if path.is_dir():
        files = sorted(str(p) for p in [*path.glob("predictions.jsonl"), *path.glob("*/predictions.jsonl")])
        hint = f"; name {' or '.join(files)}" if files else ", and no predictions.jsonl is in it"
        raise DataError(f"{path} is a folder{hint}")
    trajectories = read_jsonl(path, Trajectory)
    if not trajectories and not empty_ok:
        raise DataError(f"{path}: no predictions; run python -m evaluation.run first")
    if empty := [row.task_id for row in trajectories if not row.targets]:
        raise DataError(f"{path}: {len(empty)} predictions have no targets, first {empty[0]!r}; nothing can be scored")
    return trajectories


def sort_tasks(path: Path) -> tuple[list[tuple[int, Task]], list[dict[str, Any]]]:
    """(line, task) of a suite's task file, and rejects ``{"source", "line", "reason"}``: bad lines, repeated ids.

    Raises DataError if the file cannot be read or holds no usable task.
    """
    rows, rejects = sort_jsonl(path, Task)
    kept: dict[str, tuple[int, Task]] = {}
    for line, task in rows:
        first = kept.setdefault(task.id, (line, task))[0]
        if first != line:
            reason = f"duplicate id: {task.id} already stands in line {first}"
            rejects.append({"source": path.name, "line": line, "reason": reason, "task": task.id})
    if not kept:
        why = f"; first: line {rejects[0]['line']}: {rejects[0]['reason']}" if rejects else ""
        raise DataError(f"{path}: no tasks{why}; build the world first (python -m toolworld.build --out DIR)")
    return list(kept.values()), rejects


def read_tasks(path: Path) -> list[Task]:
    """The usable tasks of a file; how many lines were set aside is said on stderr. Raises DataError as ``sort_tasks``.

    A task that is left out is missing from the denominators.
    """
    tasks, rejects = sort_tasks(path)
    if rejects:
        first = f"first: line {rejects[0]['line']}: {rejects[0]['reason']}"
        print(f"warning: {path}: {len(rejects)} lines set aside; {first}", file=sys.stderr)
    return [task for _, task in tasks]


COLUMNS = ("f1", "recall", "precision", "match", "srecall", MATCH_GIVEN_COMPLETE, "searches", "answered")


def text_table(table: dict[str, dict[str, Any]], columns: Sequence[str] = COLUMNS) -> str:
    """Plain text: one line per group, one column per score, intervals below the means."""
    width = max(9, *(len(group) + 1 for group in table))
    lines = [f"{'group':<{width}}{'n':>6}" + "".join(f"{name[:16]:>17}" for name in columns)]
    for group, row in table.items():
        cells = (f"{'-' if row[name] is None else format(row[name], '.3f'):>17}" for name in columns)
        lines.append(f"{group:<{width}}{row['n']:>6}" + "".join(cells))
        if row["n"]:
            pairs = (row["intervals"][name] for name in columns)
            lines.append(" " * (width + 6) + "".join(f"{f'[{p[0]:.3f} {p[1]:.3f}]' if p else '':>17}" for p in pairs))
    return "\n".join(lines)


def text_differences(table: dict[str, dict[str, dict[str, Any]]], key: str = "f1") -> str:
    """One line per group: the paired difference of score ``key`` with its interval."""
    cells = {group: row[key] for group, row in table.items() if row[key]["diff"] is not None}
    width = max([9, *map(len, cells)])
    return "\n".join(
        f"{group:<{width}} {key} {cell['diff']:+.3f} [{cell['interval'][0]:+.3f} {cell['interval'][1]:+.3f}]"
        for group, cell in cells.items()
    )


def main(argv: list[str] | None = None) -> int:
    """Print the scores of a prediction file; see ``evaluation/selection_command.py``."""
    from evaluation.selection_command import main as command

    return command(argv)


if __name__ == "__main__":
    run_main(main)
