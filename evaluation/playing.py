"""Plays the tasks chunk by chunk; every finished chunk is on disk before the next begins, so that a kill costs one.

Per policy: ``predictions.jsonl`` (in the order of the tasks once all are played), ``failed.jsonl`` where a request got
no answer (such a task has no prediction and counts as failed), ``note.json``. A resumed run plays what has none.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotools.errors import DataError, RunFolderError
from autotools.rundir import read_jsonl, write_json, write_jsonl
from autotools.schema import Task, ToolSpec, Trajectory
from evaluation.policies import Player

TASKS, INPUTS = "tasks.jsonl", "inputs.json"
PREDICTIONS, FAILED, NOTE = "predictions.jsonl", "failed.jsonl", "note.json"


@dataclass
class Predictions:
    """The predictions of one policy in its folder, as far as they have come."""

    folder: Path
    kept: dict[str, Trajectory] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path, tasks: Sequence[Task]) -> "Predictions":
        """What an interrupted run has left; a last line that it was writing is dropped.

        Raises DataError for a row that cannot be read, or is of no task that is played.
        """
        out = cls(folder)
        file = folder / PREDICTIONS
        if not file.is_file():
            return out
        drop_half_line(file)
        for row in read_jsonl(file, Trajectory):
            out.kept[row.task_id] = row
        if stray := out.kept.keys() - {task.id for task in tasks}:
            raise DataError(f"{file}: prediction of {min(stray)!r}, which is not played here; start anew: --overwrite")
        if (folder / FAILED).is_file():
            out.failed = {row["task"]: row["reason"] for row in read_jsonl(folder / FAILED)}
        return out

    def add(self, trajectories: Iterable[Trajectory], failed: dict[str, str]) -> None:
        """Append a finished chunk, in one write that is on disk when this returns."""
        rows = list(trajectories)
        for row in rows:
            self.kept[row.task_id] = row
            self.failed.pop(row.task_id, None)
        self.failed |= failed
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = "".join(json.dumps(row.model_dump(mode="json"), ensure_ascii=False) + "\n" for row in rows)
        with (self.folder / PREDICTIONS).open("ab") as file:
            file.write(lines.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        self._write_failed()

    def close(self, tasks: Sequence[Task], note: dict[str, Any]) -> list[Trajectory]:
        """Put the rows in the order of the tasks, and return them."""
        rows = [self.kept[task.id] for task in tasks if task.id in self.kept]
        write_jsonl(self.folder / PREDICTIONS, rows)
        self._write_failed()
        write_json(self.folder / NOTE, note)
        return rows

    def note(self) -> dict[str, Any] | None:
        """What the player said it is, in a run that had come to its end; None before."""
        file = self.folder / NOTE
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None

    def _write_failed(self) -> None:
        if self.failed:
            write_jsonl(self.folder / FAILED, [{"task": task, "reason": self.failed[task]} for task in self.failed])
        else:
            (self.folder / FAILED).unlink(missing_ok=True)


def drop_half_line(file: Path) -> None:
    """Cut a JSON-lines file behind its last whole line."""
    content = file.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        with file.open("r+b") as out:
            out.truncate(whole)


def play(
    open_player: Callable[[], Player],
    tasks: Sequence[Task],
    folder: Path,
    chunk: int,
    *,
    label: str = "",
    begin: Callable[[], None] = lambda: None,
) -> tuple[Predictions, dict[str, Any], float]:
    """All predictions of a policy, its note, and the seconds that playing took.

    Chunks are the same however often a run was interrupted. The player is opened only if something is to be played;
    ``begin`` is called before the first row is written (a policy that cannot be opened leaves nothing behind).
    """
    from rich.console import Console
    from rich.progress import Progress

    start = time.perf_counter()
    predictions = Predictions.open(folder, tasks)
    missing = [[t for t in tasks[i : i + chunk] if t.id not in predictions.kept] for i in range(0, len(tasks), chunk)]
    note = predictions.note()
    if note is None or any(missing):
        player = open_player()
        note = player.note
        with Progress(console=Console(stderr=True), transient=True) as bar:
            shown = bar.add_task(f"playing {label}", total=len(tasks), completed=len(predictions.kept))
            for some in filter(None, missing):
                played = player.play(some)
                begin()
                predictions.add(played.trajectories, played.failed)
                bar.advance(shown, len(some))
    predictions.close(tasks, note)
    return predictions, note, time.perf_counter() - start


# --- what a resumed run must find again ---------------------------------------------------------------------------


def corpus_sha256(specs: Iterable[ToolSpec]) -> str:
    """Hash of the tools in their order, whatever form their files have."""
    digest = hashlib.sha256()
    for spec in specs:
        digest.update(spec.model_dump_json().encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()


def record_inputs(out: Path, tasks: Sequence[Task], inputs: dict[str, Any]) -> None:
    """Write what is played (``tasks.jsonl``, for ``evaluation.selection --tasks``) and what with (``inputs.json``)."""
    if not (out / INPUTS).is_file():
        write_jsonl(out / TASKS, tasks)
        write_json(out / INPUTS, inputs)  # last: with it both are whole


def check_inputs(out: Path, tasks: Sequence[Task], inputs: dict[str, Any]) -> None:
    """Raise RunFolderError if an interrupted run in ``out`` has played with something else, naming what differs."""
    if not (out / INPUTS).is_file():
        return
    first = json.loads((out / INPUTS).read_text(encoding="utf-8"))
    differing = [name for name in inputs if json.loads(json.dumps(inputs[name])) != first.get(name)]
    if read_jsonl(out / TASKS, Task) != list(tasks):
        differing.insert(0, "requests")
    if differing:
        what = ", ".join(differing)
        raise RunFolderError(f"{out} was begun with other {what}; put them back, or start anew with --overwrite")
