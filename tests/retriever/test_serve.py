"""The server as plain http.client sees it: answers, refusals, health, metrics, token; and the command around it."""

import asyncio
import hashlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from autotools.errors import ConfigError, DataError, RetrieverError
from autotools.schema import Hit, ToolId
from retriever import serve
from retriever.bm25 import BM25Engine
from retriever.categories import unknown_category
from retriever.search_request import Limits
from retriever.server_app import SearchApp, Settings

LIMITS = Limits(max_queries=8, max_query_chars=1000, max_body_bytes=20_000, max_k=50)


class SlowEngine:
    """Echoes queries; some words make it fail, ``hold`` makes it wait for the gate."""

    categories = ("Music", "Travel")

    def __init__(self):
        self.gate, self.entered, self.seen = threading.Event(), threading.Semaphore(0), []

    def describe(self):
        return {"engine": "slow"}

    def counters(self):
        return {"calls": len(self.seen), "queries": sum(map(len, self.seen))}

    def prefetch(self, queries):
        self.seen.append(list(queries))

    def search_batch(self, queries, categories=None, k=5):
        self.seen.append(list(queries))
        self.entered.release()
        for category in categories:
            if category not in (None, *self.categories):
                raise unknown_category(category, self.categories)
        if "hold" in queries:
            assert self.gate.wait(30)
        if "crash" in queries:
            raise ZeroDivisionError("a defect")
        if "broken" in queries:
            raise RetrieverError("index file is truncated")
        api, score = ("a.b", 1.0) if "dot" in queries else ("a", float("nan") if "nan" in queries else 1.0)
        id_ = ToolId(category="c.d", tool="t", api=api)
        return [[Hit(id=id_, score=score, document=f"{q}|{c}|{k}")] for q, c in zip(queries, categories, strict=True)]


@pytest.fixture(scope="module")
def port(running):
    with running(SlowEngine(), "hash-of-corpus", limits=LIMITS) as port:
        yield port


