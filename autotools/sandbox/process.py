"""Starting and ending of worker processes, and their temporary folders."""

import contextlib
import fcntl
import os
import queue
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from autotools.errors import SandboxError
from autotools.sandbox.conversation import Channel, OutputKeeper, ProtocolFault, read_output

START_TIMEOUT_S = 20.0
_PREFIX = "autotools-sandbox-"
T = TypeVar("T")


class WorkFolder:
    """A temporary folder that the program may write: ``path``; swept by a later process if this one is killed."""

    def __init__(self) -> None:
        _sweep_once()
        self._root = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._lock = open(self._root / "lock", "w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = str(self._root / "work")
        os.mkdir(self.path, 0o700)

    def close(self) -> None:
        shutil.rmtree(self._root, ignore_errors=True)
        self._lock.close()


_swept = False


def _sweep_once() -> None:
    """Remove folders whose host process is gone: its lock is free."""
    global _swept
    if _swept:
        return
    _swept = True
    for root in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            with open(root / "lock") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(root, ignore_errors=True)
        except OSError:  # in use, just being made, or another user's
            continue


class _Starter(threading.Thread):
    """A thread that starts all workers: the kernel kills a worker when the *thread* that started it ends."""

    def __init__(self) -> None:
        super().__init__(daemon=True, name="sandbox-starter")
        self.pid = os.getpid()
        self.jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.start()

    def run(self) -> None:
        while True:
            self.jobs.get()()


_starter: _Starter | None = None
_starter_lock = threading.Lock()


def _in_starter(action: Callable[[], T]) -> T:
    global _starter
    with _starter_lock:
        if _starter is None or _starter.pid != os.getpid():  # threads do not survive a fork
            _starter = _Starter()
    box: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def job() -> None:
        try:
            box.put((action(), None))
        except BaseException as error:
            box.put((None, error))

    _starter.jobs.put(job)
    value, error = box.get()
    if error is not None:
        raise error
    return value  # type: ignore[return-value]


class WorkerProcess:
    """One started worker with its channels. ``argv`` gets the two channel numbers appended; ``job`` goes over the pipe.

    Raises SandboxError if it does not report ready.
    """

    def __init__(
        self,
        argv: list[str],
        environment: dict[str, str],
        job: dict[str, Any],
        output: OutputKeeper,
        folder: WorkFolder | None,
        timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        self.output, self.folder = output, folder
        control, inner_control = socket.socketpair()
        calls, inner_calls = socket.socketpair()
        self.control, self.calls = Channel(control), Channel(calls)
        self.out_fd, inner_out = os.pipe()
        os.set_blocking(self.out_fd, False)
        fds = (inner_control.fileno(), inner_calls.fileno())
        try:
            self.process: subprocess.Popen[bytes] = _in_starter(
                lambda: subprocess.Popen(
                    [*argv, *map(str, fds)], env=environment, stdin=subprocess.DEVNULL, stdout=inner_out,
                    stderr=inner_out, pass_fds=fds, start_new_session=True,
                    cwd=folder.path if folder else "/",
                )
            )  # fmt: skip
        except OSError as error:
            self._close()
            raise SandboxError(f"the sandbox worker did not start: {error}") from error
        finally:
            inner_control.close()
            inner_calls.close()
            os.close(inner_out)
        try:
            self.report = self._handshake(job, time.monotonic() + timeout_s)
        except BaseException:
            self.kill()
            raise

    def _handshake(self, job: dict[str, Any], deadline: float) -> dict[str, Any]:
        try:
            self.control.send(job)
            report = self.control.wait_frame(deadline)
        except (TimeoutError, EOFError, ProtocolFault) as error:
            cause = self.kill(patient=True)
            said = " ".join(self.output.text().split())[-500:]
            raise SandboxError(f"the sandbox worker did not start: {said or repr(error)}{cause}") from error
        if not report.get("ready"):
            what = "the function library does not load: " if report.get("library") else ""
            raise SandboxError(f"{what}{report.get('error')}")
        return report

    def kill(self, *, patient: bool = False) -> str:
        """End the process and all it started; returns a note on how it had ended before, if it had. Safe to repeat."""
        process = self.process
        code = None
        if process.returncode is None:
            if patient:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=0.1)  # a dying worker's own exit status says more than our SIGKILL
            code = process.returncode
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._close()
        return describe_exit(code)

    def _close(self) -> None:
        if self.out_fd >= 0:
            self._wait_for_end()
            os.close(self.out_fd)
            self.out_fd = -1
        self.control.close()
        self.calls.close()
        if self.folder:
            self.folder.close()

    def _wait_for_end(self) -> None:
        """bwrap's inside dies a moment after bwrap: its end of the output pipe closes last."""
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            if select.select([self.out_fd], [], [], 0.05)[0] and not read_output(self):
                return


def describe_exit(code: int | None) -> str:
    """`` (signal SIGSEGV)``, `` (exit code 3)`` or empty; bwrap reports a signal as 128 + its number."""
    if code is None:
        return ""
    number = -code if code < 0 else code - 128 if code > 128 else 0
    if number:
        with contextlib.suppress(ValueError):
            return f" (signal {signal.Signals(number).name})"
    return f" (exit code {code})"
