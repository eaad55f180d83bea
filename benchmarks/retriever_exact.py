"""``python benchmarks/retriever_exact.py [DOCUMENTS] [DIMENSIONS]``: exact search against the limits of this machine.

One thread, process CPU time. The limits are measured in the same run: the rate of a float32 matrix product, and the
rate at which the matrix can be read. bound = max(bytes / read rate, flops / sgemm rate); bound / time is 1 if a search
does nothing but the arithmetic. Each row alternates with its limits, so that a busy machine slows both; the medians
of the ratios are shown. "one category each" gives every query one of 32 equal categories.
"""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

DOCUMENTS, DIMENSIONS, CATEGORIES = 16_384, 1024, 32
BATCHES = (1, 32, 256)
ROUNDS = 9
SGEMM_SIZE = 2048
BARS = {"sgemm": 0.75, "category": 3.0}  # least shares of the limit at batch 256, least gain of a category


def main(argv: list[str] | None = None) -> int:
    """Print the table. Returns 0; 1 if a bar is missed, 2 for arguments that are no sizes."""
    words = sys.argv[1:] if argv is None else argv
    if {"-h", "--help"} & set(words):
        print(__doc__)
        return 0
    if len(words) > 2 or any(not word.isdecimal() or int(word) < 64 for word in words):
        print(f"error: give at most two whole numbers of at least 64, got {' '.join(words)}", file=sys.stderr)
        return 2
    sizes = [*map(int, words), *(DOCUMENTS, DIMENSIONS)[len(words) :]]
    from rich.console import Console
    from rich.table import Table

    columns = ("queries", "search", "ms", "queries/s", "sgemm GFLOP/s", "read GB/s", "share of limit", "x unfiltered")
    table = Table(*columns, "vs float64 numpy", title=f"exact search, {sizes[0]:,} x {sizes[1]}, one thread, CPU time")
    rows = [row for batch in BATCHES for row in measure(*sizes, batch)]
    for row in rows:
        table.add_row(*row["cells"])
    Console(width=150).print(table)
    last = [row for row in rows if row["batch"] == BATCHES[-1]]
    share, gain = last[0]["share"], last[1]["gain"]
    met = share >= BARS["sgemm"] and gain >= BARS["category"]
    print(f"batch {BATCHES[-1]}: {share:.2f} of the limit (bar {BARS['sgemm']}), a category {gain:.1f} x "
          f"(bar {BARS['category']}): {'met' if met else 'MISSED'}")  # fmt: skip
    return 0 if met else 1


def measure(documents: int, dimensions: int, batch: int) -> list[dict[str, Any]]:
    """Rows of one batch size: the whole corpus, one category each."""
    import torch

    from retriever.vectors import ExactVectors

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    matrix, queries = unit(rng, documents, dimensions), unit(rng, batch, dimensions)
    size = documents // CATEGORIES
    ends = [*range(0, size * CATEGORIES, size), documents]
    offsets = {str(number): (ends[number], ends[number + 1]) for number in range(CATEGORIES)}
    engine = ExactVectors(matrix, [f"tool{number:07d}" for number in range(documents)], offsets)
    everywhere: list[str | None] = [None] * batch
    each: list[str | None] = [str(number % CATEGORIES) for number in range(batch)]

    square = torch.randn(SGEMM_SIZE, SGEMM_SIZE)
    stored = torch.from_numpy(matrix)
    times: dict[str, list[float]] = {"sgemm": [], "read": [], "all": [], "category": [], "brute": []}
    jobs: dict[str, Callable[[], Any]] = {
        "sgemm": lambda: square @ square,
        "read": lambda: stored.sum(),
        "all": lambda: engine.search(queries, everywhere, 5),
        "category": lambda: engine.search(queries, each, 5),
    }
    for job in jobs.values():
        job()
    for _ in range(ROUNDS):
        for name, job in jobs.items():
            times[name].append(cpu_seconds(job))
    wide = matrix.astype(np.float64)
    few = queries[: min(batch, 32)].astype(np.float64)
    brute = cpu_seconds(lambda: np.argsort(-(few @ wide.T), axis=1, kind="stable")[:, :5]) * batch / len(few)
    return rows_of(times, brute, matrix.nbytes, 2.0 * batch * documents * dimensions, batch)


def rows_of(times: dict[str, list[float]], brute: float, size: int, flops: float, batch: int) -> list[dict[str, Any]]:
    """Cells of the two rows from the CPU seconds of each round."""
    sgemm = [2 * SGEMM_SIZE**3 / seconds for seconds in times["sgemm"]]
    read = [size / seconds for seconds in times["read"]]
    rows = []
    for name, label, part in (("all", "whole corpus", 1), ("category", "one category each", CATEGORIES)):
        seconds = statistics.median(times[name])
        touched = size * min(batch, part) / part  # bytes of all the categories that the batch asks for
        bounds = [max(touched / r, flops / part / g) for r, g in zip(read, sgemm, strict=True)]
        share = statistics.median(bound / t for bound, t in zip(bounds, times[name], strict=True))
        gain = statistics.median(a / t for a, t in zip(times["all"], times[name], strict=True))
        cells = (
            f"{batch}", label, f"{1e3 * seconds:.2f}", f"{batch / seconds:,.0f}",
            f"{statistics.median(sgemm) / 1e9:.0f}", f"{statistics.median(read) / 1e9:.1f}", f"{share:.2f}",
            f"{gain:.1f}", f"{brute / seconds:.1f}",
        )  # fmt: skip
        rows.append({"batch": batch, "cells": cells, "share": share, "gain": gain})
    return rows


def unit(rng: np.random.Generator, count: int, dimensions: int) -> np.ndarray:
    """Random unit vectors, float32 [count, dimensions]."""
    vectors = rng.standard_normal((count, dimensions), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def cpu_seconds(job: Callable[[], Any]) -> float:
    """Process CPU time of one call."""
    start = time.process_time()
    job()
    return time.process_time() - start


if __name__ == "__main__":
    sys.exit(main())
