"""The report's list of alarms: what the RL stage wrote, nothing where nobody watched, and hostile text as text."""

import json
from pathlib import Path

import pytest

from evaluation.report import main

EVIL = "<b>x</b>|`\x1b[2J"
ALARM = {
    "step": 17, "name": "answered", "metric": "answered", "side": "below", "value": 0.618, "threshold": 0.8,
    "window": 5, "meaning": "sampled rollouts stop answering", "advice": "a counterweight", "tasks": ["t1", EVIL],
}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "rl").mkdir()
    return tmp_path


def texts(run: Path) -> tuple[str, str]:
    assert main([str(run)]) == 0
    return (run / "report.html").read_text(encoding="utf-8"), (run / "report.md").read_text(encoding="utf-8")


def test_an_alarm_is_shown_with_its_numbers_and_tasks(run: Path) -> None:
    broken = {**ALARM, "step": 30, "name": "no_number", "value": None, "threshold": None, "tasks": []}
    lines = [json.dumps(row) for row in (ALARM, broken, {"step": "x"}, {**ALARM, "value": "much"})]
    (run / "rl" / "alarms.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    page, text = texts(run)
    for shown in (page, text):
        assert "0.618" in shown and "0.80" in shown and "sampled rollouts stop answering" in shown
        assert "a counterweight" in shown and "t1" in shown and "much" not in shown
    assert "<b>x</b>" not in page and "\x1b" not in text
    assert "step 17, answered" in text and "step 30, no_number" in text and "None was raised" not in page + text


def test_no_alarm_and_nobody_watching_are_different_things(run: Path) -> None:
    page, text = texts(run)
    assert "Alarms" not in page and "Alarms" not in text
    (run / "rl" / "alarms.jsonl").write_text("", encoding="utf-8")
    page, text = texts(run)
    assert "None was raised" in page and "None was raised" in text
