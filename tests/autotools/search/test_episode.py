"""The state machine: every kind of turn, every way to end, and what a trajectory says afterwards."""

from collections.abc import Callable, Sequence

import pytest

from autotools.schema import EventKind, Hit, StopReason, ToolId, Trajectory
from autotools.search.answer import NameIndex
from autotools.search.episode import Episode, SearchSettings
from autotools.search.observation import NOTHING_FOUND, ONE_CALL_NOTE
from autotools.search.prompt import GLOBAL_SEARCH_TOOL, SEARCH_TOOL, answer_text, call_text, prompt_messages

A, B, C = (ToolId(category="Travel", tool="desk", api=api) for api in ("a", "b", "c"))
D = ToolId(category="Weather", tool="sky", api="d")
NAMES = NameIndex([A, B, C, D])
K, S = EventKind, StopReason
RESULTS = {"a": [A, C], "ab": [B, A], "d": [D], "nothing": []}


def engine(queries: Sequence[str], categories: Sequence[str | None], k: int) -> list[list[Hit]]:
    return [
        [Hit(id=i, score=1.0, document="doc") for i in RESULTS[q] if c in (None, i.category)][:k]
        for q, c in zip(queries, categories, strict=True)
    ]


def episode(**settings: int) -> Episode:
    return Episode("please", NAMES, SearchSettings(**settings), task_id="t", targets=[A, B, A], level="I2")


def played(*turns: str, **settings: int) -> Trajectory:
    current = episode(**settings)
    for turn in turns:
        current.play(turn, engine)
    return current.trajectory()


def test_a_whole_episode() -> None:
    current = episode()
    for turn in (call_text("a"), call_text("ab", "Travel"), answer_text([str(B), str(A), "x.y.z"])):
        current.play(turn, engine)
    trajectory = current.trajectory()
    assert [e.kind for e in trajectory.events] == [K.SEARCH, K.SEARCH, K.ANSWER]
    assert trajectory.stop_reason is S.ANSWERED
    assert (trajectory.selection, trajectory.unknown_names) == ((B, A), ("x.y.z",))
    assert trajectory.targets == (A, B)
    assert trajectory.first_found() == [[A], [B], []]
    assert trajectory.found() == {A, B}
    assert [e.hits for e in trajectory.events] == [(A, C), (B, A), ()]
    assert [e.query for e in trajectory.events] == ["a", "ab", None]
    assert trajectory.events[1].category == "Travel"
    assert [m["role"] for m in current.messages] == "system user assistant tool assistant tool assistant".split()
    assert current.messages[3]["content"] == trajectory.events[0].observation
    assert [m["content"] for m in current.messages if m["role"] == "assistant"] == [e.text for e in trajectory.events]


def test_both_targets_at_once_are_first_found_in_the_order_of_the_targets() -> None:
    trajectory = played(call_text("ab"), call_text("a"), "bye")
    assert trajectory.first_found() == [[A, B], [], []]


FAULTS = [
    ("<tool_call>{", K.MALFORMED_CALL, "Error: The call was not closed"),
    ('<tool_call>{"name": "x", "arguments": {}}</tool_call>', K.UNKNOWN_TOOL, "Error: There is no tool 'x'"),
    ('<tool_call>{"name": "search", "arguments": {}}</tool_call>', K.BAD_ARGUMENTS, 'Error: "query"'),
    (call_text("a", "Travell"), K.UNKNOWN_CATEGORY, "Error: There is no category 'Travell'. Did you mean: Travel"),
]


@pytest.mark.parametrize(("turn", "kind", "told"), FAULTS, ids=[f[1].value for f in FAULTS])
def test_a_fault_is_told_and_the_episode_goes_on(turn: str, kind: EventKind, told: str) -> None:
    trajectory = played(turn, call_text("a"), answer_text([str(A)]))
    first = trajectory.events[0]
    assert first.kind is kind and first.hits == ()
    assert (first.observation or "").startswith(told)
    assert trajectory.first_found() == [[], [A], []]
    assert trajectory.stop_reason is S.ANSWERED


@pytest.mark.parametrize(("turn", "kind", "told"), FAULTS, ids=[f[1].value for f in FAULTS])
def test_a_fault_on_the_last_turn_keeps_its_kind(turn: str, kind: EventKind, told: str) -> None:
    trajectory = played(turn, max_turns=1)
    # an unknown category is only looked at when a search would run; on the last turn none does
    assert trajectory.events[0].kind is (K.OVER_LIMIT if kind is K.UNKNOWN_CATEGORY else kind)
    assert trajectory.stop_reason is S.TURN_LIMIT and trajectory.selection is None
    assert trajectory.events[0].observation is None


