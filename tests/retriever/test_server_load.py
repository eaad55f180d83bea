"""128 clients at one server process: each answer is the in-process engine's own; also when the server is killed.

Bounded: some thousand small requests on loopback, seconds each.
"""

import asyncio
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter

import pytest

from autotools.errors import RetrieverUnavailable
from autotools.schema import ToolId, ToolSpec
from retriever.bm25 import BM25Engine
from retriever.client import ClientSettings, SearchClient

CLIENTS, ROUNDS = 128, 16
PATIENT = ClientSettings(attempts=60, backoff_s=0.05, max_backoff_s=0.5, total_timeout_s=90, connections=1)


@pytest.fixture(scope="module")
def specs():
    rng = random.Random(5)
    words = ["".join(rng.choices("bcdfghjklmnp", k=6)) for _ in range(300)]
    return [
        ToolSpec(
            id=ToolId(category=f"C{number % 7}", tool=f"tool_{number}", api="use"),
            tool_name=f"tool {number}", api_name="use", description=" ".join(rng.choices(words, k=12)),
        )
        for number in range(500)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def questions(specs):
    """(queries, categories, k, answers of the in-process engine); no answer is empty, so an empty one is false."""
    rng, engine = random.Random(6), BM25Engine(specs)
    out = []
    for _ in range(200):
        asked = [rng.choice(specs) for _ in range(rng.choice([1, 1, 1, 4, 9]))]
        queries = [" ".join(rng.sample(spec.description.split(), 3)) for spec in asked]
        categories, k = [rng.choice([None, spec.id.category]) for spec in asked], rng.randint(1, 10)
        answers = engine.search_batch(queries, categories, k)
        assert all(answers)
        out.append((queries, categories, k, answers))
    return out


class ServerProcess:
    """``python -m retriever.serve`` that can be killed and started again on its port."""

    def __init__(self, folder, specs):
        (folder / "tools.jsonl").write_text("".join(spec.model_dump_json() + "\n" for spec in specs))
        self._folder, self.port = folder, 0
        self.start()

    def start(self):
        command = [sys.executable, "-m", "retriever.serve", "--tools", self._folder, "--port", str(self.port)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        line = self._process.stdout.readline()
        self.port = int(re.search(r"http://127\.0\.0\.1:(\d+)", line)[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def end(self, number=signal.SIGKILL):
        self._process.send_signal(number)
        self._process.wait(30)
        self._process.stdout.close()


@pytest.fixture
def server(tmp_path, specs):
    process = ServerProcess(tmp_path, specs)
    yield process
    with contextlib.suppress(ProcessLookupError, ValueError):
        process.end()


async def one_client(url, questions, seed, settings, rounds, tally):
    """Ask ``rounds`` questions; ``tally`` counts asked, right, and failures by type. A wrong answer raises."""
    rng = random.Random(seed)
    async with SearchClient(url, settings) as client:
        for _ in range(rounds):
            queries, categories, k, wanted = rng.choice(questions)
            tally["asked"] += 1
            try:
                if len(queries) == 1:
                    got = [await client.search(queries[0], categories[0], k)]
                else:
                    got = await client.search_batch(queries, categories, k)
            except RetrieverUnavailable:
                tally["unavailable"] += 1
                continue
            assert got == wanted
            tally["right"] += 1
        tally.update(client.counts)


async def load(url, questions, settings, meanwhile=None, rounds=ROUNDS):
    tally = Counter()
    clients = [one_client(url, questions, seed, settings, rounds, tally) for seed in range(CLIENTS)]
    async with asyncio.timeout(240), asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(client)
        if meanwhile:
            group.create_task(meanwhile(tally))
    return tally


async def metric(server, pattern):
    async with SearchClient(server.url) as client, client._session.get(server.url + "/metrics") as answer:
        return float(re.search(pattern + r" ([\d.e-]+)", await answer.text())[1])


def test_every_client_gets_its_own_answers(server, questions):
    async def body():
        tally = await load(server.url, questions, PATIENT)
        answered = await metric(server, r'requests_total\{path="/search",status="200"\}')
        batches = await metric(server, "batch_seconds_count")
        return tally, answered, batches

    tally, answered, batches = asyncio.run(body())
    assert tally["right"] == tally["asked"] == CLIENTS * ROUNDS
    assert answered == CLIENTS * ROUNDS  # the server's own count: nothing was asked twice or answered twice
    assert tally["requests"] == CLIENTS * ROUNDS + tally["retries"]
    assert batches < answered  # requests were merged


def test_clients_recover_from_a_killed_server(server, questions):
    async def kill_and_restart(tally):
        for share in (0.2, 0.6):
            while tally["right"] < share * CLIENTS * ROUNDS:
                await asyncio.sleep(0.005)
            await asyncio.to_thread(server.end)
            await asyncio.to_thread(server.start)

    tally = asyncio.run(load(server.url, questions, PATIENT, kill_and_restart))
    assert tally["right"] == tally["asked"] == CLIENTS * ROUNDS
    assert tally["retries"] >= CLIENTS  # the kills did hit requests


def test_without_a_restart_every_failure_is_typed(server, questions):
    async def kill(tally):
        while tally["right"] < 0.3 * CLIENTS * ROUNDS:
            await asyncio.sleep(0.005)
        await asyncio.to_thread(server.end)

    impatient = ClientSettings(attempts=2, backoff_s=0.01, max_backoff_s=0.02, connections=1)
    tally = asyncio.run(load(server.url, questions, impatient, kill))
    assert tally["right"] + tally["unavailable"] == tally["asked"] == CLIENTS * ROUNDS
    assert 0.3 * CLIENTS * ROUNDS <= tally["right"] and tally["unavailable"] >= CLIENTS


def test_an_overrun_server_refuses_and_nothing_is_lost(running, specs, questions):
    """A queue of 8 queries for 128 clients: 503s for sure, and still every answer arrives."""

    async def body():
        with running(BM25Engine(specs), max_waiting=8, batch_queries=4) as port:
            return await load(f"http://127.0.0.1:{port}", questions, PATIENT, rounds=4)

    tally = asyncio.run(body())
    assert tally["right"] == tally["asked"] == CLIENTS * 4 and tally["retries"] > 0


def test_a_query_of_many_clients_is_encoded_once(running, ten_tools, tmp_path, monkeypatch):
    """With a real encoder: merged requests, lists and the cache together encode each distinct query exactly once."""
    from retriever.engine import open_engine

    monkeypatch.setenv("AUTOTOOLS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "tools.jsonl").write_text("".join(spec.model_dump_json() + "\n" for spec in ten_tools))
    served, alone = (open_engine(tmp_path, "minilm", device="cpu") for _ in "ab")
    distinct = [f"{spec.description} {n}" for spec in ten_tools for n in range(3)]
    rng = random.Random(7)
    asked = [rng.choices(distinct, k=rng.choice([1, 1, 6])) for _ in range(CLIENTS)]
    used = {query for queries in asked for query in queries}
    wanted = {query: alone.search_batch([query], k=3)[0] for query in used}  # one by one

    async def body():
        with running(served) as port:
            async with SearchClient(f"http://127.0.0.1:{port}") as client:
                answers = await asyncio.gather(*(client.search_batch(queries, k=3) for queries in asked))
        return answers

    for queries, answer in zip(asked, asyncio.run(body()), strict=True):
        for query, hits in zip(queries, answer, strict=True):
            assert [hit.id for hit in hits] == [hit.id for hit in wanted[query]]
            # a vector of a batch differs from the same one alone by about 2e-7
            assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in wanted[query]], abs=2e-5)
    counters = served.counters()
    assert counters["encoded"] == len(used) < sum(map(len, asked)) == counters["queries"]
    assert counters["encoder_batches"] < len(used)
