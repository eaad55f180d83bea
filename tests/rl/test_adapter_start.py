"""RL from an adapter: its weights are the start and the reference; a killed run goes on as if nothing had happened."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotools.errors import ConfigError
from autotools.rundir import read_jsonl
from rl import train

Argv = Callable[..., list[str]]
SHAPE = {"lora__r": 2, "lora__alpha": 8, "credit__unanswered_cost": 0.5}


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / "adapter_model.safetensors")


@pytest.fixture(scope="module")
def adapter(small_world: Path, strong_adapter: Callable[[Path], Path]) -> Path:
    return strong_adapter(small_world / "model")


def test_the_adapter_is_the_start(small_world: Path, rl_argv: Argv, adapter: Path, tmp_path: Path) -> None:
    """A step of learning rate 0 gives it back to the bit, and its rollouts are not those of the base model."""
    keys = {**SHAPE, "max_steps": 1, "learning_rate": 0, "lr_scheduler_type": "constant"}
    assert train.main(rl_argv(small_world, tmp_path / "a", model=adapter, **keys)) == 0
    assert train.main(rl_argv(small_world, tmp_path / "base", **keys)) == 0
    first, after = weights(adapter), weights(tmp_path / "a")
    assert first.keys() == after.keys() and all(after[name].equal(first[name]) for name in first)
    said = []
    for run in ("a", "base"):
        rows = read_jsonl(tmp_path / run / "trajectories.jsonl")
        said.append([event["text"] for row in rows for event in row["trajectory"]["events"]])
    assert said[0] != said[1]


def test_the_reference_is_the_adapter_too_also_after_a_resumption(
    small_world: Path, rl_argv: Argv, adapter: Path, tmp_path: Path, killed_at: Callable[[int], Any]
) -> None:
    keys = {**SHAPE, "max_steps": 3, "beta": 0.05, "learning_rate": 0.05, "save_strategy": "steps", "save_steps": 1}
    out = tmp_path / "whole"
    assert train.main(rl_argv(small_world, out, model=adapter, **keys)) == 0
    steps = [row for row in read_jsonl(out / "metrics.jsonl") if "kl" in row]
    assert steps[0]["kl"] == pytest.approx(0, abs=1e-6) and steps[2]["kl"] > 1e-4
    again = tmp_path / "again"
    with killed_at(2):
        train.main(rl_argv(small_world, again, model=adapter, **keys))
    assert train.main([*rl_argv(small_world, again, model=adapter, **keys), "--resume", "true"]) == 0
    assert not (again / "ref").exists()
    one, two = weights(out), weights(again)
    assert all(one[name].equal(two[name]) for name in one)
    resumed = [row["kl"] for row in read_jsonl(again / "metrics.jsonl") if "kl" in row]
    assert resumed == [row["kl"] for row in steps]


def test_a_plan_knows_the_base_and_refuses_another_shape(
    small_world: Path, rl_argv: Argv, adapter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = rl_argv(small_world, tmp_path / "run", model=adapter, **SHAPE)
    assert train.main([*argv, "--dry_run"]) == 0 and f"RL (toolsearcher) of {adapter}" in capsys.readouterr().out
    for more, dry in (({}, ["--dry_run"]), ({}, []), ({"lora__r": 4}, [])):
        with pytest.raises(ConfigError, match="adapter.*--lora.r 2 --lora.alpha 8"):
            train.main([*rl_argv(small_world, tmp_path / "run", model=adapter, **more), *dry])
    assert not (tmp_path / "run").exists()
