"""Many episodes at token level, with a scripted policy and real ids: spans, masks, budgets, and malformed turns."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from autotools.chat import ChatRenderer
from autotools.errors import RetrieverError, RetrieverUnavailable, UnknownCategoryError
from autotools.schema import EventKind, Hit, StopReason, ToolSpec
from autotools.search.answer import NameIndex
from autotools.search.episode import Episode, SearchSettings
from autotools.search.prompt import SEARCH_TOOL, answer_text, call_text
from autotools.search.rollout import Rollout, run_episodes, start_rollouts, take_turns


class Script:
    """A generate function that says the given turns; it knows an episode by its prompt, whatever the batch."""

    def __init__(self, renderer: ChatRenderer, turns: dict[int, list[str | list[int]]], episodes: Sequence[Episode]):
        self.renderer, self.turns = renderer, turns
        self.of_prompt = {tuple(r.prompt_ids): i for i, r in enumerate(start_rollouts(episodes, renderer))}
        self.spoken = Counter[int]()
        self.contexts: list[list[list[int]]] = []

    def __call__(self, contexts: list[list[int]]) -> tuple[list[list[int]], list[list[float]]]:
        self.contexts.append(contexts)
        out = []
        for context in contexts:
            i = next(i for prompt, i in self.of_prompt.items() if tuple(context[: len(prompt)]) == prompt)
            turn = self.turns[i][self.spoken[i]]
            self.spoken[i] += 1
            out.append(turn if isinstance(turn, list) else self.ids(turn))
        return out, [[-0.5] * len(ids) for ids in out]

    def ids(self, text: str) -> list[int]:
        return self.renderer.tokenizer(text + self.renderer.end_of_turn, add_special_tokens=False)["input_ids"]


@pytest.fixture
def renderer(tiny_tokenizer: Any) -> ChatRenderer:
    return ChatRenderer(tiny_tokenizer)


@pytest.fixture
def engine(ten_tools: list[ToolSpec]) -> Any:
    """Finds the tools whose description holds the query's first word; counts its calls."""
    calls: list[tuple[tuple[str, ...], tuple[str | None, ...]]] = []

    def search_batch(queries: Sequence[str], categories: Sequence[str | None], k: int) -> list[list[Hit]]:
        calls.append((tuple(queries), tuple(categories)))
        return [
            [
                Hit(id=s.id, score=1.0, document=s.description)
                for s in ten_tools
                if (q.split() or ["?"])[0] in s.description and c in (None, s.id.category)
            ][:k]
            for q, c in zip(queries, categories, strict=True)
        ]

    search_batch.calls = calls  # type: ignore[attr-defined]
    return search_batch


def make(names: NameIndex, number: int, **settings: int) -> list[Episode]:
    return [Episode(f"request {i}.", names, SearchSettings(**settings), task_id=str(i)) for i in range(number)]


def check(episode: Episode, rollout: Rollout, renderer: ChatRenderer) -> None:
    """Spans are exactly the generated tokens, one per event, and what the policy reads is the chat template's text."""
    inside = [0] * len(rollout.completion_ids)
    assert len(rollout.spans) == len(episode.events)
    for (start, end), event, following in zip(
        rollout.spans, episode.events, [*rollout.spans[1:], (len(inside), 0)], strict=True
    ):
        assert start <= end <= following[0]
        inside[start:end] = [1] * (end - start)
        assert renderer.turn_text(rollout.completion_ids[start:end])[0] == event.text
    assert rollout.mask == inside
    assert len(rollout.logprobs) == len(rollout.completion_ids) <= episode.settings.total_tokens
    assert all(p == (-0.5 if m else 0.0) for p, m in zip(rollout.logprobs, rollout.mask, strict=True))


