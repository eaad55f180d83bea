"""What a study says before it works: keys that no stage takes, and what a resumption leaves out or does again."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driver import ROOT, refuse_bad_keys

from autotools.config import load_config
from autotools.errors import ConfigError

if TYPE_CHECKING:
    from ablation import AblationArgs, Job
    from stage_runner import Stage, StageRunner

NEVER = ("config", "resume", "overwrite", "dry_run")
_SEED = re.compile(r"seed(\d+)_(.+?)\.(done|started)\.json")


def refuse_own_keys(args: "AblationArgs", commands: Mapping[str, str], own: Sequence[str]) -> None:
    """Raise ConfigError for a key that the study sets in ``commands``: its stages would not find each other's files.

    ``own``: keys of a row that are not keys of rl/train.py.
    """
    given = [(where, *key.partition(".")[::2]) for where in ("common", "more") for key in getattr(args, where)]
    given += [(f"row {name}", "rl", key) for name, row in args.table.items() for key in row if key not in own]
    for where, kind, key in given:
        name = key.replace("-", "_")
        if name in NEVER or f"--{name}" in commands[kind].split():
            raise ConfigError(
                f"{where}: key '{kind}.{key}' is set by the study itself; take it out (the study's own keys are out, "
                "seeds, resume and overwrite; data, sft, rl and evaluate name the stages' config files)"
            )


def refuse_bad_rows(args: "AblationArgs", waves: Iterable[Iterable["Job"]]) -> None:
    """Raise ConfigError for a key, a value or an algorithm that a stage does not take, before hours of training."""
    from rl.algorithms import get_algorithm
    from rl.train import SECTIONS, RLArgs

    first = [job.stage for wave in waves for job in wave if job.stage.name.startswith(("world", "seed0_"))]
    for stage in first:
        if "rl/train.py" in stage.command:
            argv = list(stage.command[stage.command.index("rl/train.py") + 1 :])
            at = argv.index("--config") + 1
            argv[at] = str(ROOT / argv[at])
            try:
                get_algorithm(load_config(argv, SECTIONS, prog="", description="").top(RLArgs).algorithm)
            except ConfigError as error:
                said = str(error).replace("command line: ", "")  # it is not the user's
                raise ConfigError(f"row {stage.name.removeprefix('seed0_')}: {said}") from error
    kinds = {key.partition(".")[0] for key in {**args.common, **args.more}} - {"rl"}
    named = {"world" if kind == "world" else f"seed0_{kind}" for kind in kinds}
    refuse_bad_keys(stage for stage in first if stage.name in named)


# --- what a resumption does to what is there ------------------------------------------------------------------------


def finished_runs(logs: Path) -> dict[str, list[int]]:
    """Row -> seeds of all RL runs of a study's folder that have finished, chosen now or not."""
    found: dict[str, list[int]] = {}
    for path in sorted(logs.glob("seed*_*.done.json")):
        match = _SEED.fullmatch(path.name)
        is_run = match and match[2] not in ("data", "sft", "evaluate")
        if is_run and (logs.parent / f"seed{match[1]}" / match[2]).is_dir():
            found.setdefault(match[2], []).append(int(match[1]))
    return found


def runs_of_other_rows(logs: Path, names: set[str], jobs: Iterable["Job"]) -> list[str]:
    """Names of stages outside of ``jobs`` that read a stage of ``names``: runs of rows that are not chosen now."""
    known, found = {job.stage.name for job in jobs}, []
    for match in filter(None, (_SEED.fullmatch(path.name) for path in logs.glob("seed*_*.json"))):
        name, tag = f"seed{match[1]}_{match[2]}", f"seed{match[1]}"
        reads = {"data": {"world"}, "sft": {"world", f"{tag}_data"}}.get(
            match[2], {"world", f"{tag}_data", f"{tag}_sft"}
        )
        if name not in known and reads & names:
            found.append(name)
    return found


