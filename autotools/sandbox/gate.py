"""The only way out of the sandbox: the host performs a program's HTTP calls, if they are allowed.

One call at a time per gate, in a thread, so that a slow service never delays the kill of a program. Allowed means:
scheme, host and port equal to a listed base URL and the path below its path, judged on the parsed URL. Redirects are
not followed here: the program's ``requests`` asks for each hop, and each is judged anew. Everything is recorded;
``ReplayCalls`` gives the records back without any network.
"""

import base64
import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autotools.sandbox.conversation import ProtocolFault
from autotools.sandbox.outbound import AllowList, Job, Performer, Refusal, Reply

_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
_HOST_HEADERS = {
    "host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect", "keep-alive",
}  # fmt: skip
_MAX_RECORDED = 64 << 20  # bytes of responses kept for replay, over a session's life


def checked_call(message: dict[str, Any]) -> dict[str, Any]:
    """The fields of a call as the worker must send them. Raises ProtocolFault."""
    number, headers, timeout = message.get("n"), message.get("headers"), message.get("timeout")
    texts = [message.get("method"), message.get("url"), message.get("body")]
    good = isinstance(number, int) and all(isinstance(text, str) for text in texts) and isinstance(headers, dict)
    good = good and all(isinstance(text, str) for pair in (headers or {}).items() for text in pair)
    good = good and (timeout is None or isinstance(timeout, (int, float)))
    if not good or not isinstance(message.get("note"), (dict, type(None))):
        raise ProtocolFault("a malformed call")
    return message


class HttpGate:
    """Live calls of one session. ``call_limit`` counts per turn; ``decorate`` gives further headers for a call.

    ``call_timeout_s`` bounds one call; without it a call may last as long as its turn. Not for two sessions at once.
    """

    def __init__(
        self,
        allow: AllowList,
        *,
        call_limit: int = 50,
        max_response: int = 4 << 20,
        call_timeout_s: float | None = None,
        decorate: Callable[[dict[str, Any]], Mapping[str, str]] | None = None,
    ) -> None:
        self.allow, self.call_limit, self.call_timeout_s, self.decorate = allow, call_limit, call_timeout_s, decorate
        self._max_response = max_response
        self._performer: Performer | None = None
        self._finished: queue.SimpleQueue[tuple[Performer, int, Reply]] = queue.SimpleQueue()
        self._wake, self._wake_in = os.pipe()
        os.set_blocking(self._wake, False)
        self._closed = threading.Lock()  # held for good once the pipe is gone
        self._records: list[dict[str, Any]] = []
        self._open: dict[int, tuple[dict[str, Any], float]] = {}  # number -> (record, deadline)
        self._recorded = self._count = 0
        self._deadline = 0.0

    def begin(self, deadline: float) -> None:
        """A turn starts; no call of it lasts beyond ``deadline`` (monotonic)."""
        self._deadline, self._count, self._records = deadline, 0, []

    def submit(self, message: dict[str, Any]) -> Reply | None:
        """Start a call, or answer at once why not."""
        message = checked_call(message)
        self._count += 1
        record = {key: message.get(key) for key in ("method", "url", "headers", "body", "note")} | {"reply": None}
        number = message["n"]
        if self._count > self.call_limit + 100:
            raise ProtocolFault("the program goes on calling beyond its limit")
        self._records.append(record)
        try:
            if self._count > self.call_limit:
                raise Refusal(f"tool call limit of this turn ({self.call_limit}) reached")
            if self._recorded > _MAX_RECORDED:
                raise Refusal(f"the responses of this session exceed {_MAX_RECORDED >> 20} MiB")
            job = self._job(message)
        except Refusal as refusal:
            return self._record(number, record, {"error": str(refusal), "kind": "refused"})
        if self._performer is None:
            self._performer = Performer(self._max_response, self._put)
        self._open[number] = (record, job.deadline)
        self._performer.put(job)
        return None

    def _job(self, message: dict[str, Any]) -> Job:
        base, target = self.allow.check(message["url"])
        if message["method"] not in _METHODS:
            raise Refusal(f"method {message['method'][:20]!r} is not one of {', '.join(sorted(_METHODS))}")
        headers = {
            name: value
            for name, value in message["headers"].items()
            if name.lower() not in _HOST_HEADERS and not name.lower().startswith("proxy-")
        }
        if self.decorate:
            headers |= self.decorate(message)
        headers |= base.headers
        try:
            body = base64.b64decode(message["body"], validate=True)
        except ValueError as error:
            raise ProtocolFault("a malformed call") from error
        limits = [t for t in (message["timeout"], self.call_timeout_s) if t is not None]
        deadline = min([self._deadline, *(time.monotonic() + limit for limit in limits)])
        return Job(message["n"], message["method"], target, base.origin, headers, body, deadline)

    def _put(self, performer: Performer, number: int, reply: Reply) -> None:
        self._finished.put((performer, number, reply))
        with self._closed:
            if self._wake_in >= 0:
                os.write(self._wake_in, b"x")

    def _record(self, number: int, record: dict[str, Any], reply: Reply) -> Reply:
        record["reply"] = reply
        self._recorded += len(reply.get("body", ""))
        return {"n": number} | reply

    def collect(self) -> list[Reply]:
        """Answers that are ready, and timeouts of calls whose time is over."""
        replies = []
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)
        while not self._finished.empty():
            performer, number, reply = self._finished.get()
            if performer is self._performer and number in self._open:
                replies.append(self._record(number, self._open.pop(number)[0], reply))
        now = time.monotonic()
        for number, (record, deadline) in list(self._open.items()):
            if now >= deadline:
                del self._open[number]
                late = {"error": "the service did not answer in time", "kind": "timeout"}
                replies.append(self._record(number, record, late))
                self._retire()
        return replies

    def next_deadline(self) -> float | None:
        return min((deadline for _, deadline in self._open.values()), default=None)

    def fileno(self) -> int | None:
        return self._wake

    def end(self) -> list[dict[str, Any]]:
        """The turn is over: cut off what still runs; returns the records of the turn's calls."""
        if self._open:
            self._open.clear()
            self._retire()
        return self._records

    def _retire(self) -> None:
        if self._performer is not None:
            self._performer.retire()
            self._performer = None

    def close(self) -> None:
        """Close all connections. Safe to call twice."""
        performer = self._performer
        self._retire()
        if performer is not None:
            performer.join(timeout=1)
        with self._closed:
            if self._wake_in >= 0:
                os.close(self._wake)
                os.close(self._wake_in)
                self._wake = self._wake_in = -1