def test_batch_of_episodes_that_end_at_different_turns(ten_names: NameIndex, renderer: Any, engine: Any) -> None:
    answer = answer_text(["Music.song_box.lyrics"])
    turns = {
        0: [answer],
        1: [call_text("hotel"), answer],
        2: [call_text("lyrics", "Music"), "<tool_call>", call_text("gate", "Musik"), answer],
        3: ["I give up"],
    }
    episodes = make(ten_names, 4)
    script = Script(renderer, turns, episodes)
    rollouts = run_episodes(script, episodes, renderer, engine)
    assert [len(c) for c in script.contexts] == [4, 2, 1, 1]
    assert engine.calls == [(("hotel", "lyrics"), (None, "Music"))]  # one call of the engine per turn, none for faults
    kinds = [[e.kind.value for e in episode.trajectory().events] for episode in episodes]
    assert kinds[2] == ["search", "malformed_call", "unknown_category", "answer"]
    shown = [[str(h) for e in episodes[i].events for h in e.hits] for i in (1, 2)]
    assert shown == [["Travel.hotel_desk.find"], ["Music.song_box.lyrics"]]
    for i, (episode, rollout) in enumerate(zip(episodes, rollouts, strict=True)):
        check(episode, rollout, renderer)
        spoken = [renderer.turn_text(rollout.completion_ids[a:b]) for a, b in rollout.spans]
        assert spoken == [(turn, True) for turn in turns[i]]
        whole = renderer.tokenizer.decode(rollout.prompt_ids + rollout.completion_ids)
        template = renderer.tokenizer.apply_chat_template(episode.messages, tools=[SEARCH_TOOL], tokenize=False)
        assert whole + "\n" == template
        encoded = renderer.encode(episode.messages, [SEARCH_TOOL])
        assert encoded.token_ids == rollout.prompt_ids + rollout.completion_ids
        assert encoded.completion_mask == [False] * len(rollout.prompt_ids) + [bool(m) for m in rollout.mask]


def test_a_context_is_what_was_said_before(ten_names: NameIndex, renderer: Any, engine: Any) -> None:
    episodes = make(ten_names, 1)
    script = Script(renderer, {0: [call_text("hotel"), "bye"]}, episodes)
    (rollout,) = run_episodes(script, episodes, renderer, engine)
    first, second = (contexts[0] for contexts in script.contexts)
    assert first == rollout.prompt_ids
    assert second == rollout.prompt_ids + rollout.completion_ids[: rollout.spans[1][0]]


@pytest.mark.parametrize("total", range(10, 140, 3))
def test_token_budget(total: int, ten_names: NameIndex, renderer: Any, engine: Any) -> None:
    turns: list[str | list[int]] = [call_text("hotel")] * 8
    episodes = make(ten_names, 1, total_tokens=total)
    script = Script(renderer, {0: turns}, episodes)
    (rollout,) = run_episodes(script, episodes, renderer, engine)
    check(episodes[0], rollout, renderer)
    trajectory = episodes[0].trajectory()
    turn = len(script.ids(call_text("hotel")))
    between = len(renderer.between_ids("Travel.hotel_desk.find: find a hotel by its name"))
    # by hand: n whole rounds use n * (turn + between) tokens; a further turn needs two more
    searches, used = 0, 0
    while True:
        if used + turn > total:
            expected = (searches + 1, EventKind.TRUNCATED, StopReason.TRUNCATED_TURN)
            break
        if used + turn + between + 2 > total:
            expected = (searches + 1, EventKind.OVER_LIMIT, StopReason.TOKEN_LIMIT)
            break
        searches, used = searches + 1, used + turn + between
    assert (len(trajectory.events), trajectory.events[-1].kind, trajectory.stop_reason) == expected
    assert [e.kind for e in trajectory.events[:-1]] == [EventKind.SEARCH] * (len(trajectory.events) - 1)
    assert trajectory.events[-1].hits == ()


def test_a_retriever_failure_is_never_an_empty_result(ten_names: NameIndex, renderer: Any) -> None:
    def broken(queries: Sequence[str], categories: Sequence[str | None], k: int) -> list[list[Hit]]:
        raise RetrieverError("index lost")

    episodes = make(ten_names, 1)
    with pytest.raises(RetrieverError, match="index lost"):
        run_episodes(Script(renderer, {0: [call_text("hotel")]}, episodes), episodes, renderer, broken)
    assert not episodes[0].done


