"""Counters and histograms of the search server, written in the Prometheus text format (version 0.0.4)."""

import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0)


@dataclass
class Histogram:
    """Counts of observed values at or below each bound."""

    bounds: Sequence[float]
    counts: list[int] = field(init=False)  # per interval, the last one open
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, help_text: str) -> list[str]:
        """Its text: cumulative buckets, sum, count."""
        out = [f"# HELP {name} {help_text}", f"# TYPE {name} histogram"]
        below = 0
        for bound, count in zip((*map(_number, self.bounds), "+Inf"), self.counts, strict=True):
            below += count
            out.append(f'{name}_bucket{{le="{bound}"}} {below}')
        return [*out, f"{name}_sum {_number(self.total)}", f"{name}_count {below}"]


@dataclass
class ServerMetrics:
    """What the server counts itself; the engine's counters and the queue are read when the text is made."""

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)  # (path, status)
    request_s: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    batch_queries: Histogram = field(default_factory=lambda: Histogram(SIZES))
    batch_s: Histogram = field(default_factory=lambda: Histogram(SECONDS))

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count one answered request; ``path`` must be a known route, so that the labels stay few."""
        self.requests[path, status] += 1
        if path == "/search":
            self.request_s.observe(seconds)

    def batch(self, queries: int, seconds: float) -> None:
        """Count one engine call."""
        self.batch_queries.observe(queries)
        self.batch_s.observe(seconds)

    def text(self, gauges: Mapping[str, float], engine: Mapping[str, int]) -> str:
        """Everything as Prometheus text. Names of ``engine`` counters get ``retriever_engine_`` and ``_total``."""
        name = "retriever_requests_total"
        lines = [f"# HELP {name} answered requests by path and status", f"# TYPE {name} counter"]
        lines += [f'{name}{{path="{p}",status="{s}"}} {n}' for (p, s), n in sorted(self.requests.items())]
        lines += self.request_s.lines(
            "retriever_request_seconds", "seconds from the head of a /search request to its answer"
        )
        lines += self.batch_queries.lines("retriever_batch_queries", "queries in one engine call")
        lines += self.batch_s.lines("retriever_batch_seconds", "time of one engine call")
        for key, value in gauges.items():
            lines += [f"# TYPE retriever_{key} gauge", f"retriever_{key} {_number(value)}"]
        for key, value in engine.items():
            lines += [f"# TYPE retriever_engine_{key}_total counter", f"retriever_engine_{key}_total {value}"]
        return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
