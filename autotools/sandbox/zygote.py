"""Thousands of short checks: one warm process that forks a confined child for every program (2-4 ms each).

Programs of one zygote share nothing but the zygote's tier: each has a fresh interpreter state and a fresh folder.
"""

import itertools
import os
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from autotools.errors import SandboxError
from autotools.sandbox.conversation import Channel, Outcome, OutputKeeper, ProtocolFault
from autotools.sandbox.gate import AllowList, HttpGate, ReplayCalls
from autotools.sandbox.process import WorkerProcess, describe_exit
from autotools.sandbox.session import exchange, verdict
from autotools.sandbox.settings import SandboxConfig, TurnResult
from autotools.sandbox.tiers import choose_tier, output_keeper, start_worker

_ANSWER_S = 5.0  # the zygote only forks, kills and cleans
_SPARE = 2  # children made ready ahead of their programs


class _Forked:
    """The host's ends of one child's channels."""

    def __init__(self, zygote: WorkerProcess, output: OutputKeeper, number: int) -> None:
        self.number = number
        self.programs = 0  # that it has run
        control, inner_control = socket.socketpair()
        calls, inner_calls = socket.socketpair()
        self.control, self.calls, self.output = Channel(control), Channel(calls), output
        self.out_fd, inner_out = os.pipe()
        os.set_blocking(self.out_fd, False)
        try:
            fds = [inner_control.fileno(), inner_calls.fileno(), inner_out]
            socket.send_fds(zygote.control.sock, [struct.pack("!cI", b"f", number)], fds)
        except OSError:
            self.close()
            raise
        finally:
            inner_control.close()
            inner_calls.close()
            os.close(inner_out)

    def close(self) -> None:
        self.control.close()
        self.calls.close()
        os.close(self.out_fd)


