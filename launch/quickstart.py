"""The whole pipeline on the embedded tool world, as a chain of ordinary commands: ``bash launch/quickstart.sh``.

``--config configs/quickstart/real.yaml --corpus FILE --queries DIR`` puts real tools and requests in its place.

world -> data -> sft -> (rl | sft_longer, side by side) -> evaluate -> report. Each stage meets the next in files, so
any of the commands that ``--dry_run`` prints can be run alone. Writes ``OUT/report.html`` and ``OUT/summary.json``.
"""

import json
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driver import ROOT, check_folder, config_file, refuse_bad_keys, run_folder, shown

from autotools.config import load_config, run_main
from autotools.errors import ConfigError, DataError

if TYPE_CHECKING:
    from stage_runner import Stage, StageRunner

# One row per stage: name, command. Rows of one step run side by side. {words} are filled in by stage_table().
PIPELINE: tuple[tuple[tuple[str, str], ...], ...] = (
    (("world", "{python} -m toolworld.build --out {out}/world --seed {seed}"),),
    (("data", "{python} -m data_synthesis.build --config {data} --world {out}/world --out {out}/data --seed {seed}"),),
    (
        (
            "sft",
            "{accelerate} launch --config_file configs/accelerate/cpu.yaml training/sft.py --config {sft}"
            " --data {out}/data --tools {out}/world --output_dir {out}/sft --seed {seed}",
        ),
    ),
    (
        (
            "rl",
            "{python} rl/train.py --config {rl} --data {out}/data --tools {out}/world --model {out}/sft"
            " --output_dir {out}/rl --seed {seed}",
        ),
        (
            "sft_longer",
            # Without the launcher: it holds half a gigabyte, and this stage shares the machine with rl.
            "{python} training/sft.py --config {sft_longer}"
            " --data {out}/data --model {out}/sft --output_dir {out}/sft_longer --seed {seed}",
        ),
    ),
    (
        (
            "evaluate",
            "{python} -m evaluation.run --config {evaluate} --world {out}/world --out {out}/eval --policies"
            " bm25_oneshot=bm25 before={out}/sft sft_longer={out}/sft_longer after={out}/rl",
        ),
    ),
    (("report", "{python} -m evaluation.report --run {out}"),),
)
IMPORT = (  # the row of world where tools and requests are real
    "{python} -m data_synthesis.real --corpus {corpus} --queries {queries} --out {out}/world --seed {seed}"
)
SOURCES = {"toolworld": "runs/quickstart", "real": "runs/real"}  # where tools come from, and the run folder then
FOLDERS = {"evaluate": "eval", "report": None}  # where a stage's folder is not named like the stage
LAST = "report"
RESUMABLE = ("sft", "rl", "sft_longer")  # go on from their newest checkpoint; the others are quick and start again
WORLD_COUNTS = ("tools", "tasks", "programs_verified")  # into summary.json
STAGE_CONFIGS = ("data", "sft", "sft_longer", "rl", "evaluate")


