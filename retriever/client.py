"""Async client of the search server. (As an ordinary search engine, without asyncio: ``retriever/remote.py``.)

Contract: every query gets the answer to itself or an error is raised. Answers are matched by request id and counted;
a server that is away is asked again with growing, jittered pauses within one total time; then RetrieverUnavailable.
An answer from another engine or corpus than the first one is an error, too: a run must not mix them.
"""

import asyncio
import itertools
import json
import os
import random
import sys
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from autotools.errors import RetrieverError, RetrieverUnavailable, UnknownCategoryError
from autotools.schema import Hit
from retriever.search_answer import check_engine, read_error, read_results

TOKEN_ENV = "AUTOTOOLS_RETRIEVER_TOKEN"
CHUNKS_AT_A_TIME = 4  # one in the engine and some waiting; more would only fill the server's queue
AGAIN = {408, 429, 502, 503, 504}  # the same request may succeed later; it only reads, so that repeating is safe


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """Patience of a client. Pauses double from ``backoff_s`` to ``max_backoff_s``, each times 0.5 to 1 by ``seed``."""

    attempts: int = 12
    backoff_s: float = 0.1
    max_backoff_s: float = 5.0
    attempt_timeout_s: float = 150.0  # above the server's own 120 s, so that it is the server that says why
    total_timeout_s: float = 600.0
    connections: int = 128
    say_after_s: float = 20.0  # one line on stderr about a request that has no answer yet
    chunk: int = 1024  # queries of one request
    token_env: str = TOKEN_ENV  # variable that may hold a bearer token
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("attempts", "connections", "chunk", "attempt_timeout_s", "total_timeout_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")


