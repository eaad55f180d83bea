"""Scores of ranked lists against a set of targets, and their means with seeded bootstrap intervals. Imports numpy only.

Relevance is binary: a result is a target or not. Names are compared as they are. A list may be shorter than k (an
engine gives no fillers); what is not listed is not found.
"""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

SAMPLES = 1000  # bootstrap resamples
LEVEL = 0.95


def recall(ranked: Sequence[Hashable], targets: Collection[Hashable], k: int) -> float:
    """Share of the targets among the first ``k`` results."""
    return len(set(ranked[:k]) & set(targets)) / len(set(targets))


def comp(ranked: Sequence[Hashable], targets: Collection[Hashable], k: int) -> float:
    """COMP@k of COLT (arXiv 2405.16089): 1.0 if all targets are among the first ``k`` results, else 0.0."""
    return float(set(targets) <= set(ranked[:k]))


def ndcg(ranked: Sequence[Hashable], targets: Collection[Hashable], k: int) -> float:
    """nDCG@k with gain 1 and discount 1 / log2(rank + 1) (Järvelin and Kekäläinen 2002); the ideal has min(k, targets).

    ``ranked`` holds no result twice.
    """
    wanted = set(targets)
    gained = math.fsum(1 / math.log2(rank + 1) for rank, item in enumerate(ranked[:k], 1) if item in wanted)
    return gained / math.fsum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(wanted)) + 1))


def reciprocal_rank(ranked: Sequence[Hashable], targets: Collection[Hashable]) -> float:
    """1 / rank of the first target, 0.0 if none is listed."""
    wanted = set(targets)
    return next((1 / rank for rank, item in enumerate(ranked, 1) if item in wanted), 0.0)


def all_scores(ranked: Sequence[Hashable], targets: Collection[Hashable], ks: Sequence[int]) -> dict[str, float]:
    """``{"recall@k", "ndcg@k", "comp@k" for every k, "mrr"}``; mrr looks at the first max(ks) results.

    Raises ValueError without targets or for k < 1: such a score would say nothing.
    """
    if not targets or not ks or min(ks) < 1:
        raise ValueError(f"scores need a target and k of 1 or more; got {len(targets)} targets, k {list(ks)}")
    out: dict[str, float] = {}
    for k in ks:
        out[f"recall@{k}"] = recall(ranked, targets, k)
        out[f"ndcg@{k}"] = ndcg(ranked, targets, k)
        out[f"comp@{k}"] = comp(ranked, targets, k)
    out["mrr"] = reciprocal_rank(ranked[: max(ks)], targets)
    return out


def summary(rows: Sequence[Mapping[str, float]], seed: int = 0) -> dict[str, Any]:
    """``{"n", NAME: mean ..., "intervals": {NAME: [low, high]}}`` of rows with the same names; ``{"n": 0}`` of none.

    Intervals: 95 % percentile bootstrap over rows (Efron and Tibshirani 1993, chapter 13), the same draw for every
    name; the same seed gives the same interval.
    """
    if not rows:
        return {"n": 0}
    names = list(rows[0])
    values = np.array([[row[name] for name in names] for row in rows], dtype=np.float64)  # [n, names]
    size = len(rows)
    counts = np.random.default_rng(seed).multinomial(size, np.full(size, 1 / size), size=SAMPLES)  # [SAMPLES, n]
    tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    low, high = np.quantile(counts @ values / size, tails, axis=0)
    means = values.mean(axis=0)
    intervals = {name: [float(low[i]), float(high[i])] for i, name in enumerate(names)}
    return {"n": size, **{name: float(means[i]) for i, name in enumerate(names)}, "intervals": intervals}
