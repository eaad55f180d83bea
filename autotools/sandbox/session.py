"""A sandbox session: one long-lived worker whose variables live from turn to turn, and come back after a kill."""

import contextlib
import os
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autotools.errors import SandboxError
from autotools.sandbox.conversation import Calls, Child, Outcome, converse
from autotools.sandbox.gate import AllowList, HttpGate, ReplayCalls
from autotools.sandbox.process import START_TIMEOUT_S, WorkerProcess
from autotools.sandbox.settings import SandboxConfig, State, Status, TurnResult
from autotools.sandbox.tiers import choose_tier, start_worker

_GRACE_S = 0.8  # what a turn may answer later than its hard limit, restoring included
LOST_NOTE = "state lost: define your variables again"


@dataclass(frozen=True)
class _Turn:
    """What a replay needs of a finished turn."""

    program: str
    soft_s: float
    status: str
    wall_s: float
    calls: list[dict[str, Any]]


class Session:
    """Context manager. ``library`` is run first, and its functions stay defined; not for two threads at once.

    ``calls`` answers the programs' HTTP calls: by default live calls to ``config.allow``; `ReplayCalls` of an earlier
    session's ``records`` repeats it offline. Raises SandboxError if the host lacks the tier, the worker does not
    start, or the library fails.
    """

    def __init__(
        self,
        config: SandboxConfig | None = None,
        *,
        library: str = "",
        calls: HttpGate | ReplayCalls | None = None,
    ) -> None:
        self.config = config or SandboxConfig()
        self.tier = choose_tier(self.config.tier, self.config.min_tier)
        self.library = library
        self.records: list[dict[str, Any]] = []
        self._history: list[_Turn] = []
        self._worker: WorkerProcess | None = None
        self._calls = calls or HttpGate(
            AllowList(self.config.allow),
            call_limit=self.config.call_limit,
            max_response=self.config.max_response_mb << 20,
        )
        try:
            self._worker = self._start(START_TIMEOUT_S)
        except BaseException:
            self.close()
            raise

    def run(self, program: str, soft_s: float | None = None, hard_s: float | None = None) -> TurnResult:
        """Run one turn (limits in seconds, default the config's). Answers within the hard limit + 1 s.

        Never raises for what a program does. A worker that cannot be started again is status ``sandbox_error``.
        """
        soft = self.config.soft_s if soft_s is None else soft_s
        hard = max(soft, self.config.hard_s if hard_s is None else hard_s)
        try:
            worker = self._worker = self._worker or self._start(START_TIMEOUT_S)
        except SandboxError as error:
            return TurnResult("sandbox_error", error=str(error), state="lost", note=LOST_NOTE, tier=self.tier)
        start = time.monotonic()
        deadline = start + hard
        worker.output.clear()
        outcome = exchange(worker, program, soft, deadline, self._calls)
        records = self._calls.end()
        self.records += records
        wall = time.monotonic() - start
        status, error = verdict(outcome, hard)
        state: State = "kept"
        note = ""
        if outcome.kind == "done":
            if problem := self._over_quota(worker):
                status, error = "error", problem
            self._history.append(_Turn(program, soft, status, wall, records))
        else:
            error = f"{error}{worker.kill(patient=outcome.kind == 'died')}"
            self._worker = None
            state, note = self._restore(deadline + _GRACE_S)
        return TurnResult(
            status, worker.output.text(), worker.output.truncated, worker.output.total, error, wall, state, note,
            self.tier, records,
        )  # fmt: skip

    def close(self) -> None:
        """End the worker, its folder and connections. Safe to call twice."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
        self._calls.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _start(self, limit_s: float) -> WorkerProcess:
        worker = start_worker(self.config, self.tier, timeout_s=limit_s)
        if self.library:
            # As a turn of its own: a library may be model-written, too.
            outcome = exchange(
                worker, self.library, limit_s, time.monotonic() + limit_s, ReplayCalls([]), file="<library>"
            )
            status, error = verdict(outcome, limit_s)
            if status != "ok":
                worker.kill()
                raise SandboxError(f"the function library does not load: {status}: {error}")
        return worker

    def _restore(self, deadline: float) -> tuple[State, str]:
        """A new worker, and the earlier programs again with their recorded responses; by ``deadline`` or not at all.

        Output and clock may differ; a call that was not recorded, or another status, means that the state is lost.
        """
        if not self._history:
            return "restored", "nothing had been defined before"  # the next turn starts the worker
        history, self._history = self._history, []
        budget = deadline - time.monotonic()
        if sum(turn.wall_s for turn in history) < budget:
            try:
                self._worker = self._start(budget)
                if self._replay(self._worker, history, deadline):
                    self._history = history
                    self._worker.output.clear()
                    return "restored", f"state restored by replaying {len(history)} programs"
            except SandboxError:
                pass  # tried again, and reported, by the next turn
            if self._worker is not None:
                self._worker.kill()
                self._worker = None
        return "lost", LOST_NOTE

    def _replay(self, worker: WorkerProcess, history: Sequence[_Turn], deadline: float) -> bool:
        for turn in history:
            calls = ReplayCalls(turn.calls)
            outcome = exchange(worker, turn.program, turn.soft_s, deadline, calls)
            same = verdict(outcome, 0)[0] == turn.status and not calls.diverged and calls.exhausted
            if not same:
                return False
        return True

    def _over_quota(self, worker: WorkerProcess) -> str:
        """Tiers without a file system of their own: the host looks after each turn, and removes what is too much."""
        if worker.folder is None:
            return ""
        total = _empty_if_over(worker.folder.path, self.config.tmp_mb << 20)
        return f"your files took {total >> 20} MiB, allowed are {self.config.tmp_mb}; all were removed" if total else ""


def exchange(
    worker: Child, program: str, soft: float, deadline: float, calls: Calls, file: str | None = None
) -> Outcome:
    """Send one program to a worker and serve it until ``deadline`` (monotonic)."""
    calls.begin(deadline)
    message = {"id": uuid.uuid4().hex, "program": program, "soft_s": soft, "file": file}
    return converse(worker, message, deadline, calls)


def verdict(outcome: Outcome, hard_s: float) -> tuple[Status, str | None]:
    """(status, error) of a turn, as the host saw it end."""
    if outcome.kind == "done" and outcome.reply is not None:
        return outcome.reply["status"], outcome.reply["error"]
    if outcome.kind == "timeout":
        return "timeout", f"no end after {hard_s:g} s; killed"
    if outcome.kind == "died":
        return "died", "the process ended during the program"
    return "protocol", f"the program wrote into the sandbox's own channels ({outcome.error}); killed"


def _empty_if_over(folder: str, limit: int) -> int:
    """Bytes below ``folder`` if more than ``limit`` (then everything below is removed), else 0."""
    total, paths = 0, []
    for root, folders, files in os.walk(folder, topdown=False):
        for name in files:
            path = os.path.join(root, name)
            with contextlib.suppress(OSError):
                total += os.lstat(path).st_blocks * 512
            paths.append(path)
        paths += [os.path.join(root, name) for name in folders]
    if total <= limit:
        return 0
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path) if os.path.islink(path) or not os.path.isdir(path) else os.rmdir(path)
    return total