class SearchClient:
    """Async client of one server: ``async with SearchClient(url) as client: await client.search_batch(...)``.

    For one event loop. ``counts``: requests, retries (of which each reason), for logs.
    """

    def __init__(self, url: str, settings: ClientSettings | None = None) -> None:
        self.url, self.settings = url.rstrip("/"), settings or ClientSettings()
        if not url.startswith(("http://", "https://")):
            raise _no_url(url)
        self.counts: Counter[str] = Counter()
        self.engine: dict[str, Any] | None = None  # what the first answer said about the server's engine
        self._random = random.Random(self.settings.seed)
        self._numbers, self._name = itertools.count(1), uuid.uuid4().hex[:12]
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "SearchClient":
        token = os.environ.get(self.settings.token_env, "").strip() if self.settings.token_env else ""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self.settings.connections),
            headers={"Authorization": f"Bearer {token}"} if token else None,
            timeout=aiohttp.ClientTimeout(total=self.settings.attempt_timeout_s),
            read_bufsize=2**20,
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._session
        await self._session.close()

    async def search_batch(
        self, queries: Sequence[str], categories: Sequence[str | None] | None = None, k: int = 5
    ) -> list[list[Hit]]:
        """One list of at most ``k`` hits per query, in order; long lists go in several requests at a time.

        Raises UnknownCategoryError, RetrieverUnavailable after the last attempt, RetrieverError for everything else.
        """
        if categories is not None and len(categories) != len(queries):
            raise RetrieverError(f"{len(queries)} queries but {len(categories)} categories; give one (or None) each")
        gate = asyncio.Semaphore(CHUNKS_AT_A_TIME)

        async def part(start: int) -> list[list[Hit]]:
            some = slice(start, start + self.settings.chunk)
            content = {"queries": list(queries[some]), "categories": categories and list(categories[some]), "k": k}
            async with gate:
                return await self._results(content, len(content["queries"]), k)

        tasks = [asyncio.ensure_future(part(start)) for start in range(0, len(queries), self.settings.chunk)]
        try:
            return [hits for hits_of_part in await asyncio.gather(*tasks) for hits in hits_of_part]
        finally:  # one part failed: the others are of no use
            for task in tasks:
                task.cancel()

    async def search(self, query: str, category: str | None = None, k: int = 5) -> list[Hit]:
        """Hits of one query; the server merges it with those of other clients."""
        (hits,) = await self._results({"query": query, "category": category, "k": k}, 1, k)
        return hits

    async def prefetch(self, queries: Sequence[str]) -> None:
        """Let the server embed queries that will be searched soon."""
        for start in range(0, len(queries), self.settings.chunk):
            await self.ask("POST", "/prefetch", {"queries": list(queries[start : start + self.settings.chunk])})

    async def _results(self, content: dict[str, Any], count: int, k: int) -> list[list[Hit]]:
        return read_results(await self.ask("POST", "/search", content), count, k, self.url)

    async def ask(self, verb: str, path: str, content: dict[str, Any] | None = None) -> dict[str, Any]:
        """The JSON answer to one request, asked again as the settings allow. Raises as ``search_batch``."""
        request_id = f"{self._name}-{next(self._numbers)}"
        reason = ""
        waiting = asyncio.get_running_loop().call_later(
            self.settings.say_after_s, lambda: self._say_waiting(verb, path, reason)
        )
        try:
            async with asyncio.timeout(self.settings.total_timeout_s):
                for attempt in range(1, self.settings.attempts + 1):
                    answer, reason, least_s = await self._attempt(verb, path, content, request_id)
                    if answer is not None:
                        self.engine = check_engine(self.engine, answer, self.url)
                        return answer
                    if attempt < self.settings.attempts:
                        self.counts["retries"] += 1
                        await asyncio.sleep(self._pause(attempt, least_s))
        except TimeoutError:
            reason = f"{self.settings.total_timeout_s:g} s are over; last: {reason or 'no answer yet'}"
        finally:
            waiting.cancel()
        raise RetrieverUnavailable(
            f"search server {self.url} did not answer {verb} {path} (request {request_id}, at most "
            f"{self.settings.attempts} attempts): {reason}; is python -m retriever.serve running there?"
        )

    def _say_waiting(self, verb: str, path: str, reason: str) -> None:
        print(
            f"search server {self.url} has not answered {verb} {path} for {self.settings.say_after_s:g} s"
            f"{f' ({reason})' if reason else ''}; waiting for {self.settings.total_timeout_s:g} s at most",
            file=sys.stderr,
        )

    def _pause(self, attempt: int, least_s: float) -> float:
        grown = min(self.settings.max_backoff_s, self.settings.backoff_s * 2 ** (attempt - 1))
        return min(max(grown, least_s), self.settings.max_backoff_s) * (0.5 + 0.5 * self._random.random())

    async def _attempt(
        self, verb: str, path: str, content: dict[str, Any] | None, request_id: str
    ) -> tuple[dict[str, Any] | None, str, float]:
        """(answer, "", 0), or (None, reason, least seconds to wait) where it may be asked again."""
        assert self._session, "use 'async with SearchClient(...)'"
        self.counts["requests"] += 1
        body = None if content is None else json.dumps(content).encode()
        headers = {"X-Request-Id": request_id, "Content-Type": "application/json"}
        try:
            async with self._session.request(verb, self.url + path, data=body, headers=headers) as response:
                status, least, text = response.status, response.headers.get("Retry-After", ""), await response.read()
        except aiohttp.InvalidURL as error:
            raise _no_url(self.url) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return None, f"{type(error).__name__}: {error}"[:300], 0.0
        if status in AGAIN:
            return None, f"HTTP {status}: {read_error(text)[1]}", float(least) if least.isdigit() else 0.0
        if status != 200:
            code, message = read_error(text)
            kind = UnknownCategoryError if code == "unknown_category" else RetrieverError
            raise kind(message if kind is UnknownCategoryError else f"{self.url}{path}: HTTP {status}: {message}")
        try:
            answer = json.loads(text)
        except ValueError as error:
            raise RetrieverError(f"{self.url}{path}: the answer is not JSON: {error}") from error
        if not isinstance(answer, dict) or answer.get("request_id") != request_id:
            raise RetrieverError(f"{self.url}{path}: the answer is not that to request {request_id}")
        return answer, "", 0.0


def _no_url(url: str) -> RetrieverError:
    return RetrieverError(f"{url!r} is no address of a search server; write http://HOST:PORT")
