"""The host's side of a turn: frames to and from a worker, its output, its calls. Nothing that it sends is trusted.

Every read is non-blocking with a deadline and a length cap; any defect is a ProtocolFault, after which the caller
kills the worker. JSON only, no pickle.
"""

import json
import os
import select
import socket
import struct
import time
from dataclasses import dataclass
from typing import Any, Protocol

MAX_REPLY = 8_000_000  # bytes of one frame from the worker
_MAX_QUEUED = 64 << 20  # bytes waiting for a worker that does not read
_MAX_DRAIN = 8 << 20  # bytes of late output read after a turn


class ProtocolFault(Exception):
    """The worker sent something that no honest worker sends."""


class Channel:
    """Length-prefixed JSON frames on a non-blocking socket."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self._in, self._out = bytearray(), bytearray()
        self._frames: list[dict[str, Any]] = []  # read by wait_frame, not yet wanted

    @property
    def writing(self) -> bool:
        return bool(self._out)

    def send(self, message: dict[str, Any]) -> None:
        """Queue a frame and send what goes without waiting. Raises ProtocolFault if the worker reads nothing."""
        data = json.dumps(message).encode()
        self._out += struct.pack("!I", len(data)) + data
        if len(self._out) > _MAX_QUEUED:
            raise ProtocolFault("the program reads no answers")
        self.flush()

    def flush(self) -> None:
        """Send what goes without waiting; a worker that is gone shows when it is read from."""
        try:
            while self._out:
                del self._out[: self.sock.send(self._out[: 1 << 18])]
        except BlockingIOError:
            pass
        except OSError:
            self._out.clear()

    def read(self) -> list[dict[str, Any]]:
        """Whole frames that have arrived. Raises EOFError when the other side is gone, ProtocolFault on garbage."""
        try:
            part = self.sock.recv(1 << 18)
        except BlockingIOError:
            return []
        except OSError as error:
            raise EOFError from error
        if not part:
            raise EOFError
        self._in += part
        frames = []
        while len(self._in) >= 4:
            (size,) = struct.unpack_from("!I", self._in)
            if size > MAX_REPLY:
                raise ProtocolFault(f"the program's reply is larger than {MAX_REPLY} bytes")
            if len(self._in) < 4 + size:
                break
            frames.append(_parse(bytes(self._in[4 : 4 + size])))
            del self._in[: 4 + size]
        return frames

    def wait_frame(self, deadline: float) -> dict[str, Any]:
        """The next frame, by ``deadline`` (monotonic). Raises TimeoutError, EOFError, ProtocolFault."""
        while not self._frames:
            flags = select.POLLIN | (select.POLLOUT if self.writing else 0)
            poller = select.poll()
            poller.register(self.sock, flags)
            left = deadline - time.monotonic()
            if left <= 0 or not poller.poll(left * 1000):
                raise TimeoutError
            self.flush()
            self._frames += self.read()
        return self._frames.pop(0)

    def close(self) -> None:
        self.sock.close()


def _parse(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ProtocolFault(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ProtocolFault("the reply is not an object")
    return value


class OutputKeeper:
    """Keeps the first ``head`` and the last ``tail`` bytes of a stream: a flood costs no memory."""

    def __init__(self, head: int, tail: int) -> None:
        self._head_size, self._tail_size = head, tail
        self.clear()

    def clear(self) -> None:
        self._head, self._tail = bytearray(), bytearray()
        self.total = self._cut = 0

    def feed(self, data: bytes) -> None:
        self.total += len(data)
        room = self._head_size - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room > 0 else data
        if (over := len(self._tail) - self._tail_size) > 0:
            # counted in characters: continuation bytes of UTF-8 are none
            self._cut += len(self._tail[:over].translate(None, bytes(range(0x80, 0xC0))))
            del self._tail[:over]

    @property
    def truncated(self) -> bool:
        return self.total > len(self._head) + len(self._tail)

    def text(self) -> str:
        """Head, a note on what was cut, tail; bytes that are no UTF-8 are replaced."""
        if not self.truncated:
            return (self._head + self._tail).decode("utf-8", "replace")
        head, tail = self._head.decode("utf-8", "replace"), self._tail.decode("utf-8", "replace")
        return f"{head}\n[{self._cut} characters cut]" + (f"\n{tail}" if tail else "")


# --- a turn of conversation -------------------------------------------------------------------------------------


class Calls(Protocol):
    """Who answers a program's HTTP calls: `gate.HttpGate` (live) or `gate.ReplayCalls`."""

    def begin(self, deadline: float) -> None: ...

    def submit(self, message: dict[str, Any]) -> dict[str, Any] | None: ...

    def collect(self) -> list[dict[str, Any]]: ...

    def next_deadline(self) -> float | None: ...

    def fileno(self) -> int | None: ...

    def end(self) -> list[dict[str, Any]]: ...


