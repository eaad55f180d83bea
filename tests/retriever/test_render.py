"""Render template: order of the parts, and cuts that never split a name, a parameter or a word."""

import random

import pytest

from autotools.schema import ToolId, ToolParameter, ToolSpec
from retriever import render
from retriever.render import cut, document_text, response_keys, short_text


def _spec(**fields: object) -> ToolSpec:
    base = {"tool_name": "Hotel Desk", "api_name": "Price now", "description": "current price of a hotel"}
    return ToolSpec(id=ToolId(category="Travel", tool="hotel_desk", api="price_now"), **{**base, **fields})


def test_names_come_first_then_description_parameters_and_response():
    spec = _spec(
        tool_description="hotels of the coast",
        parameters=(ToolParameter(name="hotel_id", description="id of the hotel"), ToolParameter(name="page")),
        response={"items": [{"price": "number", "items": "string"}], "total": "integer"},
    )
    assert document_text(spec) == (
        "Travel hotel_desk price_now\nHotel Desk: Price now\ncurrent price of a hotel\nhotels of the coast\n"
        "parameters: hotel_id (id of the hotel), page\nreturns: items, total, price"
    )
    assert document_text(_spec(description="")) == "Travel hotel_desk price_now\nHotel Desk: Price now"
    assert list(response_keys(["x", {"a": {"b": ["c", {"d": 1, "a": 2}]}}])) == ["a", "b", "d"]


@pytest.mark.parametrize(
    "text, limit, wanted",
    [
        ("short", 10, "short"),
        ("One thing. Another thing here", 20, "One thing. Another"),  # the sentence ends before the second half
        ("One more thing. Another", 20, "One more thing."),
        ("version 1.25 of the thing", 14, "version 1.25"),  # no sentence ends inside a number
        ("x" * 50, 20, ""),
        ("exactly five", 7, "exactly"),
        ("天气预报。今天的天气" * 3, 8, "天气预报。"),
    ],
)
def test_cut_hand_worked(text, limit, wanted):
    assert cut(text, limit) == wanted


def test_cut_gives_whole_words_of_the_beginning():
    rng = random.Random(0)
    for _ in range(500):
        text = "".join(rng.choice("ab .\n") for _ in range(rng.randint(0, 60)))
        limit = rng.randint(1, 40)
        out = cut(text, limit)
        assert len(out) <= limit and text.strip().startswith(out)
        assert out.split() == text.split()[: len(out.split())]


def test_long_documents_keep_whole_names_and_parameters():
    rng = random.Random(1)
    for _ in range(200):
        names = [f"name{number}_{'z' * rng.randint(0, 40)}" for number in range(rng.randint(0, 120))]
        parameters = tuple(ToolParameter(name=n, description="word " * rng.randint(0, 90)) for n in names)
        keys = [f"key{number}" for number in range(rng.randint(0, 300))]
        spec = _spec(
            description="It is. " * rng.randint(0, 400), parameters=parameters, response=dict.fromkeys(keys, 1)
        )
        first, second, *rest = document_text(spec).split("\n")
        assert (first, second) == ("Travel hotel_desk price_now", "Hotel Desk: Price now")
        assert len("\n".join(rest)) <= render.MAX_CHARS
        for line in rest:
            if line.startswith("parameters: "):
                shown = [entry.partition(" (")[0] for entry in line.removeprefix("parameters: ").split(", ")]
                assert shown == names[: len(shown)]
                assert all(entry.count("(") == entry.count(")") for entry in line.split(", "))
            elif line.startswith("returns: "):
                shown = line.removeprefix("returns: ").split(", ")
                assert shown == keys[: len(shown)]


def test_where_descriptions_do_not_fit_names_of_parameters_still_do(monkeypatch):
    monkeypatch.setattr(render, "MAX_CHARS", 60)
    parameters = tuple(ToolParameter(name=n, description="twenty characters xx") for n in ("alpha", "beta", "gamma"))
    text = document_text(_spec(description="", parameters=parameters))
    assert text.split("\n")[2] == "parameters: alpha (twenty characters xx), beta, gamma"


def test_a_megabyte_of_description_is_cut():
    spec = _spec(description="A sentence of words. " * 50_000)
    assert len(document_text(spec)) < render.MAX_CHARS
    assert len(short_text(spec)) <= render.MAX_SHOWN and short_text(spec).endswith("words.")
    assert short_text(_spec(description="a\n b")) == "a b"
    assert short_text(_spec(description="", tool_description="")) == "Price now"
