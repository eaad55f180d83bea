"""What the drivers of chains of commands share (quickstart.py, ablation.py): how a stage's words are written, what is
checked before anything runs, and the run folder with its lock, its clean end and its way to go on.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotools.errors import ConfigError, RunFolderError

if TYPE_CHECKING:
    from stage_runner import Stage, StageRunner

ROOT = Path(__file__).resolve().parent.parent
GO_ON = "go on with the same command and --resume"
_CONFIG_ERROR = re.compile(r"command line: |section '|[A-Z]\w*(Args|Config): ")  # as autotools/config.py begins them
ENVIRONMENT = {  # as launch/setup.sh sets it, for those who start a driver by hand
    "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
}


def set_environment() -> None:
    """Give this process, and so its stages, what ``ENVIRONMENT`` holds and the user has not set."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def shown(path: Path) -> str:
    """Stages run in the checkout: a path below it is written relative to it."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def config_file(name: str) -> str:
    """A config file given relative to where the user is, or else to the checkout. Raises ConfigError without it."""
    here = Path.cwd() / name
    if here.is_file():
        return shown(here.resolve())
    if not (ROOT / name).is_file():
        raise ConfigError(f"{name}: there is no such config file, neither here nor in {ROOT}")
    return name


def refuse_bad_keys(stages: Iterable["Stage"]) -> None:
    """Raise ConfigError for a key that its stage does not take, before anything has run.

    Only the command itself knows its keys, so it is asked, by its own ``--dry_run`` and without a launcher.
    """
    for stage in stages:
        script = next((n for n, word in enumerate(stage.command) if word.endswith(".py")), 1)
        asked = subprocess.run(
            [sys.executable, *stage.command[script:], "--dry_run"],
            cwd=ROOT, env=os.environ | ENVIRONMENT, capture_output=True, text=True, encoding="utf-8", errors="replace",
        )  # fmt: skip
        given = tuple(f"{word[2:]} is " for word in stage.command if word.startswith("--"))
        for line in asked.stderr.splitlines():  # other complaints are about folders that earlier stages will make
            said = line.removeprefix("error: ")
            if line != said and (_CONFIG_ERROR.match(said) or said.startswith(given)):
                raise ConfigError(f"stage {stage.name}: {said.removeprefix('command line: ')}")


def check_folder(out: Path, config: dict[str, Any], *, resume: bool, overwrite: bool) -> None:
    """What a dry run can say of the run folder; that it is in use is no error, for the commands stay the same."""
    from autotools.rundir import check_run

    try:
        check_run(out, config, resume=resume, overwrite=overwrite)
    except RunFolderError as error:
        if resume or overwrite or not out.is_dir():
            raise
        print(f"note: {error}", file=sys.stderr)


@contextmanager
def run_folder(
    out: Path, config: dict[str, Any], *, seed: int, resume: bool, overwrite: bool
) -> Iterator["StageRunner"]:
    """Claim ``out`` and yield the runner of its stages, alone in that folder until the end.

    Signals end all stages. Raises RunFolderError if the folder cannot be claimed or another driver works in it.
    """
    from stage_runner import StageRunner, interrupts_as_exceptions, only_driver

    from autotools.rundir import open_run

    set_environment()
    with interrupts_as_exceptions():
        if out.is_dir() and (resume or overwrite):
            with only_driver(out):  # a running driver keeps its folder; what a killed one left ends first
                pass
        open_run(out, config, seed=seed, resume=resume, overwrite=overwrite)
        with only_driver(out) as lock, _saying_how_to_go_on():
            yield StageRunner(out / "logs", ROOT, lock=lock)


@contextmanager
def _saying_how_to_go_on() -> Iterator[None]:
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