@dataclass(frozen=True, kw_only=True)
class QuickstartArgs:
    """Keys of the quickstart. Stage configs are files; ``more`` reaches any key of any stage from here."""

    out: str = field(default="", metadata={"help": "run folder; default runs/quickstart or, for real tools, runs/real"})
    seed: int = field(default=0, metadata={"help": "seed of every stage"})
    resume: bool = field(default=False, metadata={"help": "keep finished stages of an interrupted run, do the rest"})
    overwrite: bool = field(default=False, metadata={"help": "delete an earlier run in the same folder first"})
    source: str = field(default="toolworld", metadata={"help": "toolworld, or real: read corpus and queries"})
    corpus: str = field(default="", metadata={"help": "real tools only: corpus.jsonl or corpus.jsonl.gz"})
    queries: str = field(default="", metadata={"help": "real tools only: folder of the query files"})
    data: str = field(default="configs/data/toolworld.yaml", metadata={"help": "config of the stage data"})
    sft: str = field(default="configs/sft/quickstart.yaml", metadata={"help": "config of the stage sft"})
    sft_longer: str = field(default="configs/sft/quickstart_longer.yaml", metadata={"help": "config of sft_longer"})
    rl: str = field(default="configs/rl/quickstart.yaml", metadata={"help": "config of the stage rl"})
    evaluate: str = field(default="configs/eval/toolworld.yaml", metadata={"help": "config of the stage evaluate"})
    more: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "further keys of a stage: --more rl.max_steps=5 sft.max_steps=20"}
    )

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise ValueError(f"unknown source {self.source!r}; known: {', '.join(SOURCES)}")
        if self.source == "real" and not (self.corpus and self.queries):
            raise ValueError("real tools need both --corpus FILE and --queries DIR")
        if self.source != "real" and (self.corpus or self.queries):
            raise ValueError("corpus and queries belong to real tools: add --config configs/quickstart/real.yaml")


def stage_table(args: QuickstartArgs, out: Path) -> list[list["Stage"]]:
    """The steps with all commands filled in."""
    from stage_runner import Stage

    words = {
        "python": sys.executable,
        "accelerate": str(Path(sys.executable).with_name("accelerate")),
        "out": shown(out),
        "seed": str(args.seed),
        **{name: config_file(getattr(args, name)) for name in STAGE_CONFIGS},
        **{name: shown((Path.cwd() / getattr(args, name)).resolve()) for name in ("corpus", "queries")},
    }
    more: dict[str, list[str]] = {}
    for key, value in args.more.items():
        stage, _, name = key.partition(".")
        more.setdefault(stage, []).extend([f"--{name}", value if isinstance(value, str) else json.dumps(value)])
    steps = []
    for rows in PIPELINE:
        step = []
        for name, command in rows:
            folder = FOLDERS.get(name, name)
            command = IMPORT if (name, args.source) == ("world", "real") else command
            filled = [word.format(**words) for word in command.split()] + more.pop(name, [])
            reads = tuple(Path.cwd() / path for path in (args.corpus, args.queries) if command == IMPORT)
            step.append(Stage(name, tuple(filled), out / folder if folder else None, name in RESUMABLE, reads))
        steps.append(step)
    if more:
        names = ", ".join(name for rows in PIPELINE for name, _ in rows)
        raise ConfigError(f"key 'more' names the stage '{next(iter(more))}'; stages are {names}")
    return steps


def main(argv: list[str] | None = None) -> int:
    """Run the pipeline; returns 0. Raises AutoToolsError for bad use or a failed stage."""
    config = load_config(argv, {"": QuickstartArgs}, prog="bash launch/quickstart.sh", description=__doc__ or "")
    args = config.top(QuickstartArgs)
    out = (Path.cwd() / args.out if args.out else ROOT / SOURCES[args.source]).resolve()
    for path in filter(None, (args.corpus, args.queries)):
        if not (Path.cwd() / path).exists():
            raise DataError(f"{path} does not exist; the corpus file and the folder of query files must be there")
    steps = stage_table(args, out)
    if args.more:
        print(f"checking the keys of --more ({', '.join(args.more)})", file=sys.stderr)
        named = {key.partition(".")[0] for key in args.more}
        refuse_bad_keys(stage for step in steps for stage in step if stage.name in named)
    if config.dry_run:
        check_folder(out, config.resolved(), resume=args.resume, overwrite=args.overwrite)
        for stage in (stage for step in steps for stage in step):
            print(stage.shown())
        return 0
    claim = {"seed": args.seed, "resume": args.resume, "overwrite": args.overwrite}
    with run_folder(out, config.resolved(), **claim) as runner:
        run_steps(runner, steps, out, args.seed, resume=args.resume)
    closing(runner, out, steps if args.resume else [])
    return 0


