"""Run programs (Python text that calls library functions and ends with ``finish(value)``) in a child process.

Never in this process: model-written code can hang, exhaust memory or exit. The child is bounded by rlimits, by a
time limit with a hard kill, by output and reply caps, and dies with this process.

What it does NOT stop (full isolation is a later part, `autotools/sandbox/`): reading files the user may read,
writing files of limited size, starting processes, opening sockets with its own imports, changing modules of the
child for later programs, reading the API keys out of the child's memory. So run only programs made by our own
templates or models on a machine without secrets.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from autotools.errors import SandboxError

_WORKER = Path(__file__).parent / "sandbox" / "worker.py"
_MAX_REPLY = 8_000_000  # bytes
_START_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class ProgramResult:
    """What became of one program.

    ``answer`` is the JSON value given to ``finish`` (``finished`` tells a None answer from none at all). ``calls``
    are the child's own records {"method", "path" (template), "status", "arguments"}; the server's log is the
    ground truth. ``error`` is set unless status is ``ok``.
    """

    status: Literal["ok", "error", "timeout", "died"]
    answer: Any = None
    output: str = ""
    error: str | None = None
    calls: list[dict[str, Any]] = field(default_factory=list)
    finished: bool = False
    wall_s: float = 0.0


class ProgramRunner:
    """One long-lived child process for many programs, as a context manager.

    ``api_keys`` maps a tool category to its key; keys are added to requests by the child's runtime and never
    stand in the source. The child is restarted after a timeout or a death. Raises SandboxError when the fault is
    ours: the child does not start, the library does not load, the tool server is away or answers 5xx.
    """

    def __init__(
        self,
        library_source: str,
        base_url: str,
        api_keys: Mapping[str, str] | None = None,
        *,
        memory_mb: int = 512,
        max_output: int = 20_000,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="autotools-program-")
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._job = {
            "library": library_source,
            "base_url": base_url,
            "api_keys": dict(api_keys or {}),
            "max_output": max_output,
            "memory_bytes": memory_mb * 1024 * 1024,
            "cpu_s": 3600,  # over the child's whole life: a backstop, not the limit of one program
            "file_bytes": 16 * 1024 * 1024,
        }
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def run(self, program: str, session: str, timeout_s: float = 10) -> ProgramResult:
        """Run one program; ``session`` is sent as ``X-Session`` and selects the server's state (seconds, wall time)."""
        if self._process is None or self._process.poll() is not None:
            self._kill()
            self._start()
        start = time.monotonic()
        request = {"id": uuid.uuid4().hex, "program": program, "session": session, "timeout_s": timeout_s}
        reply: dict[str, Any] | None = None
        try:
            self._send(request, start + timeout_s)
            reply = self._receive(start + timeout_s)
        except TimeoutError:
            self._kill()
            return ProgramResult("timeout", error=f"no end after {timeout_s:g} s", wall_s=time.monotonic() - start)
        except (OSError, ValueError) as error:
            cause = self._kill()
            return ProgramResult("died", error=f"{error}{cause}", wall_s=time.monotonic() - start)
        except BaseException:
            self._kill()  # interrupted: the late reply must not be taken for the next program's
            raise
        if reply.pop("id", None) != request["id"]:
            self._kill()
            return ProgramResult("died", error="the child sent a reply to another request")
        if reply["status"] == "host_failure":
            raise SandboxError(f"tool server failed during a program of session {session!r}: {reply['error']}")
        return ProgramResult(**reply, wall_s=time.monotonic() - start)

    def call(
        self, function_name: str, arguments: Mapping[str, Any], session: str, timeout_s: float = 10
    ) -> ProgramResult:
        """Call one library function with keyword arguments (JSON values); ``answer`` is what it returned."""
        encoded = json.dumps(dict(arguments))
        return self.run(f"finish({function_name}(**json.loads({encoded!r})))", session, timeout_s)

    def close(self) -> None:
        """End the child and remove its folder; safe to call twice."""
        self._kill()
        self._folder.cleanup()

    def __enter__(self) -> "ProgramRunner":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _start(self) -> None:
        # Like -I, but with a fixed hash seed (-I ignores PYTHONHASHSEED): set order must not vary between runs.
        # -S: no site packages, so the child starts in 20 ms and offers the standard library only.
        self._process = subprocess.Popen(
            [sys.executable, "-s", "-P", "-S", "-u", str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self._folder.name,
            env={"PYTHONHASHSEED": "0", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
            start_new_session=True,
        )
        assert self._process.stdin and self._process.stdout
        os.set_blocking(self._process.stdin.fileno(), False)
        os.set_blocking(self._process.stdout.fileno(), False)
        self._buffer = b""
        deadline = time.monotonic() + _START_TIMEOUT_S
        try:
            self._send(self._job | {"parent": os.getpid()}, deadline)
            answer = self._receive(deadline)
        except (OSError, ValueError) as error:
            raise SandboxError(f"the program child did not start: {error}{self._kill()}") from error
        if not answer.get("ready"):
            self._kill()
            raise SandboxError(answer.get("error", "the program child is not ready"))

    def _send(self, message: dict[str, Any], deadline: float) -> None:
        assert self._process and self._process.stdin
        fd, data = self._process.stdin.fileno(), memoryview(json.dumps(message).encode() + b"\n")
        while data:
            if not select.select([], [fd], [], max(0.0, deadline - time.monotonic()))[1]:
                raise TimeoutError
            data = data[os.write(fd, data) :]

    def _receive(self, deadline: float) -> dict[str, Any]:
        """Next reply line. The child is not trusted: deadline, length cap, and any defect is a ValueError."""
        assert self._process and self._process.stdout
        fd = self._process.stdout.fileno()
        while b"\n" not in self._buffer:
            if not select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError
            chunk = os.read(fd, 1 << 16)
            if not chunk:
                raise ValueError("the child ended during the program")
            self._buffer += chunk
            if len(self._buffer) > _MAX_REPLY:
                raise ValueError(f"the program's reply is larger than {_MAX_REPLY} bytes")
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            reply = json.loads(line)
        except RecursionError as error:
            raise ValueError("reply is nested too deeply") from error
        if not isinstance(reply, dict):
            raise ValueError("reply is not an object")
        return reply

    def _kill(self) -> str:
        """Kill the child's whole process group; returns a note on how it had ended before, if it had."""
        process, self._process, self._buffer = self._process, None, b""
        if process is None:
            return ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.02)  # a dying child's own exit status says more than our SIGKILL
        code = process.returncode
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()
        if code is None:
            return ""
        return f" (signal {signal.Signals(-code).name})" if code < 0 else f" (exit code {code})"
