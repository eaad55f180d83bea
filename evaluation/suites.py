"""Which requests are played: a world folder's task files, or StableToolBench and ToolLens in their original files.

Every request is either played or a reject with its reason (kept + rejected = read).
"""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotools.errors import ConfigError, DataError
from autotools.queries.places import STABLETOOLBENCH, TOOLLENS
from autotools.schema import Task
from autotools.search.answer import NameIndex
from evaluation.selection import sort_tasks

if TYPE_CHECKING:
    from autotools.queries import RequestFile

SUITES = ("toolworld", "stabletoolbench", "toollens")
PLACES = {  # below --queries: where the files of a suite lie, the folder itself at last
    "stabletoolbench": (STABLETOOLBENCH, "solvable_queries/test_instruction", "."),
    "toollens": (TOOLLENS, "datasets/ToolLens", "ToolLens", "."),
}
SPLITS = {"stabletoolbench": ("test",), "toollens": ("train", "test")}
DEV_SHARE = 500  # train requests at most on which the one-shot baseline chooses k


@dataclass(frozen=True, kw_only=True)
class Requests:
    """What is played. ``rejected``: requests of the played split that cannot be; ``set_aside``: those of ``dev``.

    ``dev``: requests on which the one-shot baseline chooses k (empty: there are none). ``note``: what the split is.
    """

    tasks: list[Task]
    rejected: list[dict[str, Any]]
    dev: list[Task] = field(default_factory=list)
    set_aside: list[dict[str, Any]] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    note: str = ""


def known_tasks(
    tasks: Sequence[tuple[int, Task]], names: NameIndex, source: str
) -> tuple[list[Task], list[dict[str, Any]]]:
    """Of (line, task) those whose targets all are in the corpus, and the others as rejects (they can't be found).

    kept + rejected = read.
    """
    kept, rejected = [], []
    for number, task in tasks:
        absent = [str(tool) for tool in task.targets if names.find(str(tool)) != tool]
        if absent or not task.targets:
            reason = f"target not in the corpus: {', '.join(absent)}" if absent else "task without targets"
            rejected.append({"source": source, "line": number, "reason": reason, "task": task.id})
        else:
            kept.append(task)
    return kept, rejected


def draw(tasks: list[Task], limit: int, seed: int) -> list[Task]:
    """A seeded sample of ``limit`` tasks in file order; all of them for 0."""
    if not limit or limit >= len(tasks):
        return tasks
    return [tasks[i] for i in sorted(random.Random(seed).sample(range(len(tasks)), limit))]


# --- a world folder -----------------------------------------------------------------------------------------------


def task_file(world: str, split: str) -> Path:
    """The tasks of a split. Raises DataError with the splits there are."""
    path = Path(world) / "tasks" / f"{split}.jsonl"
    there = sorted(file.stem for file in path.parent.glob("*.jsonl"))
    if there and split not in there:
        raise DataError(f"no split {split!r} in {path.parent}; there are {', '.join(there)}")
    return path


def read_world(world: str, suite: str, split: str, names: NameIndex, *, dev: bool) -> Requests:
    """Requests of a world folder's split; of a suite other than toolworld only those that name it.

    Raises DataError if none is usable.
    """
    path = task_file(world, split)
    tasks, rejected = _usable(path, names, "" if suite == "toolworld" else suite)
    note = ""
    if suite == "toollens" and split != "test":
        note = f"ToolLens requests of {split}.jsonl, which data_synthesis.build uses for its {split} records"
    more, aside = _usable(task_file(world, "dev"), names, "") if dev else ([], [])
    aside = aside if split != "dev" else []  # said once
    return Requests(tasks=tasks, rejected=rejected, dev=more, set_aside=aside, files=[path], note=note)


def _usable(path: Path, names: NameIndex, suite: str) -> tuple[list[Task], list[dict[str, Any]]]:
    rows, unusable = sort_tasks(path)
    mine = [(line, task) for line, task in rows if suite in ("", task.suite)]
    if not mine:
        others = ", ".join(sorted({task.suite for _, task in rows}))
        raise DataError(
            f"{path}: no request of suite {suite!r}, only of {others}; name the original files: --queries DIR"
        )
    tasks, rejected = known_tasks(mine, names, path.name)
    if not tasks:
        raise DataError(f"{path}: no task has its targets in the corpus (first: {rejected[0]['reason']})")
    for line, task in rows if suite else ():
        if task.suite != suite:
            row = {"source": path.name, "line": line, "reason": f"request of another suite: {task.suite}"}
            rejected.append({**row, "task": task.id})
    return tasks, sorted([*unusable, *rejected], key=lambda row: row["line"])


