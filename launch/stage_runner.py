"""Runs the stages of a pipeline as child processes: side by side where a step says so, measured, and never left behind.

Each stage is an ordinary command under a guard (guard.py); its output goes to ``<logs>/<stage>.log``. When anything
goes wrong (a stage fails, Ctrl-C, SIGTERM), every process that a stage started is ended before the driver leaves; when
the driver is killed, the guards see to it. Marks in ``<logs>`` say which stages have started and which are done.
"""

import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any

import guard
import psutil
from rich.console import Console

from autotools.errors import AutoToolsError, RunFolderError
from autotools.rundir import sha256_file, write_json

POLL_S = 0.1
MEASURE_S = 0.5  # looking through all processes costs milliseconds that the stages need
GRACE_S = 5.0  # between SIGTERM and SIGKILL
LOCK_WAIT_S = 2 * GRACE_S  # the guards of a killed driver hold the lock until they are through
_DIED = re.compile(  # accelerate's traceback of one process, torch's launcher of several
    r"died with <Signals\.SIG\w+: (\d+)>|Signal (\d+) \(SIG\w+\) received by PID"
)
MARK = "AUTOTOOLS_STAGE"  # in the environment of all that a stage starts: <logs>/<stage>


class StageError(AutoToolsError):
    """A stage ended with a non-zero exit code."""


@dataclass(frozen=True)
class Stage:
    """One command, the folder it makes (None: it writes into an existing one), and whether it knows ``--resume``.

    ``reads`` are the user's own files and folders: a stage whose inputs have changed is not done.
    """

    name: str
    command: tuple[str, ...]
    makes: Path | None = None
    resumes: bool = False
    reads: tuple[Path, ...] = ()

    def shown(self) -> str:
        """The command as a person would type it."""
        first = Path(self.command[0]).name
        return shlex.join(["python" if first.startswith("python") else first, *self.command[1:]])


