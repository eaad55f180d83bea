"""The search server as an ASGI application: reads and checks requests, hands them to the batcher, writes answers.

    POST /search    {"queries": [str], "categories": [str | null] | null, "k": int}  or  {"query": str, "category": str}
                    -> {"request_id", "results": [[{"id", "score", "document"}]], "engine": {...}}
    POST /prefetch  {"queries": [str]} -> {"request_id", "engine"}     embeds the queries into the cache
    GET  /health, /categories, /metrics
    errors          {"request_id", "error": {"code", "message"}}

400 malformed, 401 token, 404/405, 408 slow body, 413 over a limit, 422 unknown category, 500 the engine failed,
503 queue full or stopping (Retry-After), 504 took too long. A failure is never an empty result.
"""

import asyncio
import hmac
import json
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from autotools.errors import RetrieverError, UnknownCategoryError
from autotools.schema import Hit
from retriever.batching import Batcher, QueueFull
from retriever.engine import SearchEngine
from retriever.search_request import Limits, Refusal, read_request
from retriever.serving_metrics import CONTENT_TYPE, ServerMetrics

ID_HEADER = "x-request-id"
RETRY_AFTER_S = 1


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the server behaves. ``token`` "" lets everybody in; ``batch_queries`` 1 merges no requests."""

    limits: Limits = Limits()
    timeout_s: float = 120.0
    batch_queries: int = 1024
    max_waiting: int = 16_384
    token: str = ""


class SearchApp:
    """ASGI callable over ``engine``. ``corpus_sha256`` says in every answer which documents it comes from."""

    def __init__(self, engine: SearchEngine, settings: Settings, corpus_sha256: str = "") -> None:
        self._engine, self._settings = engine, settings
        self.metrics = ServerMetrics()
        self._describe = {**engine.describe(), "corpus_sha256": corpus_sha256}
        self._batcher: Batcher | None = None
        self._routes: dict[tuple[str, str], Callable[[str, bytes], Awaitable[Response]]] = {
            ("POST", "/search"): self._search,
            ("POST", "/prefetch"): self._prefetch,
            ("GET", "/health"): self._health,
            ("GET", "/categories"): self._categories,
            ("GET", "/metrics"): self._metrics_text,
        }
        self._paths = {path for _, path in self._routes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Start and stop with the server, or answer one HTTP request."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        assert scope["type"] == "http", scope["type"]
        start = time.monotonic()
        headers = Headers(scope=scope)
        request_id = headers.get(ID_HEADER, "")[:100] or uuid.uuid4().hex
        try:
            response = await self._respond(scope["method"], scope["path"], request_id, headers, receive)
        except ClientDisconnect:
            return
        response.headers[ID_HEADER] = request_id
        path = scope["path"] if scope["path"] in self._paths else "other"
        self.metrics.answered(path, response.status_code, time.monotonic() - start)
        await response(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        settings = self._settings
        self._batcher = Batcher(
            self._engine, batch_queries=settings.batch_queries, max_waiting=settings.max_waiting,
            on_batch=self.metrics.batch,
        )  # fmt: skip
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._batcher.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _respond(self, verb: str, path: str, request_id: str, headers: Headers, receive: Receive) -> Response:
        try:
            # The body first, even of a request that is refused: an unread one would break the connection.
            body = await _read(receive, self._settings.limits.max_body_bytes, self._settings.timeout_s)
            self._authorise(headers)
            handler = self._routes.get((verb, path))
            if handler is None and path in self._paths:
                raise Refusal(405, "method", f"{path} is not for {verb}")
            if handler is None:
                raise Refusal(404, "path", f"no such path: {path[:100]}; there are {', '.join(sorted(self._paths))}")
            return await handler(request_id, body)
        except ClientDisconnect:
            raise
        except Refusal as error:
            refusal = error
        except UnknownCategoryError as error:
            refusal = Refusal(422, "unknown_category", str(error))
        except QueueFull as error:
            refusal = Refusal(503, "busy", str(error), {"retry-after": str(RETRY_AFTER_S)})
        except TimeoutError:
            refusal = Refusal(504, "timeout", f"no answer within {self._settings.timeout_s:g} s")
        except RetrieverError as error:
            refusal = Refusal(500, "engine", str(error))
        except Exception as error:  # a defect: visible here and typed for the client; it must not end the server
            traceback.print_exc()
            refusal = Refusal(500, "internal", f"{type(error).__name__} in the search server; its stderr has the trace")
        content = {"request_id": request_id, "error": {"code": refusal.code, "message": str(refusal)}}
        return _json(content, refusal.status, refusal.headers)

    def _authorise(self, headers: Headers) -> None:
        wanted = f"Bearer {self._settings.token}".encode()
        given = headers.get("authorization", "").encode("latin-1", "replace")
        if self._settings.token and not hmac.compare_digest(given, wanted):
            raise Refusal(401, "token", "the bearer token is missing or wrong", {"www-authenticate": "Bearer"})

    async def _search(self, request_id: str, body: bytes) -> Response:
        asked = read_request(body, self._settings.limits)
        results = await self._batch.search(asked.queries, asked.categories, asked.k, self._settings.timeout_s)
        content = [[_hit(hit) for hit in hits] for hits in results]
        return _json({"request_id": request_id, "results": content, "engine": self._describe})

    async def _prefetch(self, request_id: str, body: bytes) -> Response:
        asked = read_request(body, self._settings.limits)
        await self._batch.search(asked.queries, None, None, self._settings.timeout_s)
        return _json({"request_id": request_id, "engine": self._describe})

    async def _health(self, request_id: str, body: bytes) -> Response:
        reason = self._not_ready()
        content = {"request_id": request_id, "ready": not reason, "reason": reason, "engine": self._describe}
        return _json({**content, "counters": self._engine.counters()}, 503 if reason else 200)

    async def _categories(self, request_id: str, body: bytes) -> Response:
        return _json({"request_id": request_id, "categories": list(self._engine.categories), "engine": self._describe})

    async def _metrics_text(self, request_id: str, body: bytes) -> Response:
        requests, queries = self._batch.waiting
        gauges = {"ready": not self._not_ready(), "queue_requests": requests, "queue_queries": queries}
        gauges |= {"engine_busy_seconds": self._batch.busy_s}
        return Response(self.metrics.text(gauges, self._engine.counters()), media_type=CONTENT_TYPE)

    def _not_ready(self) -> str:
        busy = self._batch.busy_s
        if busy > self._settings.timeout_s:
            return f"one engine call has been running for {busy:.0f} s"
        return self._batch.broken

    @property
    def _batch(self) -> Batcher:
        assert self._batcher, "the server must be started with lifespan='on'"
        return self._batcher


def _hit(hit: Hit) -> dict[str, Any]:
    if "." in hit.id.tool or "." in hit.id.api:  # its text would be read back as another tool
        raise RetrieverError(f"tool id {hit.id} has a dot inside its tool or API name: it cannot be sent as text")
    return {"id": str(hit.id), "score": hit.score, "document": hit.document}


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    # ASCII, so that a lone surrogate in a document arrives as it is; no NaN: a client would read it as a score.
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return Response(text, status, headers, media_type="application/json")


async def _read(receive: Receive, limit: int, timeout_s: float) -> bytes:
    """The whole body. Raises Refusal if it is too large (the rest is dropped unstored) or does not come in time."""
    parts, size, more = [], 0, True
    try:
        async with asyncio.timeout(timeout_s):
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    raise ClientDisconnect
                chunk = message.get("body", b"")
                size += len(chunk)
                if size <= limit:
                    parts.append(chunk)
                more = message.get("more_body", False)
    except TimeoutError:
        raise Refusal(408, "slow", f"the body did not arrive within {timeout_s:g} s", {"connection": "close"}) from None
    if size > limit:
        raise Refusal(413, "too_large", f"the body has {size} bytes, at most {limit} are read; send fewer queries")
    return b"".join(parts)