def ask(port, verb="POST", path="/search", body=None, headers=None):
    """(status, headers, content) of one request; JSON content is parsed."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body = body if body is None or isinstance(body, bytes) else json.dumps(body)
    client.request(verb, path, body=body, headers=headers or {})
    answer = client.getresponse()
    content = answer.read()
    client.close()
    is_json = answer.headers["content-type"] == "application/json"
    return answer.status, answer.headers, json.loads(content) if is_json else content.decode()


def test_answers_in_order(port):
    status, headers, content = ask(
        port, body={"queries": ["b", "a", "ü\0"], "categories": ["Music", None, None], "k": 3},
        headers={"X-Request-Id": "mine-1"},
    )  # fmt: skip
    assert (status, headers["x-request-id"], content["request_id"]) == (200, "mine-1", "mine-1")
    assert [[hit["document"] for hit in hits] for hits in content["results"]] == [
        ["b|Music|3"], ["a|None|3"], ["ü\0|None|3"],
    ]  # fmt: skip
    assert content["results"][0][0]["id"] == "c.d.t.a"
    assert content["engine"] == {"engine": "slow", "corpus_sha256": "hash-of-corpus"}
    _, headers, content = ask(port, body={"query": "b", "category": "Music"})
    assert [hit["document"] for hit in content["results"][0]] == ["b|Music|5"]
    assert headers["x-request-id"] == content["request_id"] != "mine-1"


@pytest.mark.parametrize(
    ("body", "status", "what"),
    [
        (b"", 400, "not JSON"),
        (b"\xff{", 400, "not JSON"),
        (b'{"query": ' + b"[" * 9000, 400, "not JSON"),
        (b'{"query": "a", "k": 1' + b"0" * 5000 + b"}", 400, "not JSON"),
        ([], 400, "must be a JSON object, not list"),
        ({}, 400, "either 'query'"),
        ({"query": "a", "queries": ["a"]}, 400, "either 'query'"),
        ({"query": "a", "categories": ["Music"]}, 400, "'category' belongs to 'query'"),
        ({"queries": ["a"], "topk": 3}, 400, "unknown key 'topk'"),
        ({"queries": []}, 400, "at least one text"),
        ({"queries": "a"}, 400, "at least one text"),
        ({"queries": ["a", 7]}, 400, "query 1 is not a text but int"),
        ({"query": None}, 400, "query 0 is not a text but NoneType"),
        ({"query": "\ud800"}, 400, "surrogate"),
        ({"queries": ["a"], "categories": []}, 400, "a list of 1"),
        ({"queries": ["a"], "categories": [7]}, 400, "category 0"),
        ({"query": "a", "k": 0}, 400, "from 1 to 50, not 0"),
        ({"query": "a", "k": -5}, 400, "from 1 to 50, not -5"),
        ({"query": "a", "k": True}, 400, "not True"),
        ({"query": "a", "k": 2.5}, 400, "not 2.5"),
        ({"query": "a", "k": 51}, 400, "not 51"),
        ({"queries": ["a"] * 9}, 413, "9 queries, at most 8"),
        ({"queries": ["a", "b" * 1001]}, 413, "query 1 has 1001 characters"),
        ({"queries": ["b" * 100_000]}, 413, "the body has 100017 bytes, at most 20000"),
        ({"query": "a", "category": "Musik"}, 422, "close names: Music"),
        ({"query": "broken"}, 500, "index file is truncated"),
        ({"query": "crash"}, 500, "ZeroDivisionError in the search server"),
        ({"query": "dot"}, 500, "has a dot inside"),
        ({"query": "nan"}, 500, "ValueError in the search server"),
    ],
)  # fmt: skip
def test_refusals_say_why(port, body, status, what):
    got, headers, content = ask(port, body=body)
    assert (got, set(content)) == (status, {"request_id", "error"}), content
    assert what in content["error"]["message"]
    assert ask(port, body={"query": "a"})[0] == 200


def test_paths_and_verbs(port):
    assert ask(port, "GET", "/search")[0] == 405
    status, _, content = ask(port, "GET", "/serch")
    assert status == 404 and "/search" in content["error"]["message"]


def test_a_refused_large_body_leaves_the_connection_usable(port):
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    for body, status in ((b"x" * 3_000_000, 413), (b'{"query": "a"}', 200), (b"{", 400), (b'{"query": "a"}', 200)):
        client.request("POST", "/search", body=body)
        answer = client.getresponse()
        answer.read()
        assert answer.status == status
    client.close()


def test_timeout_is_504_and_health_says_what_hangs(running):
    engine = SlowEngine()
    with running(engine, timeout_s=0.3) as port:
        assert ask(port, "GET", "/health")[2]["ready"] is True
        status, _, content = ask(port, body={"query": "hold"})
        assert (status, content["error"]["code"]) == (504, "timeout")
        time.sleep(0.2)  # the engine call began a moment after its request
        status, _, content = ask(port, "GET", "/health")
        assert (status, content["ready"]) == (503, False) and "has been running" in content["reason"]
        engine.gate.set()
        assert ask(port, body={"query": "a"})[0] == 200
        assert ask(port, "GET", "/health")[0] == 200


def test_full_queue_is_503_with_retry_after(running):
    engine = SlowEngine()
    with running(engine, max_waiting=2) as port:
        statuses = {}

        def send(query):
            statuses[query] = ask(port, body={"queries": [query, query]})[0]

        holder = threading.Thread(target=send, args=("hold",))
        holder.start()
        engine.entered.acquire()
        waiter = threading.Thread(target=send, args=("wait",))
        waiter.start()
        while "retriever_queue_queries 2\n" not in ask(port, "GET", "/metrics")[2]:
            time.sleep(0.01)
        status, headers, content = ask(port, body={"query": "a"})
        assert (status, content["error"]["code"], headers["retry-after"]) == (503, "busy", "1")
        engine.gate.set()
        holder.join(30), waiter.join(30)
        assert statuses == {"hold": 200, "wait": 200}


def test_token_guards_every_path(running):
    with running(SlowEngine(), token="s3cret") as port:
        for verb, path in (("POST", "/search"), ("GET", "/health"), ("GET", "/metrics"), ("GET", "/none")):
            for headers in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "s3cret"}, {"Authorization": "ü"}):
                status, answer, content = ask(port, verb, path, {"query": "a"}, headers)
                assert (status, answer["www-authenticate"]) == (401, "Bearer")
                assert "s3cret" not in str(content)
        assert ask(port, body={"query": "a"}, headers={"Authorization": "Bearer s3cret"})[0] == 200


def samples(text):
    """Prometheus text as {name{labels}: value}; every line must have the form of the format's specification."""
    name, label = r"[a-zA-Z_:][a-zA-Z0-9_:]*", r'[a-zA-Z_][a-zA-Z0-9_]*="[^"\\\n]*"'
    sample = re.compile(rf"({name}(?:\{{{label}(?:,{label})*\}})?) (-?\d+(?:\.\d+)?(?:e-?\d+)?)")
    comment = re.compile(rf"# (HELP {name} .+|TYPE {name} (counter|gauge|histogram))")
    assert text.endswith("\n")
    found = {}
    for line in text.splitlines():
        if line.startswith("#"):
            assert comment.fullmatch(line), line
        else:
            match = sample.fullmatch(line)
            assert match and match[1] not in found, line
            found[match[1]] = float(match[2])
    return found


def test_metrics_count_what_was_asked(running):
    with running(SlowEngine()) as port:
        for body in ({"queries": ["a", "b", "c"]}, {"query": "a"}, {"query": "a"}, {"query": 1}):
            ask(port, body=body)
        ask(port, "GET", "/nowhere/1"), ask(port, "GET", "/nowhere/2")
        status, headers, text = ask(port, "GET", "/metrics")
        assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        found = samples(text)
    assert found['retriever_requests_total{path="/search",status="200"}'] == 3
    assert found['retriever_requests_total{path="/search",status="400"}'] == 1
    assert found['retriever_requests_total{path="other",status="404"}'] == 2  # labels stay few, whatever is asked
    assert found["retriever_request_seconds_count"] == 4
    assert [found[f'retriever_batch_queries_bucket{{le="{n}"}}'] for n in ("1", "2", "4", "+Inf")] == [2, 2, 3, 3]
    assert found["retriever_batch_queries_sum"] == 5 and found["retriever_batch_seconds_count"] == 3
    assert (found["retriever_engine_calls_total"], found["retriever_engine_queries_total"]) == (3, 5)
    assert (found["retriever_ready"], found["retriever_queue_queries"]) == (1, 0)


