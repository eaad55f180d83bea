"""Which URLs may be called, and the thread that calls them. Used by `gate.py` only."""

import base64
import contextlib
import http.client
import ipaddress
import queue
import re
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from autotools.errors import ConfigError

Reply = dict[str, Any]
_REPEATABLE = {"GET", "HEAD", "PUT", "DELETE", "OPTIONS"}  # may be sent again on a connection that was just closed
_PORTS = {"http": 80, "https": 443}


class Refusal(Exception):
    """This call is not performed; the text is for the program."""


class Origin(NamedTuple):
    scheme: str
    host: str
    port: int


@dataclass(frozen=True)
class _Base:
    origin: Origin
    path: str  # without a slash at the end
    headers: Mapping[str, str] = field(default_factory=dict)  # secrets for this base only


def _origin(parts: SplitResult, text: str) -> Origin:
    if parts.scheme not in _PORTS:
        raise Refusal(f"scheme {parts.scheme!r} is not http or https: {text[:200]!r}")
    if "@" in parts.netloc or "\\" in text or re.search(r"[\x00-\x20\x7f]", text):
        raise Refusal(f"URL with user info, blanks or backslashes: {text[:200]!r}")
    try:
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError as error:
        raise Refusal(f"{error}: {text[:200]!r}") from error
    if not host:
        raise Refusal(f"URL without a host: {text[:200]!r}")
    return Origin(parts.scheme, host, _PORTS[parts.scheme] if port is None else port)


def _is_literal(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(host))
    return host == "localhost"


class AllowList:
    """Base URLs that may be called. ``credentials`` maps a listed base URL to headers that the host adds.

    Raises ConfigError if an entry is no base URL.
    """

    def __init__(self, bases: Sequence[str], credentials: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self._bases = []
        for base in bases:
            try:
                parts = urlsplit(base)
                origin = _origin(parts, base)
            except (Refusal, ValueError) as error:
                raise ConfigError(f"allowed URL {base!r}: {error}") from error
            if parts.query or parts.fragment:
                raise ConfigError(f"allowed URL {base!r} must end with its path")
            self._bases.append(_Base(origin, parts.path.rstrip("/"), dict((credentials or {}).get(base, {}))))
        if unlisted := set(credentials or {}) - set(bases):
            raise ConfigError(f"credentials for {sorted(unlisted)[0]!r}, which is not an allowed URL")

    def check(self, url: str) -> tuple[_Base, str]:
        """(entry that allows the URL, request target). Raises Refusal."""
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise Refusal(f"{error}: {url[:200]!r}") from error
        origin, path = _origin(parts, url), parts.path or "/"
        if any(part in (".", "..") for part in re.split(r"[/\\]", unquote(unquote(path)))):
            raise Refusal(f"URL path with '.' or '..': {url[:200]!r}")
        for base in self._bases:
            if origin == base.origin and (path + "/").startswith(base.path + "/"):
                return base, path + (f"?{parts.query}" if parts.query else "")
        raise Refusal(f"{url[:200]!r} is not in the list of allowed URLs; the sandbox has no other network")


class _Pinned(http.client.HTTPConnection):
    """Connects to an address that was resolved and judged once; TLS still verifies the name."""

    def __init__(self, origin: Origin, cancelled: threading.Event) -> None:
        super().__init__(origin.host, origin.port)
        self._origin_, self._cancelled = origin, cancelled

    def connect(self) -> None:
        last: OSError = OSError(f"host {self.host!r} has no address")
        for family, kind, protocol, _, address in socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
            if not _is_literal(self.host) and not ipaddress.ip_address(address[0].partition("%")[0]).is_global:
                raise Refusal(f"{self.host} resolves to the private address {address[0]}; list the address itself")
            sock = socket.socket(family, kind, protocol)
            self.sock = sock  # already here: cancelling shuts it
            try:
                sock.settimeout(self.timeout)
                sock.connect(address)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._origin_.scheme == "https":
                    self.sock = ssl.create_default_context().wrap_socket(sock, server_hostname=self.host)
            except OSError as error:
                last = error
                sock.close()
                continue
            if self._cancelled.is_set():
                break
            return
        self.sock = None
        raise last


class Job(NamedTuple):
    number: int
    method: str
    target: str
    origin: Origin
    headers: dict[str, str]
    body: bytes
    deadline: float  # monotonic


class Performer(threading.Thread):
    """Performs jobs one by one on kept connections. ``retire`` frees it, wherever it hangs."""

    def __init__(self, max_response: int, done: Callable[["Performer", int, Reply], None]) -> None:
        super().__init__(daemon=True, name="sandbox-http")
        self._max_response, self._done = max_response, done
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._cancelled = threading.Event()
        self._connections: dict[Origin, _Pinned] = {}
        self._busy: _Pinned | None = None
        self.start()

    def put(self, job: Job) -> None:
        self._jobs.put(job)

    def retire(self) -> None:
        """End the thread after its current job, which is cut off now."""
        self._cancelled.set()
        self._jobs.put(None)
        busy = self._busy
        sock = busy.sock if busy else None
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def run(self) -> None:
        while (job := self._jobs.get()) is not None and not self._cancelled.is_set():
            try:
                reply = self._perform(job)
            except Refusal as error:
                reply = {"error": str(error), "kind": "refused"}
            except TimeoutError:
                reply = {"error": "the service did not answer in time", "kind": "timeout"}
            except (OSError, http.client.HTTPException, ValueError) as error:
                origin = f"{job.origin.host}:{job.origin.port}"
                reply = {"error": f"{origin} did not answer: {error!r}"[:500], "kind": "failed"}
            if "error" in reply:
                self._drop(job.origin)
            self._done(self, job.number, reply)
        for origin in list(self._connections):
            self._drop(origin)

    def _drop(self, origin: Origin) -> None:
        if (connection := self._connections.pop(origin, None)) is not None:
            connection.close()

    def _perform(self, job: Job, again: bool = True) -> Reply:
        connection = self._connections.get(job.origin)
        kept = connection is not None
        if connection is not None and (connection.sock is None or select.select([connection.sock], [], [], 0)[0]):
            self._drop(job.origin)  # closed by the server meanwhile, or it sent what nobody asked for
            connection, kept = None, False
        if connection is None:
            connection = self._connections[job.origin] = _Pinned(job.origin, self._cancelled)
        connection.timeout = max(0.01, job.deadline - time.monotonic())
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        self._busy = connection
        try:
            connection.request(job.method, job.target, body=job.body or None, headers=job.headers)
            answer = connection.getresponse()
            body = answer.read(self._max_response + 1)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            self._drop(job.origin)
            if kept and again and job.method in _REPEATABLE and not self._cancelled.is_set():
                return self._perform(job, again=False)
            raise
        finally:
            self._busy = None
        if len(body) > self._max_response:
            raise Refusal(f"the response is larger than {self._max_response} bytes")
        if answer.will_close:
            self._drop(job.origin)
        headers = [[k, v] for k, v in answer.getheaders() if k.lower() not in ("transfer-encoding", "connection")]
        encoded = base64.b64encode(body).decode()
        return {"status": answer.status, "reason": answer.reason, "headers": headers, "body": encoded}
