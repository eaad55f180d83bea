"""The reachability ceiling on an engine with known results, and against brute force over all choices of searches."""

import itertools
import random

import pytest

from autotools.schema import Hit, Task, ToolId, ToolSpec
from retriever.bm25 import BM25Engine
from retriever.ceiling import best_searches, ceiling
from retriever.render import document_text


def _task(name, query, targets):
    return Task(id=name, suite="s", split="test", level="l", query=query, targets=tuple(targets))


def _id(number, category="A"):
    return ToolId(category=category, tool="t", api=f"a{number}")


class Scripted:
    """Answers from a table; remembers what was asked."""

    categories = ("A", "B")

    def __init__(self, table):
        self.table, self.asked = table, []

    def search_batch(self, queries, categories=None, k=5):
        self.asked.append((list(queries), categories, k))
        return [[Hit(id=tool, score=1.0) for tool in self.table.get(query, [])[:k]] for query in queries]


def test_hand_worked():
    ids = [_id(1), _id(2), _id(3, "B")]
    specs = {i: ToolSpec(id=i, tool_name="T", api_name=i.api, description=f"word {i.api}") for i in ids}
    documents = [document_text(specs[i]) for i in ids]
    table = {
        documents[0]: [ids[0], ids[1]],  # one search shows two targets
        documents[1]: [_id(9)],
        documents[2]: [_id(8), _id(7), ids[2]],  # the third hit: beyond k = 2
        "word a1": [ids[0]], "word a2": [ids[1]], "word a3": [ids[2]],
        "ask": [_id(9), _id(8), _id(7), ids[2], ids[1]],
    }  # fmt: skip
    engine = Scripted(table)
    out = ceiling(engine, [_task("1", "ask", ids)], specs, turns=2, k=2)
    assert (out["turns"], out["k"]) == (2, 2)
    assert out["own_document"]["share"] == pytest.approx(2 / 3) and out["own_document"]["all"] == 0
    assert out["own_description"]["share"] == pytest.approx(2 / 3)  # three targets, two searches
    assert out["user_query"]["share"] == pytest.approx(1 / 3)  # the first 2 x 2 results
    assert engine.asked[-1] == (["ask"], None, 4)
    shares = {"own_document": 2 / 3, "own_description": 2 / 3, "user_query": 1 / 3}
    assert out["by_request"] == {"1": pytest.approx(shares)}
    assert ceiling(engine, [_task("1", "ask", ids)], specs, turns=3, k=3)["own_document"]["all"] == 1
    limited = ceiling(engine, [_task("1", "ask", ids)], specs, turns=2, k=2, constrained=True)
    assert "user_query" not in limited and engine.asked[-1][1] == ["A", "A", "B"]


def test_best_searches_against_all_choices():
    rng = random.Random(0)
    differs = 0
    for _ in range(300):
        targets = [_id(number) for number in range(rng.randint(1, 6))]
        shown = {t: set(rng.sample(targets, rng.randint(0, min(3, len(targets))))) | {_id(99)} for t in targets}
        for turns in (1, 2, 3, 6):
            seen = best_searches(targets, shown, turns)
            choices = itertools.combinations(targets, min(turns, len(targets)))
            best = max(len(set().union(*(shown[t] for t in choice)) & set(targets)) for choice in choices)
            assert 0.63 * best <= len(seen) <= best and seen <= set(targets)
            if turns == 1 or turns >= len(targets):
                assert len(seen) == best
            differs += len(seen) < best
    assert differs < 30


def test_no_searcher_of_one_search_sees_more_than_the_request_deep_enough(ten_tools):
    specs = {spec.id: spec for spec in ten_tools}
    tasks = [_task(str(n), spec.description, [spec.id]) for n, spec in enumerate(ten_tools)]
    out = ceiling(BM25Engine(ten_tools), tasks, specs, turns=1, k=1)
    assert out["own_document"]["share"] == 1 and out["own_description"] == out["user_query"]