def test_prefetch_and_categories(port):
    status, _, content = ask(port, path="/prefetch", body={"queries": ["a", "b"]})
    assert status == 200 and "results" not in content
    assert ask(port, "GET", "/categories")[2]["categories"] == ["Music", "Travel"]


# --- the command --------------------------------------------------------------------------------------------------


@pytest.fixture
def tools(ten_tools, tmp_path):
    (tmp_path / "tools.jsonl").write_text("".join(spec.model_dump_json() + "\n" for spec in ten_tools))
    return tmp_path


def start(*words, **variables):
    command = [sys.executable, "-m", "retriever.serve", "--port", "0", *map(str, words)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | variables
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_command_serves_and_stops_in_order(tools, ten_tools, number):
    with start("--tools", tools, "--token_env", "SECRET_OF_TEST", SECRET_OF_TEST="wh1sper") as process:
        try:
            line = process.stdout.readline()
            port = int(re.search(r"http://127\.0\.0\.1:(\d+)", line)[1])
            token = {"Authorization": "Bearer wh1sper"}
            status, _, content = ask(port, body={"query": "price of a room", "k": 3}, headers=token)
            (wanted,) = BM25Engine(ten_tools).search_batch(["price of a room"], k=3)
            assert status == 200 and len(wanted) > 0
            assert [(h["id"], h["score"], h["document"]) for h in content["results"][0]] == [
                (str(h.id), h.score, h.document) for h in wanted
            ]
            digest = hashlib.sha256((tools / "tools.jsonl").read_bytes()).hexdigest()
            assert content["engine"]["corpus_sha256"] == digest
            process.send_signal(number)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, err) == (0, "search server stopped\n")
    assert "wh1sper" not in line + out + err


def test_an_answer_owed_is_given_before_the_end():
    engine = SlowEngine()
    listener = serve.bind("127.0.0.1", 0)
    listener.listen(8)
    server = serve.make_server(SearchApp(engine, Settings()))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    got = []
    asker = threading.Thread(target=lambda: got.append(ask(listener.getsockname()[1], body={"query": "hold"})))
    asker.start()
    engine.entered.acquire()
    server.should_exit = True
    time.sleep(0.3)
    engine.gate.set()
    asker.join(30), thread.join(30)
    listener.close()
    assert got[0][0] == 200 and got[0][2]["results"][0][0]["document"].startswith("hold")


def test_what_is_wrong_is_one_line(tools, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen(1)
        taken = other.getsockname()[1]
        with pytest.raises(RetrieverError, match=f"127.0.0.1:{taken}: Address already in use; choose another --port"):
            serve.main(["--tools", str(tools), "--port", str(taken)])
    with pytest.raises(RetrieverError, match="70000"):
        serve.main(["--tools", str(tools), "--port", "70000"])
    with pytest.raises(DataError, match="nothing.jsonl"):
        serve.main(["--tools", str(tmp_path / "nothing.jsonl"), "--port", "0"])
    with pytest.raises(RetrieverError, match="python -m retriever.build"):
        words = ["--tools", str(tools), "--port", "0", "--encoder", "minilm", "--index", str(tmp_path / "none")]
        serve.main(words)
    with pytest.raises(ConfigError, match="host 0.0.0.0 is reachable from outside: set token_env"):
        serve.main(["--tools", str(tools), "--host", "0.0.0.0"])
    monkeypatch.delenv("NO_SUCH_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="NO_SUCH_TOKEN .* is not set"):
        serve.main(["--tools", str(tools), "--token_env", "NO_SUCH_TOKEN"])
    with pytest.raises(ConfigError, match="threads must be 1 or more, not 0"):
        serve.main(["--tools", str(tools), "--threads", "0"])
    with pytest.raises(ConfigError, match="max_waiting must be 1 or more"):
        serve.main(["--tools", str(tools), "--max_waiting", "0"])
    with pytest.raises(DataError, match="nowhere does not exist"):
        serve.main(["--tools", "nowhere", "--dry_run"])
    assert serve.main(["--tools", str(tools), "--dry_run"]) == 0


def test_the_app_outside_a_server_does_not_hang():
    async def disconnect():
        return {"type": "http.disconnect"}

    sent = []
    scope = {"type": "http", "method": "POST", "path": "/search", "headers": []}
    asyncio.run(SearchApp(SlowEngine(), Settings())(scope, disconnect, sent.append))
    assert sent == []
