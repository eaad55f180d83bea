"""Turns of a policy against a hand-written table of what each one means."""

import json
import time

import pytest

from autotools.schema import EventKind
from autotools.search.parser import parse_turn
from autotools.search.prompt import answer_text, call_text

K = EventKind


def call(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


def search(**arguments: object) -> str:
    return call(json.dumps({"name": "search", "arguments": arguments}))


@pytest.mark.parametrize(
    ("text", "query", "category"),
    [
        (search(query="a hotel"), "a hotel", None),
        (search(query="  a hotel \n"), "a hotel", None),
        (search(query="a", category="Travel"), "a", "Travel"),
        (search(query="a", category=" Travel "), "a", "Travel"),
        (search(query="a", category="ALL"), "a", None),
        (search(query="a", category=""), "a", None),
        (search(query="a", category="None"), "a", None),
        (search(query="a", category=None), "a", None),
        (search(query="a", category="all sorts"), "a", "all sorts"),
        (search(query="a", limit=3), "a", None),
        (call('{"name": "search", "arguments": "{\\"query\\": \\"a\\"}"}'), "a", None),
        (call('{"arguments":{"query":"a"},"name":"search"}'), "a", None),
        ("I look for it. " + search(query="a") + " So.", "a", None),
        ('<tool_call>{"name": "search", "arguments": {"query": "Straße 中 \\u00e9"}}</tool_call>', "Straße 中 é", None),
        (f"<think>{search(query='thought')}</think>{search(query='said')}", "said", None),
        (call_text("q", "Travel"), "q", "Travel"),
        (call_text('with "quotes" \\ and\nlines'), 'with "quotes" \\ and\nlines', None),
    ],
)
def test_searches(text: str, query: str, category: str | None) -> None:
    turn = parse_turn(text)
    assert (turn.kind, turn.query, turn.category, turn.problem) == (K.SEARCH, query, category, "")
    assert turn.text == text


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("<tool_call>", K.MALFORMED_CALL, "</tool_call>"),
        ('<tool_call>{"name": "search", "arguments": {"query": "a"}}', K.MALFORMED_CALL, "</tool_call>"),
        (call(""), K.MALFORMED_CALL, "JSON"),
        (call("{'name': 'search'}"), K.MALFORMED_CALL, "JSON"),
        (call('{"name": "search", "arguments": {"query": "a"}} x'), K.MALFORMED_CALL, "JSON"),
        (call("[" * 100_000), K.MALFORMED_CALL, "JSON"),
        (call("9" * 10_000), K.MALFORMED_CALL, "JSON"),
        (call("[1]"), K.MALFORMED_CALL, "object"),
        (call("null"), K.MALFORMED_CALL, "object"),
        (call('{"arguments": {"query": "a"}}'), K.MALFORMED_CALL, '"name"'),
        (call('{"name": 5, "arguments": {"query": "a"}}'), K.MALFORMED_CALL, '"name"'),
        (call('{"name": "find", "arguments": {"query": "a"}}'), K.UNKNOWN_TOOL, "'find'"),
        (call('{"name": "Search", "arguments": {"query": "a"}}'), K.UNKNOWN_TOOL, "only tool is search"),
        (call('{"name": "search"}'), K.BAD_ARGUMENTS, '"arguments"'),
        (call('{"name": "search", "arguments": ["a"]}'), K.BAD_ARGUMENTS, '"arguments"'),
        (call('{"name": "search", "arguments": "a"}'), K.BAD_ARGUMENTS, '"arguments"'),
        (search(), K.BAD_ARGUMENTS, '"query"'),
        (search(query="  "), K.BAD_ARGUMENTS, '"query"'),
        (search(query=["a"]), K.BAD_ARGUMENTS, '"query"'),
        (search(query=None), K.BAD_ARGUMENTS, '"query"'),
        (search(query="a", category=["Travel"]), K.BAD_ARGUMENTS, '"category"'),
        (search(query="a", category=0), K.BAD_ARGUMENTS, '"category"'),
    ],
)
def test_faults_are_named_to_the_policy(text: str, kind: EventKind, words: str) -> None:
    turn = parse_turn(text)
    assert turn.kind is kind and words in turn.problem
    assert turn.query is None


def test_a_call_wins_over_an_answer_and_the_first_call_counts() -> None:
    turn = parse_turn(answer_text(["a.b.c"]) + search(query="one") + search(query="two") + call("broken"))
    assert (turn.kind, turn.query, turn.extra_calls) == (K.SEARCH, "one", 2)
    assert parse_turn(call("broken") + search(query="two")).kind is K.MALFORMED_CALL


@pytest.mark.parametrize("text", ["", "no idea", "</tool_call>", "</tool_list>", "<tool_list", "\x00\ufffd"])
def test_neither_call_nor_list_is_an_empty_answer(text: str) -> None:
    assert parse_turn(text).kind is K.EMPTY_ANSWER


def test_thinking_is_neither_answer_nor_call() -> None:
    assert parse_turn(f"<think>{search(query='a')}</think>done").kind is K.EMPTY_ANSWER
    assert parse_turn("<think>a <tool_call> or</think><tool_list>a.b.c</tool_list>").kind is K.ANSWER
    assert parse_turn("<think><tool_list>a.b.c</tool_list></think>done").kind is K.EMPTY_ANSWER
    assert parse_turn("<think>x</think><tool_list>a.b.c</tool_list>").kind is K.ANSWER


def test_half_a_surrogate_pair_becomes_text_that_can_be_stored() -> None:
    turn = parse_turn(call('{"name": "search", "arguments": {"query": "a \\ud800", "category": "\\udc00"}}'))
    assert turn.kind is K.SEARCH
    assert f"{turn.query}{turn.category}".encode() == b"a ??"
    parse_turn(call('{"name": "\\ud800", "arguments": {}}')).problem.encode()


def test_a_hostile_turn_is_read_quickly() -> None:
    start = time.perf_counter()
    for text in ("<tool_call>" * 5000, "<tool_call></tool_call>" * 5000, call("{" * 50_000)):
        parse_turn(text)
    assert time.perf_counter() - start < 2.0