# --- original files -----------------------------------------------------------------------------------------------


def suite_files(queries: str, suite: str) -> list[Path]:
    """The files of a suite below ``queries`` (ToolLens: its folder). Raises DataError if they are not there."""
    from autotools.queries.forms import is_colt

    if suite not in PLACES:
        raise ConfigError(f"--queries is for the suites {', '.join(PLACES)}; {suite} needs --world")
    for place in PLACES[suite]:
        folder = Path(queries) / place
        found = [folder] if suite == "toollens" and is_colt(folder) else []
        if suite == "stabletoolbench":
            found = sorted(folder.glob("G[123]_*.json"))
        if found:
            return found
    raise DataError(f"no {suite} below {queries}; looked for {', '.join(PLACES[suite][:-1])}")


def check_split(suite: str, split: str) -> None:
    """Raise ConfigError for a split that the original files do not have."""
    if split not in SPLITS[suite]:
        has = f"only {SPLITS[suite][0]}: it has no splits" if len(SPLITS[suite]) == 1 else " and ".join(SPLITS[suite])
        raise ConfigError(f"{suite} has no split {split!r}, {has}")


def read_stabletoolbench(queries: str, corpus: Collection[Any], split: str = "test") -> Requests:
    """All StableToolBench requests whose targets ``corpus`` holds; the level is the file (``G1_instruction``)."""
    from autotools.queries import read_toolbench, sort_out

    check_split("stabletoolbench", split)
    files = suite_files(queries, "stabletoolbench")
    parts = [sort_out(read_toolbench(file, suite="stabletoolbench", split="test"), corpus) for file in files]
    note = "StableToolBench has no splits: all its requests are for testing, and no training data is made of them"
    return _requests(parts, files, queries, note)


def read_toollens(queries: str, corpus: Collection[Any], split: str = "test", *, dev: bool, seed: int = 0) -> Requests:
    """ToolLens requests of a split. Those of ``test`` are in no training data: that is made of ``train`` alone.

    A test request with the words of a train request is a reject. Dev is a draw from the train requests.
    """
    from autotools.queries import normalised, read_colt, sort_out

    check_split("toollens", split)
    (folder,) = suite_files(queries, "toollens")
    files = [folder / name for name in ("corpus.jsonl", "queries.jsonl", "qrels/train.tsv", "qrels/test.tsv")]
    train = read_colt(folder, split="train", suite="toollens")
    found = sort_out(train if split == "train" else read_colt(folder, split="test", suite="toollens"), corpus)
    note = "ToolLens train requests: training data is made of them"
    if split == "test":
        words = {normalised(task.query) for _, task in train.tasks}
        for line, task in [row for row in found.tasks if normalised(row[1].query) in words]:
            found.reject(line, "request is also a train request", task.id)
        found.tasks = [row for row in found.tasks if normalised(row[1].query) not in words]
        sets = {frozenset(task.targets) for _, task in train.tasks}
        again = sum(frozenset(task.targets) in sets for _, task in found.tasks)
        note = (
            "ToolLens' own test split (qrels/test.tsv): training data is made of its train split only; "
            f"{again} of {len(found.tasks)} requests want a set of tools that a train request wants in other words"
        )
    known = [task for _, task in sort_out(train, corpus).tasks] if dev else []
    requests = _requests([found], [path for path in files if path.is_file()], queries, note)
    return Requests(
        tasks=requests.tasks,
        rejected=requests.rejected,
        dev=draw(known, DEV_SHARE, seed),
        files=requests.files,
        note=note,
    )


def _requests(parts: Sequence["RequestFile"], files: list[Path], queries: str, note: str) -> Requests:
    tasks = [task for part in parts for _, task in part.tasks]
    rejected = [row for part in parts for row in part.rejects]
    if not tasks:
        why = f" (first: {rejected[0]['source']}:{rejected[0]['line']}: {rejected[0]['reason']})" if rejected else ""
        raise DataError(f"{queries}: no request has its targets in the corpus{why}")
    return Requests(tasks=tasks, rejected=rejected, files=files, note=note)
