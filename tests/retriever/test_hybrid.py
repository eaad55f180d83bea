"""Reciprocal rank fusion: hand-worked numbers, a brute force over engines that return fixed lists, and laws."""

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest

from autotools.errors import RetrieverError, UnknownCategoryError
from autotools.schema import Hit, ToolId
from retriever.bm25 import tie_key
from retriever.hybrid import HybridEngine, fuse


def _hits(names: str) -> list[Hit]:
    scores = range(len(names), 0, -1)
    return [
        Hit(id=ToolId(category="A", tool="t", api=n), score=s, document=n) for n, s in zip(names, scores, strict=True)
    ]


def _names(hits: Sequence[Hit]) -> str:
    return "".join(hit.id.api for hit in hits)


class FixedEngine:
    """Answers every query with its list; remembers what it was asked."""

    categories = ("A", "B")

    def __init__(self, names: str) -> None:
        self.names, self.asked = names, []

    def search_batch(self, queries: Any, categories: Any = None, k: int = 5) -> list[list[Hit]]:
        self.asked.append((list(queries), categories, k))
        return [_hits(self.names)[:k] for _ in queries]

    def prefetch(self, queries: Any) -> None:
        self.asked.append(("prefetch", list(queries)))

    def describe(self) -> dict[str, Any]:
        return {"engine": self.names}

    def counters(self) -> dict[str, int]:
        return {"calls": len(self.asked)}


def test_hand_worked() -> None:
    hits = fuse([_hits("abc"), _hits("cad")], k=10)
    scores = {hit.id.api: hit.score for hit in hits}
    assert math.isclose(scores["a"], 1 / 61 + 1 / 62) and math.isclose(scores["c"], 1 / 63 + 1 / 61)
    assert math.isclose(scores["b"], 1 / 62) and math.isclose(scores["d"], 1 / 63)
    assert _names(hits) == "acbd" and [hit.document for hit in hits] == list("acbd")


def test_equals_a_brute_force_and_does_not_depend_on_the_order_of_engines() -> None:
    rng = random.Random(0)
    for _ in range(200):
        one, two = ("".join(rng.sample("abcdefghij", rng.randint(0, 10))) for _ in range(2))
        expected = {
            n: sum(1 / (60 + names.index(n) + 1) for names in (one, two) if n in names) for n in set(one) | set(two)
        }
        hits = fuse([_hits(one), _hits(two)], k=4)
        assert len(hits) == min(4, len(expected)) and all(hit.score > 0 for hit in hits)
        assert [math.isclose(hit.score, expected[hit.id.api]) for hit in hits] == [True] * len(hits)
        left = [expected[n] for n in expected if n not in _names(hits)]
        assert not left or max(left) <= min(hit.score for hit in hits) + 1e-15
        assert _names(fuse([_hits(two), _hits(one)], k=4)) == _names(hits)


def test_equal_sums_have_a_fixed_order() -> None:
    """Rank 1 and 2 against 2 and 1, and two documents that only one engine has at the same rank."""
    assert sorted("ab", key=lambda n: tie_key(f"A.t.{n}")) == list(_names(fuse([_hits("ab"), _hits("ba")], k=2)))
    assert sorted("xy", key=lambda n: tie_key(f"A.t.{n}")) == list(_names(fuse([_hits("x"), _hits("y")], k=2)))


def test_depth_categories_and_prefetch_reach_the_engines() -> None:
    bm25, dense = FixedEngine("abcdef"), FixedEngine("fgh")
    engine = HybridEngine(bm25, dense)  # type: ignore[arg-type]
    assert _names(engine.search_batch(["q"], ["A"], 3)[0]) == _names(fuse([_hits("abcdef"), _hits("fgh")], 3))
    engine.search_batch(["q"], None, 20)
    engine.prefetch(["q", "r"])
    assert bm25.asked == [(["q"], ["A"], 50), (["q"], None, 100)]
    assert dense.asked == [*bm25.asked, ("prefetch", ["q", "r"])]
    assert engine.describe()["bm25"] == {"engine": "abcdef"} and engine.counters() == {"calls": 3}


def test_bad_requests_are_typed() -> None:
    engine = HybridEngine(FixedEngine("a"), FixedEngine("b"))  # type: ignore[arg-type]
    with pytest.raises(RetrieverError, match="k must be 1 or more"):
        engine.search_batch(["q"], k=0)
    with pytest.raises(UnknownCategoryError, match="unknown category 'C'"):
        engine.search_batch(["q"], ["C"])
    empty = HybridEngine(FixedEngine(""), FixedEngine(""))  # type: ignore[arg-type]
    assert empty.search_batch(["q", "r"]) == [[], []]
