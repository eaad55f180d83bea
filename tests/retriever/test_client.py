"""The client against a server that misbehaves on purpose, and against the real one: an answer, or a typed error."""

import asyncio
import json
import multiprocessing
import os
import threading

import pytest

from autotools.errors import RetrieverError, RetrieverUnavailable, UnknownCategoryError
from retriever.bm25 import BM25Engine
from retriever.client import ClientSettings, SearchClient
from retriever.engine import SearchEngine
from retriever.remote import RemoteEngine

FAST = ClientSettings(attempts=4, backoff_s=0.01, max_backoff_s=0.05, total_timeout_s=20, attempt_timeout_s=5)
HIT = {"id": "Travel.inn.find", "score": 1.5, "document": "find an inn"}


class ScriptedServer:
    """Answers the n-th request with the n-th step, the last one for ever. A step gets (request id, content)."""

    def __init__(self, *steps):
        self.steps, self.asked = list(steps), []

    async def _serve(self, reader, writer):
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                fields = dict(line.lower().split(": ", 1) for line in head.decode().splitlines()[1:] if ": " in line)
                body = await reader.readexactly(int(fields.get("content-length", 0)))
                step = self.steps[min(len(self.asked), len(self.steps) - 1)]
                self.asked.append((fields["x-request-id"], json.loads(body)))
                reply = step(*self.asked[-1])
                if reply is None:
                    return
                writer.write(reply)
                await writer.drain()
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    def run(self, question, settings=FAST):
        """Result of ``question(client)`` with this server, and the client's counts."""

        async def body():
            async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
                url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
                async with SearchClient(url, settings) as client:
                    return await question(client), client.counts

        return asyncio.run(body())


def reply(content, status=200, headers=""):
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


def good(request_id, content, /, **changes):
    count = len(content.get("queries", ["one"]))
    return reply({"request_id": request_id, "results": [[HIT]] * count, "engine": {"engine": "x"}, **changes})


def refuse(status, code="busy", headers=""):
    return lambda *_: reply({"error": {"code": code, "message": f"because of {code}"}}, status, headers)


def closed(*_):
    return None


def truncated(request_id, content):
    return good(request_id, content)[:-10]


async def two(client):
    return await client.search_batch(["a", "b"], k=2)


@pytest.mark.parametrize("fault", [closed, refuse(503), refuse(504), refuse(502), refuse(429), refuse(408)])
def test_a_passing_fault_is_asked_again_with_the_same_id(fault):
    server = ScriptedServer(fault, fault, good)
    results, counts = server.run(two)
    assert [[str(hit.id) for hit in hits] for hits in results] == [["Travel.inn.find"]] * 2
    assert (counts["requests"], counts["retries"]) == (3, 2)
    assert len({request_id for request_id, _ in server.asked}) == 1


def test_an_answer_that_breaks_off_is_asked_again():
    def half(request_id, content):  # promises more bytes than it sends, then closes
        return truncated(request_id, content)

    server = ScriptedServer(half, closed, good)
    results, _ = server.run(two, ClientSettings(attempts=4, backoff_s=0.01, attempt_timeout_s=0.5))
    assert len(results) == 2


@pytest.mark.parametrize("fault", [closed, refuse(503), lambda *_: b"no http at all\r\n\r\n"])
def test_a_lasting_fault_is_unavailable_never_empty(fault):
    server = ScriptedServer(fault)
    with pytest.raises(RetrieverUnavailable, match=r"did not answer POST /search .* at most 4 attempts"):
        server.run(two)
    assert len(server.asked) == 4


