"""The figures that say searching is needed, against hand-worked numbers and the bm25s library."""

import pytest

from autotools.schema import Task, ToolId, ToolSpec
from toolworld.measure import SmallBM25, one_shot_f1, searches_needed, words
from toolworld.world import build_world


def spec(api: str, description: str) -> ToolSpec:
    return ToolSpec(id=ToolId(category="C", tool="t", api=api), tool_name="t", api_name=api, description=description)


SPECS = [spec("alpha", "apples red"), spec("beta", "pears green"), spec("gamma", "plums blue")]


def task(query: str, *apis: str) -> Task:
    targets = tuple(ToolId(category="C", tool="t", api=api) for api in apis)
    return Task(id="x", suite="s", split="test", level="I2", query=query, targets=targets)


def test_one_shot_f1_by_hand() -> None:
    """Best k is 1: (F1 of {alpha} vs {alpha} = 1) and ({beta} vs {beta, gamma} = 2/3), mean 5/6."""
    tasks = [task("red apples", "alpha"), task("pears", "beta", "gamma")]
    assert one_shot_f1(tasks, SmallBM25(SPECS), 1) == (pytest.approx(5 / 6), 1)
    # two one-tool tasks: k = 1 gives 1, every larger k answers with wrong ones as well (2/3, 1/2)
    alone = [task("red apples", "alpha"), task("pears", "beta")]
    assert one_shot_f1(alone, SmallBM25(SPECS), 3) == (1.0, 1)


def test_searches_needed_by_hand() -> None:
    descriptions = {s.id: s.description for s in SPECS}
    wanted = task("", "alpha", "beta", "gamma")
    assert searches_needed(wanted, descriptions, SmallBM25(SPECS), k=1) == 3
    assert searches_needed(wanted, descriptions, SmallBM25(SPECS), k=3) == 1


def test_same_best_hit_as_the_bm25s_library() -> None:
    bm25s = pytest.importorskip("bm25s")
    specs = build_world(0).tool_specs()
    other = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
    other.index([words(f"{s.id}: {s.description}") for s in specs], show_progress=False)
    mine = SmallBM25(specs)
    for s in specs:
        found, scores = other.retrieve([words(s.description)], k=2, show_progress=False)
        if scores[0][0] > scores[0][1]:  # without a tie the best hit is the same one
            assert mine.top(s.description, 1) == [specs[found[0][0]].id]


def test_ties_do_not_follow_the_order_of_the_corpus() -> None:
    """Alphabetical ties would always favour the same one of two near-duplicates."""
    specs = [spec(f"a{i}", "same words") for i in range(8)]
    first = {SmallBM25(specs).top(f"same {query}", 1)[0] for query in "pqrstuvwxyz"}
    assert len(first) > 1
