"""The child process of `autotools/program.py`: runs programs one after another, each in a fresh namespace.

Standard library only and started by file path, so that it is up in tens of milliseconds and sees nothing of the
project. Requests and replies are JSON lines on two pipes that programs do not get as stdin/stdout.
What this process does NOT stop is listed in `autotools/program.py`.
"""

import ctypes
import http.client
import io
import json
import os
import random
import resource
import signal
import sys
from typing import Any, NoReturn
from urllib.parse import quote, urlencode, urlsplit

MAX_ERROR = 2_000  # characters
MAX_RESPONSE = 4_000_000  # bytes of one HTTP answer
SHOWN_RESULT = 2_000  # characters of one call's result kept in the reply
PROGRAM_FILE = "<program>"
Values = dict[str, Any] | None


class ToolError(Exception):
    """The service refused a call (HTTP 4xx). ``status`` is the HTTP status, ``message`` the service's text."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status} {message}")
        self.status = status
        self.message = message


class HostFailure(BaseException):
    """The tool server is broken or away: not the program's fault, so not an ``Exception`` it would catch."""


class Finished(BaseException):
    """Raised by ``finish`` to end the program at once."""


class CappedOutput(io.TextIOBase):
    """Text sink that keeps the first ``limit`` characters and counts the rest: a flood costs no memory."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.parts: list[str] = []
        self.kept = 0
        self.total = 0

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        room = self.limit - self.kept
        if room > 0:
            self.parts.append(text[:room])
            self.kept += len(self.parts[-1])
        self.total += len(text)
        return len(text)

    def text(self) -> str:
        """What was kept, with a note on what was cut."""
        cut = self.total - self.kept
        return "".join(self.parts) + (f"\n[{cut} characters cut]" if cut else "")


class Client:
    """The ``_request`` of generated functions: keep-alive HTTP to one server, and to no other."""

    def __init__(self, base_url: str, api_keys: dict[str, str]) -> None:
        parts = urlsplit(base_url)
        self.base_url = base_url
        self.address = (parts.hostname, parts.port or 80)
        self.prefix = parts.path.rstrip("/")
        self.api_keys = api_keys
        self.connection: http.client.HTTPConnection | None = None
        self.session = ""
        self.timeout_s = 10.0
        self.calls: list[dict[str, Any]] = []
        self.failure: str | None = None

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
        """Perform one call; ``auth`` names the category whose key is to be sent. Returns the decoded JSON body."""
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
        headers = {k: _text(v) for k, v in (header or {}).items() if v is not None} | {"X-Session": self.session}
        data = None
        if content is not None:
            data = json.dumps(content).encode()
            headers["Content-Type"] = "application/json"
        if auth is not None and auth in self.api_keys:
            headers["X-Api-Key"] = self.api_keys[auth]
        target = self.prefix + route + ("?" + urlencode(given) if given else "")
        status, value = self._send(method, target, data, headers)
        record = {"method": method, "path": path_template, "status": status}
        self.calls.append(record | {"arguments": {**filled, **given, **(content or {})}})
        if status >= 500:
            self._fail(f"{method} {route} answered {status}: {str(value)[:300]}")
        if status >= 400:
            error = value.get("error", value) if isinstance(value, dict) else value
            raise ToolError(status, str(error.get("message", error) if isinstance(error, dict) else error)[:1000])
        return value

    def _send(self, method: str, target: str, data: bytes | None, headers: dict[str, str]) -> tuple[int, Any]:
        reused = self.connection is not None
        try:
            if not reused:
                self.connection = http.client.HTTPConnection(*self.address, timeout=self.timeout_s)
            self.connection.request(method, target, body=data, headers=headers)
            answer = self.connection.getresponse()
            raw = answer.read(MAX_RESPONSE + 1)
        except (http.client.HTTPException, OSError) as error:
            self.close()
            # A kept connection may have been closed by the server meanwhile; then nothing was processed.
            if reused and isinstance(error, (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)):
                return self._send(method, target, data, headers)
            self._fail(f"{self.base_url} did not answer {method} {target[:200]}: {error!r}")
        except BaseException:
            self.close()  # half a reply must never be taken for the next call's
            raise
        if len(raw) > MAX_RESPONSE:
            self.close()
            self._fail(f"{method} {target[:200]} answered more than {MAX_RESPONSE} bytes")
        try:
            return answer.status, json.loads(raw) if raw else None
        except ValueError:
            return answer.status, raw.decode("utf-8", "replace")

    def _fail(self, reason: str) -> NoReturn:
        self.failure = reason  # kept beside the exception: a bare ``except:`` of the program cannot hide it
        raise HostFailure(reason)

    def close(self) -> None:
        """Drop the kept connection; the next call opens a new one."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(map(_text, value))
    return str(value)