def test_a_server_that_hangs_is_said_once_and_one_that_answers_is_not(capsys):
    quick = ClientSettings(attempts=3, backoff_s=0.01, attempt_timeout_s=0.4, say_after_s=0.6)
    hanging = ScriptedServer(lambda *_: b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n")  # and never the body
    with pytest.raises(RetrieverUnavailable):
        hanging.run(two, quick)
    (line,) = capsys.readouterr().err.splitlines()
    assert "has not answered POST /search for 0.6 s (TimeoutError" in line and "waiting for 600 s at most" in line
    ScriptedServer(closed, good).run(two, quick)
    assert capsys.readouterr().err == ""


def test_nobody_there():
    async def body():
        async with SearchClient("http://127.0.0.1:9", FAST) as client:  # the discard port: nothing listens
            await client.search("a")

    with pytest.raises(RetrieverUnavailable, match="http://127.0.0.1:9 .* is python -m retriever.serve running there"):
        asyncio.run(body())


@pytest.mark.parametrize("url", ["nonsense", "http://", "127.0.0.1:80"])
def test_an_address_that_is_none(url):
    async def body():
        async with SearchClient(url, FAST) as client:
            await client.search("a")

    with pytest.raises(RetrieverError, match="write http://HOST:PORT"):
        asyncio.run(body())


def test_total_time_ends_the_patience():
    patient = ClientSettings(attempts=1000, backoff_s=0.05, max_backoff_s=0.05, total_timeout_s=0.5)
    server = ScriptedServer(refuse(503))
    with pytest.raises(RetrieverUnavailable, match="0.5 s are over; last: HTTP 503: because of busy"):
        server.run(two, patient)
    assert 3 < len(server.asked) < 30


def test_retry_after_is_a_lower_bound():
    async def timed(client):
        start = asyncio.get_running_loop().time()
        await two(client)
        return asyncio.get_running_loop().time() - start

    slow = ClientSettings(attempts=2, backoff_s=0.001, max_backoff_s=5)
    seconds, _ = ScriptedServer(refuse(503, headers="Retry-After: 1\r\n"), good).run(timed, slow)
    assert seconds > 0.49  # a second, times a jitter of 0.5 at least; the own pause would be a millisecond


def test_pauses_follow_the_seed_and_double():
    def pauses(seed):
        client = SearchClient("http://x", ClientSettings(backoff_s=1, max_backoff_s=8, seed=seed))
        return [client._pause(attempt, 0) for attempt in range(1, 7)]

    assert pauses(1) == pauses(1) != pauses(2)
    assert all(top / 2 <= pause <= top for pause, top in zip(pauses(3), [1, 2, 4, 8, 8, 8], strict=True))


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (lambda i, c: good(i, c, request_id="other"), "not that to request"),
        (lambda i, c: good(i, c, results=[[HIT]]), "2 queries, but the answer holds 1 result lists"),
        (lambda i, c: good(i, c, results=[[HIT]] * 3), "holds 3 result lists"),
        (lambda i, c: good(i, c, results=None), "holds no result lists"),
        (lambda i, c: good(i, c, results=[[HIT], None]), "result 1 is not a list"),
        (lambda i, c: good(i, c, results=[[HIT], [HIT] * 3]), "result 1 is not a list of at most 2 hits"),
        (lambda i, c: good(i, c, results=[[HIT], [{"id": "a.b.c"}]]), "a hit is not"),
        (lambda i, c: good(i, c, results=[[HIT], [{**HIT, "id": "a"}]]), "a hit is not"),
        (lambda i, c: good(i, c, results=[[HIT], [{**HIT, "score": float("nan")}]]), "a hit is not"),
        (lambda i, c: good(i, c, results=[[HIT], [{**HIT, "score": None}]]), "a hit is not"),
        (lambda i, c: good(i, c, results=[[HIT], [{**HIT, "document": 7}]]), "a hit is not"),
        (lambda i, c: good(i, c, engine=None), "does not say which engine"),
        (lambda *_: reply([]), "not that to request"),
        (lambda *_: reply(b""), "not JSON"),
        (lambda *_: reply(b"<html>proxy</html>", 404), "HTTP 404: <html>proxy"),
        (refuse(400, "malformed"), "HTTP 400: because of malformed"),
        (refuse(401, "token"), "HTTP 401: because of token"),
        (refuse(500, "engine"), "HTTP 500: because of engine"),
    ],
)  # fmt: skip
def test_a_wrong_answer_is_an_error_at_once(answer, what):
    server = ScriptedServer(answer)
    with pytest.raises(RetrieverError, match=what) as caught:
        server.run(two)
    assert not isinstance(caught.value, RetrieverUnavailable)
    assert len(server.asked) == 1


def test_another_engine_after_the_first_answer_is_an_error():
    async def twice(client):
        await two(client)
        await two(client)

    server = ScriptedServer(good, lambda i, c: good(i, c, engine={"engine": "x", "corpus_sha256": "new"}))
    with pytest.raises(RetrieverError, match="corpus_sha256: None, now 'new'"):
        server.run(twice)


def test_long_lists_go_in_parts_and_come_back_in_order():
    def numbered(request_id, content):
        results = [
            [{**HIT, "document": f"{q}/{c}"}] for q, c in zip(content["queries"], content["categories"], strict=True)
        ]
        return good(request_id, content, results=results)

    queries, categories = [f"q{n}" for n in range(25)], [None, "x"] * 12 + [None]
    server = ScriptedServer(numbered)
    results, _ = server.run(
        lambda client: client.search_batch(queries, categories), ClientSettings(chunk=4, connections=3)
    )
    assert [hits[0].document for hits in results] == [f"{q}/{c}" for q, c in zip(queries, categories, strict=True)]
    assert sorted(len(content["queries"]) for _, content in server.asked) == [1] + [4] * 6
    assert server.run(lambda client: client.search_batch([])) == ([], {})