class ReplayCalls:
    """Answers from records, in their order, without a network. ``diverged`` tells the first call that did not match."""

    def __init__(self, records: Sequence[dict[str, Any]]) -> None:
        self._records = list(records)
        self._next = 0
        self._turn: list[dict[str, Any]] = []
        self.diverged = ""

    def begin(self, deadline: float) -> None:
        self._turn = []

    def submit(self, message: dict[str, Any]) -> Reply | None:
        """The recorded answer, or a refusal that says what was recorded instead."""
        message = checked_call(message)
        wanted = self._records[self._next] if self._next < len(self._records) else None
        same = wanted is not None and all(wanted[key] == message[key] for key in ("method", "url", "body"))
        if not same or wanted is None or wanted["reply"] is None or self.diverged:
            expected = f"{wanted['method']} {wanted['url'][:200]}" if wanted else "no further call"
            self.diverged = self.diverged or f"{message['method']} {message['url'][:200]}, recorded was {expected}"
            return {"n": message["n"], "error": f"not in the recording: {self.diverged}", "kind": "refused"}
        self._next += 1
        self._turn.append(wanted)
        return {"n": message["n"]} | wanted["reply"]

    @property
    def exhausted(self) -> bool:
        return self._next == len(self._records)

    def collect(self) -> list[Reply]:
        return []

    def next_deadline(self) -> float | None:
        return None

    def fileno(self) -> int | None:
        return None

    def end(self) -> list[dict[str, Any]]:
        return self._turn

    def close(self) -> None:
        pass
