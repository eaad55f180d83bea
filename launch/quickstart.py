"""The whole pipeline on the embedded tool world, as a chain of ordinary commands: ``bash launch/quickstart.sh``.

``--config configs/quickstart/real.yaml --corpus FILE --queries DIR`` puts real tools and requests in its place.

world -> data -> sft -> (rl | sft_longer, side by side) -> evaluate -> report. Each stage meets the next in files, so
any of the commands that ``--dry_run`` prints can be run alone. Writes ``OUT/report.html`` and ``OUT/summary.json``.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotools.config import load_config, run_main
from autotools.errors import ConfigError, DataError, RunFolderError

if TYPE_CHECKING:
    from stage_runner import Stage, StageRunner

ROOT = Path(__file__).resolve().parent.parent

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
GO_ON = "go on with the same command and --resume"
RESUMABLE = ("sft", "rl", "sft_longer")  # go on from their newest checkpoint; the others are quick and start again
WORLD_COUNTS = ("tools", "tasks", "programs_verified")  # into summary.json
STAGE_CONFIGS = ("data", "sft", "sft_longer", "rl", "evaluate")
ENVIRONMENT = {  # as launch/setup.sh sets it, for those who start this file by hand
    "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
}


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
        "out": _shown(out),
        "seed": str(args.seed),
        **{name: _config_file(getattr(args, name)) for name in STAGE_CONFIGS},
        **{name: _shown((Path.cwd() / getattr(args, name)).resolve()) for name in ("corpus", "queries")},
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


def refuse_bad_keys(steps: list[list["Stage"]], named: set[str]) -> None:
    """Raise ConfigError for a key of ``more`` that its stage does not take, before anything has run.

    Only the command itself knows its keys, so it is asked, by its own ``--dry_run`` and without a launcher.
    """
    for stage in (stage for step in steps for stage in step if stage.name in named):
        script = next((n for n, word in enumerate(stage.command) if word.endswith(".py")), 1)
        asked = subprocess.run(
            [sys.executable, *stage.command[script:], "--dry_run"],
            cwd=ROOT, env=os.environ | ENVIRONMENT, capture_output=True, text=True, encoding="utf-8", errors="replace",
        )  # fmt: skip
        for line in asked.stderr.splitlines():  # other complaints are about folders that earlier stages will make
            if line.startswith("error: command line: "):
                raise ConfigError(f"stage {stage.name}: {line.removeprefix('error: command line: ')}")


def _shown(path: Path) -> str:
    """Stages run in the checkout: a path below it is written relative to it."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def _config_file(name: str) -> str:
    """A config file given relative to where the user is, or else to the checkout. Raises ConfigError without it."""
    here = Path.cwd() / name
    if here.is_file():
        return _shown(here.resolve())
    if not (ROOT / name).is_file():
        raise ConfigError(f"{name}: there is no such config file, neither here nor in {ROOT}")
    return name


def check_folder(out: Path, config: dict[str, Any], args: QuickstartArgs) -> None:
    """What a dry run can say of the run folder; that it is in use is no error, for the commands stay the same."""
    from autotools.rundir import check_run

    try:
        check_run(out, config, resume=args.resume, overwrite=args.overwrite)
    except RunFolderError as error:
        if args.resume or args.overwrite or not out.is_dir():
            raise
        print(f"note: {error}", file=sys.stderr)


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
    refuse_bad_keys(steps, {key.partition(".")[0] for key in args.more})
    if config.dry_run:
        check_folder(out, config.resolved(), args)
        for stage in (stage for step in steps for stage in step):
            print(stage.shown())
        return 0

    from stage_runner import StageRunner, interrupts_as_exceptions, only_driver

    from autotools.rundir import open_run

    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with interrupts_as_exceptions():
        if out.is_dir() and (args.resume or args.overwrite):
            with only_driver(out):  # a running driver keeps its folder; what a killed one left ends first
                pass
        open_run(out, config.resolved(), seed=args.seed, resume=args.resume, overwrite=args.overwrite)
        with only_driver(out) as lock, saying_how_to_go_on():
            runner = StageRunner(out / "logs", ROOT, lock=lock)
            run_steps(runner, steps, out, args.seed, resume=args.resume)
    closing(runner, out, steps if args.resume else [])
    return 0


@contextmanager
def saying_how_to_go_on() -> Iterator[None]:
    """Ctrl-C, SIGTERM and a failed stage end with a line that says how the run continues."""
    from stage_runner import StageError

    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; {GO_ON}") from None
    except SystemExit:
        print(f"terminated; {GO_ON}", file=sys.stderr)
        raise
    except StageError as error:
        raise StageError(f"{error}; {GO_ON}") from error


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
