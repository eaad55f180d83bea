"""``python -m rl.credit``: the reference file through the command itself, presets, and one clear line for bad input."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotools.errors import ConfigError, DataError
from rl.credit_command import main
from rl.credit_options import PAPER, PRESETS, REFERENCE, CreditOptions, preset

ROOT = Path(__file__).resolve().parents[2]


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rl.credit", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


def group(**changes: Any) -> dict[str, Any]:
    rollouts = [
        {"events": [["c.t.a", "c.t.x"]], "answered": True, "selection_reward": 1.0},
        {"events": [["c.t.x"], []], "answered": False, "selection_reward": 0.0},
    ]
    return {"id": "g7", "targets": ["c.t.a"], "rollouts": rollouts} | changes


def written(folder: Path, content: Any) -> Path:
    path = folder / "groups.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.shared
def test_the_command_gives_the_reference_numbers(shared_data: Path) -> None:
    path = shared_data / "credit_vectors.json"
    done = run(path, "--preset", "reference")
    assert done.returncode == 0 and done.stderr == ""
    printed, groups = json.loads(done.stdout), json.loads(path.read_text(encoding="utf-8"))["groups"]
    assert len(printed) == len(groups) == 120
    for ours, theirs in zip(printed, groups, strict=True):
        assert ours["id"] == theirs["id"] and len(ours["rollouts"]) == len(theirs["expected"])
        for mine, want in zip(ours["rollouts"], theirs["expected"], strict=True):
            assert mine["advantages"] == pytest.approx(want["advantages"], abs=1e-4)
            assert mine["mask"] == want["mask"]


@pytest.mark.shared
def test_every_other_preset_differs_on_that_file(shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = {}
    for name in PRESETS:
        assert main([str(shared_data / "credit_vectors.json"), "--preset", name]) == 0
        out[name] = capsys.readouterr().out
    assert "-0.0," not in out["reference"]
    assert len(set(out.values())) == len(PRESETS)


@pytest.mark.parametrize(("name", "useless"), [("paper", (0.0, 0)), ("ours", (-0.1, 1))])
def test_a_group_by_hand(
    name: str, useless: tuple[float, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # one of two finds the target: z = +-0.5 / 0.7071; the same for the rewards
    path = written(tmp_path, [group()])
    assert main([str(path), "--preset", name]) == 0
    (printed,) = json.loads(capsys.readouterr().out)
    first, second = printed["rollouts"]
    assert printed["id"] == "g7" and set(printed) == {"id", "rollouts"} and set(first) == {"advantages", "mask"}
    assert first == {"advantages": pytest.approx([0.7071, 0.7071], abs=1e-4), "mask": [1, 1]}
    value, kept = useless
    assert second == {"advantages": [value, value], "mask": [kept, kept]}


def test_presets() -> None:
    assert preset("ours") == CreditOptions() == replace(PAPER, useless_cost=0.1)
    assert preset("reference") == REFERENCE != PAPER == preset("paper")
    assert (REFERENCE.incomplete_selection, REFERENCE.mastered) == ("zero", "zero")
    assert preset("no_esm").esm is False and preset("no_tca").tca is False
    with pytest.raises(ConfigError, match="unknown credit preset 'refrence'; did you mean 'reference'"):
        preset("refrence")
    with pytest.raises(ConfigError, match="known: ours, paper, reference, no_esm, no_tca"):
        preset("zzz")


def test_a_target_named_twice_counts_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two = ["c.t.a", "c.t.b"]
    twice = written(tmp_path, [group(targets=[two[0], two[0], two[1]])])
    assert main([str(twice)]) == 0
    got = capsys.readouterr()
    assert got.err == f"warning: {twice}: group 'g7': target 'c.t.a' is listed more than once; it counts once\n"
    assert main([str(written(tmp_path, [group(targets=two)]))]) == 0
    assert capsys.readouterr().out == got.out


def test_dry_run_counts_and_prints_no_credit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(written(tmp_path, {"groups": [group()]})), "--dry_run"]) == 0
    assert "2 rollouts in 1 groups" in capsys.readouterr().out


def rollout(**changes: Any) -> dict[str, Any]:
    good = {"events": [["c.t.a"]], "answered": True, "selection_reward": 1.0} | changes
    return group(rollouts=[{key: value for key, value in good.items() if value != "missing"}])


BAD_GROUPS = {  # what is wrong -> (group, words of the line)
    "no object": (["x"], "group 0: expected an object"),
    "no id": ({k: v for k, v in group().items() if k != "id"}, "group 0: key 'id' is missing"),
    "no targets key": ({k: v for k, v in group().items() if k != "targets"}, "group 'g7': key 'targets' is missing"),
    "no targets": (group(targets=[]), "group 'g7': it has no targets"),
    "targets as text": (group(targets="c.t.a"), "group 'g7': targets must be a list of names, found 'c.t.a'"),
    "no rollouts": (group(rollouts=[]), "group 'g7': it has no rollouts"),
    "NaN": (rollout(selection_reward=float("nan")), "group 'g7', rollout 0: selection_reward must be a finite"),
    "infinity": (rollout(selection_reward=float("inf")), "group 'g7', rollout 0: selection_reward must be a finite"),
    "huge": (rollout(selection_reward=10**400), "group 'g7', rollout 0: selection_reward must be a finite"),
    "reward as bool": (rollout(selection_reward=True), "selection_reward must be a finite number, found True"),
    "no reward": (rollout(selection_reward="missing"), "group 'g7', rollout 0: key 'selection_reward' is missing"),
    "no events": (rollout(events="missing"), "group 'g7', rollout 0: key 'events' is missing"),
    "an event that is no list": (rollout(events=["c.t.a"]), "rollout 0: event 0 must be a list of names"),
    "a number as name": (rollout(events=[[], [3]]), "rollout 0: event 1 must be a list of names, found [3]"),
    "answered as text": (rollout(answered="yes"), "group 'g7', rollout 0: answered must be true or false"),
}


@pytest.mark.parametrize("what", BAD_GROUPS)
def test_a_bad_group_is_one_line_that_names_it(what: str, tmp_path: Path) -> None:
    bad, words = BAD_GROUPS[what]
    path = written(tmp_path, {"groups": [bad]})
    with pytest.raises(DataError) as error:
        main([str(path)])
    assert words in str(error.value) and str(error.value).startswith(f"{path}: group ")
    assert "\n" not in str(error.value) and len(str(error.value)) < len(str(path)) + 200


BAD_FILES = {"": "not a JSON file", "[1, 2": "not a JSON file", "3": "expected a list of groups", "[]": "no groups"}


@pytest.mark.parametrize("content", BAD_FILES)
def test_a_bad_file(content: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=BAD_FILES[content]):
        main([str(written(tmp_path, content))])


def test_ids_are_distinct_and_files_exist(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="group 'g7': the id stands twice"):
        main([str(written(tmp_path, [group(), group()]))])
    with pytest.raises(DataError, match="no such file"):
        main([str(tmp_path / "nothing.json")])


def test_errors_of_the_command_are_one_line_and_exit_2(tmp_path: Path) -> None:
    done = run(written(tmp_path, [group(targets=[])]))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert done.stderr.startswith("error: ") and "'g7'" in done.stderr
