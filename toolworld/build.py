"""``python -m toolworld.build --out DIR``: write the embedded tool world as files, and check every one of its claims.

Starts the server, writes the three documentation forms, reads the tools back from the OpenAPI form, makes and verifies
their functions, runs the program of every task against the server and compares its answer with the records. What
fails goes to ``rejected.jsonl``; ``manifest.json`` is written last. The same seed gives the same bytes.
``--num_tools 16000`` writes only documents, for benchmarks of search (``toolworld/scale.py``).
"""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotools.config import load_config, run_main
from autotools.errors import ToolWorldError

if TYPE_CHECKING:
    from autotools.program import ProgramRunner
    from autotools.schema import Task, ToolSpec, VerifiedFunction
    from toolworld.world import World

MAX_ONE_SHOT_F1 = 0.5  # on I2 and I3: above it, a single search would do and nothing could be learned
MIN_SEARCHES = 2


@dataclass
class WorldArgs:
    """Keys of the command."""

    out: str = field(metadata={"help": "folder to write"})
    seed: int = field(default=0, metadata={"help": "seed of records and tasks"})
    num_tools: int = field(
        default=0, metadata={"help": "0: the world; else documents only, near-duplicates up to this number of tools"}
    )
    overwrite: bool = field(default=False, metadata={"help": "replace an earlier world folder"})


def main(argv: list[str] | None = None) -> int:
    """Build the world folder. Returns 0; raises AutoToolsError on a used folder or a world that fails its checks."""
    config = load_config(argv, {"": WorldArgs}, prog="python -m toolworld.build", description=__doc__)
    args = config.top(WorldArgs)
    from autotools.rundir import check_run, open_run

    if config.dry_run:
        check_run(args.out, config.resolved(), overwrite=args.overwrite)
        what = f"{args.num_tools} tool documents" if args.num_tools else "the tool world"
        print(f"would build {what} with seed {args.seed} in {args.out}")
        return 0
    from toolworld.scale import scaled_specs, write_scaled
    from toolworld.world import build_world

    specs = scaled_specs(build_world(args.seed), args.num_tools, args.seed) if args.num_tools else None
    run = open_run(args.out, config.resolved(), seed=args.seed, overwrite=args.overwrite)
    if specs is None:
        print_summary(build(run.path, args.seed))
    else:
        counts = write_scaled(run.path, specs, args.num_tools, args.seed)
        print(f"{counts['tools']} tools in {counts['categories']} categories, {counts['largest']} in the largest")
    return 0


def build(out: Path, seed: int, sizes: dict[str, int] | None = None) -> dict[str, Any]:
    """Write all files of the world to ``out``; returns the summary that the manifest holds.

    ``sizes`` are tasks per part (train, dev, test, unseen); None means the published ones.

    Raises ToolWorldError, before the manifest is written, if searching is not needed on I2 or I3.
    """
    from autotools.docs.openapi import read_openapi
    from autotools.encapsulate import encapsulate, library_source
    from autotools.program import ProgramRunner
    from autotools.rundir import write_json, write_jsonl, write_manifest, write_text
    from autotools.verify import verify
    from toolworld.cases import verification_cases
    from toolworld.documents import openapi_document, rapidapi_documents
    from toolworld.markdown_pages import markdown_documents
    from toolworld.measure import search_figures
    from toolworld.server import WorldServer
    from toolworld.tasks import make_tasks
    from toolworld.world import build_world

    world = build_world(seed)
    document = openapi_document(world)  # with a fixed server address: the real port differs from run to run
    specs = read_openapi(document)
    write_json(out / "openapi.json", document)
    for name, content in rapidapi_documents(world).items():
        write_json(out / "rapidapi" / name, content)
    for name, page in markdown_documents(world).items():
        write_text(out / "markdown" / name, page)
    tasks = make_tasks(world, seed, sizes)
    functions = encapsulate(specs)
    keys = {domain.category: domain.api_key for domain in world.domains if domain.api_key}
    with (
        WorldServer(world, log_path=out / "requests.jsonl") as server,
        ProgramRunner(library_source(functions), server.base_url, keys) as runner,
    ):
        functions = verify(functions, verification_cases(world, seed), runner, specs, session="verify")
        kept, rejected = run_programs(tasks, runner)
    write_jsonl(out / "tools.jsonl", specs)
    write_jsonl(out / "functions.jsonl", functions)
    for split in ("train", "dev", "test"):
        write_jsonl(out / "tasks" / f"{split}.jsonl", [task for task in kept if task.split == split])
    rejected += [_rejected_function(function) for function in functions if not function.verified]
    write_jsonl(out / "rejected.jsonl", rejected)
    in_domain = [task for task in kept if task.split == "test" and task.meta["domain"] == "seen"]
    summary = _counts(world, specs, functions, tasks, kept, rejected) | {"search": search_figures(in_domain, specs)}
    check_searching(summary)
    write_manifest(out, stage="toolworld", inputs=[], counts=summary, seed=seed)
    return summary