def _describe(error: BaseException) -> str:
    """``Type: message`` with the program's own line; frames of the worker are not shown."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == PROGRAM_FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, SyntaxError):
        line, message = error.lineno, error.msg
    else:
        try:
            message = str(error)
        except Exception:  # a program's own exception class may fail to print itself
            message = "(no message)"
    where = f" (line {line} of the program)" if line else ""
    return f"{type(error).__name__}: {message}"[:MAX_ERROR] + where


class Worker:
    """Runs one program after the other. ``library`` is executed anew for each, so nothing can be redefined."""

    def __init__(self, library: str, base_url: str, api_keys: dict[str, str], max_output: int) -> None:
        self.library = compile(library, "<library>", "exec")
        self.client = Client(base_url, api_keys)
        self.max_output = max_output

    def run(self, program: str, session: str, timeout_s: float) -> dict[str, Any]:
        """Outcome of one program as a JSON-able dict."""
        client, output, box = self.client, CappedOutput(self.max_output), {}
        # Shorter than the program's own limit: a hanging server is then reported as ours, not as the program's.
        client.session, client.calls, client.failure, client.timeout_s = session, [], None, 0.8 * timeout_s
        if client.connection is not None and client.connection.sock is not None:
            client.connection.sock.settimeout(client.timeout_s)

        def finish(value: Any = None) -> None:
            box["answer"] = json.loads(json.dumps(value, allow_nan=False))
            raise Finished

        space = {"__name__": "__main__", "_request": client.request, "ToolError": ToolError, "json": json}
        space["finish"] = finish
        random.seed(0)
        stdout, stderr = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = output
        status, error = "ok", None
        try:
            exec(self.library, space)
            exec(compile(program, PROGRAM_FILE, "exec"), space)
        except (Finished, SystemExit):
            pass
        except HostFailure:
            status = "host_failure"
        except BaseException as problem:
            status, error = "error", _describe(problem)
        finally:
            sys.stdout, sys.stderr = stdout, stderr
        if client.failure:
            status, error = "host_failure", client.failure
        if status != "ok":
            box = {}
        return {
            "status": status,
            "finished": "answer" in box,
            "answer": box.get("answer"),
            "output": output.text(),
            "error": error,
            "calls": client.calls,
        }


def _limit(memory_bytes: int, cpu_s: int, file_bytes: int) -> None:
    for what, value in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (wanted, wanted))


def _die_with_parent(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # it was gone before the call above
        os._exit(1)


def main() -> None:
    """Read the job line, answer ``ready``, then serve one request per line until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    job = json.loads(requests.readline())
    _die_with_parent(job["parent"])
    encode = json.JSONEncoder().encode

    def reply(message: dict[str, Any]) -> None:
        replies.write(encode(message).encode() + b"\n")
        replies.flush()

    try:
        worker = Worker(job["library"], job["base_url"], job["api_keys"], job["max_output"])
    except Exception as error:
        reply({"ready": False, "error": f"the function library does not load: {_describe(error)}"})
        return
    _limit(job["memory_bytes"], job["cpu_s"], job["file_bytes"])
    reply({"ready": True})
    for line in requests:
        request = json.loads(line)
        reply(worker.run(request["program"], request["session"], request["timeout_s"]) | {"id": request["id"]})


if __name__ == "__main__":
    main()
