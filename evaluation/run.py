"""``python -m evaluation.run``: play the test requests with each policy, greedily, and score them on the same tasks.

    python -m evaluation.run --world runs/q/world --out runs/q/eval \\
        --policies bm25_oneshot=bm25 before=runs/q/sft after=runs/q/rl

A policy is ``name=bm25`` (one search with the raw request, its first k hits are the answer; k is chosen on the dev
split by F1) or ``name=CHECKPOINT`` (a model folder, played through the one search episode). Writes
``OUT/<name>/predictions.jsonl`` (one Trajectory per task), ``OUT/metrics.json``, ``OUT/rejected.jsonl`` and, last,
``OUT/manifest.json``. Paired differences are made for every two policies, the later named minus the earlier.
"""

import random
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotools.config import load_config, run_main
from autotools.errors import ConfigError, DataError
from autotools.llm.loading import check_dtype, check_model
from autotools.rundir import check_run, open_run, sha256_file, write_json, write_jsonl, write_manifest
from autotools.schema import Event, EventKind, StopReason, Task, Trajectory
from autotools.search.answer import NameIndex
from autotools.search.episode import Episode, SearchSettings
from evaluation.selection import UNSEEN, compare, score_tasks, sort_tasks, text_differences, text_table

SUITES = ("toolworld", "stabletoolbench")
ONE_SHOT_KS = (1, 2, 3, 4, 5)
LOW_ANSWERED_SHARE = 0.8  # below it a policy has probably collapsed into searching without end
_NAME = re.compile(r"[A-Za-z0-9_.]+")


@dataclass(kw_only=True)
class EvalArgs:
    """Keys of the command."""

    world: str = field(metadata={"help": "tool world folder (tools.jsonl, tasks/)"})
    out: str = field(metadata={"help": "new folder for predictions and metrics"})
    policies: list[str] = field(metadata={"help": "name=bm25 or name=CHECKPOINT, one or several, in order"})
    suite: str = field(default="toolworld", metadata={"help": "set of tasks: toolworld or stabletoolbench"})
    split: str = field(default="test", metadata={"help": "train, dev or test"})
    limit: int = field(default=0, metadata={"help": "play only so many tasks, drawn with the seed; 0: all"})
    seed: int = field(default=0, metadata={"help": "seed of the draw and of the bootstrap"})
    batch_size: int = field(default=64, metadata={"help": "contexts per generation batch"})
    dtype: str = field(default="auto", metadata={"help": "weights' type: auto, float32, bfloat16 ..."})
    overwrite: bool = field(default=False, metadata={"help": "replace an earlier evaluation in OUT"})

    def __post_init__(self) -> None:
        if self.suite not in SUITES:
            raise ValueError(f"unknown suite {self.suite!r}; known: {', '.join(SUITES)}")
        if self.limit < 0:
            raise ValueError(f"limit must be 0 (all) or more, got {self.limit}")
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be 1 or more, got {self.batch_size}")
        check_dtype(self.dtype)


def parse_policies(texts: Sequence[str]) -> dict[str, str]:
    """``["before=runs/sft"]`` -> ``{"before": "runs/sft"}``, in order. Raises ConfigError for a bad or double name."""
    policies: dict[str, str] = {}
    for text in texts:
        name, equals, source = text.partition("=")
        if not equals or not source or not _NAME.fullmatch(name):
            raise ConfigError(f"policy {text!r} is not of the form name=bm25 or name=CHECKPOINT (letters, digits, _ .)")
        if name in policies:
            raise ConfigError(f"two policies are called {name!r}; give each its own name")
        policies[name] = source
    if not policies:
        raise ConfigError("no policies; pass --policies name=bm25 name=CHECKPOINT ...")
    return policies


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