def run_programs(tasks: "Sequence[Task]", runner: "ProgramRunner") -> "tuple[list[Task], list[dict[str, Any]]]":
    """Execute every task's program in its own session; tasks whose answer is the records' one, and the rejects."""
    from rich.console import Console
    from rich.progress import track

    from autotools.verify import first_difference

    kept, rejected = [], []
    console = Console(stderr=True)
    for line, task in enumerate(track(tasks, "programs", console=console, transient=True), 1):
        result = runner.run(task.program or "", task.id)
        if (
            result.status == "died"
        ):  # a child killed from outside (out of memory, an operator) is not the program's fault
            result = runner.run(task.program or "", f"{task.id}/again")
        reason = result.error or "" if result.status != "ok" else first_difference(task.answer, result.answer, "answer")
        if result.status == "ok" and not reason:
            kept.append(task)
        else:
            why = reason or result.status
            rejected.append({"source": "tasks", "line": line, "reason": f"{result.status}: {why}", "id": task.id})
    return kept, rejected


def _rejected_function(function: "VerifiedFunction") -> dict[str, Any]:
    return {"source": "functions", "line": 0, "reason": function.reason, "id": str(function.tool)}


def _counts(
    world: "World",
    specs: "Sequence[ToolSpec]",
    functions: "Sequence[VerifiedFunction]",
    tasks: "Sequence[Task]",
    kept: "Sequence[Task]",
    rejected: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    by_level = Counter(f"{t.split}{'/unseen' if t.meta['domain'] == 'unseen' else ''}/{t.level}" for t in kept)
    return {
        "tools": len(specs),
        "tasks": len(tasks),
        "programs_verified": len(kept),
        "rejected": len(rejected),
        "functions": {"total": len(functions), "verified": sum(function.verified for function in functions)},
        "near_duplicate_pairs": len(world.near_duplicates()),
        "dependency_share": round(world.dependency_share(), 3),
        "by_level": dict(sorted(by_level.items())),
    }


def check_searching(summary: dict[str, Any]) -> None:
    """Raise ToolWorldError unless I2 and I3 need searching: one-shot F1 < 0.5 and a median of 2 or more searches."""
    for level in ("I2", "I3"):
        figures = summary["search"].get(level)
        if figures is None:
            raise ToolWorldError(f"no {level} test task survived; see rejected.jsonl")
        if figures["one_shot_f1"] >= MAX_ONE_SHOT_F1 or figures["median_searches"] < MIN_SEARCHES:
            raise ToolWorldError(f"searching is not needed on {level}: {figures}; reword requests")


def print_summary(summary: dict[str, Any]) -> None:
    """Two tables on stdout: what the world holds, and whether searching is needed."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="tool world", show_header=False)
    functions = summary["functions"]
    rows = {
        "tools": summary["tools"], "near-duplicate pairs": summary["near_duplicate_pairs"],
        "tools that need another tool's id": f"{summary['dependency_share']:.0%}",
        "functions verified": f"{functions['verified']} of {functions['total']}",
        "programs verified": f"{summary['programs_verified']} of {summary['tasks']}", "rejected": summary["rejected"],
    } | {f"tasks {name}": count for name, count in summary["by_level"].items()}  # fmt: skip
    for name, value in rows.items():
        table.add_row(name, str(value))
    search = Table("test, known domains", "n", "one search: F1", "best k", "ideal searches (median)")
    search.title = "is searching needed?"
    for level, f in summary["search"].items():
        search.add_row(level, str(f["n"]), f"{f['one_shot_f1']:.3f}", str(f["best_k"]), f"{f['median_searches']:g}")
    console = Console(file=sys.stdout)
    console.print(table)
    console.print(search)


if __name__ == "__main__":
    run_main(main)
