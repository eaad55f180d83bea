"""Alarms: when they are raised, once per episode, what they say, and that a resumed run says the same."""

import itertools
import json
import random
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from autotools.errors import ConfigError
from autotools.rundir import read_jsonl
from rl import train
from rl.alarm_rules import RULES, AlarmOptions
from rl.alarms import Alarm, AlarmMonitor, replay

FINE = {
    "answered": 1.0, "searches_at_limit": 0.1, "srecall": 0.5,
    "frac_reward_zero_std": 0.2, "zero_call": 0.0, "fault_share": 0.02,
    "credit/kept_token_share": 0.4, "truncated": 0.0, "kl": 0.01, "sampling/sampling_logp_difference/mean": 0.01,
    "clip_ratio/region_mean": 0.0, "dropped_share": 0.0, "outside_corpus": 0.0, "grad_norm": 1.0,
}  # fmt: skip
BAD = {  # a value beyond each rule's threshold, but for those that compare with the best mean
    "answered": 0.79, "searches_at_limit": 0.51, "srecall": 0.09,
    "frac_reward_zero_std": 0.81, "zero_call": 0.21, "fault_share": 0.21,
    "credit/kept_token_share": 0.019, "truncated": 0.11, "kl": 0.51, "sampling/sampling_logp_difference/mean": 0.11,
    "clip_ratio/region_mean": 0.31, "dropped_share": 0.01, "outside_corpus": 0.001, "grad_norm": float("nan"),
}  # fmt: skip


def feed(options: AlarmOptions, series: list[dict[str, Any]], tasks: Any = None) -> list[Alarm]:
    monitor = AlarmMonitor(options)
    return list(itertools.chain.from_iterable(monitor.update(i, row, tasks) for i, row in enumerate(series, 1)))


def steps(options: AlarmOptions, name: str, metric: str, values: list[Any]) -> list[int]:
    return [a.step for a in feed(options, [{metric: value} for value in values]) if a.name == name]


def test_a_good_run_raises_nothing() -> None:
    assert feed(AlarmOptions(), [FINE] * 50) == []


@pytest.mark.parametrize("rule", [r for r in RULES if r.side not in ("rise", "fall")], ids=lambda r: r.name)
def test_each_threshold_raises_its_own_alarm_once(rule: Any) -> None:
    raised = feed(AlarmOptions(), [{**FINE, rule.metric: BAD[rule.metric]}] * 20, {rule.metric: list("abcdefgh")})
    assert [(a.name, a.step) for a in raised] == [(rule.name, 1 if rule.at_once else 5)]
    alarm = raised[0]
    assert alarm.tasks == list("abcde") and alarm.metric == rule.metric
    line = alarm.line()
    assert "\n" not in line and rule.meaning in line and rule.advice in line and "a, b, c, d, e" in line
    json.dumps(alarm.value)


def test_the_mean_of_the_window_decides_not_a_single_step() -> None:
    options = AlarmOptions(window=4)
    # means of four from the fourth value on: .85, .8, .75 - the limit itself is fine
    assert steps(options, "answered", "answered", [1, 1, 1, 0.4, 0.8, 0.8]) == [6]
    assert steps(options, "answered", "answered", [0, 0, 0]) == []  # not yet a whole window
    assert steps(options, "answered", "answered", [0, None, 0, 0, None, 0]) == [6]  # a missing value is no value


def test_an_episode_is_told_once_and_the_next_one_again() -> None:
    options = AlarmOptions(window=2)
    low_then_high = [0.5, 0.5, 0.5, 1, 1, 0.5, 0.5, 1, 1, 1, 1, 0.5, 0.5]
    # means: .5 .5 .75 1 .75 .5 .75 1 1 1 .75 .5 -> quiet for two steps only before step 12
    assert steps(options, "answered", "answered", low_then_high) == [2, 12]


def test_fall_and_rise_compare_with_the_best_mean() -> None:
    options = AlarmOptions(window=2, answered=0.0, answered_fall=0.15, faults=1.0, faults_rise=0.1)
    assert steps(options, "answered_falls", "answered", [0.6, 0.6, 0.9, 0.9, 0.8, 0.7, 0.7]) == [7]  # .9 -> .7
    assert steps(options, "answered_falls", "answered", [0.6, 0.55, 0.5, 0.5]) == []  # low, but never well above
    assert steps(options, "faults_rise", "fault_share", [0.3, 0.1, 0.1, 0.2, 0.3]) == [5]  # lowest mean .1, now .25