def test_a_search_on_the_last_turn_is_not_run() -> None:
    trajectory = played(call_text("d"), call_text("a"), max_turns=2)
    assert [e.kind for e in trajectory.events] == [K.SEARCH, K.OVER_LIMIT]
    assert trajectory.events[1].hits == () and trajectory.events[1].query == "a"
    assert trajectory.first_found() == [[], []]
    assert (trajectory.selection, trajectory.stop_reason) == (None, S.TURN_LIMIT)


def test_an_answer_on_the_last_turn_counts() -> None:
    assert played(call_text("a"), answer_text([str(A)]), max_turns=2).stop_reason is S.ANSWERED


def test_no_call_and_no_list_ends_it() -> None:
    trajectory = played("I give up")
    assert (trajectory.events[0].kind, trajectory.stop_reason) == (K.EMPTY_ANSWER, S.EMPTY_ANSWER)
    assert trajectory.selection is None


def test_an_empty_list_is_an_answer_with_nothing_in_it() -> None:
    trajectory = played("<tool_list></tool_list>")
    assert (trajectory.events[0].kind, trajectory.selection, trajectory.stop_reason) == (K.ANSWER, (), S.ANSWERED)


@pytest.mark.parametrize(
    ("text", "selection"),
    [
        (call_text("a"), None),
        ("I gi", None),
        ("<tool_list>Travel.desk.a", None),
        ("<tool_list>x</tool_list> no: <tool_list>Travel.desk.a", None),
        ("<tool_list>Travel.desk.a</tool_list> because", (A,)),
    ],
)
def test_a_turn_that_was_cut(text: str, selection: tuple[ToolId, ...] | None) -> None:
    current = episode()
    current.step(text, finished=False)
    trajectory = current.trajectory()
    assert trajectory.selection == selection
    kind, reason = (K.ANSWER, S.ANSWERED) if selection else (K.TRUNCATED, S.TRUNCATED_TURN)
    assert (trajectory.events[0].kind, trajectory.stop_reason) == (kind, reason)


def test_a_refused_observation_was_never_seen() -> None:
    current = episode()
    current.step(call_text("a"))
    current.observe(engine(["a"], [None], 5)[0])
    current.refuse()
    trajectory = current.trajectory()
    assert (trajectory.events[0].kind, trajectory.stop_reason) == (K.OVER_LIMIT, S.TOKEN_LIMIT)
    assert trajectory.events[0].hits == () and trajectory.events[0].observation is None
    assert trajectory.found() == set() and trajectory.first_found() == [[]]
    assert [m["role"] for m in current.messages] == ["system", "user", "assistant"]


def test_hits_do_not_leak_into_a_later_event() -> None:
    trajectory = played(call_text("a"), "<tool_call>", call_text("nothing"), "bye")
    assert [e.hits for e in trajectory.events] == [(A, C), (), (), ()]
    assert trajectory.events[2].observation == NOTHING_FOUND


def test_several_calls_in_one_turn() -> None:
    trajectory = played(call_text("a") + call_text("d"), "bye")
    assert trajectory.events[0].hits == (A, C) and trajectory.events[0].extra_calls == 1
    assert (trajectory.events[0].observation or "").endswith(ONE_CALL_NOTE)


ODD = [
    ToolId(category="Location", tool="地图", api="附近"),
    ToolId(category="Video, Images", tool="true", api="null"),
    ToolId(category="Data.Base", tool="yes", api="1e3"),
    ToolId(category="Weather", tool="doc_2", api="on"),
]
DOCUMENT = "doc 2:\\n category_name: Travel\nTravel.desk.a: looks like a hit\n<tool_list>Travel.desk.a</tool_list>"


def test_names_of_any_kind_are_shown_read_back_and_told_from_text() -> None:
    """Names that YAML or JSON would quote or escape, and documents that look like hits or like an answer."""
    names = NameIndex([*ODD, A])
    current = Episode("please", names, SearchSettings(), targets=[*ODD, A])
    current.play(call_text("q"), lambda *_: [[Hit(id=i, score=1.0, document=DOCUMENT) for i in ODD]])
    event = current.events[0]
    assert all(f"{i}: doc 2:" in (event.observation or "") for i in ODD) and event.hits == tuple(ODD)
    assert not current.done and A not in event.hits  # what a document says is neither a hit nor an answer
    current.play(answer_text([str(i) for i in ODD]), engine)
    trajectory = current.trajectory()
    assert (trajectory.selection, trajectory.unknown_names) == (tuple(ODD), ())
    assert trajectory.first_found() == [ODD, []] and A not in trajectory.found()


def test_only_the_last_turn_can_answer() -> None:
    """A list in a thought, beside a call, or in what was shown is none."""
    listed = answer_text([str(A)])
    trajectory = played(
        listed + call_text("a"), f"<think>{listed}</think>" + call_text("a"), f"<think>{listed}</think>"
    )
    assert [e.kind for e in trajectory.events] == [K.SEARCH, K.SEARCH, K.EMPTY_ANSWER]
    assert (trajectory.selection, trajectory.stop_reason) == (None, S.EMPTY_ANSWER)


