"""The world as an ASGI application: routing, keys, sessions, request log. One process, one event loop, no threads."""

import json
import pickle
import traceback
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from toolworld.catalog import Domain
from toolworld.operations import execute
from toolworld.routes import Problem, Route, RouteTable, read_arguments

MAX_BODY = 1_000_000  # bytes
KEY_HEADER = "X-Api-Key"
SESSION_HEADER = "X-Session"


class Sessions:
    """One copy-on-write state per session name: reads share the pristine state, the first write makes a copy.

    At most ``limit`` written sessions are kept; the least recently used one is forgotten (its name then starts
    afresh), so that a long run cannot fill the memory.
    """

    def __init__(self, pristine: bytes, limit: int = 256) -> None:
        self._pristine = pristine
        self._shared: Any = pickle.loads(pristine)  # made by our own parent process
        self._own: OrderedDict[str, Any] = OrderedDict()
        self._limit = limit

    def state(self, session: str, writes: bool) -> Any:
        """State to execute on. A fresh unpickling is several times faster than copy.deepcopy."""
        if session in self._own:
            self._own.move_to_end(session)
        elif not writes:
            return self._shared
        else:
            self._own[session] = pickle.loads(self._pristine)
            if len(self._own) > self._limit:
                self._own.popitem(last=False)
        return self._own[session]


class WorldApp:
    """ASGI callable that serves ``domains`` on ``pristine`` (a pickled state).

    Log lines: {"task": X-Session, "verb", "route": template or null, "arguments", "status"}; a request that
    matched no route also has "path".
    """

    def __init__(self, domains: Sequence[Domain], pristine: bytes, log_path: Path | None = None) -> None:
        self.table = RouteTable(domains)
        self.sessions = Sessions(pristine)
        self._log = None
        if log_path:
            log_path.parent.mkdir(parents=True, exist_ok=True)
            self._log = open(log_path, "a", encoding="utf-8", buffering=1)  # one write per line: readable at any time

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request (uvicorn is started without lifespan and websockets)."""
        assert scope["type"] == "http", scope["type"]
        headers = Headers(scope=scope)
        body = await _read(headers, receive)
        verb, path = scope["method"], scope["raw_path"].decode("ascii", "replace").partition("?")[0]
        session = headers.get(SESSION_HEADER, "")
        found = self.table.find(verb, path)
        route = None if isinstance(found, Problem) else found[0]
        arguments: dict[str, Any] = {}
        if isinstance(found, Problem):
            status, content = found.status, found.body()
        elif body is None:
            problem = Problem(413, "too_large", f"body is larger than {MAX_BODY} bytes")
            status, content = problem.status, problem.body()
        else:
            status, content, arguments = self._answer(*found, scope["query_string"], headers, body, session)
        self._write_log(session, verb, route, path, arguments, status)
        await JSONResponse(content, status_code=status)(scope, receive, send)

    def _answer(
        self, route: Route, variables: dict[str, str], query: bytes, headers: Headers, body: bytes, session: str
    ) -> tuple[int, Any, dict[str, Any]]:
        if route.domain.api_key and headers.get(KEY_HEADER) != route.domain.api_key:
            problem = Problem(401, "unauthorized", f"header {KEY_HEADER} is missing or wrong")
            return problem.status, problem.body(), {}
        arguments = read_arguments(route.operation, variables, query.decode("latin-1"), headers, body)
        if isinstance(arguments, Problem):
            return arguments.status, arguments.body(), dict(variables)
        state = self.sessions.state(session, writes=route.verb != "GET")
        try:
            status, content = execute(state, route.domain, route.resource, route.operation, dict(arguments))
        except Exception:  # a defect of the world must be visible and typed (500), and must not end the server
            traceback.print_exc()
            status, content = 500, Problem(500, "internal", f"{route.operation.api} failed in the tool world").body()
        return status, content, arguments

    def _write_log(
        self, session: str, verb: str, route: Route | None, path: str, arguments: dict[str, Any], status: int
    ) -> None:
        if self._log is None:
            return
        line = {"task": session, "verb": verb, "route": route.operation.path if route else None}
        line |= {"arguments": arguments, "status": status} | ({} if route else {"path": path[:500]})
        self._log.write(json.dumps(line, ensure_ascii=False) + "\n")


async def _read(headers: Headers, receive: Receive) -> bytes | None:
    """Whole body, or None if it is larger than MAX_BODY (the rest is read and dropped, so that keep-alive holds)."""
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        chunk = message.get("body", b"")
        size += len(chunk)
        if size <= MAX_BODY:
            parts.append(chunk)
        more = message.get("more_body", False) and message["type"] == "http.request"
    return None if size > MAX_BODY else b"".join(parts)