@dataclass
class _Running:
    stage: Stage
    process: subprocess.Popen[bytes]  # the guard
    pipe: int  # closing it makes the guard end the stage
    mark: str
    log: Path
    file: IO[bytes]
    start: float
    spent_s: float  # by an interrupted attempt that this one continues
    peak_bytes: int = 0
    seen: dict[int, psutil.Process] = field(default_factory=dict)

    def measure(self) -> int:
        """Resident bytes of the stage's whole process tree now (the guard's 10 MB, too); remembers the processes."""
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

    def close_pipe(self) -> None:
        """Tell the guard to end all that is left of the stage."""
        if self.pipe >= 0:
            os.close(self.pipe)
            self.pipe = -1

    def end(self) -> None:
        """Wait until the guard has ended all that is left of the stage; do it here if the guard was killed."""
        self.close_pipe()
        try:
            self.process.wait(2 * GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.returncode < 0:
            guard.end_marked(MARK, self.mark)
            for member in self.seen.values():  # psutil knows a reused pid by its start time
                try:
                    member.kill()
                except psutil.Error:
                    continue
            for folder in guard.temporary_folders(self.process.pid):
                shutil.rmtree(folder, ignore_errors=True)
        self.file.close()


@contextmanager
def only_driver(folder: Path) -> Iterator[int | None]:
    """Hold the lock of a run folder; yields its file number for the guards, or None where folders cannot be locked.

    Raises RunFolderError if another driver (or what is left of one) still works there after ``LOCK_WAIT_S``.
    """
    lock, end = os.open(folder, os.O_RDONLY | os.O_DIRECTORY), time.monotonic() + LOCK_WAIT_S
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    raise RunFolderError(f"another quickstart works in {folder}; wait for it, or end it") from None
                time.sleep(POLL_S)
                continue
            except OSError:  # some network file systems
                yield None
                return
            yield lock
            return
    finally:
        os.close(lock)


class StageRunner:
    """Runs steps (lists of stages that run side by side) and keeps their wall time and peak memory.

    ``memory`` of a stage is the largest sum of resident sizes over its processes, sampled every 0.5 s, so pages that
    processes share count once for each; ``peak_bytes`` is the same over all stages running at one time.
    """

    def __init__(self, logs: Path, cwd: Path, console: Console | None = None, lock: int | None = None) -> None:
        self.logs, self.cwd, self.lock = logs, cwd, lock
        self.console = console or Console(stderr=True)
        self.start = time.monotonic()
        self.peak_bytes = 0
        self.wall_s: dict[str, float] = {}
        self.memory: dict[str, int] = {}
        if lock is not None:  # we are alone, so what bears our mark has outlived a killed driver and a killed guard
            guard.end_marked(MARK, f"{logs}/")

    def elapsed_s(self) -> float:
        """Seconds since the runner was made."""
        return time.monotonic() - self.start

    def done_mark(self, stage: Stage) -> Path:
        """The file that says a stage succeeded, with what command."""
        return self.logs / f"{stage.name}.done.json"

    def _started_mark(self, stage: Stage) -> Path:
        return self.logs / f"{stage.name}.started.json"

    def is_done(self, stage: Stage) -> bool:
        """Whether an earlier run finished this very command and its folder is still there."""
        mark = self._matching(self.done_mark(stage), stage)
        if mark is None or (stage.makes and not stage.makes.is_dir()):
            return False
        self.wall_s[stage.name], self.memory[stage.name] = mark["wall_s"], mark["peak_bytes"]
        self.peak_bytes = max(self.peak_bytes, mark["peak_so_far"])
        return True

    def continues(self, stage: Stage) -> bool:
        """Whether an earlier run was interrupted in this very command, and left something to go on from."""
        started = self._matching(self._started_mark(stage), stage)
        return stage.resumes and started is not None and _progress(stage) is not None

    def forget(self, stages: Sequence[Stage]) -> None:
        """Take back what is known of stages that will run from their start; call it before deleting their folders."""
        for stage in stages:
            self.done_mark(stage).unlink(missing_ok=True)
            self._started_mark(stage).unlink(missing_ok=True)

    def _matching(self, mark: Path, stage: Stage) -> dict[str, Any] | None:
        try:
            content = json.loads(mark.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        same = all(content.get(key) == value for key, value in self._identity(stage).items())
        return content if same else None

    def _identity(self, stage: Stage) -> dict[str, Any]:
        """What must be the same for an earlier result to stand: the command, the config files it names, its inputs."""
        configs = [word for word in stage.command if word.endswith(".yaml") and (self.cwd / word).is_file()]
        hashes = {word: sha256_file(self.cwd / word) for word in configs}
        return {"command": list(stage.command), "configs": hashes | {str(path): _hash(path) for path in stage.reads}}

    def run_step(self, stages: Sequence[Stage], continued: Collection[str] = ()) -> None:
        """Run stages side by side until all are done; those named in ``continued`` get ``--resume``.

        Raises StageError after ending the others if one fails.
        """
        running: list[_Running] = []
        try:
            for stage in stages:
                running.append(self._start(stage, stage.name in continued))
            self._wait(running)
        except BaseException:  # also Ctrl-C and SIGTERM: nothing may be left behind
            for one in running:
                one.close_pipe()  # all at once, so that they do not wait for each other's grace
            for one in running:
                one.end()
            raise

    def _start(self, stage: Stage, continued: bool) -> _Running:
        self.logs.mkdir(parents=True, exist_ok=True)
        spent_s = self._mark_start(stage, continued)
        command = [*stage.command, "--resume", "true"] if continued else list(stage.command)
        log, mark = self.logs / f"{stage.name}.log", f"{self.logs}/{stage.name}"
        file = log.open("ab" if continued else "wb")
        file.write((f"\n$ {stage.shown()} --resume true\n" if continued else f"$ {stage.shown()}\n").encode())
        file.flush()
        if not self.console.is_terminal:
            self.console.print(f"{stage.name}: {'continued' if continued else 'started'}")
        read, write = os.pipe()
        try:
            process = subprocess.Popen(
                guard.command_line(sys.executable, str(Path(__file__).parent), read, GRACE_S, command),
                cwd=self.cwd, env=os.environ | {MARK: mark}, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                start_new_session=True, pass_fds=[read] if self.lock is None else [read, self.lock],
            )  # fmt: skip
        finally:
            os.close(read)
        return _Running(stage, process, write, mark, log, file, time.monotonic(), spent_s)

    def _mark_start(self, stage: Stage, continued: bool) -> float:
        """Write the mark of a start, which outlives a kill; returns the seconds that a continued attempt had used."""
        spent_s, mark = 0.0, self._started_mark(stage)
        before, reached = self._matching(mark, stage), _progress(stage)
        if continued and before and reached:
            spent_s = before["spent_s"] + max(0.0, reached.stat().st_mtime - before["time"])
        self.done_mark(stage).unlink(missing_ok=True)
        write_json(mark, {**self._identity(stage), "time": time.time(), "spent_s": round(spent_s, 2)})
        return spent_s

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
        name, wall_s = one.stage.name, round(one.spent_s + time.monotonic() - one.start, 2)
        one.end()  # the command itself has ended
        code = one.process.returncode
        if code != 0:
            lines = one.log.read_text(encoding="utf-8", errors="replace").splitlines()
            last_start = max((number for number, line in enumerate(lines) if line.startswith("$ ")), default=0)
            lines = lines[last_start:]  # a continued stage has one log for all its attempts
            reasons = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
            number = _signal(code, lines)
            if not reasons and not number:
                self.console.print("\n".join(lines[-15:]), markup=False, highlight=False)
            how = _killed_by(number) if number else f"exit code {code}"
            why = f": {reasons[-1]}" if reasons else ""
            raise StageError(f"stage {name} failed ({how}){why}; its output is in {one.log}")
        self.wall_s[name], self.memory[name] = wall_s, one.peak_bytes
        mark = {"wall_s": wall_s, "peak_bytes": one.peak_bytes, "peak_so_far": self.peak_bytes}
        write_json(self.done_mark(one.stage), {**self._identity(one.stage), **mark})
        self.console.print(f"{name}: done in {wall_s:.1f} s, {one.peak_bytes / 1e9:.2f} GB peak", highlight=False)


def _signal(code: int, lines: Sequence[str]) -> int:
    """The signal that ended a stage, or 0. Launchers exit with 1 and name their worker's signal in a traceback."""
    if code < 0 or code > 128:
        return abs(code) % 128
    found = [match for line in lines[-60:] if (match := _DIED.search(line))]
    return next((int(number) for number in found[-1].groups() if number), 0) if found else 0


def _killed_by(number: int) -> str:
    return f"killed by signal {number}; out of memory?" if number == signal.SIGKILL else f"ended by signal {number}"


def _hash(path: Path) -> str:
    """SHA-256 of a file, or of the names and contents of all files below a folder."""
    if path.is_file():
        return sha256_file(path)
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")):
        if file.is_file():
            digest.update(f"{file.relative_to(path)}\0{sha256_file(file)}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _progress(stage: Stage) -> Path | None:
    """The newest file of a training stage's folder from which it can go on: its manifest, or a whole checkpoint's."""
    from training.runtime import find_checkpoint

    if stage.makes is None:
        return None
    if (stage.makes / "manifest.json").is_file():
        return stage.makes / "manifest.json"
    checkpoint = find_checkpoint(stage.makes)
    return Path(checkpoint) / "trainer_state.json" if checkpoint else None


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