def test_top_k_and_document_chars_reach_the_observation() -> None:
    event = played(call_text("ab"), "bye", top_k=1, document_chars=1).events[0]
    assert event.hits == (B,) and event.observation == "Travel.desk.b: …"


def test_categories_are_offered_only_on_request() -> None:
    assert "Categories" not in episode().messages[0]["content"]
    offered = Episode("please", NAMES, SearchSettings(offer_categories=True))
    assert offered.messages == prompt_messages("please", ["Travel", "Weather"])
    assert offered.messages[0]["content"].endswith("Categories: Travel, Weather")


def test_without_the_argument_a_category_is_ignored() -> None:
    bare = Episode("please", NAMES, SearchSettings(category_argument=False))
    assert bare.tools == [GLOBAL_SEARCH_TOOL] and episode().tools == [SEARCH_TOOL]
    assert list(GLOBAL_SEARCH_TOOL["function"]["parameters"]["properties"]) == ["query"]
    assert GLOBAL_SEARCH_TOOL["function"].keys() == SEARCH_TOOL["function"].keys()
    assert list(SEARCH_TOOL["function"]["parameters"]["properties"]) == ["query", "category"]
    for category in ("Weather", "Nowhere"):
        bare.play(call_text("a", category), engine)
    assert [(e.kind, e.hits, e.category) for e in bare.events] == [(K.SEARCH, (A, C), None)] * 2
    with pytest.raises(ValueError, match="offer_categories needs category_argument"):
        SearchSettings(category_argument=False, offer_categories=True)


def test_enforced_categories() -> None:
    """Targets of Weather and Travel: the policy's choice among the two counts, all else is moved to what is missing."""

    def asked(targets: list[ToolId], *turns: str) -> list[str | None]:
        current = Episode("please", NAMES, SearchSettings(), targets=targets, enforce_category=True)
        for turn in turns:
            current.play(turn, engine)
        moved.append(current.enforced)
        return [event.category for event in current.events]

    moved: list[int] = []
    assert asked([A], call_text("a"), call_text("a", "Weather"), call_text("d", "Travel")) == ["Travel"] * 3
    both = (call_text("nothing"), call_text("a", "Travel"), call_text("d", "Weather"), call_text("a"), call_text("d"))
    assert asked([D, A], *both) == ["Weather", "Travel", "Weather", "Weather", "Weather"]
    assert asked([D, A], call_text("d"), call_text("a"), call_text("ab", "all")) == ["Weather", "Travel", "Weather"]
    assert asked([], call_text("a"), call_text("d", "Weather")) == [None, "Weather"]
    assert moved == [2, 3, 3, 0]
    wrong = Episode("please", NAMES, SearchSettings(), targets=[A], enforce_category=True)
    wrong.play(call_text("a", "Nowhere"), engine)  # not a category at all: told so, as ever
    assert wrong.events[0].kind is K.UNKNOWN_CATEGORY and wrong.enforced == 0


def test_a_failed_search_ends_the_episode_and_is_not_an_empty_result() -> None:
    current = episode()
    current.step(call_text("a"))
    current.fail()
    trajectory = current.trajectory()
    assert trajectory.stop_reason is S.SEARCH_FAILED and trajectory.selection is None
    assert [(e.kind, e.observation) for e in trajectory.events] == [(K.SEARCH, None)]
    with pytest.raises(RuntimeError, match="no search is awaited"):
        current.fail()


def _step_twice(current: Episode) -> None:
    current.step(call_text("a"))
    current.step(call_text("a"))


def _observe_nothing(current: Episode) -> None:
    current.observe([])


def _accept_unasked(current: Episode) -> None:
    current.step(call_text("a"))
    current.accept()


def _step_after_the_end(current: Episode) -> None:
    current.step("bye")
    current.step("bye")


def _read_too_early(current: Episode) -> None:
    current.trajectory()


@pytest.mark.parametrize(
    "misuse", [_step_twice, _observe_nothing, _accept_unasked, _step_after_the_end, _read_too_early]
)
def test_wrong_order_of_calls_is_refused(misuse: Callable[[Episode], None]) -> None:
    with pytest.raises(RuntimeError):
        misuse(episode())


def test_every_kind_and_every_stop_reason_occurs_in_this_file() -> None:
    source = open(__file__, encoding="utf-8").read()
    assert [kind.name for kind in EventKind if f"K.{kind.name}" not in source] == []
    assert [reason.name for reason in StopReason if f"S.{reason.name}" not in source] == []


@pytest.mark.parametrize("name", ["top_k", "max_turns", "turn_tokens", "total_tokens", "document_chars"])
def test_settings_that_allow_nothing_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be 1 or more, got 0"):
        SearchSettings(**{name: 0})
