"""Filters on hand-made good and bad records."""

import random

import pytest

from autotools.errors import DataError
from autotools.schema import ToolId
from data_synthesis.filters import Ledger, message_problem, program_problem, source_problem, task_problem
from data_synthesis.inputs import parameter_names
from data_synthesis.tasks.candidates import CandidateMaker
from retriever.bm25 import BM25Engine


@pytest.mark.parametrize(
    "program, reason",
    [
        ('finish(hotel_desk_price_past(hotel_id="X1", month="X1"))', None),
        ('k = "X1"\nr = [hotel_desk_price_past(hotel_id=k, month="X1") for _ in range(2)]\nfinish(r)', None),
        ("finish(", "program does not parse"),
        ('hotel_desk_price_past(hotel_id="X1", month="X1")', "program never finishes"),
        ("finish(1)", "calls differ from targets"),
        ('hotel_desk_find(name="X1")\nfinish(hotel_desk_price_past(hotel_id="X1"))', "calls differ from targets"),
        ('finish(hotel_desk_price_past(hotel="X1"))', "undocumented argument"),
        ('finish(hotel_desk_price_past(**{"hotel_id": 1}))', "undocumented argument"),
        ('finish(hotel_desk_price_past(hotel_id="X1", month="X3"))', "argument differs from solution"),
        ("", "no program"),
    ],
)
def test_program_filter(toy, program, reason):
    names = {f.tool: f.name for f in toy.functions}
    parameters = {f.name: parameter_names(f) for f in toy.functions}
    problem = program_problem(toy.task("t", "train", 2).model_copy(update={"program": program}), names, parameters)
    assert (problem and problem[0]) == reason


def test_task_source_and_message_filters(toy):
    known = {spec.id for spec in toy.specs}
    good = toy.task("t", "train", 1, 2)
    assert task_problem(good, known) is None
    twice = good.model_copy(update={"targets": (*good.targets, good.targets[0])})
    assert task_problem(twice, known)[0] == "repeated target"
    assert task_problem(good.model_copy(update={"targets": ()}), known)[0] == "no targets"
    missing = good.model_copy(update={"targets": (ToolId(category="A", tool="b", api="c"),)})
    assert task_problem(missing, known) == ("target not in corpus", "A.b.c")
    assert source_problem("def a():\n    pass\n", "a") is None
    assert source_problem("def a():\n    pass\n", "b")[0] == "function not defined"
    assert source_problem("def a(:", "a")[0] == "source does not parse"
    user, assistant = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}
    assert message_problem([user, assistant]) is None
    assert message_problem([])[0] == message_problem([user])[0] == "no assistant turn at the end"
    assert message_problem([assistant])[0] == "no user turn"
    assert message_problem([user, {"role": "assistant", "content": " "}]) == ("blank message", "message 1")


def test_ledger_refuses_books_that_do_not_add_up():
    ledger = Ledger()
    ledger.keep("a")
    ledger.reject("a", "f", 3, ("bad", "why"))
    assert ledger.counts() == {"read": {"a": 2}, "kept": {"a": 1}, "rejected": {"a: bad": 1}}
    ledger.read["a"] += 1
    with pytest.raises(DataError, match="kept 1 \\+ rejected 1 != read 3"):
        ledger.counts()


def test_candidates_hide_targets_at_every_place_beside_near_duplicates(toy):
    maker = CandidateMaker(toy.specs, BM25Engine(toy.specs).search_batch)
    target, twin = toy.specs[7].id, toy.specs[8].id  # alert_on / alert_off of a storm
    drawn = [maker.draw([target], 4, random.Random(seed)) for seed in range(2000)]
    assert all(target in c and len(set(c)) == 4 for c in drawn)
    places = [c.index(target) for c in drawn]
    assert all(places.count(place) / 2000 == pytest.approx(0.25, abs=0.04) for place in range(4))
    assert sum(twin in c for c in drawn) > 1000  # by chance alone 667 of 2000 would hold the twin
    assert set(maker.draw([s.id for s in toy.specs[:6]], 4, random.Random(0))) == {s.id for s in toy.specs[:6]}
    assert len(maker.draw([target], 50, random.Random(0))) == 10
