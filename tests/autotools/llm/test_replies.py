"""Replies of an endpoint pass the rules of sampled text, and what the endpoint is told back is what it accepts."""

import json
import random

import pytest

from autotools.llm.replies import Call, Conversation, Reply, guessed_tokens, read_reply, turn_text
from autotools.schema import EventKind, Hit, StopReason
from autotools.search.episode import Episode, SearchSettings
from autotools.search.observation import ONE_CALL_NOTE
from autotools.search.parser import parse_turn
from autotools.search.prompt import answer_text, call_text


def called(*functions, content=None, reason="tool_calls"):
    calls = [{"id": f"c{i}", "type": "function", "function": function} for i, function in enumerate(functions)]
    message = {"role": "assistant", "content": content, "tool_calls": calls}
    return {"choices": [{"message": message, "finish_reason": reason}], "usage": None}


def function(arguments, name="search"):
    return {"name": name, "arguments": arguments}


def turn(answer):
    return parse_turn(turn_text(read_reply(answer)))


def test_a_call_reads_as_the_call_that_a_local_model_writes():
    answer = called(function('{"query": "hotel", "category": "Travel"}'))
    assert turn_text(read_reply(answer)) == call_text("hotel", "Travel")
    assert turn_text(read_reply(called(function({"query": "höhe"})))) == call_text("höhe")  # the object itself
    legacy = {"choices": [{"message": {"content": "", "function_call": function('{"query": "hotel"}')}}]}
    assert turn_text(read_reply(legacy)) == call_text("hotel")
    said = called(function('{"query": "hotel"}'), content="Let me see.")
    assert turn_text(read_reply(said)) == "Let me see.\n" + call_text("hotel")


@pytest.mark.parametrize(
    ("functions", "kind", "extra", "problem"),
    [
        ([function('{"query": "a"}'), function('{"query": "b"}')], EventKind.SEARCH, 1, ""),
        ([function('{"query": "a"')], EventKind.BAD_ARGUMENTS, 0, '"arguments" must be a JSON object.'),
        ([function("")], EventKind.BAD_ARGUMENTS, 0, '"arguments" must be a JSON object.'),
        ([function('["a"]')], EventKind.BAD_ARGUMENTS, 0, '"arguments" must be a JSON object.'),
        ([function('{"query": 3}')], EventKind.BAD_ARGUMENTS, 0, '"query" must be a non-empty string.'),
        ([function("{}", "book")], EventKind.UNKNOWN_TOOL, 0, "There is no tool 'book'; the only tool is search."),
        ([function("{}", None)], EventKind.UNKNOWN_TOOL, 0, "There is no tool ''; the only tool is search."),
        ([function("[" * 100_000)], EventKind.BAD_ARGUMENTS, 0, '"arguments" must be a JSON object.'),
        (["search"], EventKind.UNKNOWN_TOOL, 0, "There is no tool ''; the only tool is search."),
    ],
)
def test_faults_of_a_call_are_those_of_sampled_text(functions, kind, extra, problem):
    found = turn(called(*functions))
    assert (found.kind, found.extra_calls, found.problem) == (kind, extra, problem)


def test_markup_inside_arguments_cannot_end_or_double_a_call():
    hostile = "</tool_call><tool_call></think><tool_list>a\ud800\u2028b"
    found = turn(called(function(json.dumps({"query": hostile}))))
    assert found.kind is EventKind.SEARCH and found.extra_calls == 0
    assert found.query == hostile.replace("\ud800", "?")


def test_text_and_ends():
    def one(message, **choice):
        return read_reply({"choices": [{"message": message, **choice}]})

    assert one({"content": "x"}, finish_reason="length") == Reply(content="x", finished=False)
    assert one({"content": None}) == one({"content": 3}) == one({}) == Reply(content="")
    assert one({"content": [{"type": "text", "text": "a"}, {"type": "image"}, "?", {"text": "b"}]}).content == "ab"
    assert one({"content": None, "refusal": "I won't."}).content == "I won't."
    usage = {"prompt_tokens": 7, "completion_tokens": True}
    counted = read_reply({"choices": [{"message": {"content": "x"}}], "usage": usage})
    assert (counted.prompt_tokens, counted.completion_tokens) == (7, None)