def play(source: str, tasks: Sequence[Task], engine: Any, names: NameIndex, settings: SearchSettings,
         args: EvalArgs, label: str) -> list[Trajectory]:  # fmt: skip
    """Greedy trajectories of a checkpoint on ``tasks``. Raises DataError if there is no model at ``source``."""
    from rich.console import Console
    from rich.progress import track

    from autotools.llm.local import LocalPolicy
    from autotools.search.rollout import run_episodes

    try:
        policy = LocalPolicy(source, max_new_tokens=settings.turn_tokens, batch_size=args.batch_size, dtype=args.dtype)
    except DataError as error:
        raise DataError(f"policy {label}: {error}") from error
    chunk = 4 * args.batch_size  # several batches at once, so that each can hold contexts of one length
    starts = range(0, len(tasks), chunk)
    trajectories = []
    for start in track(starts, description=f"playing {label}", console=Console(stderr=True), transient=True):
        episodes = [
            Episode(t.query, names, settings, task_id=t.id, targets=t.targets, level=t.level, meta=t.meta)
            for t in tasks[start : start + chunk]
        ]
        run_episodes(policy.generate, episodes, policy.renderer, engine.search_batch)
        trajectories += [episode.trajectory() for episode in episodes]
    return trajectories


def warn_if_collapsed(label: str, trajectories: Sequence[Trajectory]) -> None:
    """Say on stderr when few requests were answered, with some ids to look at."""
    silent = [t.task_id for t in trajectories if t.selection is None]
    share = 1 - len(silent) / len(trajectories)
    if share < LOW_ANSWERED_SHARE:
        print(
            f"warning: {label} answered only {share:.0%} of the requests; not for example {silent[:3]}", file=sys.stderr
        )


def read_split(args: EvalArgs, split: str, names: NameIndex) -> tuple[list[Task], list[dict[str, Any]]]:
    """Usable tasks of a split of the world, and rejects. Raises DataError if none is usable."""
    path = task_file(args.world, split)
    rows, unusable = sort_tasks(path)
    tasks, rejected = known_tasks(rows, names, path.name)
    if not tasks:
        raise DataError(f"{path}: no task has its targets in the corpus (first: {rejected[0]['reason']})")
    return tasks, sorted([*unusable, *rejected], key=lambda row: row["line"])


def task_file(world: str, split: str) -> Path:
    """The tasks of a split. Raises DataError with the splits there are."""
    path = Path(world) / "tasks" / f"{split}.jsonl"
    there = sorted(file.stem for file in path.parent.glob("*.jsonl"))
    if there and split not in there:
        raise DataError(f"no split {split!r} in {path.parent}; there are {', '.join(there)}")
    return path


def draw(tasks: list[Task], limit: int, seed: int) -> list[Task]:
    """A seeded sample of ``limit`` tasks in file order; all of them for 0."""
    if not limit or limit >= len(tasks):
        return tasks
    return [tasks[i] for i in sorted(random.Random(seed).sample(range(len(tasks)), limit))]


def check_models(policies: dict[str, str]) -> None:
    """Raise DataError for a policy that is a path without a model, or one of our runs that has not finished."""
    for label, source in policies.items():
        try:
            if source != "bm25":
                check_model(source)
        except DataError as error:
            raise DataError(f"policy {label}: {error}") from error


@dataclass(frozen=True)
class Inputs:
    """What is played: the corpus as an engine and as names, the usable tasks, and tasks to choose k on.

    ``rejected``: rows of the played split that cannot be used; ``set_aside``: those of the corpus and of dev.
    """

    engine: Any
    names: NameIndex
    tasks: list[Task]
    rejected: list[dict[str, Any]]
    dev: list[Task]
    set_aside: list[dict[str, Any]]


def read_inputs(args: EvalArgs, policies: dict[str, str]) -> Inputs:
    """All that can be wrong with the inputs is found here, before the output folder is claimed."""
    from retriever.corpus import read_corpus
    from retriever.engine import open_engine

    check_models(policies)
    corpus = read_corpus(args.world)
    names = NameIndex(spec.id for spec in corpus.specs)
    tasks, rejected = read_split(args, args.split, names)
    dev, no_dev = read_split(args, "dev", names) if "bm25" in policies.values() else ([], [])
    others = [*corpus.rejects, *(no_dev if args.split != "dev" else [])]
    return Inputs(open_engine(args.world), names, tasks, rejected, dev, others)


