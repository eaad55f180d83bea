"""``python benchmarks/world_scale.py [NUM_TOOLS ...]``: what a larger corpus costs to make, to index and to search.

One row per size. Queries are requests of the world's test tasks. The same documents and words go to ``rank_bm25``,
which scores every document in Python, as the measure of this machine: the ratio is what should stay, not the time.
"""

import resource
import sys
import time
from collections.abc import Callable
from typing import Any

SIZES = (1000, 4000, 16000)
QUERIES = 60
SAMPLE = 6  # queries that rank_bm25 gets: at 16,000 tools each takes a tenth of a second


def main(argv: list[str] | None = None) -> int:
    """Print the table. Returns 0; 2 for a size that is no number."""
    words = sys.argv[1:] if argv is None else argv
    if {"-h", "--help"} & set(words):
        print(__doc__)
        return 0
    if wrong := [word for word in words if not word.isdecimal() or int(word) < 108]:
        print(f"error: sizes are whole numbers of at least 108 tools, got {wrong[0]!r}", file=sys.stderr)
        return 2
    from rich.console import Console
    from rich.table import Table

    ours, other = ("make s", "index s", f"{QUERIES} queries ms", "peak MB"), ("rank_bm25: index s", "query x slower")
    table = Table("tools", *ours[:3], *other, ours[3])
    table.title = "BM25 by corpus size"
    for size in [int(word) for word in words] or SIZES:
        table.add_row(*measure(size))
    Console().print(table)
    return 0


def measure(num_tools: int) -> tuple[str, ...]:
    """Cells of one row. The peak is that of the process so far, so give sizes in rising order."""
    from rank_bm25 import BM25Okapi

    from retriever.bm25 import BM25Engine, tokenize
    from retriever.corpus import document_texts
    from toolworld.scale import scaled_specs
    from toolworld.tasks import make_tasks
    from toolworld.world import build_world

    world = build_world(0)
    queries = [task.query for task in make_tasks(world, 0, {"test": QUERIES})][:QUERIES]
    make_s, specs = timed(lambda: list(scaled_specs(world, num_tools)))
    index_s, engine = timed(lambda: BM25Engine(specs, cache_size=0))
    query_s, _ = timed(lambda: engine.search_batch(queries, k=5))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    other_s, other = timed(lambda: BM25Okapi([tokenize(text) for text in document_texts(specs)]))
    sample_s, _ = timed(lambda: [other.get_scores(tokenize(query)) for query in queries[:SAMPLE]])
    ratio = (sample_s / SAMPLE) / (query_s / len(queries))
    cells = (f"{num_tools:,}", f"{make_s:.2f}", f"{index_s:.2f}", f"{1000 * query_s:.1f}", f"{other_s:.2f}")
    return (*cells, f"{ratio:.1f}", f"{peak:.0f}")


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that a call takes, and what it returns."""
    start = time.perf_counter()
    value = call()
    return time.perf_counter() - start, value


if __name__ == "__main__":
    sys.exit(main())
