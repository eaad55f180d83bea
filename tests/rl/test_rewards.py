"""Rewards of hand-made trajectories."""

import pytest

from autotools.schema import Event, EventKind, StopReason, ToolId, Trajectory
from rl.rewards import RewardOptions, marag_parts, reward_parts

A, B, C = (ToolId(category="c", tool="t", api=api) for api in "abc")


def trajectory(
    shown: tuple[ToolId, ...], selection: tuple[ToolId, ...] | None, unknown: tuple[str, ...] = ()
) -> Trajectory:
    events = [Event(kind=EventKind.SEARCH, text="s", query="q", hits=shown)]
    if selection is not None:
        events.append(Event(kind=EventKind.ANSWER, text="a"))
    return Trajectory(
        task_id="t",
        query="q",
        targets=(A, B),
        events=tuple(events),
        selection=selection,
        unknown_names=unknown,
        stop_reason=StopReason.ANSWERED if selection is not None else StopReason.TURN_LIMIT,
    )


@pytest.mark.parametrize(
    ("sample", "f1", "match"),
    [
        (trajectory((A, B), (A, B)), 1.0, 1.0),
        (trajectory((A, B), (B, A)), 1.0, 1.0),
        (trajectory((A, B), (A,)), 2 / 3, 0.0),
        (trajectory((A, B, C), (A, B, C)), 0.8, 0.0),
        (trajectory((A, B), (A, B), ("made.up.name",)), 0.8, 0.0),
        (trajectory((A,), (A, B)), 0.5, 0.0),  # B was never shown: guessed, so no hit
        (trajectory((), (A, B)), 0.0, 0.0),
        (trajectory((A, B), ()), 0.0, 0.0),
        (trajectory((A, B), None), 0.0, 0.0),
    ],
)
def test_selection_reward(sample: Trajectory, f1: float, match: float) -> None:
    assert reward_parts(sample, RewardOptions()) == pytest.approx({"selection": f1, "format": 0.0})
    assert reward_parts(sample, RewardOptions(selection="match"))["selection"] == match


def test_format_bonus_only_for_an_answer() -> None:
    options = RewardOptions(format_bonus=0.1)
    assert reward_parts(trajectory((A,), ()), options) == {"selection": 0.0, "format": 0.1}
    assert reward_parts(trajectory((A,), None), options) == {"selection": 0.0, "format": 0.0}


def test_marag_rewards_by_hand() -> None:
    """Names c.t.a, c.t.b: pieces {c, t, a} and {c, t, b}; targets a and b together {c, t, a, b}."""

    def parts(*args: object) -> list[float]:
        values = marag_parts(trajectory(*args), RewardOptions(selection="match", format_bonus=9.0))  # type: ignore[arg-type]
        assert list(values) == ["answer", "exploration", "retrieval"]
        return list(values.values())

    assert parts((A, B), (A, B)) == pytest.approx([1, 1, 1])
    assert parts((A, B, C), (A,)) == pytest.approx([2 * 3 / 7, 1, 2 * 2 / 5])
    assert parts((A,), (B,)) == pytest.approx([0, 1, 2 / 3])  # b was never shown: none of its pieces counts
    assert parts((A,), (A, B)) == pytest.approx([2 * 3 / (3 + 3 + 4), 1, 2 / 3])
    assert parts((A, B), (), ("c.t.a",)) == pytest.approx([0, 1, 1])
    assert parts((), None) == pytest.approx([0, 1, 0])


def test_marag_exploration_counts_turns_that_are_no_answer() -> None:
    events = [Event(kind=kind, text="s") for kind in (EventKind.SEARCH, EventKind.MALFORMED_CALL, EventKind.SEARCH)]
    for number, want in ((0, 1.0), (1, 1.0), (2, 1.0), (3, 2 / 3)):
        sample = Trajectory(
            task_id="t", query="q", targets=(A, B), events=(*events[:number], Event(kind=EventKind.ANSWER, text="a")),
            selection=(A,), stop_reason=StopReason.ANSWERED,
        )  # fmt: skip
        assert marag_parts(sample, RewardOptions())["exploration"] == pytest.approx(want)
