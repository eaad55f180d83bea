"""``python -m rl.show RUN [--step N] [--group G]``: recorded rollouts with their credit, in the terminal.

RUN is a run folder (of the RL stage or of the whole pipeline), an evaluation's folder, or a file of either:
``trajectories.jsonl`` or ``predictions.jsonl`` (there every request is a group of one at step 0, without credit).
Without ``--step`` and ``--group`` the recorded groups are listed. Groups and rollouts count from 1, as on the pages of
the report; steps as in the file. ``--html FILE`` writes the page of ``evaluation.trajectory_page`` instead.
"""

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from autotools.config import load_config, run_main
from autotools.errors import ConfigError, DataError

RECORDED, PREDICTED = "trajectories.jsonl", "predictions.jsonl"
PLACES = (RECORDED, f"rl/{RECORDED}", PREDICTED)
PIPED_WIDTH, MIN_WIDTH = 80, 20


@dataclass(kw_only=True)
class ShowArgs:
    """Keys of the command."""

    run: str = field(default="", metadata={"help": "run folder or file (also as a bare word)"})
    step: int | None = field(default=None, metadata={"help": "only this step"})
    group: int | None = field(default=None, metadata={"help": "this group (from 1) in full; needs one step"})
    rollout: int | None = field(default=None, metadata={"help": "only this rollout (from 1) of the group"})
    task: str = field(default="", metadata={"help": "only groups of the task with this id, in full"})
    html: str = field(default="", metadata={"help": "write a page with everything recorded to this file instead"})
    width: int = field(default=0, metadata={"help": "columns; default: the terminal's, 80 in a pipe"})

    def __post_init__(self) -> None:
        if self.width != 0 and self.width < MIN_WIDTH:
            raise ValueError(f"width must be {MIN_WIDTH} columns or more (0: the terminal's), got {self.width}")


def find_file(run: str) -> Path:
    """The file of rollouts in or at ``run``. Raises DataError that says what was looked for."""
    path = Path(run)
    if path.is_file():
        return path
    if not path.is_dir():
        raise DataError(f"{run!r} is neither a file nor a folder")
    if found := next((path / place for place in PLACES if (path / place).is_file()), None):
        return found
    below = sorted(path.rglob(PREDICTED))[:8]
    hint = f"; there are {', '.join(str(p.relative_to(path)) for p in below)}: name one" if below else ""
    raise DataError(f"{run} holds none of {', '.join(PLACES)}{hint}; record_every 0 records nothing")


