"""Rewards of hand-made trajectories."""

import pytest

from autotools.schema import Event, EventKind, StopReason, ToolId, Trajectory
from rl.rewards import RewardOptions, reward_parts

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
