"""A comparison of RL settings in the tool world: ``bash launch/ablation.sh [--config configs/ablation/paper.yaml]``.

One world for all; per seed one data set and one SFT model, from which every row of the study is trained under the
same budget, and one evaluation of all rows on the held-out test requests. Rows are data: ``table`` of the config maps
a name to keys of rl/train.py (``label`` and ``against`` are the table's own). Writes ``OUT/ablation.{json,md,html}``.
Interrupted studies go on with ``--resume``, also with more seeds or other rows; finished stages are kept, and what
leaves the tables or runs again is said first (``--resume --dry_run`` says it, too).
"""

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablation_checks import count_stages, refuse_bad_rows, refuse_own_keys, resumption_notes, runs_of_other_rows
from driver import ROOT, check_folder, config_file, run_folder, set_environment, shown

from autotools.config import load_config, run_main
from autotools.errors import ConfigError

if TYPE_CHECKING:
    from stage_runner import Stage, StageRunner

DEFAULT_STUDY = "configs/ablation/paper.yaml"
START = "before"
"""Name of the SFT start in the evaluation."""
OWN_KEYS = ("label", "against")

# {here} is the folder of a seed. The search engine, the machine and all seeds are the same for every row.
COMMANDS: dict[str, str] = {
    "world": "{python} -m toolworld.build --out {out}/world --seed 0",
    "data": "{python} -m data_synthesis.build --config {data} --world {out}/world --out {here}/data --seed {seed}",
    "sft": "{python} training/sft.py --config {sft} --data {here}/data --tools {out}/world --output_dir {here}/sft"
    " --seed {seed}",
    "rl": "{python} rl/train.py --config {rl} --data {here}/data --tools {out}/world --model {here}/sft"
    " --output_dir {here}/{row} --seed {seed}",
    "evaluate": "{python} -m evaluation.run --config {evaluate} --world {out}/world --out {here}/eval --policies"
    f" {START}={{here}}/sft {{policies}}",
}
RESUMABLE = ("sft", "rl")


@dataclass(frozen=True, kw_only=True)
class AblationArgs:
    """Keys of a study. ``table`` and ``common`` come from its file, the others mostly from the command line."""

    out: str = field(default="runs/ablation", metadata={"help": "folder of the study"})
    seeds: int = field(default=5, metadata={"help": "number of seeds, counted from 0"})
    rows: list[str] = field(default_factory=list, metadata={"help": "names of rows of the table; none: all"})
    jobs: int = field(default=2, metadata={"help": "stages side by side, one thread each"})
    resume: bool = field(default=False, metadata={"help": "keep finished stages, do the rest"})
    overwrite: bool = field(default=False, metadata={"help": "delete an earlier study in the same folder first"})
    data: str = field(default="configs/data/toolworld.yaml", metadata={"help": "config of the stage data"})
    sft: str = field(default="configs/sft/quickstart.yaml", metadata={"help": "config of the stage sft"})
    rl: str = field(default="configs/rl/quickstart.yaml", metadata={"help": "config of every RL run"})
    evaluate: str = field(default="configs/eval/toolworld.yaml", metadata={"help": "config of the evaluation"})
    baseline: str = field(default="toolsearcher", metadata={"help": "row that the others are compared with"})
    table: dict[str, dict[str, Any]] = field(
        default_factory=dict, metadata={"help": "rows: {name: {label, against, KEY OF rl/train.py: value}}"}
    )
    common: dict[str, Any] = field(default_factory=dict, metadata={"help": "keys of all: {STAGE.KEY: value}"})
    more: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "wins over common and table: --more rl.max_steps=5 sft.max_steps=20"}
    )

    def __post_init__(self) -> None:
        for name in ("seeds", "jobs"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"{name} is {value}; it must be 1 or more")

    def chosen(self) -> dict[str, dict[str, Any]]:
        """The rows to run, in the table's order. Raises ConfigError for a name that the table does not have."""
        named = [*self.rows, self.baseline, *(row["against"] for row in self.table.values() if "against" in row)]
        unknown = [name for name in named if name not in self.table]
        if unknown or not self.table:
            known = ", ".join(self.table) or "none; give a study with --config"
            raise ConfigError(f"unknown row {unknown[0] if unknown else ''!r}; rows of the table: {known}")
        for name in (START, "data", "sft", "eval", "evaluate"):
            if name in self.table:
                what = "the SFT start" if name == START else "a folder or stage of every seed"
                raise ConfigError(f"a row cannot be called {name!r}: that is {what}")
        return {name: row for name, row in self.table.items() if not self.rows or name in self.rows}


@dataclass(frozen=True)
class Job:
    """A stage, and the names of the stages whose files it reads."""

    stage: "Stage"
    needs: tuple[str, ...] = ()


def study_jobs(args: AblationArgs, out: Path) -> list[list[Job]]:
    """Waves of jobs that do not need each other. As many seeds are worked on at a time as jobs may run side by side."""
    rows, waves = args.chosen(), [[_job(args, out, "world", "world", out / "world")]]
    for first in range(0, args.seeds, args.jobs):
        seeds = range(first, min(first + args.jobs, args.seeds))
        data, sft, runs, evaluations = [], [], [], []
        for seed in seeds:
            here, tag = out / f"seed{seed}", f"seed{seed}_"
            data.append(_job(args, out, "data", f"{tag}data", here / "data", ("world",), seed=seed))
            sft.append(_job(args, out, "sft", f"{tag}sft", here / "sft", (f"{tag}data",), seed=seed))
            for name in rows:
                needs = (f"{tag}data", f"{tag}sft")
                runs.append(_job(args, out, "rl", f"{tag}{name}", here / name, needs, seed=seed, row=name))
            needs = (f"{tag}sft", *(f"{tag}{name}" for name in rows))
            evaluations.append(_job(args, out, "evaluate", f"{tag}evaluate", here / "eval", needs, seed=seed))
        waves += [data, sft, runs, evaluations]
    return waves


