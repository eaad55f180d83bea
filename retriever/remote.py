"""``RemoteEngine``: the search server behind the same interface as an engine in this process."""

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from autotools.schema import Hit
from retriever.client import ClientSettings, SearchClient

T = TypeVar("T")


class RemoteEngine:
    """Engine at ``url`` (``http://HOST:PORT``); usable from several threads, and in a process forked later.

    Asks the server once when it is made. Raises RetrieverUnavailable if no server answers there.
    """

    def __init__(self, url: str, settings: ClientSettings | None = None) -> None:
        self.url, self._settings = url, settings or ClientSettings()
        self._lock = threading.Lock()
        self._pid = 0
        self._describe: dict[str, Any] = {}
        self._describe = self._ask("/health")["engine"]
        self._categories = tuple(self._ask("/categories")["categories"])

    @property
    def categories(self) -> tuple[str, ...]:
        """Categories a search may be restricted to, sorted."""
        return self._categories

    def describe(self) -> dict[str, Any]:
        """The server's engine and corpus; every answer is checked to come from the same."""
        return dict(self._describe)

    def counters(self) -> dict[str, int]:
        """The server's counters (of all its clients), and this client's requests and retries."""
        counters = dict(self._ask("/health")["counters"])
        return {**counters, **{f"client_{key}": count for key, count in self._client.counts.items()}}

    def search_batch(
        self, queries: Sequence[str], categories: Sequence[str | None] | None = None, k: int = 5
    ) -> list[list[Hit]]:
        """As every engine's. Raises RetrieverUnavailable if the server stays away; never an empty list for that."""
        return self._run(lambda client: client.search_batch(queries, categories, k))

    def prefetch(self, queries: Sequence[str]) -> None:
        """Let the server embed queries that will be searched soon."""
        self._run(lambda client: client.prefetch(queries))

    def close(self) -> None:
        """Close the connections; a later search opens new ones. Also happens when the engine is collected."""
        with self._lock:
            if self._pid:
                self._finalizer()
            self._pid = 0

    def __enter__(self) -> "RemoteEngine":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _ask(self, path: str) -> dict[str, Any]:
        return self._run(lambda client: client.ask("GET", path))

    def _run(self, request: Callable[[SearchClient], Coroutine[Any, Any, T]]) -> T:
        with self._lock:
            if self._pid != os.getpid():  # at first, after close(), and in a forked child, which has no loop thread
                self._start()
        future = asyncio.run_coroutine_threadsafe(request(self._client), self._loop)
        try:
            return future.result()
        finally:
            future.cancel()  # without effect on one that has ended; after Ctrl-C it ends the request

    def _start(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="search-client", daemon=True).start()
        self._client = SearchClient(self.url, self._settings)
        self._client.engine = self._describe or None
        asyncio.run_coroutine_threadsafe(self._client.__aenter__(), self._loop).result()
        self._pid = os.getpid()
        self._finalizer = weakref.finalize(self, _end, self._loop, self._client, self._pid)


def _end(loop: asyncio.AbstractEventLoop, client: SearchClient, pid: int) -> None:
    if pid != os.getpid():  # a forked child has a copy of the loop, but not its thread
        return
    with contextlib.suppress(TimeoutError):
        asyncio.run_coroutine_threadsafe(client.__aexit__(), loop).result(timeout=2)
    loop.call_soon_threadsafe(loop.stop)
