"""``python benchmarks/retriever_bm25.py [--tools FILE] [--num_tools 16000]``: BM25 against rank-bm25 and bm25s itself.

One thread, process CPU time, no cache, no repeated query; all engines get the same documents and the same words. The
physical limit is reading the postings of a query once (bytes over this machine's read bandwidth, measured in the same
run). bm25s has no categories and fills up with hits of score 0. Without ``--tools`` the corpus is the scaled tool
world. Must hold: at least 50 times rank-bm25, batch and single.
"""

import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotools.config import load_config, run_main

POSTING_BYTES = 16  # row (int64) and weight (float64)
MUST_HOLD = 50
OURS, SINGLE, PEER, OTHER = "this engine, one batch", "this engine, one by one", "bm25s (numpy)", "rank-bm25 (Okapi)"
LIMIT = "limit: read postings"


@dataclass(kw_only=True)
class BenchArgs:
    """Keys of the command."""

    tools: str | None = field(default=None, metadata={"help": "tools.jsonl or documentation file, in place of a world"})
    num_tools: int = field(default=16_000, metadata={"help": "tools of the scaled world"})
    queries: int = field(default=400, metadata={"help": "queries of 4 to 12 words of the corpus"})
    sample: int = field(default=20, metadata={"help": "queries that rank-bm25 gets; each takes a tenth of a second"})
    k: int = field(default=5, metadata={"help": "hits per query"})
    seed: int = field(default=0, metadata={"help": "seed of the queries"})


def main(argv: list[str] | None = None) -> int:
    """Print the table; returns 0, or 1 if the ratio that must hold does not."""
    config = load_config(argv, {"": BenchArgs}, prog="benchmarks/retriever_bm25.py", description=__doc__ or "")
    args = config.top(BenchArgs)
    if config.dry_run:
        print(f"would search {args.tools or f'a world of {args.num_tools:,} tools'} {args.queries} times")
        return 0
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    from rich.console import Console
    from rich.table import Table

    specs = _specs(args)
    measured = measure(specs, args)
    ours, limit = measured[OURS][1], measured[LIMIT][1]
    other = measured[OTHER][1]
    table = Table()
    for title in ("way", "index s", "queries/s", "x rank-bm25", "of the limit"):
        table.add_column(title, no_wrap=True, justify="left" if title == "way" else "right")
    table.title = f"BM25 over {len(specs):,} tools, {args.queries} queries, top {args.k}, CPU time of one thread"
    for what, (index_s, query_s) in measured.items():
        index = f"{index_s:.2f}" if index_s else "-"
        table.add_row(what, index, f"{1 / query_s:,.0f}", f"{other / query_s:,.1f}", f"{limit / query_s:.2f}")
    Console().print(table)
    slowest = other / max(ours, measured[SINGLE][1])
    print(f"at least {MUST_HOLD} x rank-bm25: {'yes' if slowest >= MUST_HOLD else 'NO'} ({slowest:.0f} x)")
    return 0 if slowest >= MUST_HOLD else 1


def measure(specs: Sequence[Any], args: BenchArgs) -> dict[str, tuple[float, float]]:
    """``{way: (seconds to index, seconds per query)}``, CPU time of this process."""
    import bm25s
    from rank_bm25 import BM25Okapi

    from retriever.bm25 import K1, METHOD, B, BM25Engine, tokenize
    from retriever.corpus import document_texts

    tokens = [tokenize(text) for text in document_texts(specs)]
    queries = make_queries(tokens, args.queries, args.seed)
    words = [tokenize(query) for query in queries]
    out: dict[str, tuple[float, float]] = {}

    index_s, engine = timed(lambda: BM25Engine(specs, cache_size=0))  # with rendering and cutting into words
    engine.search_batch(queries[:10], k=args.k)
    hits_s, hits = timed(lambda: engine.search_batch(queries, k=args.k), 3)
    assert all(hit.score > 0 for found in hits for hit in found)
    out[OURS] = (index_s, hits_s / len(queries))
    single_s, _ = timed(lambda: [engine.search_batch([query], k=args.k) for query in queries], 3)
    out[SINGLE] = (index_s, single_s / len(queries))

    peer = bm25s.BM25(method=METHOD, k1=K1, b=B, backend="numpy")
    peer_s, _ = timed(lambda: peer.index(tokens, show_progress=False))
    found_s, _ = timed(lambda: peer.retrieve([tokenize(q) for q in queries], k=args.k, show_progress=False), 3)
    out[PEER] = (peer_s, found_s / len(queries))

    other_s, other = timed(lambda: BM25Okapi(tokens))
    sample = queries[: args.sample]
    sample_s, _ = timed(lambda: [other.get_top_n(tokenize(query), range(len(tokens)), n=args.k) for query in sample])
    out[OTHER] = (other_s, sample_s / len(sample))

    holders: dict[str, int] = {}
    for document in tokens:
        for word in set(document):
            holders[word] = holders.get(word, 0) + 1
    postings = sum(holders.get(word, 0) for query in words for word in query) / len(words)
    out[LIMIT] = (0.0, postings * POSTING_BYTES / bandwidth())
    return out


def make_queries(documents: Sequence[Sequence[str]], count: int, seed: int) -> list[str]:
    """Different queries of 4 to 12 words, each from one document and padded from another: words as often as there."""
    rng = random.Random(seed)
    full = [document for document in documents if document]
    out: dict[str, None] = {}
    while len(out) < count:
        words = [*rng.choice(full), *rng.choice(full)]
        out[" ".join(rng.sample(words, min(len(words), rng.randint(4, 12))))] = None
    return list(out)


def bandwidth() -> float:
    """Bytes per second that one thread reads from an array larger than the caches (best of five)."""
    import numpy as np

    block = np.ones(1 << 25)
    return block.nbytes / timed(block.sum, 5)[0]


def timed(call: Callable[[], Any], times: int = 1) -> tuple[float, Any]:
    """CPU seconds of this process that a call takes (the least of ``times``), and what it returns."""
    seconds = []
    for _ in range(times):
        start = time.process_time()
        value = call()
        seconds.append(time.process_time() - start)
    return min(seconds), value


def _specs(args: BenchArgs) -> list[Any]:
    if args.tools:
        from retriever.corpus import load_tools

        return load_tools(args.tools)
    from toolworld.scale import scaled_specs
    from toolworld.world import build_world

    return list(scaled_specs(build_world(args.seed), args.num_tools))


if __name__ == "__main__":
    run_main(main)
