"""One engine thread behind a bounded queue: what queued while the last batch ran becomes the next batch.

No waiting for company: a lone request starts at once, and under load batches grow by themselves. One thread, because
tokenizers are not thread safe ("Already borrowed"), and because a batch is several times cheaper than its queries.
Contract: every accepted request is answered once, with a result or an error; a full queue refuses at once.
"""

import asyncio
import contextlib
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from autotools.errors import RetrieverError, RetrieverUnavailable
from autotools.schema import Hit
from retriever.engine import SearchEngine

Results = list[list[Hit]]
Outcome = Results | Exception


class QueueFull(RetrieverUnavailable):
    """No room for this request now; it may be sent again."""


@dataclass(eq=False)
class Job:
    """One request: ``k`` hits for each query, or (``k`` None) only the embedding of its queries."""

    queries: Sequence[str]
    categories: Sequence[str | None] | None
    k: int | None
    future: "asyncio.Future[Results]"
    given_up: bool = False
    characters: int = field(init=False)

    def __post_init__(self) -> None:
        self.characters = sum(map(len, self.queries))


class Batcher:
    """Feeds ``engine`` from an event loop. ``batch_queries`` = 1 turns merging of requests off.

    ``max_waiting`` bounds the queries that wait, ``max_characters`` their text. ``on_batch(queries, seconds)`` is told
    of every engine call, in the loop's thread. Make it inside a running event loop; ``close`` ends it.
    """

    def __init__(
        self,
        engine: SearchEngine,
        *,
        batch_queries: int = 1024,
        max_waiting: int = 16_384,
        max_characters: int = 64_000_000,
        on_batch: Callable[[int, float], None] = lambda queries, seconds: None,
    ) -> None:
        self._engine, self._on_batch = engine, on_batch
        self._batch_queries, self._max_waiting, self._max_characters = batch_queries, max_waiting, max_characters
        self._known = frozenset(engine.categories)
        self._loop = asyncio.get_running_loop()
        self._jobs: deque[Job] = deque()
        self._waiting: Counter[str] = Counter()  # queries, characters
        self._wake = threading.Condition()
        self._closed = False
        self._busy_since: float | None = None
        self._broken = ""
        self._thread = threading.Thread(target=self._work, name="search-engine", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> tuple[int, int]:
        """(requests, queries) in the queue, without those the engine has begun."""
        return len(self._jobs), self._waiting["queries"]

    @property
    def busy_s(self) -> float:
        """Seconds the engine call now running has taken; 0 when idle."""
        since = self._busy_since
        return time.monotonic() - since if since is not None else 0.0

    @property
    def broken(self) -> str:
        """Why no request can be answered any more; "" while all is well."""
        return self._broken

    async def search(
        self, queries: Sequence[str], categories: Sequence[str | None] | None, k: int | None, timeout_s: float
    ) -> Results:
        """Results of one request, one list per query (``k`` None: embed only, lists are empty).

        Raises QueueFull, TimeoutError after ``timeout_s`` (the request is then skipped if not begun), or whatever the
        engine raised for this request.
        """
        job = Job(queries, categories, k, self._loop.create_future())
        self._put(job)
        try:
            return await asyncio.wait_for(job.future, timeout_s)
        finally:
            job.given_up = True  # without effect on an answered job

    def _put(self, job: Job) -> None:
        with self._wake:
            if self._closed or self._broken:
                raise QueueFull(self._broken or "the server is stopping")
            queries, characters = self._waiting["queries"], self._waiting["characters"]
            # An empty queue takes any request: the server's own limits decide how large one may be.
            full = queries + len(job.queries) > self._max_waiting or characters + job.characters > self._max_characters
            if self._jobs and full:
                raise QueueFull(f"{queries} queries ({characters} characters) wait already; try again later")
            self._jobs.append(job)
            self._waiting.update(queries=len(job.queries), characters=job.characters)
            self._wake.notify()

    async def close(self) -> None:
        """Refuse new requests, answer those waiting with an error, let the running call end (a few seconds)."""
        with self._wake:
            self._closed = True
            jobs = self._clear()
            self._wake.notify()
        self._deliver([(job, QueueFull("the server is stopping")) for job in jobs])
        await asyncio.to_thread(self._thread.join, 5)

    # --- the engine thread ----------------------------------------------------------------------------------------

    def _work(self) -> None:
        batch: list[Job] = []
        try:
            while batch := self._take():
                for group in _groups(batch, self._known):
                    self._send(self._answer(group))
        except BaseException as error:  # a defect here, or the engine ended the thread: say so instead of hanging
            traceback.print_exc()
            with self._wake:
                self._broken = f"the engine thread ended: {error!r}"
                jobs = [*batch, *self._clear()]
            self._send([(job, RetrieverError(self._broken)) for job in jobs])

    def _clear(self) -> list[Job]:
        jobs = list(self._jobs)
        self._jobs.clear()
        self._waiting.clear()
        return jobs

    def _take(self) -> list[Job]:
        """Wait for work; the requests of the next batch, at least one, in the order they came. Empty: closed."""
        with self._wake:
            self._busy_since = None
            while not self._jobs and not self._closed:
                self._wake.wait()
            batch: list[Job] = []
            room = self._batch_queries
            while self._jobs and (not batch or len(self._jobs[0].queries) <= room):
                job = self._jobs.popleft()
                self._waiting.subtract(queries=len(job.queries), characters=job.characters)
                batch.append(job)
                room -= len(job.queries)
            self._busy_since = time.monotonic()
            return batch

    def _answer(self, group: list[Job]) -> list[tuple[Job, Outcome]]:
        group = [job for job in group if not job.given_up]
        if not group:
            return []
        try:
            results = self._call(group)
        except Exception as error:
            if len(group) == 1:
                return [(group[0], error)]
            # One request may be the cause: alone, only that one fails.
            return [pair for job in group for pair in self._answer([job])]
        ends = [0]
        for job in group:
            ends.append(ends[-1] + len(job.queries))
        return [(job, results[a:b]) for job, a, b in zip(group, ends, ends[1:], strict=False)]

    def _call(self, group: list[Job]) -> Results:
        queries = [query for job in group for query in job.queries]
        start = self._busy_since = time.monotonic()
        if group[0].k is None:
            self._engine.prefetch(queries)
            results: Results = [[] for _ in queries]
        else:
            categories = [c for job in group for c in (job.categories or [None] * len(job.queries))]
            results = self._engine.search_batch(queries, categories, group[0].k)
        if len(results) != len(queries):
            raise RetrieverError(f"the engine gave {len(results)} result lists for {len(queries)} queries")
        self._tell(self._on_batch, len(queries), time.monotonic() - start)
        return results

    def _send(self, outcomes: list[tuple[Job, Outcome]]) -> None:
        self._tell(self._deliver, outcomes)

    def _tell(self, callback: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(callback, *args)

    def _deliver(self, outcomes: Iterable[tuple[Job, Outcome]]) -> None:
        for job, outcome in outcomes:
            if job.future.done():  # given up
                continue
            if isinstance(outcome, Exception):
                job.future.set_exception(outcome)
            else:
                job.future.set_result(outcome)


def _groups(batch: list[Job], known: frozenset[str]) -> list[list[Job]]:
    """Requests that may share one engine call: same ``k``, known categories (an unknown one fails its request only)."""
    groups: dict[Hashable, list[Job]] = {}
    for job in batch:
        odd = job.categories is not None and not known.issuperset(c for c in job.categories if c is not None)
        groups.setdefault((job.k, id(job) if odd else None), []).append(job)
    return list(groups.values())
