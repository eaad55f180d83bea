"""Recorded trajectories: whole groups of due steps, and credit beside the event that earned it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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


def rows(step: int, groups: int = 3) -> list[dict[str, Any]]:
    return [credited(group, rollout).row(step) for group in range(groups) for rollout in range(4)]


def play(recorder: TrajectoryRecorder, steps: range, groups: int = 3) -> None:
    """As the trainer does it: only chosen groups of due steps are made into rows."""
    for step in steps:
        if recorder.is_due(step):
            chosen = recorder.groups(step, groups)
            recorder.record(step, [row for row in rows(step, groups) if row["group"] in chosen])


def written(path: Path) -> list[tuple[int, int, int]]:
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [(r["step"], r["group"], r["rollout"]) for r in map(json.loads, lines)]


def test_due_steps_and_whole_groups(tmp_path: Path) -> None:
    play(TrajectoryRecorder(tmp_path / "t.jsonl", every=5, groups_per_step=2), range(11))
    assert written(tmp_path / "t.jsonl") == [(s, g, r) for s in (0, 5, 10) for g in range(2) for r in range(4)]


def test_never(tmp_path: Path) -> None:
    assert not TrajectoryRecorder(tmp_path / "t.jsonl", every=0).is_due(0)
    assert not TrajectoryRecorder(tmp_path / "t.jsonl", groups_per_step=0).is_due(0)
    assert not (tmp_path / "t.jsonl").exists()


def test_random_groups_reach_every_rank_and_repeat_with_the_seed(tmp_path: Path) -> None:
    def chosen(seed: int) -> list[set[int]]:
        recorder = TrajectoryRecorder(tmp_path / "t", every=1, groups_per_step=2, choice="random", seed=seed)
        return [recorder.groups(step, 16) for step in range(60)]

    drawn = chosen(0)
    assert all(len(groups) == 2 for groups in drawn) and set.union(*drawn) == set(range(16))
    assert drawn == chosen(0) != chosen(1)
    assert TrajectoryRecorder(tmp_path / "t", groups_per_step=9, choice="random").groups(3, 4) == {0, 1, 2, 3}


def test_the_file_stays_below_its_limit_and_says_so_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = sum(len(json.dumps(row, separators=(",", ":"))) + 1 for row in rows(0, 1))
    path = tmp_path / "t.jsonl"
    recorder = TrajectoryRecorder(path, every=1, groups_per_step=2, max_mb=3.5 * one / 1e6)
    play(recorder, range(8))
    assert written(path) == [(s, g, r) for s, g in ((0, 0), (0, 1), (1, 0)) for r in range(4)]
    assert path.stat().st_size == 3 * one <= recorder.max_mb * 1e6
    assert recorder.stopped_at() == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "step 1" in said and "record_max_mb" in said


def test_nothing_comes_after_the_group_that_had_no_room(tmp_path: Path) -> None:
    small = credited(1, 0).row(0)
    recorder = TrajectoryRecorder(tmp_path / "t.jsonl", every=1, max_mb=2 * len(json.dumps(small)) / 1e6)
    recorder.record(0, [*rows(0, 1), small])
    assert not (tmp_path / "t.jsonl").exists() and recorder.stopped_at() == 0
    recorder.record(1, [small])
    assert not (tmp_path / "t.jsonl").exists()


def test_a_resumed_run_records_like_an_unbroken_one(tmp_path: Path) -> None:
    """Also if it comes from before the step at which the file was full."""
    size = {"every": 1, "groups_per_step": 2, "max_mb": 0.03}
    whole, broken = tmp_path / "whole.jsonl", tmp_path / "broken.jsonl"
    play(TrajectoryRecorder(whole, **size), range(9))
    full = TrajectoryRecorder(whole, **size).stopped_at()
    assert full is not None and 0 < full < 7
    for killed, checkpoint in ((8, full + 1), (full + 1, full), (full + 1, full - 1)):
        for file in tmp_path.glob("broken*"):
            file.unlink()
        play(TrajectoryRecorder(broken, **size), range(killed))
        kept = [line for line in broken.read_text().splitlines(True) if json.loads(line)["step"] < checkpoint]
        broken.write_text("".join(kept))  # what training.runtime.rewind does
        play(TrajectoryRecorder(broken, **size), range(checkpoint, checkpoint + 1))
        assert TrajectoryRecorder(broken, **size).stopped_at() == (full if checkpoint >= full else None)
        play(TrajectoryRecorder(broken, **size), range(checkpoint + 1, 9))
        assert broken.read_bytes() == whole.read_bytes()