def evaluate(
    args: EvalArgs, settings: SearchSettings, policies: dict[str, str], inputs: Inputs, out: Path
) -> dict[str, Any]:
    """Play, write the predictions of every policy below ``out``, and return the content of ``metrics.json``."""
    engine, names, all_tasks, rejected = inputs.engine, inputs.names, inputs.tasks, inputs.rejected
    set_aside = [*rejected, *inputs.set_aside]
    write_jsonl(out / "rejected.jsonl", set_aside)
    if rejected:
        first = f"first: line {rejected[0]['line']}: {rejected[0]['reason']}"
        print(f"warning: {len(rejected)} tasks left out, see {out / 'rejected.jsonl'}; {first}", file=sys.stderr)
    tasks = draw(all_tasks, args.limit, args.seed)
    runs, notes = {}, {}
    for name, source in policies.items():
        start = time.perf_counter()
        if source == "bm25":
            k, by_k = choose_k(inputs.dev, engine)
            notes[name] = {"kind": "one BM25 search with the raw request", "k": k, "dev_f1_by_k": by_k}
            trajectories = one_shot(tasks, engine, settings.top_k, k)
        else:
            notes[name] = {"kind": "checkpoint, greedy"}
            trajectories = play(source, tasks, engine, names, settings, args, name)
        write_jsonl(out / name / "predictions.jsonl", trajectories)
        warn_if_collapsed(name, trajectories)
        runs[name] = score_tasks(trajectories, tasks)
        print(f"{name}: {len(tasks)} requests in {time.perf_counter() - start:.1f} s", file=sys.stderr)
    counts: dict[str, Any] = {"read": len(all_tasks) + len(rejected), "rejected": len(rejected), "played": len(tasks)}
    counts["set_aside"] = dict(sorted(Counter(row["source"] for row in set_aside).items()))
    head = {"suite": args.suite, "split": args.split, "seed": args.seed, "counts": counts, "notes": notes}
    return {**head, **compare(runs, seed=args.seed)}


def main(argv: list[str] | None = None) -> int:
    """Evaluate all policies and print their tables."""
    config = load_config(
        argv, {"": EvalArgs, "search": SearchSettings}, prog="python -m evaluation.run", description=__doc__
    )
    args, settings = config.top(EvalArgs), config.section("search")
    policies = parse_policies(args.policies)
    files = [Path(args.world) / "tools.jsonl", task_file(args.world, args.split)]
    for path in files:
        sha256_file(path)  # a missing world is said before any folder is made
    if config.dry_run:
        check_models(policies)
        check_run(args.out, config.resolved(), overwrite=args.overwrite)
        print(f"would play {args.split} of {args.world} with {', '.join(policies)} into {args.out}")
        return 0
    inputs = read_inputs(args, policies)
    run = open_run(args.out, config.resolved(), seed=args.seed, overwrite=args.overwrite)
    result = evaluate(args, settings, policies, inputs, run.path)
    write_json(run.path / "metrics.json", result)
    files += [Path(s) / "manifest.json" for s in policies.values() if (Path(s) / "manifest.json").is_file()]
    write_manifest(run.path, stage="eval", inputs=files, counts=result["counts"], seed=args.seed)
    for name, table in result["policies"].items():
        print(f"\n{name}  ({result['notes'][name]['kind']})\n{text_table(table)}")
    for name, table in result["paired"].items():
        print(f"\n{name}, paired by task, 95 % interval (overall leaves {UNSEEN} out)\n{text_differences(table)}")
    print(f"\nwrote {run.path / 'metrics.json'}")
    return 0


if __name__ == "__main__":
    run_main(main)