def read_groups(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Rows with a parsed ``trajectory`` by step, group and rollout, and how many lines were unusable.

    Raises DataError if no line is usable.
    """
    from evaluation.trajectory_page import read_recorded

    rows, bad = read_recorded(path)
    if not rows:
        rows, bad = _read_predictions(path)
    if not rows and bad:
        raise DataError(f"{path}: none of its {bad} lines is a recorded rollout or a prediction")
    return rows, bad


def _read_predictions(path: Path) -> tuple[list[dict[str, Any]], int]:
    from pydantic import ValidationError

    from autotools.schema import Trajectory

    rows, bad = [], 0
    with path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        for line in filter(str.strip, lines):
            try:
                trajectory = Trajectory.model_validate_json(line)
            except ValidationError:
                bad += 1
                continue
            rows.append({"step": 0, "group": len(rows), "rollout": 0, "trajectory": trajectory})
    return rows, bad


def choose(rows: Sequence[dict[str, Any]], args: ShowArgs) -> list[list[dict[str, Any]]]:
    """The groups that were asked for. Raises ConfigError that says what there is."""
    chosen = list(rows)
    steps = sorted({row["step"] for row in rows})
    if args.step is not None:
        chosen = [row for row in chosen if row["step"] == args.step]
        if not chosen:
            raise ConfigError(f"step {args.step} was not recorded; there are {_some(steps)}")
    if args.task:
        chosen = [row for row in chosen if row["trajectory"].task_id == args.task]
        if not chosen:
            raise ConfigError(f"no recorded rollout of task {args.task!r}; the list shows which there are")
    if args.group is not None:
        if len({row["step"] for row in chosen}) > 1:
            raise ConfigError(f"group {args.group} of which step? Pass --step, too; there are {_some(steps)}")
        there = sorted({row["group"] + 1 for row in chosen})
        chosen = [row for row in chosen if row["group"] + 1 == args.group]
        if not chosen:
            raise ConfigError(f"group {args.group} was not recorded at this step; there are {_some(there)}")
    if args.rollout is not None:
        there = sorted({row["rollout"] + 1 for row in chosen})
        chosen = [row for row in chosen if row["rollout"] + 1 == args.rollout]
        if not chosen:
            raise ConfigError(f"rollout {args.rollout} was not recorded; there are {_some(there)}")
    return [list(members) for _, members in groupby(chosen, key=lambda row: (row["step"], row["group"]))]


def _some(numbers: Sequence[int]) -> str:
    shown = [str(number) for number in numbers]
    return ", ".join(shown if len(shown) <= 12 else [*shown[:6], "...", *shown[-5:]])


def _print_group(console: Any, whole: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> None:
    from rl.show_text import group_head, rollout_lines

    for line in group_head(whole):
        console.print(line, overflow="fold")
    for row in rows:
        console.print()
        for line in rollout_lines(row, console.width):
            console.print(line, overflow="fold")
    console.print()


def show(args: ShowArgs, path: Path) -> None:
    """Print what was asked for on stdout; remarks about the file go to stderr."""
    from rich.console import Console
    from rich.text import Text

    from rl.recorder import TrajectoryRecorder
    from rl.show_text import group_line, list_head

    rows, bad = read_groups(path)
    if bad:
        print(f"warning: {bad} lines of {path} are unusable and left out", file=sys.stderr)
    if (stopped := TrajectoryRecorder(path).stopped_at()) is not None:
        print(f"recording ended at step {stopped}: record_max_mb was reached", file=sys.stderr)
    if not rows:
        print(f"{path} holds no rollout yet", file=sys.stderr)
        return
    groups = choose(rows, args)
    width = args.width or (shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPED_WIDTH)
    console = Console(width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)
    if args.group is None and not args.task and args.rollout is None:
        for line in (list_head(width), *(group_line(members, width) for members in groups)):
            console.print(Text(line), no_wrap=True, crop=True)
        return
    whole = {key: list(members) for key, members in groupby(rows, key=lambda row: (row["step"], row["group"]))}
    for members in groups:
        _print_group(console, whole[members[0]["step"], members[0]["group"]], members)


def write_html(path: Path, out: Path) -> int:
    """Write the trajectory page of a file of rollouts; returns how many it had."""
    from autotools.rundir import write_text
    from evaluation.trajectory_page import render

    rows, bad = read_groups(path)
    write_text(out, render(rows, bad, f"Rollouts of {path.parent.name or path.name}"))
    return len(rows)


def main(argv: list[str] | None = None) -> int:
    """List recorded groups, show some in full, or write the page."""
    prog = "python -m rl.show"
    config = load_config(argv, {"": ShowArgs}, prog=prog, description=__doc__ or "", positional="run")
    args = config.top(ShowArgs)
    if not args.run:
        raise ConfigError(f"no run folder; use: {prog} RUN [--step N --group G]")
    path = find_file(args.run)
    if args.html and Path(args.html).suffix != ".html":
        raise ConfigError(f"html is {args.html!r}; name a file that ends in .html")
    if config.dry_run:
        print(f"would write {args.html} from {path}" if args.html else f"would show {path}")
        return 0
    if args.html:
        print(f"wrote {args.html} with {write_html(path, Path(args.html))} rollouts of {path}")
    else:
        show(args, path)
    return 0


if __name__ == "__main__":
    run_main(main)