class Zygote:
    """Context manager. ``library`` is run before every program; with ``tools_url``, programs have ``_request`` and
    ``finish`` (see `inner_http.Tools`), their errors are one line, and their last expression is not shown.

    ``reuse``: programs that one child may run, each with fresh variables; above 1 they are not isolated from each
    other (modules, files and threads of one can be met by the next). Raises SandboxError if the host lacks the tier,
    the zygote does not start, or the library fails.
    """

    def __init__(
        self,
        config: SandboxConfig | None = None,
        *,
        library: str = "",
        calls: HttpGate | ReplayCalls | None = None,
        preload: tuple[str, ...] = ("requests",),
        tools_url: str | None = None,
        packages: bool = True,
        keep_tail: bool = True,
        reuse: int = 1,
    ) -> None:
        self.config = config or SandboxConfig()
        self.tier = choose_tier(self.config.tier, self.config.min_tier)
        self._job: dict[str, Any] = {"library": library, "preload": preload, "tools_url": tools_url}
        self._job |= {"packages": packages, "keep_tail": keep_tail}
        self._reuse = reuse
        self._output = output_keeper(self.config, keep_tail)
        self._calls = calls or HttpGate(
            AllowList(self.config.allow),
            call_limit=self.config.call_limit,
            max_response=self.config.max_response_mb << 20,
        )
        self.worker: WorkerProcess | None = None
        self._current: _Forked | None = None  # has run a program, and may run another
        self._spare: deque[_Forked] = deque()  # made while the programs before them run
        self._numbers = itertools.count(1)
        try:
            checked = self.run("", soft_s=10.0, hard_s=10.0)
            if checked.status != "ok":
                raise SandboxError(f"the function library does not load: {checked.error}")
        except BaseException:
            self.close()
            raise

    def _take(self) -> tuple[WorkerProcess, _Forked]:
        """The zygote and a child that waits for its program."""
        if self.worker is None:
            self.worker = start_worker(self.config, self.tier, zygote=True, **self._job)
        child, self._current = self._current, None
        if child is None:
            child = self._spare.popleft() if self._spare else _Forked(self.worker, self._output, next(self._numbers))
        # else a running program could reach the next one's folder
        while len(self._spare) < _SPARE and self.worker.report.get("landlock"):
            self._spare.append(_Forked(self.worker, self._output, next(self._numbers)))
        return self.worker, child

    def run(self, program: str, soft_s: float | None = None, hard_s: float | None = None) -> TurnResult:
        """Run one program in a child of its own (limits in seconds). Raises SandboxError if no child can be made."""
        soft = self.config.soft_s if soft_s is None else soft_s
        hard = max(soft, self.config.hard_s if hard_s is None else hard_s)
        self._output.clear()
        try:
            worker, child = self._take()
        except OSError as error:
            self._drop()
            raise SandboxError(f"the sandbox zygote is gone: {error}") from error
        start = time.monotonic()
        try:
            outcome = exchange(child, program, soft, start + hard, self._calls)
            records = self._calls.end()
            cause = self._end_or_keep(worker, child, outcome)
        except OSError as error:
            self._drop()
            raise SandboxError(f"the sandbox zygote is gone: {error}") from error
        except BaseException:
            self._drop()  # interrupted: its child must not live on
            raise
        finally:
            if child is not self._current:
                child.close()
        status, error = verdict(outcome, hard)
        reply = outcome.reply or {}
        return TurnResult(
            status, self._output.text(), self._output.truncated, self._output.total,
            f"{error}{cause}" if status in ("died", "protocol") else error, time.monotonic() - start, "fresh", "",
            self.tier, records, reply.get("answer"), bool(reply.get("finished")),
        )  # fmt: skip

    def _end_or_keep(self, worker: WorkerProcess, child: _Forked, outcome: Outcome) -> str:
        """Have the child killed, unless it may run another program; returns how it ended, if it ended by itself."""
        child.programs += 1
        in_order = outcome.reply is not None and outcome.reply["status"] in ("ok", "error")
        if in_order and child.programs < self._reuse:
            self._current = child
            return ""
        died = outcome.kind == "died"
        worker.control.sock.send(struct.pack("!cI", b"w" if died else b"k", child.number))
        if not died:
            return ""  # the zygote cleans up while we go on
        try:
            status = worker.control.wait_frame(time.monotonic() + _ANSWER_S)["status"]
            return describe_exit(os.waitstatus_to_exitcode(status))
        except (OSError, EOFError, ProtocolFault, KeyError, ValueError):
            self._drop()
            return " (with its zygote)"

    def _drop(self) -> None:
        worker, self.worker = self.worker, None
        if self._current is not None:
            self._spare.append(self._current)
            self._current = None
        while self._spare:
            self._spare.pop().close()
        if worker is not None:
            worker.kill()

    def close(self) -> None:
        """End the zygote, its folder and connections. Safe to call twice."""
        self._drop()
        self._calls.close()

    def __enter__(self) -> "Zygote":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def run_many(
    programs: Sequence[str], config: SandboxConfig | None = None, *, workers: int | None = None, **options: Any
) -> list[TurnResult]:
    """Results of all programs, in order, each isolated; ``workers`` zygotes at once (default: one per core).

    ``options`` are those of `Zygote` (not ``calls``: a gate serves one zygote). Raises SandboxError like it.
    """
    count = max(1, min(workers or os.cpu_count() or 1, len(programs)))
    results: list[TurnResult | None] = [None] * len(programs)
    waiting = iter(enumerate(programs))  # shared by the threads: next() on it is one step under the interpreter's lock

    def work(zygote: Zygote) -> None:
        for number, program in waiting:
            results[number] = zygote.run(program)

    with ExitStack() as stack, ThreadPoolExecutor(count) as pool:
        zygotes = [stack.enter_context(Zygote(config, **options)) for _ in range(count)]
        for done in [pool.submit(work, zygote) for zygote in zygotes]:
            done.result()
    return [result for result in results if result is not None]