def test_an_alarm_names_the_largest_kind_of_what_it_watches() -> None:
    kinds = {"faults/over_limit": 0.25, "faults/truncated": 0.1, "stop/answered": 0.5, "stop/turn_limit": "0.3"}
    raised = feed(AlarmOptions(window=1), [{"answered": 0.5, "fault_share": 0.35, "kl": 9.0, **kinds}])
    said = {a.name: a.line() for a in raised}
    assert "(mostly over_limit, 0.25 at this step)" in said["faults"]
    assert "(mostly turn_limit, 0.3 at this step)" in said["answered"]  # not the share that did answer
    assert said.keys() == {"faults", "answered", "kl"} and "mostly" not in said["kl"]
    nothing = feed(AlarmOptions(window=1), [{"answered": 0.5, "stop/answered": 0.5, "stop/turn_limit": 0.0}])
    assert "mostly" not in nothing[0].line()


def test_a_value_that_is_no_number() -> None:
    options = AlarmOptions()
    for text in ("nan", "inf", float("inf")):  # metrics.jsonl holds such a number as text
        assert steps(options, "no_number", "grad_norm", [1.0, text, text, 1.0, text]) == [2, 5]
    assert steps(options, "kl", "kl", ["nan"] * 9) == []
    assert steps(options, "answered", "answered", ["none", True, 0.1, 0.1, 0.1, 0.1, 0.1]) == [6]
    assert feed(options, [{"grad_norm": float("nan")}])[0].value is None


def test_options() -> None:
    assert feed(AlarmOptions(off=["answered"]), [{"answered": 0.0}] * 9) == []
    with pytest.raises(ConfigError, match="'anwsered'; known: answered"):
        AlarmOptions(off=["anwsered"])
    with pytest.raises(ConfigError, match="alarms.window is 0"):
        AlarmOptions(window=0)
    shares = {rule.option for rule in RULES if rule.option} - {"kl", "drift"}
    for option in shares:
        AlarmOptions(**{option: 0}), AlarmOptions(**{option: 1})
        for value in (-0.1, 1.1):
            with pytest.raises(ConfigError, match=f"alarms.{option} is {value}; it is a share, from 0 to 1"):
                AlarmOptions(**{option: value})
    AlarmOptions(kl=3.0, drift=2.0)
    for option in ("kl", "drift"):
        with pytest.raises(ConfigError, match=f"alarms.{option} is -1; it must be 0 or more"):
            AlarmOptions(**{option: -1})
    names = {f.name for f in fields(AlarmOptions)} - {"window", "off"}
    assert names == {rule.option for rule in RULES} - {""}  # no threshold without a rule, no rule without one
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_a_resumed_run_says_what_an_unbroken_one_says(tmp_path: Path) -> None:
    rng = random.Random(0)
    rows = [{"step": i, **{k: rng.choice([v, BAD[k]]) for k, v in FINE.items()}} for i in range(1, 61)]
    options = AlarmOptions(window=2)
    monitor = AlarmMonitor(options)
    whole = [alarm for row in rows for alarm in monitor.update(row["step"], row)]
    assert len(whole) > 20 and len({alarm.name for alarm in whole}) > 5
    for step in (1, 17, 40):
        lines = [json.dumps({**row, "grad_norm": str(row["grad_norm"])}) + "\n" for row in rows[: step + 5]]
        (tmp_path / "metrics.jsonl").write_text("".join(lines))
        written = [json.dumps({"step": a.step, "name": a.name}) + "\n" for a in whole if a.step <= step + 5]
        (tmp_path / "alarms.jsonl").write_text("".join(written))
        again = AlarmMonitor(options)
        replay(tmp_path, again, step)
        later = [alarm for row in rows[step:] for alarm in again.update(row["step"], row)]
        assert later == [alarm for alarm in whole if alarm.step > step]
        assert [r["step"] for r in read_jsonl(tmp_path / "alarms.jsonl")] == [a.step for a in whole if a.step <= step]


def test_a_run_writes_and_says_its_alarms(
    small_world: Path, rl_argv: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The untrained model neither calls nor answers: with a window of 1 that is told at the first step."""
    argv = rl_argv(small_world, tmp_path / "run", alarms__window=1, alarms__off="truncated")
    assert train.main(argv) == 0
    alarms = read_jsonl(tmp_path / "run" / "alarms.jsonl")
    named = {row["name"]: row for row in alarms}
    assert named["answered"]["step"] == 1 and named["answered"]["value"] < 0.8 and "truncated" not in named
    assert named["answered"]["tasks"] and all(task.startswith("p") for task in named["answered"]["tasks"])
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("alarm ")]
    assert len(said) == len(alarms) and said[0].startswith(f"alarm {alarms[0]['name']}, step 1: ")
    metrics = read_jsonl(tmp_path / "run" / "metrics.jsonl")[0]
    assert {"turn/1/searches", "groups/no_gradient", "credit/hist/0", "stop/truncated_turn"} <= metrics.keys()