def _job(args: AblationArgs, out: Path, kind: str, name: str, makes: Path, needs: tuple[str, ...] = (), *,
         seed: int = 0, row: str = "") -> Job:  # fmt: skip
    from stage_runner import Stage

    here = out / f"seed{seed}"
    words = {
        "python": sys.executable, "out": shown(out), "here": shown(here), "seed": str(seed), "row": row,
        "policies": " ".join(f"{name}={shown(here / name)}" for name in args.chosen()),
        **{key: config_file(getattr(args, key)) for key in ("data", "sft", "rl", "evaluate")},
    }  # fmt: skip
    # formatted as a whole, then split: the policies are several words
    command = COMMANDS[kind].format(**words).split()
    keys = _stage_keys(args.common, kind)
    if kind == "rl":
        keys |= {key: value for key, value in args.table[row].items() if key not in OWN_KEYS}
    keys |= _stage_keys(args.more, kind)
    for key, value in keys.items():
        command += [f"--{key}", value if isinstance(value, str) else json.dumps(value)]
    return Job(Stage(name, tuple(command), makes, kind in RESUMABLE), needs)


def _stage_keys(keys: dict[str, Any], kind: str) -> dict[str, Any]:
    """The keys of one kind of stage out of ``{"rl.max_steps": 5, ...}``. Raises ConfigError for an unknown stage."""
    for key in keys:
        if key.partition(".")[0] not in COMMANDS or "." not in key:
            raise ConfigError(f"key {key!r} names no stage; they are {', '.join(COMMANDS)}, as in rl.max_steps")
    return {key.partition(".")[2]: value for key, value in keys.items() if key.partition(".")[0] == kind}


def run_study(runner: "StageRunner", waves: Sequence[Sequence[Job]], width: int) -> None:
    """Run what is not done yet, ``width`` stages side by side. What reads a stage that runs again runs again, too."""
    from stage_runner import Stage

    jobs = [job for wave in waves for job in wave]
    undone = sum(not runner.is_done(job.stage) for job in jobs)
    finished = 0
    for wave in waves:
        todo = [job for job in wave if not runner.is_done(job.stage)]
        # first, so that a kill in between cannot leave results of what is about to be replaced
        names = {job.stage.name for job in todo}
        runner.forget([job.stage for job in jobs if names.intersection(job.needs)])
        runner.forget([Stage(name, ()) for name in runs_of_other_rows(runner.logs, names, jobs)])
        for chunk in _chunks(todo, width):
            stages = [job.stage for job in chunk]
            continued = [stage.name for stage in stages if runner.continues(stage)]
            for stage in stages:
                if stage.name not in continued:
                    runner.forget([stage])
                    if stage.makes and stage.makes.exists():  # half made, inside our own folder
                        shutil.rmtree(stage.makes)
            runner.run_step(stages, continued)
            finished += len(stages)
            left = max(undone, finished) - finished
            minutes = runner.elapsed_s() / 60
            text = f"{finished} stages in {minutes:.1f} min, {left} to go"
            runner.console.print(f"{text}, about {minutes / finished * left:.0f} min" if left else text)


def _chunks(items: Sequence[Job], size: int) -> Iterator[Sequence[Job]]:
    return (items[i : i + size] for i in range(0, len(items), size))


def _say(notes: Sequence[str]) -> None:
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def main(argv: list[str] | None = None) -> int:
    """Run a study and write its tables; returns 0. Raises AutoToolsError for bad use or a failed stage."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if not any(word.split("=")[0] == "--config" for word in argv):
        argv = ["--config", str(ROOT / DEFAULT_STUDY), *argv]
    config = load_config(argv, {"": AblationArgs}, prog="bash launch/ablation.sh", description=__doc__ or "")
    args = config.top(AblationArgs)
    args.chosen()
    base = ROOT if args.out == AblationArgs.out else Path.cwd()
    out = (base / args.out).resolve()
    waves = study_jobs(args, out)
    # seeds and rows may grow, and stages that a changed key concerns run again by themselves
    fixed = {key: value for key, value in config.resolved().items() if key in ("out", "data", "sft", "rl", "evaluate")}
    set_environment()  # before rl's modules are imported for the check of the rows
    refuse_own_keys(args, COMMANDS, OWN_KEYS)
    print(f"checking the keys of {len(args.chosen())} rows", file=sys.stderr)
    refuse_bad_rows(args, waves)
    jobs = [job for wave in waves for job in wave]
    if config.dry_run:
        from stage_runner import StageRunner

        check_folder(out, fixed, resume=args.resume, overwrite=args.overwrite)
        print("\n".join(job.stage.shown() for job in jobs))
        _say(resumption_notes(args, StageRunner(out / "logs", ROOT), jobs) if args.resume else [])
        print(count_stages(args), file=sys.stderr)
        return 0
    from ablation_table import write_tables

    with run_folder(out, fixed, seed=0, resume=args.resume, overwrite=args.overwrite) as runner:
        _say(resumption_notes(args, runner, jobs) if args.resume else [])
        run_study(runner, waves, args.jobs)
        text = write_tables(out, args, runner.wall_s)
    print(text)
    print(*(out / f"ablation.{suffix}" for suffix in ("json", "md", "html")), sep="\n")
    return 0


if __name__ == "__main__":
    run_main(lambda: main(sys.argv[1:]))
