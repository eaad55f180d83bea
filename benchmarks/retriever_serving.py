"""What does the search server cost, what does it save? ``python benchmarks/retriever_serving.py [--encoder minilm]``

One server process on loopback, one thread; queries are encoded for real, the documents' vectors are random (searching
costs the same). Rows: the limit (parse, queue, answer, no search); one query per request with merging, cache and
duplicate removal off; merged; one list per request; the same in process. ``x`` compares with the best row of
"one query per request, nothing merged". A turn: 1,280 queries, 478 distinct. Every answer is checked. Exit code 1 if
the list call is below 8 x, or the encoder ran on more or fewer queries than there are distinct ones.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from retriever_serving_server import DISTINCT, TURN, ServerArgs, dense_engine, texts, turn

from autotools.config import load_config, run_main

BAR = 8.0


@dataclass
class BenchArgs(ServerArgs):
    """Keys of the command."""

    single: int = field(default=256, metadata={"help": "requests in each row of one query per request, not merged"})
    turns: int = field(default=3, metadata={"help": "turns measured (median); each has queries of its own"})
    clients: list[int] = field(default_factory=lambda: [1, 16, 128], metadata={"help": "requests at a time"})


@dataclass
class Row:
    """One line of the table; times in seconds."""

    way: str
    clients: int
    queries: int
    wall_s: float
    cpu_s: float  # of the server process
    latencies: list[float] = field(default_factory=list)

    def cells(self, base_wall: float, base_cpu: float) -> list[str]:
        """q/s, p50, p95, server CPU per query, ratios to the base (seconds per query)."""
        points = statistics.quantiles(self.latencies, n=20) if len(self.latencies) > 1 else self.latencies * 20
        shown = [f"{1000 * points[9]:.1f}", f"{1000 * points[18]:.1f}"] if self.latencies else ["-", "-"]
        each, cpu = self.wall_s / self.queries, self.cpu_s / self.queries
        ratios = [f"{base_wall / each:.1f}", f"{base_cpu / cpu:.1f}" if cpu else "-"]
        return [
            self.way,
            str(self.clients),
            str(self.queries),
            f"{1 / each:,.0f}",
            *shown,
            f"{1000 * cpu:.2f}",
            *ratios,
        ]


# --- server process and clients -----------------------------------------------------------------------------------


class Server:
    """The server process of one mode, and what its CPU time and counters say."""

    def __init__(self, args: BenchArgs, mode: str) -> None:
        words = ["--mode", mode, "--encoder", args.encoder, "--dtype", args.dtype, "--documents", str(args.documents)]
        root = Path(__file__).resolve().parents[1]
        env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
        command = [sys.executable, str(root / "benchmarks" / "retriever_serving_server.py"), *words]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
        assert self._process.stdout
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def cpu_s(self) -> float:
        """User and system time so far."""
        import psutil

        times = psutil.Process(self._process.pid).cpu_times()
        return times.user + times.system

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.terminate()
        self._process.wait(30)


async def _load(url: str, queries: list[str], clients: int, latencies: list[float]) -> list[Any]:
    from retriever.client import ClientSettings, SearchClient

    answers: list[Any] = [None] * len(queries)
    numbers = iter(range(len(queries)))
    async with SearchClient(url, ClientSettings(connections=clients)) as client:

        async def ask() -> None:
            for number in numbers:
                start = time.perf_counter()
                answers[number] = await client.search(queries[number])
                latencies.append(time.perf_counter() - start)

        await client.search("warm up")
        await asyncio.gather(*(ask() for _ in range(clients)))
    return answers


def singles(server: Server, way: str, queries: list[str], clients: int, check: Callable[..., None]) -> Row:
    """One query per request, ``clients`` at a time."""
    latencies: list[float] = []
    start, cpu = time.perf_counter(), server.cpu_s()
    answers = asyncio.run(_load(server.url, queries, clients, latencies))
    row = Row(way, clients, len(queries), time.perf_counter() - start, server.cpu_s() - cpu, latencies)
    check(queries, answers)
    return row


def lists(server: Server, way: str, batches: list[list[str]], check: Callable[..., None]) -> Row:
    """One request per list, one after the other; the median list is shown."""
    from retriever.remote import RemoteEngine

    walls, cpus = [], []
    with RemoteEngine(server.url) as remote:
        remote.search_batch(["warm up"])
        for queries in batches:
            before, start, cpu = remote.counters(), time.perf_counter(), server.cpu_s()
            answers = remote.search_batch(queries)
            walls.append(time.perf_counter() - start)
            cpus.append(server.cpu_s() - cpu)
            encoded = remote.counters()["encoded"] - before["encoded"]
            assert encoded == len(set(queries)), f"{len(set(queries))} distinct queries, but {encoded} were encoded"
            check(queries, answers)
    return Row(way, 1, len(batches[0]), statistics.median(walls), statistics.median(cpus), walls)


def httpx_client(server: Server, count: int) -> tuple[float, float]:
    """CPU milliseconds per request in this process: our client, httpx."""
    import httpx

    async def ask(client: httpx.AsyncClient) -> None:
        for _ in range(count // 16):
            (await client.post(server.url + "/search", json={"query": "a"})).raise_for_status()

    async def body() -> None:
        async with httpx.AsyncClient(trust_env=False) as client:
            await asyncio.gather(*(ask(client) for _ in range(16)))

    start = time.process_time()
    asyncio.run(_load(server.url, ["a"] * count, 16, []))
    ours = time.process_time() - start
    start = time.process_time()
    asyncio.run(body())
    return 1000 * ours / count, 1000 * (time.process_time() - start) / count


# --- the table ----------------------------------------------------------------------------------------------------


def rows(args: BenchArgs) -> Iterator[Row]:
    """All rows; the first three are the limit, the next ones the base of the ratios."""
    local, tolerance = dense_engine(args, cache=True), 1e-5 if args.dtype == "float32" else 2e-2

    def check(queries: list[str], answers: list[Any]) -> None:
        """As many hits as the engine in this process gives, with its scores (a batch rounds differently: 1e-5)."""
        for got, want in zip(answers, local.search_batch(queries), strict=True):
            assert len(got) == len(want) == 5, (len(got), len(want))
            assert all(abs(g.score - w.score) < tolerance for g, w in zip(got, want, strict=True))

    with Server(args, "null") as server:
        for clients in args.clients:
            yield singles(server, "limit: no search", texts(1000, 1), clients, lambda *_: None)
        ours, other = httpx_client(server, 800)
        print(f"client CPU per request: this client {ours:.2f} ms, httpx {other:.2f} ms ({other / ours:.1f} x)")
    with Server(args, "off") as server:
        for clients in args.clients:
            queries = texts(args.single, 100 + clients)
            yield singles(server, "one query per request, nothing merged", queries, clients, check)
    with Server(args, "on") as server:
        for clients in args.clients:
            queries = texts(args.single if clients == 1 else 2 * args.single, 200 + clients)
            yield singles(server, "one query per request, merged", queries, clients, check)
        yield singles(server, "the turn, one query per request, merged", turn(300), max(args.clients), check)
        for count in (64, 256):
            yield lists(
                server, f"one list, {count} distinct", [texts(count, 10 * count + n) for n in range(args.turns)], check
            )
        yield lists(server, "one list: the turn", [turn(500 + n) for n in range(args.turns)], check)
    walls, cpus = [], []
    for number in range(args.turns):
        queries = turn(600 + number)
        start, cpu = time.perf_counter(), time.process_time()
        local.search_batch(queries)
        walls.append(time.perf_counter() - start)
        cpus.append(time.process_time() - cpu)
    yield Row("in process: the turn", 1, TURN, statistics.median(walls), statistics.median(cpus), walls)


def main(argv: list[str] | None = None) -> int:
    """Print the table; 0 if the list call reaches the bar."""
    config = load_config(argv, {"": BenchArgs}, prog="benchmarks/retriever_serving.py", description=__doc__ or "")
    args = config.top(BenchArgs)
    if config.dry_run:
        print(f"would time {args.encoder} over {args.documents} documents with {args.clients} clients")
        return 0
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: as the server process
    from rich.console import Console
    from rich.table import Table

    load, found = os.getloadavg()[0], []
    for row in rows(args):
        found.append(row)
        print(f"measured: {row.way}, {row.clients}", file=sys.stderr)
    bases = [row for row in found if row.way.endswith("nothing merged")]
    base_wall = min(row.wall_s / row.queries for row in bases)
    base_cpu = min(row.cpu_s / row.queries for row in bases)
    table = Table("way", "clients", "queries", "q/s", "p50 ms", "p95 ms", "server CPU ms/query", "x wall", "x CPU")
    table.title = f"{args.encoder} {args.dtype}, {args.documents} documents; {os.cpu_count()} cores, load {load:.1f}"
    for row in found:
        table.add_row(*row.cells(base_wall, base_cpu))
    Console(width=130).print(table)
    (listed,) = [row for row in found if row.way == "one list: the turn"]
    wall, cpu = base_wall * TURN / listed.wall_s, base_cpu * TURN / listed.cpu_s
    verdict = "reached" if min(wall, cpu) >= BAR else "NOT reached"
    print(f"list call of a turn ({TURN} queries, {DISTINCT} distinct, as many encoded): {wall:.1f} x in time, "
          f"{cpu:.1f} x in server CPU; bar {BAR:g} x {verdict}")  # fmt: skip
    return 0 if min(wall, cpu) >= BAR else 1


if __name__ == "__main__":
    run_main(main)
