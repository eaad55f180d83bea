"""Ten thousand faulty turns whose kind is known from how they were made: none is lost, each is counted as that kind."""

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence

from autotools.schema import EventKind, Hit, StopReason, ToolId, ToolSpec, Trajectory
from autotools.search.answer import NameIndex
from autotools.search.episode import Episode, SearchSettings
from autotools.search.prompt import answer_text, call_text

K = EventKind
Turn = tuple[str, EventKind]
TURNS = 10_000
WORDS = ("hotel", "song", "</tool_response>", "<|im_end|>", "é中🙂", '"', "\\", "<b>", "\u2028", "{", "NaN", "\x00")


def words(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(1, 5)))


def wrapped(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


def call(name: object, arguments: object) -> str:
    return wrapped(json.dumps({"name": name, "arguments": arguments}))


def broken_json(rng: random.Random) -> Turn:
    good = json.dumps({"name": "search", "arguments": {"query": words(rng)}})
    cut = rng.randint(0, len(good) - 1)
    bad = [good[:cut], good + "}", good.replace('"name"', "'name'"), good.replace(":", "=", 1), "[" * rng.randint(1, 9)]
    return wrapped(rng.choice(bad)), K.MALFORMED_CALL


def not_closed(rng: random.Random) -> Turn:
    return f"<tool_call>\n{json.dumps({'name': 'search', 'arguments': {'query': words(rng)}})}", K.MALFORMED_CALL


def no_call_object(rng: random.Random) -> Turn:
    bodies = ["[]", "3", '"search"', "null", "{}", '{"name": 3}', '{"arguments": {"query": "a"}}', '{"name": null}']
    return wrapped(rng.choice(bodies)), K.MALFORMED_CALL


def unknown_tool(rng: random.Random) -> Turn:
    names = ["Search", "search ", "find", "", "Travel.hotel_desk.find", "search\u0000", words(rng)]
    return call(rng.choice(names), {"query": "a"}), K.UNKNOWN_TOOL


def bad_arguments(rng: random.Random) -> Turn:
    queries = [None, "", " \n", 3, 1.5, True, [], ["hotel"], {}, {"query": "a"}]
    choices = [{"query": rng.choice(queries)}, {}, {"querry": "a"}, [], None, 7, "hotel", '{"query": 3}', "{broken"]
    choices += [{"query": "a", "category": c} for c in (3, [], ["Travel"], {}, True)]
    return call("search", rng.choice(choices)), K.BAD_ARGUMENTS


def unknown_category(rng: random.Random) -> Turn:
    category = rng.choice(["travel", "Travels", "Nowhere", "Trav\u00e9l", "a,b"])
    return call_text(words(rng) + "x", category), K.UNKNOWN_CATEGORY


def two_calls(rng: random.Random) -> Turn:
    """The first call counts; what follows it does not change its kind."""
    first, kind = rng.choice([broken_json, no_call_object, unknown_tool, bad_arguments, unknown_category, search])(rng)
    return first + rng.choice(["\n", "", " and "]) + call_text(words(rng) + "x"), kind


def search(rng: random.Random) -> Turn:
    return call_text(words(rng) + "x", rng.choice([None, "Travel", "all"])), K.SEARCH


def empty_answer(rng: random.Random) -> Turn:
    texts = ["", " ", "\n", "I do not know", "Travel.hotel_desk.find", "</tool_call>", "</tool_list>", "<tool_lis"]
    return rng.choice(texts), K.EMPTY_ANSWER


def tool_list(rng: random.Random) -> Turn:
    names = [str(ToolId(category="Travel", tool="hotel_desk", api="find")), "Music.song_box.lyrics", "no.such.tool"]
    some = rng.sample(names, rng.randint(0, 3))
    join = rng.choice([", ", "\n", "\n- ", "; ", ",,", "\n1. ", '", "', " , \n* "])
    frame = rng.choice(["{}", "[{}]", '["{}"]', "`{}`", "\n{}\n", "- {}", "1) {}"])
    text = frame.format(join.join(some))
    block = f"<tool_list>{text}</tool_list>"
    return rng.choice([block, f"So:{block}.", f"<tool_list>x</tool_list>{block}"]), K.ANSWER


MAKERS: list[Callable[[random.Random], Turn]] = [
    broken_json, not_closed, no_call_object, unknown_tool, bad_arguments, unknown_category, two_calls, search,
    empty_answer, tool_list,
]  # fmt: skip
THOUGHTS = ("", "", "<think>\n\n</think>\n\n", "<think>\nI call " + call_text("not me") + "\n</think>\n")


def test_ten_thousand_faulty_turns(ten_tools: list[ToolSpec], ten_names: NameIndex) -> None:
    def engine(queries: Sequence[str], categories: Sequence[str | None], k: int) -> list[list[Hit]]:
        hits = [Hit(id=s.id, score=1.0, document="<tool_call>" + s.description) for s in ten_tools[:k]]
        return [hits] * len(queries)

    rng = random.Random(0)
    turns, wanted, seen, stops = 0, Counter[EventKind](), Counter[EventKind](), Counter[StopReason]()
    while turns < TURNS:
        episode = Episode("please", ten_names, SearchSettings(max_turns=6), targets=[ten_tools[0].id])
        while not episode.done:
            text, kind = rng.choice(MAKERS)(rng)
            if kind in (K.SEARCH, K.UNKNOWN_CATEGORY) and len(episode.events) == 5:
                kind = K.OVER_LIMIT  # a whole call on the last turn, whatever it asks for
            before = len(episode.events)
            episode.play(rng.choice(THOUGHTS) + text, engine)
            assert len(episode.events) == before + 1, text
            event = episode.events[-1]
            assert event.kind is kind, (text, event.kind, kind)
            wanted[kind] += 1
            turns += 1
            if event.observation is not None and kind is not K.SEARCH:
                assert event.observation.startswith("Error: ") and not event.hits
            if kind in (K.ANSWER, K.EMPTY_ANSWER):
                assert episode.done
        trajectory = episode.trajectory()
        assert Trajectory.model_validate_json(trajectory.model_dump_json()) == trajectory
        assert set(trajectory.selection or ()) <= {spec.id for spec in ten_tools}
        seen.update(event.kind for event in trajectory.events)
        stops[trajectory.stop_reason] += 1
    assert seen == wanted and sum(seen.values()) == turns
    assert set(seen) == set(EventKind) - {K.TRUNCATED}
    assert min(seen.values()) > 100, seen
    assert set(stops) == {StopReason.ANSWERED, StopReason.EMPTY_ANSWER, StopReason.TURN_LIMIT}


def test_every_layout_of_a_list_gives_the_same_selection(ten_names: NameIndex) -> None:
    names = ["Travel.hotel_desk.find", "Music.song_box.lyrics", "Weather.sky.sunset"]
    for number in range(4):
        some = names[:number]
        layouts = [answer_text(some)]
        layouts += [f"<tool_list>{join.join(some)}</tool_list>" for join in (",", "\n", ";", " ,\n")]
        layouts += ["<tool_list>\n" + "\n".join(f"{mark} {n}" for n in some) + "\n</tool_list>" for mark in "-*•"]
        layouts += ["<tool_list>" + "\n".join(f"{i}. {n}" for i, n in enumerate(some, 1)) + "</tool_list>"]
        layouts += [f"<tool_list>{json.dumps(some)}</tool_list>", "<tool_list>" + ", ".join(f"`{n}`" for n in some)]
        for text in layouts:
            episode = Episode("please", ten_names, SearchSettings())
            episode.step(text)
            assert [str(t) for t in episode.selection or ()] == some, text
            assert episode.unknown_names == ()