@pytest.mark.parametrize(
    "answer",
    [None, [], {}, {"choices": []}, {"choices": ["x"]}, {"choices": [{"message": "x"}]}, {"choices": [{"text": "x"}]},
     {"choices": [{"message": {"tool_calls": "x"}}]}, {"error": {"message": "x"}}],
)  # fmt: skip
def test_what_is_no_completion_is_refused(answer):
    with pytest.raises(ValueError, match="no chat completion|tool_calls is no list"):
        read_reply(answer)


# --- conversations ------------------------------------------------------------------------------------------------


@pytest.fixture
def conversation(ten_names):
    def start(**settings):
        return Conversation.of(Episode("a room", ten_names, SearchSettings(**settings)))

    return start


def reply(*calls, content="", **more):
    named = (Call(id=name, name="search", arguments=arguments) for name, arguments in calls)
    return Reply(content=content, calls=tuple(named), **more)


def test_every_call_of_a_turn_is_answered_and_only_the_first_is_made(conversation, ten_tools):
    talk = conversation()
    talk.take(reply(("c1", '{"query": "room"}'), ("c2", '{"query": "plane"}')))
    assert talk.episode.request == ("room", None)
    talk.episode.observe([Hit(id=ten_tools[1].id, score=1.0, document="price")])
    assert talk.show()
    assistant, first, second = talk.messages[2:]
    assert [call["id"] for call in assistant["tool_calls"]] == ["c1", "c2"]
    assert (first["role"], first["tool_call_id"], second["tool_call_id"]) == ("tool", "c1", "c2")
    assert first["content"] == talk.episode.events[0].observation and ONE_CALL_NOTE in first["content"]
    assert second["content"] == ONE_CALL_NOTE and talk.episode.events[0].extra_calls == 1


def test_a_history_holds_only_json_arguments_and_every_call_has_an_id(conversation):
    talk = conversation(max_turns=9)
    broken = '{"query": '
    turns = [reply(("", broken)), Reply(content=f"so <tool_call>{broken}</tool_call>"), Reply(content="<tool_call>x")]
    book = '<tool_call>{"name": "book", "arguments": "{}"}</tool_call>'
    turns.append(Reply(content="<think>or <tool_call></think>" + book))
    for one in turns:
        talk.take(one)
        assert talk.show()
    assistants = [message for message in talk.messages if message["role"] == "assistant"]
    calls = [call for message in assistants for call in message["tool_calls"]]
    assert len(calls) == 4 and len({call["id"] for call in calls}) == 4
    assert all(isinstance(json.loads(call["function"]["arguments"]), dict) for call in calls)
    assert json.loads(calls[0]["function"]["arguments"]) == {"malformed_arguments": broken}
    assert [message["content"] for message in assistants] == ["", "so ", "", "<think>or <tool_call></think>"]
    assert calls[3]["function"] == {"name": "book", "arguments": "{}"}
    kinds = [event.kind.value for event in talk.episode.events]
    assert kinds == ["bad_arguments", "malformed_call", "malformed_call", "unknown_tool"]
    assert [m["content"] for m in talk.messages if m["role"] == "tool"] == [e.observation for e in talk.episode.events]


def test_the_history_renders_to_the_text_that_a_local_policy_sees(conversation, tiny_tokenizer):
    """The chat template is the oracle: a call that the endpoint made, and the same call as sampled text."""
    talk = conversation()
    for arguments in ({"query": "room"}, {"query": "plane", "category": "Travel"}):
        talk.take(reply(("c", json.dumps(arguments))))
        talk.episode.observe([])
        assert talk.show()
    told = json.loads(json.dumps(talk.messages))
    for message in told:
        for call in message.get("tool_calls", ()):  # as servers do before they render
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])

    def rendered(messages):
        return tiny_tokenizer.apply_chat_template(messages, tools=talk.episode.tools, tokenize=False)

    assert rendered(told) == rendered(talk.episode.messages)
    assert rendered(told).count("<tool_response>") == 2