@pytest.mark.parametrize(
    ("error", "calls", "failed"),
    [(RetrieverError("bad query"), [4, 2, 2, 1, 1], [2]), (RetrieverUnavailable("away"), [4], [0, 1, 2, 3])],
    ids=["one bad query", "engine away"],
)
def test_a_failure_drops_only_the_rollouts_that_it_hit(
    error: RetrieverError, calls: list[int], failed: list[int], ten_names: NameIndex, renderer: Any, engine: Any
) -> None:
    """Queries 0..3; query 2 breaks every call that holds it: 4, then halves 2 + 2, then 1 + 1 of the second half."""
    sizes, told = [], []

    def breaking(queries: Sequence[str], categories: Sequence[str | None], k: int) -> list[list[Hit]]:
        sizes.append(len(queries))
        if "gate" in queries:
            raise error
        return engine(queries, categories, k)

    episodes = make(ten_names, 5)
    words = [call_text("hotel"), call_text("lyrics"), call_text("gate"), call_text("sunset"), answer_text([])]
    ids = [renderer.tokenizer(w + renderer.end_of_turn, add_special_tokens=False)["input_ids"] for w in words]
    rollouts = start_rollouts(episodes, renderer)
    live = take_turns(
        episodes, rollouts, range(5), ids, None, renderer, breaking, lambda which, why: told.append((which, why))
    )
    assert sizes == calls and told == [(failed, error)]
    assert live == [i for i in range(4) if i not in failed]
    stops = [e.stop_reason for e in episodes]
    assert [i for i, stop in enumerate(stops) if stop is StopReason.SEARCH_FAILED] == failed
    for i in live:
        assert episodes[i].events[0].hits


def test_an_engine_with_other_categories_stops_the_run(ten_names: NameIndex, renderer: Any) -> None:
    def other(queries: Sequence[str], categories: Sequence[str | None], k: int) -> list[list[Hit]]:
        raise UnknownCategoryError("no category 'Music'")

    episodes = make(ten_names, 1)
    ids = [renderer.tokenizer(call_text("a", "Music") + renderer.end_of_turn)["input_ids"]]
    with pytest.raises(UnknownCategoryError):
        take_turns(episodes, start_rollouts(episodes, renderer), [0], ids, None, renderer, other, lambda *_: None)


MARKUP = ("<tool_call>", "</tool_call>", "<tool_list>", "</tool_list>", "<think>", "</think>", "<|im_start|>user\n")
JSON = (
    '{"name": "search", "arguments": ',
    '{"query": "hotel"}',
    '"category": "Travel"',
    '"',
    "\\ud800",
    "NaN",
    "[",
    "}",
)
TEXT = ("Travel.hotel_desk.find", "Travel.", "hotel", "é中\u2028", "1. ", "\\", "\x00", "9" * 50, "\n", " ", ",")
CALLS = (call_text("hotel"), call_text("hotel", "Nowhere"), call_text(" "), call_text("x").replace("search", "find"))
PIECES = (*MARKUP, *JSON, *TEXT, *CALLS, *CALLS)


def test_malformed_turns_never_raise_and_all_have_a_kind(ten_names: NameIndex, renderer: Any, engine: Any) -> None:
    rng = random.Random(0)
    size = len(renderer.tokenizer)
    turns = 0
    kinds, stops = Counter[EventKind](), Counter[StopReason]()

    def babble(contexts: list[list[int]]) -> tuple[list[list[int]], list[list[float]]]:
        out = []
        for _ in contexts:
            if rng.random() < 0.2:  # ids that need not be UTF-8 at all
                ids = [i for i in rng.choices(range(size), k=rng.randint(0, 20)) if i != renderer.end_id]
            else:
                text = "".join(rng.choices(PIECES, k=rng.randint(0, 8)))
                ids = renderer.tokenizer(text, add_special_tokens=False)["input_ids"]
            out.append(ids + [renderer.end_id] if rng.random() < 0.95 else ids)
        nonlocal turns
        turns += len(out)
        return out, [[-0.5] * len(ids) for ids in out]

    while turns < 2000:
        episodes = make(ten_names, 50, max_turns=3, total_tokens=350)
        for episode, rollout in zip(episodes, run_episodes(babble, episodes, renderer, engine), strict=True):
            check(episode, rollout, renderer)
            trajectory = episode.trajectory()
            assert type(trajectory).model_validate_json(trajectory.model_dump_json()) == trajectory
            assert len(trajectory.events) <= 3
            kinds.update(e.kind for e in trajectory.events)
            stops[trajectory.stop_reason] += 1
    assert sum(kinds.values()) == turns
    assert set(kinds) == set(EventKind) and set(stops) == set(StopReason) - {StopReason.SEARCH_FAILED}
