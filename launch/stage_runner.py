"""Runs the stages of a pipeline as child processes: side by side where a step says so, measured, and never left behind.

Each stage is an ordinary command in its own process group; its output goes to ``<logs>/<stage>.log``. When anything
goes wrong (a stage fails, Ctrl-C, SIGTERM), every process that a stage started is ended before the driver leaves.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any

import psutil
from rich.console import Console

from autotools.errors import AutoToolsError
from autotools.rundir import sha256_file, write_json

POLL_S = 0.1
MEASURE_S = 0.5  # looking through all processes costs milliseconds that the stages need
GRACE_S = 5.0  # between SIGTERM and SIGKILL


class StageError(AutoToolsError):
    """A stage ended with a non-zero exit code."""


@dataclass(frozen=True)
class Stage:
    """One command, and the folder it makes (None: it writes into an existing one)."""

    name: str
    command: tuple[str, ...]
    makes: Path | None = None

    def shown(self) -> str:
        """The command as a person would type it."""
        first = Path(self.command[0]).name
        return shlex.join(["python" if first.startswith("python") else first, *self.command[1:]])


@dataclass
class _Running:
    stage: Stage
    process: subprocess.Popen[bytes]
    log: Path
    file: IO[bytes]
    start: float
    identity: dict[str, Any]
    peak_bytes: int = 0
    seen: dict[int, psutil.Process] = field(default_factory=dict)

    def measure(self) -> int:
        """Resident bytes of the stage's whole process tree now; remembers the processes, so that none can be lost."""
        total = 0
        try:
            leader = psutil.Process(self.process.pid)
            family = [leader, *leader.children(recursive=True)]
        except psutil.Error:
            return 0
        for member in family:
            self.seen[member.pid] = member
            try:
                total += member.memory_info().rss
            except psutil.Error:
                continue
        self.peak_bytes = max(self.peak_bytes, total)
        return total

    def status(self) -> str:
        """Name, seconds and the newest line of the log, without rich's markup brackets."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - 2000))
                text = file.read().decode("utf-8", "replace").replace("\r", "\n")
        except OSError:
            text = ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        newest = lines[-1][:90].replace("[", "(").replace("]", ")") if lines else ""
        return f"{self.stage.name} {time.monotonic() - self.start:.0f} s: {newest}"

    def kill(self, grace_s: float) -> None:
        """End the group and every descendant that was ever seen (one may have left the group)."""
        self.measure()
        _signal_group(self.process.pid, signal.SIGTERM)
        others = [member for member in self.seen.values() if member.pid != self.process.pid]
        for member in others:
            _quietly(member.terminate)
        try:
            self.process.wait(grace_s)
        except subprocess.TimeoutExpired:
            pass
        psutil.wait_procs(others, timeout=grace_s if self.process.poll() is not None else 0)
        _signal_group(self.process.pid, signal.SIGKILL)
        for member in others:
            _quietly(member.kill)
        self.process.wait()
        self.file.close()


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass


def _quietly(action: Any) -> None:
    try:
        action()
    except psutil.Error:
        pass


class StageRunner:
    """Runs steps (lists of stages that run side by side) and keeps their wall time and peak memory.

    ``memory`` of a stage is the largest sum of resident sizes over its processes, sampled every 0.5 s, so pages that
    processes share count once for each; ``peak_bytes`` is the same over all stages running at one time.
    """

    def __init__(self, logs: Path, cwd: Path, console: Console | None = None) -> None:
        self.logs, self.cwd = logs, cwd
        self.console = console or Console(stderr=True)
        self.start = time.monotonic()
        self.peak_bytes = 0
        self.wall_s: dict[str, float] = {}
        self.memory: dict[str, int] = {}

    def elapsed_s(self) -> float:
        """Seconds since the runner was made."""
        return time.monotonic() - self.start

    def done_mark(self, stage: Stage) -> Path:
        """The file that says a stage succeeded, with what command."""
        return self.logs / f"{stage.name}.done.json"

    def is_done(self, stage: Stage) -> bool:
        """Whether an earlier run finished this very command and its folder is still there."""
        try:
            mark = json.loads(self.done_mark(stage).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        if any(mark.get(key) != value for key, value in self._identity(stage).items()) or (
            stage.makes and not stage.makes.is_dir()
        ):
            return False
        self.wall_s[stage.name], self.memory[stage.name] = mark["wall_s"], mark["peak_bytes"]
        self.peak_bytes = max(self.peak_bytes, mark["peak_so_far"])
        return True

    def _identity(self, stage: Stage) -> dict[str, Any]:
        """What must be the same for an earlier result to stand: the command and the config files it names."""
        files = [word for word in stage.command if word.endswith((".yaml", ".json")) and (self.cwd / word).is_file()]
        return {"command": list(stage.command), "configs": {word: sha256_file(self.cwd / word) for word in files}}

    def run_step(self, stages: Sequence[Stage]) -> None:
        """Run stages side by side until all are done. Raises StageError after ending the others if one fails."""
        running: list[_Running] = []
        try:
            for stage in stages:
                running.append(self._start(stage))
            self._wait(running)
        except BaseException:  # also Ctrl-C and SIGTERM: nothing may be left behind
            for one in running:
                one.kill(GRACE_S)
            raise

    def _start(self, stage: Stage) -> _Running:
        self.logs.mkdir(parents=True, exist_ok=True)
        self.done_mark(stage).unlink(missing_ok=True)
        log, identity = self.logs / f"{stage.name}.log", self._identity(stage)
        file = log.open("wb")
        file.write(f"$ {stage.shown()}\n".encode())
        file.flush()
        if not self.console.is_terminal:
            self.console.print(f"{stage.name}: started")
        try:
            process = subprocess.Popen(
                stage.command, cwd=self.cwd, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )
        except OSError as error:
            file.close()
            raise StageError(f"stage {stage.name} cannot start: {stage.command[0]}: {error.strerror}") from error
        return _Running(stage, process, log, file, time.monotonic(), identity)

    def _wait(self, running: list[_Running]) -> None:
        left, measured = list(running), 0.0
        with self.console.status("") as status:
            while left:
                if time.monotonic() - measured > MEASURE_S:
                    self.peak_bytes = max(self.peak_bytes, sum(one.measure() for one in left))
                    measured = time.monotonic()
                    status.update("   ".join(one.status() for one in left))
                for one in [one for one in left if one.process.poll() is not None]:
                    left.remove(one)
                    self._finish(one)
                time.sleep(POLL_S if left else 0)

    def _finish(self, one: _Running) -> None:
        name, wall_s = one.stage.name, round(time.monotonic() - one.start, 2)
        one.kill(0.0)  # the command itself has ended; what it forgot to end goes now
        if one.process.returncode != 0:
            tail = one.log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
            self.console.print("\n".join(tail), markup=False, highlight=False)
            raise StageError(f"stage {name} failed (exit code {one.process.returncode}); its output is in {one.log}")
        self.wall_s[name], self.memory[name] = wall_s, one.peak_bytes
        mark = {**one.identity, "wall_s": wall_s, "peak_bytes": one.peak_bytes, "peak_so_far": self.peak_bytes}
        write_json(self.done_mark(one.stage), mark)
        self.console.print(f"{name}: done in {wall_s:.1f} s, {one.peak_bytes / 1e9:.2f} GB peak", highlight=False)


@contextmanager
def interrupts_as_exceptions() -> Iterator[None]:
    """Turn SIGINT and SIGTERM into exceptions even where a shell started us with SIGINT ignored (``command &``)."""

    def leave(number: int, frame: FrameType | None) -> None:
        for other in (signal.SIGINT, signal.SIGTERM):  # a second signal must not cut the clean-up short
            signal.signal(other, signal.SIG_IGN)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
