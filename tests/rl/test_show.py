"""``rl.show``: what it prints of a group worked on paper, of predictions, of hostile text, and for bad use."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autotools.errors import ConfigError, DataError
from autotools.schema import Event, EventKind, StopReason, ToolId, Trajectory
from rl import show
from rl.recorder import CreditedTrajectory, TrajectoryRecorder

A, B, X, U = (ToolId(category="Cat", tool="tool", api=api) for api in ("first", "second", "other", "unseen"))
EVIL = "\x1b[2J[red]<script>\u202e{x}"


def trajectory(task: str, query: str, *, complete: bool) -> Trajectory:
    hits = ((X, A), (A, B) if complete else (X,))
    return Trajectory(
        task_id=task, query=query, targets=(A, B), level="I2",
        events=(
            Event(kind=EventKind.SEARCH, text="s", query="cheap room", category="Cat", hits=hits[0]),
            Event(kind=EventKind.SEARCH, text="s", query=EVIL, hits=hits[1]),
            Event(kind=EventKind.ANSWER, text="a") if complete else Event(kind=EventKind.MALFORMED_CALL, text=EVIL),
        ),
        selection=(A, X, U) if complete else None, unknown_names=("no such",) if complete else (),
        stop_reason=StopReason.ANSWERED if complete else StopReason.TURN_LIMIT,
    )  # fmt: skip


def credited(step: int, group: int, rollout: int) -> dict[str, Any]:
    complete = rollout == 0
    return CreditedTrajectory(
        group=group, rollout=rollout, trajectory=trajectory(f"task-{group}", "Please. " * 40, complete=complete),
        rewards={"selection": 0.5, "format": 0.1} if complete else {"selection": 0.0, "format": 0.0},
        advantages=[0.0, 0.707, -0.5], keep=[False, complete, True], z=[0.0, 0.707 if complete else -0.707],
    ).row(step)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "rl").mkdir()
    rows = [credited(step, group, rollout) for step in (0, 5) for group in (0, 1) for rollout in (0, 1)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "rl" / "trajectories.jsonl").write_text(text + '{"step": 5, "cut', encoding="utf-8")
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *argv: Any) -> list[str]:
    assert show.main([str(word) for word in argv]) == 0
    return capsys.readouterr().out.splitlines()


def test_the_list(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, run)
    assert [line.split()[:8] for line in lines[1:]] == [
        # step, group, n, reward (.6 + 0)/2, F1 (2*1/(4+2) + 0)/2, SRecall (1 + .5)/2, answered, targets
        [step, group, "2", "0.30", "0.17", "0.75", "1", "2"] for step in "05" for group in "12"
    ]  # fmt: skip
    assert said(capsys, run, "--step", 5) == [lines[0], *lines[3:]]
    assert said(capsys, run / "rl") == lines == said(capsys, run / "rl" / "trajectories.jsonl")
    show.main([str(run)])
    assert "1 lines" in capsys.readouterr().err  # the half line of a killed run is told, apart from the table


def test_one_group(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [" ".join(line.split()) for line in said(capsys, run, "--step", 5, "--group", 2)]
    assert lines[0] == "step 5, group 2: task task-1, level I2, 2 rollouts"
    assert "target 1 Cat.tool.first found by 2 of 2" in lines and "target 2 Cat.tool.second found by 1 of 2" in lines
    assert "z +0.71 where a rollout found it, -0.71 where a rollout did not" in lines
    first = lines[lines.index("rollout 1 complete search, wrong selection F1 0.33, stop: answered") :]
    assert first[1] == "reward 0.60 = selection 0.50 + format 0.10"
    assert first[2:5] == ["1 search “cheap room” in Cat +0.00 removed", "- Cat.tool.other", "* Cat.tool.first"]
    assert first[5].startswith("2 search “") and first[5].endswith("” +0.71 kept")
    assert first[6:8] == ["+ Cat.tool.first", "* Cat.tool.second"]
    assert first[8:14] == [
        "3 answer -0.50 kept", "+ Cat.tool.first", "- Cat.tool.other", "! Cat.tool.unseen", "? no such",
        "missing: Cat.tool.second",
    ]  # fmt: skip
    second = first[15:]
    assert second[0] == "rollout 2 incomplete search F1 0.00, stop: turn limit"
    assert "- Cat.tool.other (shown before)" in second and "3 malformed call -0.50 kept" in second
    one = said(capsys, run, "--step", 5, "--group", 2, "--rollout", 2)
    assert any("rollout 2" in line for line in one) and not any("rollout 1 " in line for line in one)
    assert any("found by 1 of 2" in line for line in one)  # of the whole group


def test_hostile_text_and_narrow_terminals(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for width in (80, 40):
        for argv in ((run,), (run, "--step", 0, "--group", 1), (run, "--task", "task-0")):
            lines = said(capsys, *argv, "--width", width)
            assert lines and max(map(len, lines)) <= width
            assert not [c for line in lines for c in line if ord(c) < 32 or c == "\u202e"]
    assert "[red]<script>" in "".join(lines)  # shown, neither obeyed nor eaten as markup


def test_predictions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [trajectory(f"t{i}", f"request {i}", complete=i == 1) for i in range(3)]
    (tmp_path / "predictions.jsonl").write_text("".join(r.model_dump_json() + "\n" for r in rows) + "{}\n")
    lines = said(capsys, tmp_path)
    assert [line.split()[:8] for line in lines[1:]] == [
        ["0", "1", "1", "-", "0.00", "0.50", "0", "2"],
        ["0", "2", "1", "-", "0.33", "1.00", "1", "2"],
        ["0", "3", "1", "-", "0.00", "0.50", "0", "2"],
    ]  # fmt: skip
    shown = said(capsys, tmp_path, "--group", 2)
    assert any("task t1" in line for line in shown) and not any("kept" in line or "reward" in line for line in shown)
    assert said(capsys, tmp_path, "--task", "t1") == shown


def test_bad_use(run: Path, tmp_path: Path) -> None:
    for argv, words in (
        ([], "no run folder"),
        ([str(run), "--step", "4"], "step 4 was not recorded; there are 0, 5"),
        ([str(run), "--group", "1"], "group 1 of which step"),
        ([str(run), "--step", "0", "--group", "3"], "group 3 was not recorded at this step; there are 1, 2"),
        ([str(run), "--step", "0", "--group", "1", "--rollout", "3"], "there are 1, 2"),
        ([str(run), "--task", "nobody"], "'nobody'"),
        ([str(run), "--html", "page.txt"], "ends in .html"),
        ([str(run), "--width", "-4"], "width must be 20 columns or more .*got -4"),
        ([str(run), "--width", "19"], "got 19"),
    ):
        with pytest.raises(ConfigError, match=words):
            show.main(argv)
    with pytest.raises(DataError, match="neither a file nor a folder"):
        show.main([str(tmp_path / "gone")])
    below = tmp_path / "eval" / "after"
    below.mkdir(parents=True)
    (below / "predictions.jsonl").write_text("not json\n\n{}\n")
    with pytest.raises(DataError, match=r"there are after/predictions\.jsonl: name one"):
        show.main([str(tmp_path / "eval")])
    with pytest.raises(DataError, match="none of its 2 lines"):
        show.main([str(below)])


def test_the_end_of_a_recording_is_told(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorder = TrajectoryRecorder(run / "rl" / "trajectories.jsonl", every=1, max_mb=1e-6)
    recorder.record(9, [credited(9, 0, 0)])
    capsys.readouterr()
    show.main([str(run)])
    assert "recording ended at step 9" in capsys.readouterr().err


def test_page(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert show.main([str(run), "--html", str(page), "--dry_run"]) == 0 and not page.exists()
    said(capsys, run, "--html", page)
    text = page.read_text(encoding="utf-8")
    assert "2 steps, 8 rollouts" in text and "Cat.tool.second" in text and "<script>\u202e" not in text


def test_pipe_that_closes_early(run: Path) -> None:
    command = f"{sys.executable} -m rl.show {run} --step 0 --group 1 | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    assert done.stdout.startswith("step 0, group 1") and "Traceback" not in done.stderr
