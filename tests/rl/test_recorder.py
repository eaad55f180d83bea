"""Recorded trajectories: whole groups of due steps, and credit beside the event that earned it."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from autotools.schema import Event, EventKind, StopReason, ToolId, Trajectory
from rl.recorder import CreditedTrajectory, TrajectoryRecorder

A, B = (ToolId(category="c", tool="t", api=api) for api in "ab")
TRAJECTORY = Trajectory(
    task_id="t1",
    query="é\u2028",
    targets=(A, B),
    events=(
        Event(kind=EventKind.SEARCH, text="s", query="q", hits=(B, A)),
        Event(kind=EventKind.SEARCH, text="s", query="q", hits=(B,)),
        Event(kind=EventKind.ANSWER, text="a"),
    ),
    selection=(A,),
    stop_reason=StopReason.ANSWERED,
)


def credited(group: int, rollout: int, **more: Any) -> CreditedTrajectory:
    return CreditedTrajectory(
        group=group,
        rollout=rollout,
        trajectory=TRAJECTORY,
        rewards={"selection": 0.5, "format": 0.0},
        advantages=np.array([1.23456, 0.0, -0.5, 7.0]),  # arrays are padded to the longest rollout
        keep=np.array([True, False, True, True]),
        z=np.array([0.25, -1.00004, 9.0]),
        **more,
    )


def test_a_row() -> None:
    row = json.loads(json.dumps(credited(2, 3).row(40)))
    assert (row["step"], row["group"], row["rollout"]) == (40, 2, 3)
    assert row["rewards"] == {"selection": 0.5, "format": 0.0}
    assert row["credit"] == [
        {"advantage": 1.2346, "kept": True, "z": {"c.t.a": 0.25, "c.t.b": -1.0}},
        {"advantage": 0.0, "kept": False, "z": {}},
        {"advantage": -0.5, "kept": True, "z": {}},
    ]
    assert row["z"] == {"c.t.a": 0.25, "c.t.b": -1.0}
    assert Trajectory.model_validate(row["trajectory"]) == TRAJECTORY


def test_tokens_stand_beside_the_credit_of_their_event() -> None:
    tokens = [["é", "\u2028", "<|im_end|>"], ["\ufffd", "<|im_end|>"], ["a"]]
    row = json.loads(json.dumps(credited(0, 0, spans=[(0, 3), (9, 11), (20, 21)], tokens=tokens).row(0)))
    assert [(event["span"], event["tokens"]) for event in row["credit"]] == [
        ([0, 3], tokens[0]), ([9, 11], tokens[1]), ([20, 21], tokens[2]),
    ]  # fmt: skip
    assert [event["advantage"] for event in row["credit"]] == [1.2346, 0.0, -0.5]


def test_due_steps_and_whole_groups(tmp_path: Path) -> None:
    recorder = TrajectoryRecorder(tmp_path / "t.jsonl", every=5, groups_per_step=2)
    batch = [credited(group, rollout) for group in range(3) for rollout in range(4)]
    for step in range(11):
        recorder.record(step, batch)
    rows = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]
    written = [(r["step"], r["group"], r["rollout"]) for r in rows]
    assert written == [(s, g, r) for s in (0, 5, 10) for g in range(2) for r in range(4)]


def test_never(tmp_path: Path) -> None:
    TrajectoryRecorder(tmp_path / "t.jsonl", every=0).record(0, [credited(0, 0)])
    assert not (tmp_path / "t.jsonl").exists()