class Child(Protocol):
    """A running worker as `converse` needs it."""

    control: Channel
    calls: Channel
    out_fd: int
    output: OutputKeeper


@dataclass(frozen=True)
class Outcome:
    """``kind`` is done (``reply`` is set), timeout, died or protocol."""

    kind: str
    reply: dict[str, Any] | None = None
    error: str | None = None


_STATUSES = {"ok", "error", "timeout", "host_failure"}


def converse(child: Child, message: dict[str, Any], deadline: float, calls: Calls) -> Outcome:
    """Send one turn and serve its calls and output until it is done, at the latest at ``deadline`` (monotonic)."""
    try:
        child.control.send(message)
        reply = _until_done(child, message["id"], deadline, calls)
        _drain(child)
        return Outcome("done", reply)
    except TimeoutError:
        return Outcome("timeout")
    except EOFError:
        _drain(child)
        return Outcome("died")
    except ProtocolFault as fault:
        return Outcome("protocol", error=str(fault))


def _until_done(child: Child, wanted: str, deadline: float, calls: Calls) -> dict[str, Any]:
    poller = select.poll()
    control, http, wake = child.control.sock.fileno(), child.calls.sock.fileno(), calls.fileno()
    poller.register(child.out_fd, select.POLLIN)
    if wake is not None:
        poller.register(wake, select.POLLIN)
    http_open = True
    while True:
        poller.register(control, select.POLLIN | (select.POLLOUT if child.control.writing else 0))
        if http_open:
            poller.register(http, select.POLLIN | (select.POLLOUT if child.calls.writing else 0))
        now = time.monotonic()
        if now >= deadline:
            raise TimeoutError
        until = min(deadline, calls.next_deadline() or deadline)
        ready = dict(poller.poll(max(0.0, until - now) * 1000 + 1))
        if child.out_fd in ready and not read_output(child):
            poller.unregister(child.out_fd)
        if http in ready:
            child.calls.flush()
            try:
                for call in child.calls.read():
                    if answer := calls.submit(call):
                        child.calls.send(answer)
            except EOFError:
                poller.unregister(http)
                http_open = False
        for answer in calls.collect():
            child.calls.send(answer)
        if control in ready:
            child.control.flush()
            frames = child.control.read()
            if len(frames) > 1 or (frames and frames[0].get("id") != wanted):
                raise ProtocolFault("a reply that nobody asked for")
            if frames:
                return _checked(frames[0])


def _checked(reply: dict[str, Any]) -> dict[str, Any]:
    error = reply.get("error")
    if reply.get("status") not in _STATUSES or not (error is None or isinstance(error, str)):
        raise ProtocolFault("a reply without a valid status")
    return {"answer": None} | reply | {"error": error and error[:4000], "finished": reply.get("finished") is True}


def read_output(child: Child) -> bool:
    try:
        data = os.read(child.out_fd, 1 << 18)
    except BlockingIOError:
        return True
    child.output.feed(data)
    return bool(data)


def _drain(child: Child) -> None:
    """What is in the pipe already belongs to this turn; never wait for more, a thread may print for ever."""
    limit = child.output.total + _MAX_DRAIN
    before = -1
    while before != child.output.total < limit:
        before = child.output.total
        read_output(child)