def _left_out(args: "AblationArgs", logs: Path) -> list[str]:
    finished, chosen = finished_runs(logs), args.chosen()
    rows = [name for name in [*args.table, *finished] if name in finished and name not in chosen]
    rows = list(dict.fromkeys(rows))
    seeds = sorted({seed for seeds in finished.values() for seed in seeds if seed >= args.seeds})
    if not rows and not seeds:
        return []
    what = [f"rows {', '.join(rows)}"] if rows else []
    what += [f"seeds {', '.join(map(str, seeds))}"] if seeds else []
    again = [] if not rows else ["--rows", *(name for name in [*args.table, *finished] if name in {*rows, *chosen})]
    again += ["--seeds", str(max(seeds) + 1)] if seeds else []
    unknown = [name for name in rows if name not in args.table]
    where = f" and the --config whose table has {', '.join(unknown)}" if unknown else ""
    return [
        f"finished {' and '.join(what)} will not be in the tables any more; their models are kept. To have them back: "
        f"--resume {' '.join(dict.fromkeys(again))}{where}"
    ]


def _flags(command: Sequence[str]) -> dict[str, list[str]]:
    """Words by the flag that they follow; those before the first one by ''."""
    found: dict[str, list[str]] = {"": []}
    for word in command:
        if word.startswith("--"):
            found[word] = []
        else:
            found[list(found)[-1]].append(word)
    return found


def differing_words(old: Sequence[str], new: Sequence[str], most: int = 3) -> str:
    """The first differences of two commands, such as ``--beta 0.1 (before: 0.04)``; '' if there is none."""
    a, b, out = _flags(old), _flags(new), []
    for key in dict.fromkeys([*a, *b]):
        before, now = a.get(key), b.get(key)
        if before is not None and now is not None and len(before) + len(now) > 2:  # a list: only what came and went
            out += [f"{key} without {_short(word)}".strip() for word in before if word not in now]
            out += [f"{key} with {_short(word)}".strip() for word in now if word not in before]
        elif before != now:
            words = ["not given" if w is None else " ".join(w) or "true" for w in (now, before)]
            out.append(f"{key} {words[0]} (before: {words[1]})".strip())
    return ", ".join(out[:most]) + (f" and {len(out) - most} more" if len(out) > most else "")


def _short(word: str) -> str:
    return word if len(word) < 30 else word.partition("=")[0]  # a policy by its name, without its folder


def _why_again(runner: "StageRunner", stage: "Stage") -> str:
    """Why a stage that finished before runs again; '' if it never finished."""
    try:
        before = json.loads(runner.done_mark(stage).read_text(encoding="utf-8"))["command"]
    except (OSError, ValueError, KeyError):
        return ""
    if stage.makes and not stage.makes.is_dir():
        return "finished before, but its folder is gone; runs again"
    words = differing_words(before, stage.command)
    if not words:
        return "finished before, but a config file that it reads has changed since; runs again"
    return f"finished before with other keys; runs again: {words}"


def _run_again(runner: "StageRunner", jobs: Sequence["Job"]) -> list[str]:
    reasons: dict[str, list[str]] = {}
    again: set[str] = set()
    for job in jobs:
        stage = job.stage
        if not runner.is_done(stage):
            why = _why_again(runner, stage)
        elif again.intersection(job.needs):
            why = "finished before, but reads what runs again; runs again"
        else:
            continue
        again.add(stage.name)
        if why:  # the same of all seeds in one line
            reasons.setdefault(re.sub(r"\bseed\d+\b", "seedN", why), []).append(stage.name)
    return [f"{_some(names)}: {why}" for why, names in reasons.items()]


def _some(names: Sequence[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def resumption_notes(args: "AblationArgs", runner: "StageRunner", jobs: Sequence["Job"]) -> list[str]:
    """What a person who resumes a study may not expect: rows and seeds that leave the tables, stages that run again."""
    return _left_out(args, runner.logs) + _run_again(runner, jobs)


def count_stages(args: "AblationArgs") -> str:
    """How much a study is: the last line of its dry run."""
    rows, seeds = len(args.chosen()), args.seeds
    counts: dict[str, Any] = {
        "world": 1, "data set": seeds, "SFT run": seeds, "RL run": rows * seeds, "evaluation": seeds,
    }  # fmt: skip
    text = ", ".join(f"{n} {name}{'s' if n != 1 else ''}" for name, n in counts.items())
    return f"{sum(counts.values())} stages: {text}; {args.jobs} side by side"
