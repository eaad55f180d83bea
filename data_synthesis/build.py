"""``python -m data_synthesis.build --world DIR --out DIR``: training data from a tool world folder.

Writes ``sft/{train,dev}.jsonl`` (chat records of four tasks), ``rl/{train,dev}.jsonl`` (prompts with targets),
``rejected.jsonl`` and, last, ``manifest.json`` (counts, rejects by reason, the expert and its own score).
The same world and seed give the same bytes.
"""

import dataclasses
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotools.config import Config, load_config, run_main
from autotools.errors import DataError
from autotools.rundir import check_run, open_run, read_manifest, write_jsonl, write_manifest
from autotools.schema import Task, ToolId
from autotools.search.episode import SearchBatch, SearchSettings
from autotools.search.rag import RagSettings
from data_synthesis.settings import BuildArgs, ExpertSettings

if TYPE_CHECKING:
    from data_synthesis.filters import Ledger
    from data_synthesis.inputs import Inputs
    from data_synthesis.tasks.candidates import CandidateMaker

Records = dict[str, list[dict[str, Any]]]  # split -> rows


SECTIONS = {"": BuildArgs, "expert": ExpertSettings, "search": SearchSettings, "rag": RagSettings}


def main(argv: list[str] | None = None) -> int:
    """Build the data folder. Returns 0; raises AutoToolsError (one line, code 2) on bad input or a used folder."""
    config = load_config(argv, SECTIONS, prog="python -m data_synthesis.build", description=__doc__)
    args = config.top(BuildArgs)
    read_manifest(args.world)  # a half-made world is refused before the output folder is claimed
    if config.dry_run:
        check_run(args.out, config.resolved(), overwrite=args.overwrite)
        print(f"would read {args.world} and write {args.out}: {config.resolved()}")
        return 0
    run = open_run(args.out, config.resolved(), seed=args.seed, overwrite=args.overwrite)
    manifest = build(config, Path(args.world), run.path)
    _print_summary(manifest)
    return 0


def build(config: Config, world: Path, out: Path) -> dict[str, Any]:
    """Make all records and write the data folder; returns the counts and the expert's scores."""
    from data_synthesis.filters import Ledger
    from data_synthesis.inputs import read_inputs
    from data_synthesis.tasks.candidates import CandidateMaker
    from retriever.bm25 import BM25Engine

    args, ledger = config.top(BuildArgs), Ledger()
    inputs = read_inputs(world, ledger, args.max_query_chars)
    engine = BM25Engine(inputs.specs)
    callable_specs = [spec for spec in inputs.specs if spec.id in inputs.functions]
    sft: Records = {"train": [], "dev": []}
    withheld = _understanding(inputs, args, sft, ledger)
    _relevance(inputs, args, CandidateMaker(inputs.specs, engine.search_batch), sft, ledger)
    if inputs.functions:
        _function(inputs, args, CandidateMaker(callable_specs, engine.search_batch), sft, ledger)
    if args.num_rag:
        _rag(inputs, config, engine.search_batch, sft, ledger)
    expert = _search(inputs, config, engine.search_batch, sft, ledger)
    for split, rows in sft.items():
        random.Random(f"{args.seed}/order/{split}").shuffle(rows)
    rl = {split: [_prompt(task) for task in tasks] for split, tasks in inputs.tasks.items()}
    rl["train"] = _some(rl["train"], args.num_rl_prompts, args.seed)
    _check_unique(sft, rl)
    counts = {**_counts(sft, rl), **ledger.counts(), "withheld_tools": withheld}
    if not inputs.functions:
        counts["no_records"] = {task: "the world has no functions.jsonl" for task in ("understanding", "function")}
    for kind, by_split in (("sft", sft), ("rl", rl)):
        for split, rows in by_split.items():
            write_jsonl(out / kind / f"{split}.jsonl", rows)
    write_jsonl(out / "rejected.jsonl", ledger.rejects)
    extra = {"expert": expert, "search": dataclasses.asdict(config.section("search")), "index": engine.describe()}
    if args.num_rag:
        extra["rag"] = dataclasses.asdict(config.section("rag"))
    write_manifest(
        out, stage="data_synthesis", inputs=inputs.files, counts=counts, seed=args.seed,
        extra={**extra, "settings": _settings(args)},
    )  # fmt: skip
    return {"counts": counts, **extra}


def _understanding(inputs: "Inputs", args: BuildArgs, sft: Records, ledger: "Ledger") -> int:
    """Functions of a category that no train task uses stay out: that domain is there to be unseen."""
    from data_synthesis.tasks.understanding import understanding_records

    seen = {target.category for task in inputs.tasks["train"] for target in task.targets}
    tools = sorted(tool for tool in inputs.functions if tool.category in seen)
    order = random.Random(f"{args.seed}/understanding").sample(tools, len(tools))
    cut = round(len(order) * args.dev_functions)
    split_tools: dict[str, list[ToolId]] = {"dev": sorted(order[:cut]), "train": sorted(order[cut:])}
    for split, chosen in split_tools.items():
        _add(sft[split], understanding_records(inputs, chosen), "understanding", ledger)
    return len(inputs.functions) - len(tools)


def _relevance(inputs: "Inputs", args: BuildArgs, maker: "CandidateMaker", sft: Records, ledger: "Ledger") -> None:
    from data_synthesis.tasks.relevance import relevance_records

    for split, tasks in inputs.tasks.items():
        chosen = _some(tasks, args.num_relevance, args.seed) if split == "train" else tasks
        rows = relevance_records(inputs, chosen, maker, size=args.num_candidates, seed=args.seed)
        _add(sft[split], rows, "relevance", ledger)


