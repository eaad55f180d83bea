"""``python -m autotools.sandbox run FILE...``: run programs in a sandbox, each in a session of its own.

A FILE is one program (.py; its id is the file's name without suffix) or many (.jsonl with ``id`` and ``program``).
A line ``# %% next turn`` splits a program into turns of its session. stdout gets one JSON line per program and
nothing else; the tier and the progress go to stderr. Exit code 0 whatever the programs do, 2 if they cannot be run.
"""

import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotools.config import load_config, run_main
from autotools.errors import ConfigError, DataError, SandboxError
from autotools.sandbox.settings import SandboxConfig

SPLIT = "# %% next turn"


@dataclass
class RunArgs:
    """Keys of the command."""

    files: list[str] = field(metadata={"help": "'run', then .py and .jsonl files"})


def main(argv: list[str] | None = None) -> int:
    """Run all programs of all files. Raises ConfigError, DataError, or SandboxError if the tier is not to be had."""
    sections = {"": (RunArgs, SandboxConfig)}
    prog = "python -m autotools.sandbox run"
    config = load_config(argv, sections, prog=prog, description=__doc__ or "", positional="files")
    command, *files = config.top(RunArgs).files
    if command != "run" or not files:
        raise ConfigError("usage: python -m autotools.sandbox run FILE... [--key value ...]")
    programs = [program for file in files for program in read_programs(Path(file))]
    settings = config.top(SandboxConfig)
    if config.dry_run:
        print(f"would run {len(programs)} programs in tier {settings.tier}", file=sys.stderr)
        return 0
    from rich.console import Console
    from rich.progress import track

    from autotools.sandbox.tiers import choose_tier

    choose_tier(settings.tier, settings.min_tier)  # fail before the first line, not after it
    for name, turns in track(programs, "programs", console=Console(stderr=True), transient=True):
        print(json.dumps({"id": name} | run_program(turns, settings)), flush=True)
    return 0


def read_programs(path: Path) -> list[tuple[str, list[str]]]:
    """(id, turns) of every program of a file. Raises DataError, naming file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    if path.suffix == ".py":
        return [(path.stem, split_turns(text))]
    if path.suffix != ".jsonl":
        raise DataError(f"{path}: neither .py nor .jsonl")
    programs = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            name, program = row["id"], row["program"]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}, line {number}: not an object with id and program: {error!r}") from error
        if not isinstance(program, str):
            raise DataError(f"{path}, line {number}: program is {type(program).__name__}, not text")
        programs.append((str(name), split_turns(program)))
    return programs


def split_turns(program: str) -> list[str]:
    """The turns of a program: parted by lines that say ``# %% next turn``."""
    turns: list[list[str]] = [[]]
    for line in program.split("\n"):
        if line.strip() == SPLIT:
            turns.append([])
        else:
            turns[-1].append(line)
    return ["\n".join(lines) for lines in turns]


def run_program(turns: list[str], settings: SandboxConfig) -> dict[str, Any]:
    """All turns in one new session; the outcome is that of the last turn, ``wall_s`` that of all with start and end."""
    from autotools.sandbox.session import Session

    start = time.monotonic()
    row: dict[str, Any] = {"status": "ok", "output": "", "truncated": False, "error": None, "state": "kept"}
    done: list[dict[str, str]] = []
    try:
        with Session(settings) as session:
            row["tier"] = session.tier
            for turn in turns:
                result = session.run(turn)
                done.append({"status": result.status, "output": result.output})
                row |= {"status": result.status, "output": result.output, "truncated": result.truncated}
                row |= {"error": result.error, "state": worst(row["state"], result.state)}
    except SandboxError as error:
        row |= {"status": "sandbox_error", "error": str(error)}
    row |= {"wall_s": round(time.monotonic() - start, 4), "turns": done}
    keys = ("status", "output", "truncated", "error", "wall_s", "tier", "state", "turns")
    return {key: row.get(key) for key in keys}


def worst(*states: str) -> str:
    """Of the states after each turn, the one that says most: lost, then restored, then kept."""
    return max(states, key=("kept", "restored", "lost").index)


if __name__ == "__main__":
    run_main(main)