def test_one_failed_part_fails_the_call():
    def third(request_id, content):
        return refuse(500, "engine")() if "q9" in content["queries"] else good(request_id, content)

    with pytest.raises(RetrieverError, match="HTTP 500"):
        ScriptedServer(third).run(
            lambda client: client.search_batch([f"q{n}" for n in range(25)]), ClientSettings(chunk=4)
        )


def test_categories_must_match():
    with pytest.raises(RetrieverError, match="2 queries but 1 categories"):
        ScriptedServer(good).run(lambda client: client.search_batch(["a", "b"], ["x"]))


# --- the engine behind the server ---------------------------------------------------------------------------------

QUERIES = ["price of a room", "song", "storm", "nothing-of-the-sort", "price of a room", "name"]
CATEGORIES = ["Travel", None, "Weather", None, None, "Music"]


@pytest.fixture
def local(ten_tools):
    return BM25Engine(ten_tools)


def test_remote_engine_is_that_engine(running, local):
    with running(BM25Engine(local.specs), "hash") as port, RemoteEngine(f"http://127.0.0.1:{port}/", FAST) as remote:
        assert isinstance(remote, SearchEngine)
        assert remote.categories == local.categories
        assert remote.describe() == {**local.describe(), "corpus_sha256": "hash"}
        for k in (1, 5, 50):
            assert remote.search_batch(QUERIES, CATEGORIES, k) == local.search_batch(QUERIES, CATEGORIES, k)
        assert remote.search_batch(QUERIES) == local.search_batch(QUERIES)
        remote.prefetch(QUERIES)
        counters = remote.counters()
        assert counters["calls"] >= 4 and counters["client_requests"] == 8 and "client_retries" not in counters
        with pytest.raises(UnknownCategoryError, match="close names: Travel"):
            remote.search_batch(["a"], ["travel"])
        with pytest.raises(RetrieverError, match="'k' must be"):
            remote.search_batch(["a"], k=0)


def test_remote_engine_needs_its_token(running, local, monkeypatch):
    monkeypatch.setenv("TOKEN_OF_TEST", "s3cret")
    with running(local, token="s3cret") as port:
        url = f"http://127.0.0.1:{port}"
        with pytest.raises(RetrieverError, match="HTTP 401") as caught:
            RemoteEngine(url, ClientSettings(token_env=""))
        assert "s3cret" not in str(caught.value)
        with RemoteEngine(url, ClientSettings(token_env="TOKEN_OF_TEST")) as remote:
            assert remote.search_batch(QUERIES) == local.search_batch(QUERIES)


def test_remote_engine_from_many_threads_after_close_and_restart(running, local):
    wanted = local.search_batch(QUERIES, CATEGORIES)
    with running(local) as port:
        remote = RemoteEngine(f"http://127.0.0.1:{port}", FAST)
        got = []
        threads = [
            threading.Thread(target=lambda: got.append(remote.search_batch(QUERIES, CATEGORIES))) for _ in "1234"
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert got == [wanted] * 4
        remote.close()
        assert remote.search_batch(QUERIES, CATEGORIES) == wanted
    with pytest.raises(RetrieverUnavailable):
        remote.search_batch(QUERIES)
    with running(local, port=port):
        assert remote.search_batch(QUERIES, CATEGORIES) == wanted
    with running(BM25Engine(local.specs[:5]), port=port):
        for _ in range(2):  # a new connection does not forget which engine it was
            with pytest.raises(RetrieverError, match="tools: 10, now 5"):
                remote.search_batch(QUERIES)
            remote.close()
    remote.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_remote_engine_in_a_forked_child(running, local):
    wanted = local.search_batch(QUERIES, CATEGORIES)
    with running(local) as port, RemoteEngine(f"http://127.0.0.1:{port}", FAST) as remote:
        context = multiprocessing.get_context("fork")
        queue = context.SimpleQueue()
        child = context.Process(
            target=lambda: queue.put(remote.search_batch(QUERIES, CATEGORIES) == wanted), daemon=True
        )
        child.start()
        child.join(30)
        assert child.exitcode == 0 and queue.get()
        assert remote.search_batch(QUERIES, CATEGORIES) == wanted
