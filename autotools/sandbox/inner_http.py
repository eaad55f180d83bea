"""Runs inside the worker: HTTP without a network. Every call goes as JSON to the host, which performs or refuses it.

``requests`` stays the real library with another transport: an import hook replaces ``HTTPAdapter.send`` whenever
``requests.adapters`` is loaded. Redirects are followed by ``requests`` itself, hop by hop, each hop a call that the
host checks and counts. ``Tools`` is the ``_request`` of generated functions. Standard library only.
"""

import base64
import importlib.machinery
import io
import json
import select
import signal
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn
from urllib.parse import quote, urlencode

_MAX_FRAME = 64 << 20
_MAX_BODY = 4 << 20  # bytes of a request
Values = dict[str, Any] | None


class ToolError(Exception):
    """The service refused a call (HTTP 4xx). ``status`` is the HTTP status, ``message`` the service's text."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status} {message}")
        self.status = status
        self.message = message


class HostFailure(BaseException):
    """The tool server is broken or away: not the program's fault, so not an ``Exception`` it would catch."""


class HostCalls:
    """Numbered calls over one socket. The number keeps the answer to an interrupted call from the next one."""

    def __init__(self, read: Callable[[int], bytes], write: Callable[[bytes], None], fd: int) -> None:
        self._read, self._write, self._fd = read, write, fd
        self._lock = threading.Lock()
        self._number = 0
        # Programs may patch these modules; calls must go on working.
        self._encode, self._decode = json.JSONEncoder().encode, json.JSONDecoder().decode
        self._pack, self._unpack = struct.pack, struct.unpack
        self._mask, self._wait = signal.pthread_sigmask, select.select

    def call(
        self,
        method: str,
        url: str,
        headers: dict[str, str],
        body: bytes = b"",
        timeout: float | None = None,
        note: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """One call: {"status", "reason", "headers": [[name, value]], "body": bytes}, or {"error", "kind"}.

        ``timeout`` in seconds; ``note`` is kept in the host's record of the call.
        """
        if len(body) > _MAX_BODY:
            return {"error": f"request body is larger than {_MAX_BODY} bytes", "kind": "refused"}
        with self._lock:
            self._number += 1
            message = {"n": self._number, "method": method, "url": url, "headers": headers, "timeout": timeout}
            message |= {"body": base64.b64encode(body).decode(), "note": note}
            data = self._encode(message).encode()
            self._whole(lambda: self._write(self._pack("!I", len(data)) + data))
            while True:
                self._wait([self._fd], [], [])  # here, and only here, the time limit may interrupt
                reply = self._whole(self._frame)
                if reply.get("n") == self._number:
                    break  # else: the late answer to a call that a time limit interrupted
        if "body" in reply:
            reply["body"] = base64.b64decode(reply["body"])
        return reply

    def _frame(self) -> dict[str, Any]:
        (size,) = self._unpack("!I", self._read(4))
        if size > _MAX_FRAME:
            raise OSError("the host's answer is too large")
        return self._decode(self._read(size).decode())

    def _whole(self, action: Callable[[], Any]) -> Any:
        """Without the time limit's signal: half a frame would put every later one out of step."""
        before = self._mask(signal.SIG_BLOCK, [signal.SIGALRM])
        try:
            return action()
        finally:
            self._mask(signal.SIG_SETMASK, before)


# --- requests ---------------------------------------------------------------------------------------------------


class _Patcher:
    """Import hook: the module loads as ever, then its transport is replaced."""

    def __init__(self, calls: HostCalls) -> None:
        self.calls = calls

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "requests.adapters":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute, calls = spec.loader.exec_module, self.calls

            def exec_module(module: Any) -> None:
                execute(module)
                _replace_transport(module, calls)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def hook_requests(calls: HostCalls) -> None:
    """From now on, every import of ``requests`` talks to the host."""
    sys.meta_path.insert(0, _Patcher(calls))


class _Original:
    """What ``requests`` wants to know of http.client's response: headers for the cookies."""

    def __init__(self, headers: list[list[str]]) -> None:
        from email.message import Message

        self.msg = Message()
        for name, value in headers:
            self.msg[name] = value

    def isclosed(self) -> bool:
        return True

    def close(self) -> None:
        pass


def _replace_transport(module: Any, calls: HostCalls) -> None:
    import urllib3
    from requests import exceptions

    kinds = {"timeout": exceptions.ReadTimeout, "refused": exceptions.ConnectionError}

    def send(
        self: Any, request: Any, stream: bool = False, timeout: Any = None, verify: Any = True, cert: Any = None,
        proxies: Any = None,
    ) -> Any:  # fmt: skip
        limit = sum(t for t in timeout if t) or None if isinstance(timeout, tuple) else timeout
        limit = float(limit) if isinstance(limit, (int, float)) else None  # urllib3.Timeout objects: the host's own
        headers = {_text(k): _text(v) for k, v in request.headers.items()}
        reply = calls.call(request.method, request.url, headers, _body_bytes(request.body), limit)
        if "error" in reply:
            raise kinds.get(reply.get("kind"), exceptions.ConnectionError)(reply["error"], request=request)
        raw_headers = urllib3._collections.HTTPHeaderDict()
        for name, value in reply["headers"]:
            raw_headers.add(name, value)
        raw = urllib3.HTTPResponse(
            body=io.BytesIO(reply["body"]), headers=raw_headers, status=reply["status"], reason=reply["reason"],
            preload_content=False, decode_content=False, original_response=_Original(reply["headers"]),
            request_method=request.method,  # a HEAD has a length, and no body
        )  # fmt: skip
        return self.build_response(request, raw)

    module.HTTPAdapter.send = send


def _body_bytes(body: Any) -> bytes:
    if body is None:
        return b""
    if isinstance(body, (bytes, str)):
        return body.encode() if isinstance(body, str) else body
    out = b""
    for part in iter(lambda: body.read(1 << 16), b"") if hasattr(body, "read") else body:
        out += part.encode() if isinstance(part, str) else part
        if not part or len(out) > _MAX_BODY:
            break
    return out


# --- generated functions ----------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(map(_text, value))
    return str(value)


class Tools:
    """The ``_request`` of generated functions: calls to one server, and to no other. Keys are added by the host."""

    def __init__(self, calls: HostCalls, base_url: str) -> None:
        self.calls = calls
        self.base_url = base_url.rstrip("/")

    def request(
        self,
        method: str,
        path_template: str,
        path: Values = None,
        query: Values = None,
        header: Values = None,
        body: Values = None,
        auth: str | None = None,
    ) -> Any:
        """Perform one call; ``auth`` names the category whose key is to be sent. Returns the decoded JSON body.

        Raises ToolError on 4xx; HostFailure on 5xx and if the server does not answer.
        """
        if not path_template.startswith("/") or path_template.startswith("//"):
            raise PermissionError(f"only paths of {self.base_url} can be called, not {path_template!r}")
        route = path_template
        filled = {name: "" if value is None else _text(value) for name, value in (path or {}).items()}
        for name, text in filled.items():
            if not text:
                raise ValueError(f"path parameter {name!r} must not be empty")
            route = route.replace("{" + name + "}", quote(text, safe=""))
        given = {k: _text(v) for k, v in (query or {}).items() if v is not None}
        content = {k: v for k, v in (body or {}).items() if v is not None} if body is not None else None
        headers = {k: _text(v) for k, v in (header or {}).items() if v is not None}
        if content is not None:
            headers["Content-Type"] = "application/json"
        url = self.base_url + route + ("?" + urlencode(given) if given else "")
        data = b"" if content is None else json.dumps(content).encode()
        note = {"path": path_template, "arguments": {**filled, **given, **(content or {})}, "auth": auth}
        return self._value(self.calls.call(method, url, headers, data, note=note))

    def _value(self, reply: dict[str, Any]) -> Any:
        if "error" in reply:
            self._fail(reply["error"])
        try:
            value = json.loads(reply["body"]) if reply["body"] else None
        except ValueError:
            value = reply["body"].decode("utf-8", "replace")
        if reply["status"] >= 500:
            self._fail(f"answered {reply['status']}")
        if reply["status"] >= 400:
            error = value.get("error", value) if isinstance(value, dict) else value
            message = str(error.get("message", error) if isinstance(error, dict) else error)
            raise ToolError(reply["status"], message[:1000])
        return value

    def _fail(self, reason: str) -> NoReturn:
        raise HostFailure(reason)  # the host has seen it itself; this only ends the program
