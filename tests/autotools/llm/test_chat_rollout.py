"""The turn loop behind an endpoint against the token loop: same turns, same record; failures are named, not played."""

import json

import pytest

from autotools.chat import ChatRenderer
from autotools.errors import RetrieverError
from autotools.llm.chat_rollout import run_chats
from autotools.llm.replies import Call, Reply
from autotools.schema import Hit
from autotools.search.episode import Episode, SearchSettings
from autotools.search.prompt import answer_text, call_text
from autotools.search.rollout import run_episodes

REQUESTS = ("room", "plane", "album", "gauge")


@pytest.fixture
def engine(ten_tools):
    calls = []

    def search_batch(queries, categories, k):
        calls.append(list(queries))
        return [
            [Hit(id=s.id, score=1.0, document=s.description) for s in ten_tools if q in s.description][:k]
            for q in queries
        ]

    search_batch.calls = calls
    return search_batch


@pytest.fixture
def episodes(ten_names, ten_tools):
    return lambda: [Episode(q, ten_names, SearchSettings(max_turns=3), task_id=q) for q in REQUESTS]


def script(request, ten_tools):
    """Turns per request: one answers after a search, one at once, one never, one calls a tool that is not there."""
    room = answer_text([str(ten_tools[1].id)])
    return {
        "room": [("search", {"query": "room"}), room],
        "plane": [answer_text(["Travel.none.such"])],
        "album": [("search", {"query": "album"})] * 3,
        "gauge": [("book", {}), ("search", {"query": 3}), "I give up"],
    }[request]


def endpoint(ten_tools, batches, failing=()):
    """Says the next turn of the script, told by the number of assistant messages in the request."""

    def complete(bodies):
        batches.append(len(bodies))
        replies = []
        for body in bodies:
            request = body["messages"][1]["content"]
            number = sum(message["role"] == "assistant" for message in body["messages"])
            if (request, number) in failing:
                replies.append("HTTP 500: oh no")
                continue
            turn = script(request, ten_tools)[number]
            call = (
                () if isinstance(turn, str) else (Call(id=f"c{number}", name=turn[0], arguments=json.dumps(turn[1])),)
            )
            replies.append(Reply(content=turn if isinstance(turn, str) else "", calls=call))
        return replies

    return complete


def test_the_record_is_that_of_the_token_loop(episodes, engine, ten_tools, tiny_tokenizer):
    batches: list[int] = []
    chats = episodes()
    assert run_chats(endpoint(ten_tools, batches), chats, engine) == {}
    assert batches == [4, 3, 2]  # all that are still playing, at once
    assert engine.calls == [["room", "album"], ["album"]]  # one call for the searches of a turn

    renderer, tokens, spoken = ChatRenderer(tiny_tokenizer), episodes(), {}

    def generate(contexts):
        turns = []
        for context in contexts:
            request = next(q for q in REQUESTS if f"user\n{q}<" in tiny_tokenizer.decode(context))
            spoken[request] = spoken.get(request, -1) + 1
            turn = script(request, ten_tools)[spoken[request]]
            text = turn if isinstance(turn, str) else call_text("X").replace(
                '"search"', json.dumps(turn[0])).replace('{"query": "X"}', json.dumps(turn[1]))  # fmt: skip
            turns.append(renderer.tokenizer(text + renderer.end_of_turn, add_special_tokens=False)["input_ids"])
        return turns, None

    run_episodes(generate, tokens, renderer, engine)
    assert [e.trajectory() for e in chats] == [e.trajectory() for e in tokens]


def test_a_request_that_fails_ends_its_episode_alone(episodes, engine, ten_tools):
    chats = episodes()
    failed = run_chats(endpoint(ten_tools, [], failing={("room", 1), ("plane", 0)}), chats, engine)
    assert failed == {0: "HTTP 500: oh no", 1: "HTTP 500: oh no"}
    assert [episode.done for episode in chats] == [False, False, True, True]
    assert chats[0].events and chats[0].selection is None  # what it had done is no prediction


def test_a_search_that_fails_is_raised(episodes, ten_tools):
    def broken(queries, categories, k):
        raise RetrieverError("the engine is away")

    with pytest.raises(RetrieverError, match="away"):
        run_chats(endpoint(ten_tools, []), episodes(), broken)
    assert run_chats(endpoint(ten_tools, []), [], broken) == {}
