"""Hybrid search: the ranks of BM25 and of a dense engine joined by reciprocal rank fusion.

score(d) = sum over engines of 1 / (60 + rank of d), rank from 1 (Cormack, Clarke, Buettcher, SIGIR 2009). Ranks only:
BM25 scores and cosines have no common scale. Only documents that an engine returned count, so a score is above 0.
"""

from collections.abc import Sequence
from typing import Any

from autotools.schema import Hit
from retriever.bm25 import BM25Engine, tie_key
from retriever.categories import wanted_categories
from retriever.dense import DenseEngine

RRF_K = 60
MIN_DEPTH, DEPTH_PER_K = 50, 5  # each engine is asked for max(50, 5 k) documents


class HybridEngine:
    """BM25 and dense over the same tools. Equal sums: the better single rank first, then ``tie_key`` of the id.

    Raises as its engines do.
    """

    def __init__(self, bm25: BM25Engine, dense: DenseEngine) -> None:
        self._bm25, self._dense = bm25, dense

    @property
    def categories(self) -> tuple[str, ...]:
        """Categories a search may be restricted to, sorted."""
        return self._dense.categories

    def search_batch(
        self, queries: Sequence[str], categories: Sequence[str | None] | None = None, k: int = 5
    ) -> list[list[Hit]]:
        """Best ``k`` tools per query by fused score; fewer if the two engines returned fewer."""
        wanted_categories(queries, categories, k, self.categories)
        depth = max(MIN_DEPTH, DEPTH_PER_K * k)
        lists = [engine.search_batch(queries, categories, depth) for engine in (self._bm25, self._dense)]
        return [fuse(ranked, k) for ranked in zip(*lists, strict=True)]

    def prefetch(self, queries: Sequence[str]) -> None:
        """Encode all queries of a turn at once."""
        self._dense.prefetch(queries)

    def describe(self) -> dict[str, Any]:
        """What decides its results; goes into manifests."""
        fusion = {"rrf_k": RRF_K, "depth": f"max({MIN_DEPTH}, {DEPTH_PER_K} k)"}
        return {"engine": "hybrid", **fusion, "bm25": self._bm25.describe(), "dense": self._dense.describe()}

    def counters(self) -> dict[str, int]:
        """Those of the dense engine, which sees every query."""
        return self._dense.counters()


def fuse(lists: Sequence[Sequence[Hit]], k: int) -> list[Hit]:
    """Reciprocal rank fusion of ranked lists; the hits carry the fused score."""
    ranks: dict[str, list[int]] = {}
    hits: dict[str, Hit] = {}
    for ranked in lists:
        for rank, hit in enumerate(ranked, start=1):
            ranks.setdefault(str(hit.id), []).append(rank)
            hits.setdefault(str(hit.id), hit)
    scores = {tool_id: sum(1 / (RRF_K + rank) for rank in sorted(of)) for tool_id, of in ranks.items()}
    order = sorted(scores, key=lambda tool_id: (-scores[tool_id], min(ranks[tool_id]), tie_key(tool_id)))
    return [hits[tool_id].model_copy(update={"score": scores[tool_id]}) for tool_id in order[:k]]