def test_the_budget_counts_what_the_endpoint_reports(conversation):
    talk = conversation(total_tokens=100, turn_tokens=40)
    assert talk.body()["max_tokens"] == 40 and talk.body()["temperature"] == 0
    call = ("c", '{"query": "room"}')
    talk.take(reply(call, prompt_tokens=500, completion_tokens=20))
    talk.episode.observe([])
    assert talk.used == 20 and talk.show() and talk.used == 20 + guessed_tokens("No tool matches this query.")
    talk.take(reply(call, prompt_tokens=540, completion_tokens=20))  # 40 more than at first: 20 said, 20 shown
    talk.episode.observe([])
    assert talk.used == 60 and talk.show() and talk.body()["max_tokens"] == 100 - 60 - 7
    talk.take(reply(call, prompt_tokens=580, completion_tokens=12))
    talk.episode.observe([])
    assert talk.used == 92 and not talk.show()  # 92 + 7 + 2 > 100
    assert talk.episode.stop_reason is StopReason.TOKEN_LIMIT and talk.episode.events[-1].observation is None


def test_a_cut_turn_is_truncated_and_an_answer_ends(conversation, ten_tools):
    talk = conversation()
    talk.take(reply(("c", '{"query": "ro'), finished=False))
    assert talk.episode.stop_reason is StopReason.TRUNCATED_TURN
    talk = conversation()
    talk.take(Reply(content=answer_text([str(ten_tools[1].id)])))
    assert talk.episode.selection == (ten_tools[1].id,) and talk.episode.stop_reason is StopReason.ANSWERED
    talk = conversation()
    talk.take(Reply(content=""))
    assert talk.episode.stop_reason is StopReason.EMPTY_ANSWER and talk.episode.selection is None


def test_a_reply_beyond_all_limits_is_a_truncated_turn_and_never_kept_whole(conversation, ten_tools):
    answer = answer_text([str(ten_tools[1].id)])
    for said, kind in (
        (reply(content="so " * 999_999), "truncated"),
        (reply(content="so " * 999 + answer), "truncated"),
        (reply(("c", json.dumps({"query": "x" * 999_999}))), "truncated"),
        (reply(*((str(number), '{"query": "room"}') for number in range(99))), "truncated"),
        (reply(content=answer + "so " * 999_999), "answer"),
        (reply(content="x" * 640), "empty_answer"),
    ):
        talk = conversation(turn_tokens=40)
        talk.take(said)
        assert [event.kind.value for event in talk.episode.events] == [kind] and talk.episode.done
        assert len(talk.episode.events[0].text) <= 16 * 40 and len(json.dumps(talk.messages[-1])) < 2_000
    assert Conversation.of(talk.episode).body()["max_tokens"] == 40


def test_without_reported_tokens_a_quarter_of_the_bytes_counts(conversation):
    talk = conversation()
    talk.take(reply(("c", '{"query": "room"}')))
    assert talk.used == guessed_tokens(call_text("room")) == -(-len(call_text("room")) // 4)
    assert guessed_tokens("é") == 1 and guessed_tokens("") == 0


def test_2000_odd_replies_never_break_an_episode(ten_names):
    rng = random.Random(0)
    pieces = [
        '{"query": "a"}',
        "{",
        "",
        "[]",
        '"x"',
        '{"query": ""}',
        '{"query": "a", "category": 1}',
        "null",
        "\ud800",
    ]
    names = ["search", "", None, 3, "book", "</tool_call>"]
    texts = [
        None,
        "",
        "<tool_call>",
        "</think>",
        "<tool_list>",
        "</tool_call>",
        "x",
        "<tool_list>Travel.a.b</tool_list>",
    ]
    for _ in range(2000):
        calls = [function(rng.choice(pieces), rng.choice(names)) for _ in range(rng.randrange(4))]
        content = "".join(filter(None, rng.choices(texts, k=rng.randrange(4))))
        answer = called(*calls, content=content, reason=rng.choice(["stop", "length", "tool_calls", None, 3]))
        talk = Conversation.of(Episode("q", ten_names, SearchSettings(max_turns=3)))
        while not talk.episode.done:
            talk.take(read_reply(answer))
            if talk.episode.request:
                talk.episode.observe([])
            if not talk.episode.done:
                assert talk.show()
                last = talk.messages[-1]
                json.dumps(talk.body(), ensure_ascii=False).encode()
                assert last["role"] == "tool" and last["content"]
        talk.episode.trajectory().model_dump_json()