def _function(inputs: "Inputs", args: BuildArgs, maker: "CandidateMaker", sft: Records, ledger: "Ledger") -> None:
    from data_synthesis.filters import program_problem
    from data_synthesis.tasks.function import function_records

    names = {tool: function.name for tool, function in inputs.functions.items()}
    parameters = inputs.parameters
    for split, tasks in inputs.tasks.items():
        good = []
        for task in _some(tasks, args.num_function, args.seed) if split == "train" else tasks:
            problem = program_problem(task, names, parameters)
            if problem is None:
                good.append(task)
            else:
                ledger.reject("function", f"tasks/{split}.jsonl", task.id, problem)
        rows = function_records(inputs, good, maker, size=args.num_candidates, seed=args.seed)
        _add(sft[split], rows, "function", ledger)


def _rag(inputs: "Inputs", config: Config, search_batch: SearchBatch, sft: Records, ledger: "Ledger") -> None:
    from data_synthesis.tasks.rag import rag_records

    args = config.top(BuildArgs)
    for split, tasks in inputs.tasks.items():
        chosen = _some(tasks, args.num_rag, args.seed) if split == "train" else tasks
        rows = rag_records(inputs, chosen, config.section("search"), config.section("rag"), search_batch, ledger)
        _add(sft[split], rows, "rag", ledger)


def _search(
    inputs: "Inputs", config: Config, search_batch: SearchBatch, sft: Records, ledger: "Ledger"
) -> dict[str, Any]:
    """Demonstrations of both splits; returns the expert's settings and its score on dev."""
    from rich.console import Console
    from rich.progress import track

    from data_synthesis.expert import Expert, expert_scores
    from data_synthesis.tasks.search import search_records

    args = config.top(BuildArgs)
    expert = Expert(config.section("expert"), config.section("search"), inputs.specs, search_batch)
    counts = {"train": args.num_search_demos, "dev": len(inputs.tasks["dev"])}
    trajectories: dict[str, list[Any]] = {"train": [], "dev": []}
    console = Console(stderr=True)
    for split, tasks in inputs.tasks.items():
        made = search_records(tasks, expert, count=counts[split], seed=args.seed)
        for row, trajectory in track(made, f"demonstrations ({split})", counts[split], console=console, transient=True):
            trajectories[split].append(trajectory)
            _add(sft[split], [row], "search", ledger)
    scores = {split: expert_scores(rows) for split, rows in trajectories.items() if rows}
    return {"settings": dataclasses.asdict(config.section("expert")), **scores}


def _add(rows: list[dict[str, Any]], new: Iterable[dict[str, Any]], stage: str, ledger: "Ledger") -> None:
    """Keep the records that pass the message filter; the others go to the books."""
    from data_synthesis.filters import message_problem

    for row in new:
        problem = message_problem(row["messages"])
        if problem is None:
            rows.append(row)
            ledger.keep(stage)
        else:
            ledger.reject(stage, row["source"], row["id"], problem)


def _prompt(task: Task) -> dict[str, Any]:
    return {"id": task.id, "query": task.query, "targets": [str(t) for t in task.targets], "level": task.level}


def _some(items: Any, count: int, seed: int) -> list[Any]:
    """All items for -1, else a seeded choice of at most ``count``, in their own order."""
    if count < 0 or count >= len(items):
        return list(items)
    chosen = set(random.Random(f"{seed}/choice").sample(range(len(items)), count))
    return [item for i, item in enumerate(items) if i in chosen]


def _check_unique(sft: Records, rl: Records) -> None:
    """Ids are unique over both splits: a record in train and dev at once would make dev worthless."""
    for kind, by_split in (("sft", sft), ("rl", rl)):
        ids = Counter(f"{row['id']}" for rows in by_split.values() for row in rows)
        twice = [name for name, count in ids.items() if count > 1]
        if twice:
            raise DataError(f"{kind}: {len(twice)} record ids occur twice, first {twice[0]!r}; task ids must be unique")


def _counts(sft: Records, rl: Records) -> dict[str, Any]:
    by_task = {split: dict(sorted(Counter(row["task"] for row in rows).items())) for split, rows in sft.items()}
    by_source = {split: dict(sorted(Counter(row["source"] for row in rows).items())) for split, rows in sft.items()}
    by_level = {split: dict(sorted(Counter(row["level"] for row in rows).items())) for split, rows in rl.items()}
    return {"sft": by_task, "sft_sources": by_source, "rl": by_level}


def _settings(args: BuildArgs) -> dict[str, Any]:
    """What decides the content; where and how the command ran does not belong into a reproducible manifest."""
    return {k: v for k, v in dataclasses.asdict(args).items() if k not in ("world", "out", "overwrite", "seed")}


def _print_summary(manifest: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    counts = manifest["counts"]
    table = Table("records", "train", "dev", title="training data")
    for task in sorted({*counts["sft"]["train"], *counts["sft"]["dev"]}):
        table.add_row(f"sft {task}", *(str(counts["sft"][split].get(task, 0)) for split in ("train", "dev")))
    table.add_row("rl prompts", *(str(sum(counts["rl"][split].values())) for split in ("train", "dev")))
    console = Console()
    console.print(table)
    rejected = sum(counts["rejected"].values())
    console.print(f"rejected: {rejected}" + "".join(f"\n  {n} x {why}" for why, n in counts["rejected"].items()))
    for task, why in counts.get("no_records", {}).items():
        console.print(f"no record of the task {task}: {why}")
    dev = manifest["expert"].get("dev")
    if dev:
        shown = ", ".join(f"{name} {dev[name]}" for name in ("f1", "srecall", "match", "searches", "n"))
        console.print(f"noisy expert on dev: {shown}")


if __name__ == "__main__":
    run_main(main)
