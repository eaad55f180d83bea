"""The expert does what its declaration says: shares of query kinds, picks and stops, against binomial bounds."""

import random

import pytest

from autotools.search.episode import SearchSettings
from data_synthesis.expert import Expert, content_words, expert_scores
from data_synthesis.settings import ExpertSettings
from retriever.bm25 import BM25Engine

SEARCH = SearchSettings(top_k=3, max_turns=4)


@pytest.fixture
def play(toy):
    """``play(count, tool numbers, **settings)``: trajectories of one task under as many seeds."""
    engine = BM25Engine(toy.specs)

    def run(count: int, numbers: tuple[int, ...], search: SearchSettings = SEARCH, **settings: float):
        expert = Expert(ExpertSettings(**settings), search, toy.specs, engine.search_batch)
        one = toy.task("t", "train", *numbers)
        return [expert.play(one, random.Random(seed)).trajectory() for seed in range(count)]

    return run


def _share(values) -> float:
    values = list(values)
    return sum(values) / len(values)


def test_query_kinds_have_their_declared_shares(play):
    first = [t.events[0].query for t in play(2000, (1,))]
    assert set(first) == {"inn costs", "hotel", "current price of a hotel"}
    # sd of a share at n = 2000 is at most 0.011; four of them
    assert _share(q == "inn costs" for q in first) == pytest.approx(0.35, abs=0.045)
    assert _share(q == "hotel" for q in first) == pytest.approx(0.15, abs=0.045)


def test_right_pick_and_go_on_have_their_declared_shares(play):
    played = play(2000, (1, 8), own_words=0, object_only=0)
    hits = played[0].events[0].hits
    assert played[0].targets[0] in hits and len(hits) == 3
    right = _share(played[i].targets[0] in played[i].selection for i in range(2000))
    # .65 for sure, else one of three at random (a wrong first pick cannot be the first target later)
    assert right == pytest.approx(0.65 + 0.35 / 3, abs=0.045)
    assert _share(len(t.events) == 3 for t in played) == pytest.approx(0.75, abs=0.045)


def test_faultless_settings_solve_everything_and_nothing_is_asked_twice(play):
    perfect = {"own_words": 0, "object_only": 0, "right_pick": 1, "go_on": 1}
    scores = expert_scores(play(20, (1, 8), **perfect))
    assert scores == {"f1": 1, "precision": 1, "recall": 1, "match": 1, "srecall": 1, "searches": 2, "n": 20}
    same_object = play(20, (1, 2), own_words=0, object_only=1, go_on=1)
    assert all([e.query for e in t.events] == ["hotel", None] for t in same_object)


def test_retry_asks_a_good_query_after_an_empty_result(play):
    never = play(50, (1,), own_words=1, object_only=0)  # "inn costs" is in no document
    assert all(t.events[0].hits == () and t.selection == () and len(t.events) == 2 for t in never)
    always = play(50, (1,), own_words=1, object_only=0, retry=1)
    assert all([e.query for e in t.events][:2] == ["inn costs", "current price of a hotel"] for t in always)
    assert all(len(t.selection) == 1 for t in always)


def test_turn_limit_keeps_the_last_turn_for_the_answer(play):
    short = SearchSettings(top_k=3, max_turns=2)
    (trajectory,) = play(1, (1, 8), short, own_words=0, object_only=0, go_on=1)
    assert [event.kind.value for event in trajectory.events] == ["search", "answer"]


@pytest.mark.parametrize(
    "clause, words",
    [
        ("what the inn costs in January", "inn costs"),
        ("warn me when the company goes over 90", "warn company goes over"),
        ("the", ""),
        ("reserve 2 at the inn HTL-016, please", "reserve inn please"),
    ],
)
def test_content_words_drop_values_and_stop_words(clause, words):
    assert content_words(clause) == words


def test_prompts_of_the_curriculum_have_their_declared_shares(toy):
    from data_synthesis.tasks.search import search_records

    engine = BM25Engine(toy.specs)
    settings = ExpertSettings(curriculum_prompts=0.3, own_words=0, object_only=0, right_category=0.8)
    expert = Expert(settings, SEARCH, toy.specs, engine.search_batch)
    task = toy.task("t", "train", 1)
    rows = list(search_records([task], expert, count=2000, seed=0))
    forms = {"listed": [], "bare": [], "plain": []}
    for row, trajectory in rows:
        bare = "category" not in row["tools"][0]["function"]["parameters"]["properties"]
        listed = "Categories:" in row["messages"][0]["content"]
        forms["bare" if bare else "listed" if listed else "plain"].append((row, trajectory))
    for name in ("listed", "bare"):
        assert len(forms[name]) / 2000 == pytest.approx(0.3, abs=0.041)  # four standard deviations
    categories = {spec.id.category for spec in toy.specs}
    named = [t.events[0].category for _, t in forms["listed"]]
    assert set(named) == categories
    right = _share(category == task.targets[0].category for category in named)
    assert right == pytest.approx(0.8 + 0.2 / len(categories), abs=0.07)
    assert not any(e.category for name in ("bare", "plain") for _, t in forms[name] for e in t.events)
    never = Expert(ExpertSettings(own_words=0, object_only=0), SEARCH, toy.specs, engine.search_batch)
    as_ever = {row["id"]: row for row, _ in search_records([task], never, count=2000, seed=0)}
    assert all(row == as_ever[row["id"]] for row, _ in forms["plain"])
