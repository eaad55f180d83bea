"""The batcher against an engine that can be held: what merges, what is refused, whose error is whose."""

import asyncio
import threading

import pytest

from autotools.errors import RetrieverError, RetrieverUnavailable, UnknownCategoryError
from autotools.schema import Hit, ToolId
from retriever.batching import Batcher, QueueFull


class HeldEngine:
    """Echoes each query as a hit; waits before each call while ``gate`` is closed; records its calls."""

    categories = ("Music", "Travel")

    def __init__(self):
        self.calls, self.prefetched = [], []
        self.entered, self.gate = threading.Semaphore(0), threading.Event()
        self.gate.set()
        self.threads = set()

    def search_batch(self, queries, categories=None, k=5):
        self.threads.add(threading.current_thread())
        self.calls.append((list(queries), list(categories), k))
        self.entered.release()
        assert self.gate.wait(20)
        if "crash" in queries:
            raise RuntimeError("crashed")
        if "exit" in queries:
            raise SystemExit(3)
        if "short" in queries:
            return []
        if "Nowhere" in categories:
            raise UnknownCategoryError("unknown category 'Nowhere'")
        return [[hit(f"{query}/{category}/{k}")] for query, category in zip(queries, categories, strict=True)]

    def prefetch(self, queries):
        self.prefetched.append(list(queries))


def hit(text):
    return Hit(id=ToolId(category="c", tool="t", api="a"), score=1.0, document=text)


def texts(results):
    return [[hit.document for hit in hits] for hits in results]


def run(scenario, **settings):
    """Run ``scenario(batcher, engine, ask)`` in a loop; ``ask`` starts a request and returns its task."""

    async def body():
        engine = HeldEngine()
        batcher = Batcher(engine, **settings)

        def ask(*queries, categories=None, k=5, timeout_s=20):
            return asyncio.ensure_future(batcher.search(queries, categories, k, timeout_s))

        try:
            async with asyncio.timeout(60):
                await scenario(batcher, engine, ask)
        finally:
            engine.gate.set()
            await batcher.close()

    asyncio.run(body())


async def held(engine, ask):
    """Close the gate and put a first request into the engine; what comes now has to queue."""
    engine.gate.clear()
    first = ask("first")
    await asyncio.to_thread(engine.entered.acquire)
    return first


def test_what_queued_meanwhile_is_one_call_and_each_gets_its_own():
    async def scenario(batcher, engine, ask):
        first = await held(engine, ask)
        tasks = [ask("a"), ask("b", "a", categories=["Music", None]), ask("c")]
        other = ask("d", k=2)
        await asyncio.sleep(0)
        assert batcher.waiting == (4, 5)
        engine.gate.set()
        assert [texts(await task) for task in [first, *tasks, other]] == [
            [["first/None/5"]],
            [["a/None/5"]],
            [["b/Music/5"], ["a/None/5"]],
            [["c/None/5"]],
            [["d/None/2"]],
        ]
        assert [(queries, k) for queries, _, k in engine.calls] == [
            (["first"], 5), (["a", "b", "a", "c"], 5), (["d"], 2),
        ]  # fmt: skip
        assert len(engine.threads) == 1 and threading.current_thread() not in engine.threads

    run(scenario)


@pytest.mark.parametrize(("most", "sizes"), [(1, [1, 1, 2, 1]), (3, [1, 3, 1]), (100, [1, 4])])
def test_batch_size_is_kept(most, sizes):
    async def scenario(batcher, engine, ask):
        tasks = [await held(engine, ask), ask("a"), ask("b", "c"), ask("d")]
        await asyncio.sleep(0)
        engine.gate.set()
        await asyncio.gather(*tasks)
        assert [len(queries) for queries, _, _ in engine.calls] == sizes

    run(scenario, batch_queries=most)


def test_a_full_queue_refuses_at_once_and_recovers():
    async def scenario(batcher, engine, ask):
        first = await held(engine, ask)
        waiting = [ask("a", "b"), ask("c")]
        with pytest.raises(QueueFull, match="3 queries .* wait already"):
            await ask("d", "e")
        assert issubclass(QueueFull, RetrieverUnavailable)
        last = ask("d")  # there is room for one
        await asyncio.sleep(0)
        engine.gate.set()
        await asyncio.gather(first, *waiting, last)
        assert batcher.waiting == (0, 0)
        assert len(await ask(*"abcdefgh")) == 8  # an empty queue takes what the server's limits let through

    run(scenario, max_waiting=4)


def test_long_texts_fill_the_queue_too():
    async def scenario(batcher, engine, ask):
        first = await held(engine, ask)
        second = ask("x" * 90)
        with pytest.raises(QueueFull, match="90 characters"):
            await ask("y" * 11)
        engine.gate.set()
        await asyncio.gather(first, second)

    run(scenario, max_characters=100)


def test_a_request_given_up_is_not_computed():
    async def scenario(batcher, engine, ask):
        first = await held(engine, ask)
        with pytest.raises(TimeoutError):
            await ask("late", timeout_s=0.05)
        engine.gate.set()
        await first
        await ask("next")
        assert [queries for queries, _, _ in engine.calls] == [["first"], ["next"]]

    run(scenario)


@pytest.mark.parametrize(
    ("query", "category", "error"),
    [("crash", None, RuntimeError), ("a", "Nowhere", UnknownCategoryError), ("short", None, RetrieverError)],
)
def test_an_error_is_that_of_its_request_only(query, category, error):
    async def scenario(batcher, engine, ask):
        first = await held(engine, ask)
        good, bad, fine = ask("good"), ask(query, categories=[category]), ask("fine")
        await asyncio.sleep(0)
        engine.gate.set()
        with pytest.raises(error):
            await bad
        assert [texts(await task) for task in (first, good, fine)] == [
            [["first/None/5"]], [["good/None/5"]], [["fine/None/5"]],
        ]  # fmt: skip
        if category:  # known beforehand: it costs no second call of the others
            assert [len(queries) for queries, _, _ in engine.calls] == [1, 2, 1]

    run(scenario)


def test_a_dead_engine_thread_fails_everybody_and_is_seen(capfd):
    async def scenario(batcher, engine, ask):
        first = await held(engine, ask)
        tasks = [ask("exit"), ask("a", k=7)]
        await asyncio.sleep(0)
        engine.gate.set()
        await first
        for task in tasks:
            with pytest.raises(RetrieverError, match="engine thread ended: SystemExit"):
                await task
        assert "SystemExit" in batcher.broken
        with pytest.raises(RetrieverUnavailable):
            await ask("later")

    run(scenario)


def test_closing_answers_those_who_wait():
    async def scenario(batcher, engine, ask):
        first = await held(engine, ask)
        waiting = ask("a")
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.05, engine.gate.set)
        await batcher.close()
        assert texts(await first) == [["first/None/5"]]  # had begun
        with pytest.raises(QueueFull, match="stopping"):
            await waiting
        with pytest.raises(QueueFull, match="stopping"):
            await ask("b")

    run(scenario)


def test_prefetch_goes_through_the_same_thread():
    async def scenario(batcher, engine, ask):
        assert await ask("a", "b", k=None) == [[], []]
        assert (engine.prefetched, engine.calls) == ([["a", "b"]], [])

    run(scenario)
