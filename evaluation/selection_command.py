"""``python -m evaluation.selection PREDICTIONS.jsonl``: all scores of tool selection, computed anew from a file.

    python -m evaluation.selection after/predictions.jsonl --tasks world/tasks/test.jsonl \\
        --baseline before/predictions.jsonl --corpus world --index minilm --out scores.json

``--tasks`` fixes the denominators: a task without a prediction counts as failed and is named. Its default is the
``tasks.jsonl`` that ``evaluation.run`` leaves above the predictions; else the rows of the file are all there is.
Prints scores per group and per number of targets with 95 % bootstrap intervals, paired differences to other files,
and beside the recalls what the retriever allows: its ceiling (from ``--corpus``, or read with ``--ceiling`` from a file
of ``retriever.evaluate --out``), the plain retriever with as many documents as the policy saw (``--corpus``), and the
confusion score (``--index``, the vectors of a dense index). ``--out`` has it all.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotools.config import load_config
from autotools.errors import ConfigError, DataError
from autotools.rundir import read_jsonl, sha256_file, write_json
from autotools.schema import Task, ToolId, Trajectory
from evaluation import engine_scores
from evaluation.engine_scores import Extra
from evaluation.selection import (
    TaskScore,
    group_scores,
    paired_table,
    read_tasks,
    read_trajectories,
    score_tasks,
    table_of,
    target_groups,
)
from evaluation.selection_text import print_result

PROG = "python -m evaluation.selection"
PLAYED_TASKS, FAILED = "tasks.jsonl", "failed.jsonl"  # what evaluation.run leaves above and beside the predictions
TURNS, HITS = 7, 5  # the paper's episode: 8 turns, the answer included, and 5 hits


@dataclass(kw_only=True)
class SelectionArgs:
    """Keys of the command."""

    predictions: str = field(default="", metadata={"help": "predictions.jsonl (also as a bare word)"})
    baseline: str = field(default="", metadata={"help": "another predictions.jsonl, for paired differences"})
    compare: list[str] = field(default_factory=list, metadata={"help": "further ones, each as --baseline"})
    tasks: str = field(default="", metadata={"help": "file of Task lines; with --corpus any request files"})
    corpus: str = field(default="", metadata={"help": "tools.jsonl or world folder, for ceiling and equal budget"})
    encoder: str = field(default="bm25", metadata={"help": "engine over the corpus, as in retriever.search"})
    index: str = field(default="", metadata={"help": "dense index folder: the encoder's, and of the confusion score"})
    ceiling: str = field(default="", metadata={"help": "file of retriever.evaluate --out, in place of computing it"})
    turns: int = field(default=0, metadata={"help": "searches of the ceiling; 0: as played (run_config.json), else 7"})
    hits: int = field(default=0, metadata={"help": "hits per search of the ceiling; 0: as played, else 5"})
    out: str = field(default="", metadata={"help": "file for all figures, as JSON"})
    overwrite: bool = field(default=False, metadata={"help": "replace the file that --out names"})
    seed: int = field(default=0, metadata={"help": "seed of the bootstrap"})

    def __post_init__(self) -> None:
        if min(self.turns, self.hits) < 0:
            raise ValueError(f"turns and hits must be 0 or more, got {self.turns} and {self.hits}")


def main(argv: list[str] | None = None) -> int:
    """Compute, print, write. Raises ConfigError, DataError, RetrieverError before anything is printed."""
    config = load_config(argv, {"": SelectionArgs}, prog=PROG, description=__doc__ or "", positional="predictions")
    args = config.top(SelectionArgs)
    if not args.predictions:
        raise ConfigError(f"no prediction file; use: {PROG} PREDICTIONS.jsonl [--baseline OTHER.jsonl]")
    if args.out and Path(args.out).exists() and not args.overwrite:
        raise ConfigError(f"--out {args.out} exists; give another name, or --overwrite")
    others = [path for path in (args.baseline, *args.compare) if path]
    if config.dry_run:
        for path in filter(None, (args.predictions, *others, args.tasks, args.corpus, args.index, args.ceiling)):
            if not Path(path).exists():
                raise DataError(f"{path} does not exist")
        print(f"would score {args.predictions}" + (f" against {', '.join(others)}" if others else ""))
        return 0
    result = evaluate(args, others)
    if args.out:
        write_json(args.out, result)
    print_result(result)
    return 0


def evaluate(args: SelectionArgs, others: Sequence[str]) -> dict[str, Any]:
    """Everything that ``--out`` gets."""
    specs = _specs(args.corpus)
    task_file = args.tasks or _played_tasks(args.predictions)
    tasks = _tasks(task_file, specs) if task_file else None
    empty_ok = tasks is not None
    trajectories = read_trajectories(Path(args.predictions), empty_ok=empty_ok)
    scores = score_tasks(trajectories, tasks)
    compared = {other: score_tasks(read_trajectories(Path(other), empty_ok=empty_ok), tasks) for other in others}
    paired = {other: paired_table(scores, rows, seed=args.seed) for other, rows in compared.items()}
    extras, notes = beside(args, tasks, trajectories, specs)
    return {
        "predictions": {"file": args.predictions, "sha256": sha256_file(args.predictions)},
        "tasks": task_file,
        "seed": args.seed,
        "counts": {"tasks": len(scores), "predictions": len(trajectories)},
        "missing": _missing(scores, args.predictions),
        "groups": table_of(group_scores(scores), seed=args.seed),
        "by_num_targets": table_of(target_groups(scores), seed=args.seed),
        "paired": paired,
        "paired_missing": {other: _missing(rows, other) for other, rows in compared.items()},
        "retriever": {**notes, **_beside_tables(scores, extras, args.seed)},
    }


def _played_tasks(predictions: str) -> str | None:
    """The task file of the run that wrote the predictions, if it left one (in the folder above the policy's)."""
    path = Path(predictions).parent.parent / PLAYED_TASKS
    return str(path) if Path(predictions).is_file() and path.is_file() else None


def _missing(scores: Sequence[TaskScore], predictions: str) -> dict[str, str]:
    """Task id -> why it has no prediction, as far as the run has noted it."""
    path = Path(predictions).parent / FAILED
    reasons = {str(row.get("task")): str(row.get("reason", "")) for row in read_jsonl(path)} if path.is_file() else {}
    return {score.task_id: reasons.get(score.task_id) or "no prediction" for score in scores if score.missing}


def _specs(corpus: str) -> dict[ToolId, Any]:
    if not corpus:
        return {}
    from retriever.corpus import load_tools

    return {spec.id: spec for spec in load_tools(corpus)}


def _tasks(file: str, specs: dict[ToolId, Any]) -> list[Task]:
    """Tasks of a task file, or with a corpus of any request files; those with unknown targets are then set aside."""
    path = Path(file)
    if not specs and path.suffix == ".jsonl":
        return read_tasks(path)
    if not specs:
        raise ConfigError(f"--tasks {path} is no file of Task lines (.jsonl); to read other forms give --corpus, too")
    from retriever.evaluate import read_requests

    tasks, files = read_requests([file], list(specs.values()))
    if rejected := sum(row["rejected"] for row in files):
        print(f"warning: {path}: {rejected} requests set aside (python -m autotools.queries says why)", file=sys.stderr)
    return tasks


# --- beside the scores --------------------------------------------------------------------------------------------


def beside(
    args: SelectionArgs, known: Sequence[Task] | None, trajectories: Sequence[Trajectory], specs: dict[ToolId, Any]
) -> tuple[list[Extra], dict[str, Any]]:
    """Further scores of each task (of each prediction, where no tasks are known), and how they were made or why not."""
    tasks = engine_scores.requests_of(trajectories) if known is None else known
    shown = {t.task_id: [event.hits for event in t.events] for t in trajectories}
    extras: list[Extra] = []
    notes: dict[str, Any] = {}
    if args.ceiling:
        ids = [task.id for task in tasks]
        found, limits = engine_scores.read_ceilings(Path(args.ceiling), args.encoder, ids)
        extras.append(found)
        notes["ceiling"] = {**limits, "from": args.ceiling}
    if specs:
        from retriever.engine import open_engine

        dense = args.index if args.encoder != "bm25" and args.index else None
        engine = open_engine(args.corpus, args.encoder, index=dense)
        notes["engine"] = engine.describe()
        if not args.ceiling:
            turns, k, source = search_limits(args)
            extras.append(engine_scores.ceilings(engine, tasks, specs, turns=turns, k=k))
            notes["ceiling"] = {"turns": turns, "k": k, "from": source}
        extras.append(engine_scores.same_budget(engine, tasks, shown))
    elif not args.ceiling:
        notes["ceiling"] = "not available: give --corpus, or --ceiling FILE of retriever.evaluate --out"
    if args.index:
        extras.append(engine_scores.confusion(tasks, shown, engine_scores.index_vectors(args.index)))
        notes["confusion"] = {"index": args.index}
    else:
        notes["confusion"] = "not available: needs vectors of the tools, and BM25 has none; give --index DIR (" + (
            f"python -m retriever.build --tools {args.corpus or 'CORPUS'} --encoder minilm --out DIR)"
        )
    return extras, notes


def search_limits(args: SelectionArgs) -> tuple[int, int, str]:
    """Searches and hits of the ceiling, and where they come from: the keys, the run's own config, or the paper."""
    turns, hits, source = args.turns, args.hits, "keys"
    if not (turns and hits):
        source = "default"
        for folder in list(Path(args.predictions).absolute().parents)[:2]:
            try:
                search = json.loads((folder / "run_config.json").read_text(encoding="utf-8"))["search"]
                played = int(search["max_turns"]) - 1, int(search["top_k"])
            except (OSError, ValueError, KeyError, TypeError):
                continue
            return turns or max(1, played[0]), hits or played[1], "run_config.json"
    return turns or TURNS, hits or HITS, source


def _beside_tables(scores: Sequence[TaskScore], extras: Sequence[Extra], seed: int) -> dict[str, Any]:
    if not extras or not scores:
        return {}
    more = engine_scores.with_extra(scores, extras)
    keys = ("recall", "srecall", *(key for extra in extras for key in extra[more[0].task_id]))
    groups = {"groups": group_scores(more), "by_num_targets": target_groups(more)}
    return {name: table_of(parts, seed=seed, keys=keys) for name, parts in groups.items()}