def run_steps(runner: "StageRunner", steps: list[list["Stage"]], out: Path, seed: int, *, resume: bool) -> None:
    """Run what is not done yet. A stage that runs again makes every later one run again.

    A stage starts in an empty folder, or continues what an interrupted run of the same command left there.
    """
    fresh = not resume
    for number, step in enumerate(steps, 1):
        todo = [stage for stage in step if fresh or not runner.is_done(stage)]
        continued = [stage.name for stage in todo if not fresh and runner.continues(stage)]
        anew = [stage for stage in todo if stage.name not in continued]
        if step[0].name == LAST:  # the report shows the summary of the stages before it
            write_summary(runner, out, seed, steps)
        if todo:
            runner.forget([*anew, *(stage for later in steps[number:] for stage in later)])
        for stage in anew:
            if stage.makes and stage.makes.exists():  # half made by the interrupted run, inside our own run folder
                shutil.rmtree(stage.makes)
        runner.run_step(todo, continued)
        fresh = fresh or bool(todo)
    write_summary(runner, out, seed, steps)


def write_summary(runner: "StageRunner", out: Path, seed: int, steps: list[list["Stage"]]) -> None:
    """Write ``summary.json``: seconds per stage, metrics per policy and level, counts of the world and its functions.

    Raises DataError if the folder of a stage is incomplete.
    """
    from autotools.rundir import read_jsonl, read_manifest, write_json
    from evaluation.selection import UNSEEN, summary_form

    world, library = read_manifest(out / "world"), out / "world" / "functions.jsonl"
    functions = read_jsonl(library) if library.is_file() else []  # real tools have none
    read_manifest(out / "eval")
    metrics = json.loads((out / "eval" / "metrics.json").read_text(encoding="utf-8"))
    summary = {
        "wall_s": runner.wall_s,
        "eval": {
            name: summary_form({group: row for group, row in table.items() if group != UNSEEN})
            for name, table in metrics["policies"].items()
        },
        "world": {name: world["counts"][name] for name in WORLD_COUNTS if name in world["counts"]},
        "functions": {"total": len(functions), "verified": sum(1 for row in functions if row["verified"])},
        "seed": seed,
    }
    if "note" in world:
        summary["note"] = world["note"]
    write_json(out / "summary.json", summary)
    side_by_side = [[stage.name for stage in step] for step in steps]
    memory = {"peak_bytes": runner.peak_bytes, "stages": runner.memory, "steps": side_by_side}
    write_json(out / "logs" / "memory.json", memory)


def closing(runner: "StageRunner", out: Path, resumed: list[list["Stage"]]) -> None:
    """Print the table of policies, the time and memory used, and where the report is.

    ``resumed``: the steps of a resumed run, whose whole time is that of its stages, the longest of each step.
    """
    from rich.table import Table

    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    evaluated = summary["eval"]
    columns = ("f1", "recall", "precision", "match", "srecall", "n")
    table = Table("policy", *columns, title="held-out test tasks")
    for policy, levels in evaluated.items():
        values = [levels["overall"].get(column) for column in columns]
        table.add_row(policy, *("-" if v is None else f"{v:.3f}" if isinstance(v, float) else str(v) for v in values))
    runner.console.print(table)
    if "note" in summary:
        runner.console.print(summary["note"], highlight=False)
    times = f"{runner.elapsed_s():.0f} s in all"
    if resumed:
        whole = sum(max(runner.wall_s[stage.name] for stage in step) for step in resumed)
        times = f"{runner.elapsed_s():.0f} s since --resume, the stages of the whole run {whole:.0f} s"
    used = f"{times}, {runner.peak_bytes / 1e9:.2f} GB peak memory"
    runner.console.print(used, highlight=False)
    print(out / "report.md", out / "report.html", sep="\n")


if __name__ == "__main__":
    run_main(lambda: main(sys.argv[1:]))
