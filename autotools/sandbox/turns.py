"""Runs inside the worker: executes programs turn by turn in one namespace, whatever they do to the interpreter.

Imported by `worker.py` from its own folder; standard library only.
"""

import _signal
import ast
import builtins
import fcntl
import gc
import io
import json
import linecache
import os
import random
import resource
import signal
import struct
import sys
import types
from collections.abc import Callable
from typing import Any

import inner_http

MAX_ERROR = 2_000  # characters
MAX_FRAMES = 8  # of a traceback
HEADROOM = 32 << 20  # bytes of memory that only the end of a turn may use: it must still be able to reply
FUTURE_FLAGS = 0x1FF0000  # compiler flags of ``from __future__ import ...``
_HANDLERS = [  # after every turn; plain numbers, because the C functions take no enums
    (int(signal.SIGINT), _signal.SIG_IGN),
    (int(signal.SIGTERM), _signal.SIG_DFL),
    (int(signal.SIGHUP), _signal.SIG_DFL),
    (int(signal.SIGUSR1), _signal.SIG_DFL),
    (int(signal.SIGUSR2), _signal.SIG_DFL),
    (int(signal.SIGPIPE), _signal.SIG_IGN),
    (int(signal.SIGXFSZ), _signal.SIG_IGN),
]


class TimeLimit(BaseException):
    """The soft limit of a turn is over."""


class Finished(BaseException):
    """Raised by ``finish`` to end the program at once."""


def read_exactly(fd: int, size: int, read: Callable[[int, int], bytes] = os.read) -> bytes:
    """Raises EOFError when the other side is gone."""
    out = b""
    while len(out) < size:
        part = read(fd, min(size - len(out), 1 << 20))
        if not part:
            raise EOFError
        out += part
    return out


def write_all(fd: int, data: bytes, write: Callable[[int, bytes], int] = os.write) -> None:
    view = memoryview(data)
    while view:
        view = view[write(fd, view) :]


# --- one program ------------------------------------------------------------------------------------------------


def split_echo(text: str) -> tuple[str, str] | None:
    """(everything before, last expression) if a program ends in an expression. Raises SyntaxError.

    Cut as text, not as a tree: compiling a tree recurses more deeply, and long sums then fail.
    """
    try:
        body = ast.parse(text).body
    except (RecursionError, MemoryError):
        return None
    if not body or not isinstance(body[-1], ast.Expr):
        return None
    node = body[-1]
    lines = text.encode().split(b"\n")
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    before = b"\n".join([*lines[:first], lines[first][: node.col_offset]])
    lines[last] = lines[last][: node.end_col_offset]
    lines[first] = lines[first][node.col_offset :]
    expression = b"\n" * first + b"(" + b"\n".join(lines[first : last + 1]) + b"\n)"
    return before.decode().rstrip(" \t;"), expression.decode()


def describe(error: BaseException, programs: tuple[str, ...], brief: bool) -> str:
    """The program's own frames and lines, then ``Type: message``; ``brief``: one line. Frames of the worker, none."""
    frames, trace = [], error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename.startswith(programs):
            frames.append((code.co_filename, trace.tb_lineno, code.co_name))
        trace = trace.tb_next
    try:
        message = error.msg if isinstance(error, SyntaxError) else str(error)
    except Exception:  # a program's own exception class may fail to print itself
        message = "(no message)"
    name = type(error).__name__
    text = f"{name}: {message}"[:MAX_ERROR] if message or brief else name
    if isinstance(error, SyntaxError) and str(error.filename).startswith(programs) and error.lineno:
        frames = [(str(error.filename), error.lineno, "<module>")]
    if brief:
        return text + (f" (line {frames[-1][1]} of the program)" if frames else "")
    lines = []
    for file, line, where in frames[-MAX_FRAMES:]:
        lines.append(f'  File "{file}", line {line}' + ("" if where == "<module>" else f", in {where}"))
        if source := linecache.getline(file, line).strip():
            lines.append(f"    {source[:200]}")
    if lines:
        lines.insert(0, "Traceback (most recent call last):")
    return "\n".join(lines)[:MAX_ERROR] + ("\n" if lines else "") + text


class Worker:
    """Runs turns in one namespace that lives as long as this process.

    What it needs after a program ran is taken aside here, before any program can patch it.
    """

    def __init__(self, job: dict[str, Any], control: int, calls_fd: int) -> None:
        self.job, self.control = job, control
        self.encode, self.decode = json.JSONEncoder().encode, json.JSONDecoder().decode
        self.pack, self.unpack, self.read, self.write = struct.pack, struct.unpack, os.read, os.write
        # without the module's wrappers, which turn every number into an enum and back
        self.timer, self.handle, self.mask = _signal.setitimer, _signal.signal, _signal.pthread_sigmask
        self.dup2, self.chdir, self.makedirs, self.setrlimit = os.dup2, os.chdir, os.makedirs, resource.setrlimit
        self.settrace, self.setprofile, self.recursion = sys.settrace, sys.setprofile, sys.setrecursionlimit
        self.snapshots = [(vars(module), dict(vars(module))) for module in (builtins, os)]
        self.output = -1
        self.armed = self.fired = False
        self.count = 0
        self.stdin, self.stdout, self.stderr = sys.stdin, _text_out(1), _text_out(2)
        calls = inner_http.HostCalls(
            lambda size: read_exactly(calls_fd, size, self.read),
            lambda data: write_all(calls_fd, data, self.write),
            calls_fd,
        )
        inner_http.hook_requests(calls)
        self.answer: list[Any] = []
        self.brief = job.get("tools_url") is not None
        self.given: dict[str, Any] = {}
        if self.brief:
            tools = inner_http.Tools(calls, job["tools_url"])
            self.given = {"_request": tools.request, "ToolError": inner_http.ToolError, "json": json}
            self.given["finish"] = self._finish
        self.space: dict[str, Any] = {}
        self._new_space()

    def _new_space(self) -> None:
        """A namespace that also is the module ``__main__``: dataclasses and pickle look it up there."""
        module = types.ModuleType("__main__")
        module.__dict__["__builtins__"] = builtins
        self.space = module.__dict__
        self.space |= self.given
        sys.modules["__main__"] = module

    def _finish(self, value: Any = None) -> None:
        self.answer[:] = [json.loads(json.dumps(value, allow_nan=False))]
        raise Finished

    def attach(self) -> None:
        """Take over fd 1 as the output; a zygote makes the worker before the fork that gives it its own."""
        # Out of the way of programs that walk through the low descriptors: what they write there is no output.
        self.output = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 60)
        random.seed(0)  # here, because the module seeds itself anew after a fork

    def serve(self) -> None:
        """Run turn after turn until the host goes away (EOFError)."""
        while True:
            (size,) = self.unpack("!I", read_exactly(self.control, 4, self.read))
            message = self.decode(read_exactly(self.control, size, self.read).decode())
            data = self.encode(self.turn(message)).encode()
            write_all(self.control, self.pack("!I", len(data)) + data, self.write)

    def turn(self, message: dict[str, Any]) -> dict[str, Any]:
        """Outcome of one program as a JSON-able dict with the message's id."""
        self.answer.clear()
        if self.job["zygote"]:
            self._new_space()
            random.seed(0)
        self.fired, status, error = False, "ok", None
        self._tidy()
        self._memory(self.job["memory_bytes"])
        try:
            self.armed = True
            self.timer(signal.ITIMER_REAL, message["soft_s"])
            status, error = self._run(message)
            self.stdout.flush()  # may be the program's own objects by now: still inside the limit
            self.stderr.flush()
            self.armed = False
        except BaseException as problem:
            self.armed = False
            if not isinstance(problem, TimeLimit):
                status, error = "error", "the error could not be shown"
        self.timer(signal.ITIMER_REAL, 0)
        self._memory(self.job["memory_bytes"] + HEADROOM)
        self._tidy()
        if self.fired:  # even if the program caught it, or it was lost in a __del__
            status, error = "timeout", f"no end after {message['soft_s']:g} s"
        answered = status == "ok" and bool(self.answer)
        reply = {"id": message["id"], "status": status, "error": error, "finished": answered}
        return reply | {"answer": self.answer[0] if answered else None}

    def _run(self, message: dict[str, Any]) -> tuple[str, str | None]:
        text, library, file = message["program"], message.get("library"), message.get("file")
        if file is None:
            self.count += 1
            file = f"<program {self.count}>"
        try:
            # No function of ours is called between the program's end and the clean-up: it may have set a tracer.
            try:
                if library is not None:
                    exec(library, self.space)
                self._execute(text, file)
            finally:
                for _ in (1, 2, 3):
                    try:
                        self.settrace(None)
                        self.setprofile(None)
                        break
                    except BaseException:  # raised by the program's tracer, which Python drops when it raises
                        pass
                for space, kept in self.snapshots:
                    space.update(kept)
        except (Finished, TimeLimit):
            return "ok", None
        except SystemExit as leave:
            if isinstance(leave.code, str):
                self.stderr.write(leave.code + "\n")
            return "ok", None
        except inner_http.HostFailure as problem:
            return "host_failure", str(problem)
        except BaseException as problem:
            return "error", describe(problem, ("<program",) if self.brief else ("<program", "<library"), self.brief)
        return "ok", None

    def _execute(self, text: str, file: str) -> None:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        echo = None
        if not self.brief:
            try:
                echo = split_echo(text)
            except (SyntaxError, ValueError):
                pass  # compiling the whole says it with the right file name
        if echo is None:
            exec(compile(text, file, "exec", dont_inherit=True), self.space)
            return
        before = compile(echo[0] + "\n", file, "exec", dont_inherit=True)
        flags = before.co_flags & FUTURE_FLAGS
        last = compile(echo[1], file, "eval", flags=flags, dont_inherit=True)
        exec(before, self.space)
        value = eval(last, self.space)
        if value is not None:
            sys.stdout.write(repr(value) + "\n")

    def _memory(self, soft: int) -> None:
        try:
            self.setrlimit(resource.RLIMIT_AS, (soft, self.job["memory_bytes"] + HEADROOM))
        except (OSError, ValueError):  # the program lowered its own hard limit
            pass

    def _tidy(self) -> None:
        """Put back what a program may have changed; cheap enough to be done around every turn."""
        self.mask(signal.SIG_SETMASK, [])
        for number, handler in _HANDLERS:
            self.handle(number, handler)
        self.handle(signal.SIGALRM, self._alarm)
        self.dup2(self.output, 1)
        self.dup2(self.output, 2)
        if self.stdout.closed:
            self.stdout = _text_out(1)
        if self.stderr.closed:
            self.stderr = _text_out(2)
        sys.stdin, sys.stdout, sys.stderr = self.stdin, self.stdout, self.stderr
        self.recursion(1000)
        gc.enable()
        try:
            self.chdir(self.job["folder"])
        except OSError:  # removed by a program
            self.makedirs(self.job["folder"], exist_ok=True)
            self.chdir(self.job["folder"])

    def _alarm(self, number: int, frame: Any) -> None:
        self.fired = True
        if self.armed:
            raise TimeLimit


def _text_out(fd: int) -> io.TextIOWrapper:
    raw = io.FileIO(fd, "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace", line_buffering=True)
