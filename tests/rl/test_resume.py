"""A killed RL run that is resumed ends bit by bit like one that was never stopped.

The curriculum switches at step 5 of 8, so runs are killed before, at and after the switch.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotools.rundir import read_jsonl
from rl import train
from training.runtime import find_checkpoint

Argv = Callable[..., list[str]]
KEYS = {"max_steps": 8, "save_strategy": "steps", "save_steps": 2, "save_total_limit": 2}  # a pass has 3 steps
KEYS |= {"curriculum__mode": "enforce", "curriculum__fraction": 0.6}
KEYS |= {"credit__unanswered_cost": 0.5}  # an untrained policy never answers: without a cost its weights would not move
ROOT = Path(__file__).resolve().parents[2]


def rows(out: Path) -> list[dict[str, Any]]:
    """Metrics without wall times."""
    timed = ("time", "runtime", "per_second")
    return [{k: v for k, v in row.items() if not k.endswith(timed)} for row in read_jsonl(out / "metrics.jsonl")]


def same_weights(a: Path, b: Path) -> bool:
    from safetensors.torch import load_file

    left, right = (load_file(folder / "model.safetensors") for folder in (a, b))
    return left.keys() == right.keys() and all((left[name] == right[name]).all() for name in left)


@pytest.fixture(scope="module")
def finished(small_world: Path, rl_argv: Argv, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("rl") / "run"
    assert train.main(rl_argv(small_world, out, **KEYS)) == 0
    return out


def test_every_step_moves_the_weights(finished: Path, small_world: Path) -> None:
    """Else a resumption that forgot weights or optimiser would not show."""
    assert all(row["grad_norm"] > 1e-3 for row in rows(finished) if "reward" in row)
    assert not same_weights(finished, small_world / "model")
    assert not same_weights(finished, finished / "checkpoint-6")


def test_metrics_and_trajectories_know_their_phase(finished: Path) -> None:
    phases = [row["curriculum/phase"] for row in rows(finished) if "reward" in row]
    assert phases == [1.0] * 5 + [2.0] * 3
    recorded = read_jsonl(finished / "trajectories.jsonl")
    assert all(row["trajectory"]["meta"]["phase"] == (1 if row["step"] < 5 else 2) for row in recorded)
    state = json.loads((finished / "checkpoint-6" / "trainer_state.json").read_text())["stateful_callbacks"]
    saved = {"mode": "enforce", "fraction": 0.6, "total_steps": 8, "phase": 2}
    assert state["curriculum"]["attributes"] == saved


class Killed(BaseException):
    """Stands for SIGKILL: no handler of ours or of TRL's may catch it."""


@pytest.mark.parametrize(
    ("step", "resumed_from"),
    [(1, None), (5, 4), (6, 4), (7, 6)],
    ids=["before any checkpoint", "in the second pass", "while writing a checkpoint", "in the third pass"],
)
def test_resumed_run_equals_the_unbroken_one(
    step: int,
    resumed_from: int | None,
    finished: Path,
    small_world: Path,
    rl_argv: Argv,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from rl.trainer import ToolSearchTrainer

    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        if step % 2:
            generate = ToolSearchTrainer._generate_and_score_completions

            def stop(self: Any, inputs: Any) -> Any:
                if self.state.global_step == step:
                    raise Killed
                return generate(self, inputs)

            patch.setattr(ToolSearchTrainer, "_generate_and_score_completions", stop)
        else:
            save = ToolSearchTrainer._save_rng_state

            def stop_saving(self: Any, folder: str) -> None:
                if self.state.global_step == step:
                    raise Killed
                save(self, folder)

            patch.setattr(ToolSearchTrainer, "_save_rng_state", stop_saving)
        with pytest.raises(Killed):
            train.main(rl_argv(small_world, out, **KEYS))
    with (out / "trajectories.jsonl").open("a") as file:
        file.write('{"step": 99, "trajec')  # a kill may cut a line off
    found = find_checkpoint(out)
    assert (found and int(found.rpartition("-")[2])) == resumed_from
    assert train.main([*rl_argv(small_world, out, **KEYS), "--resume", "true"]) == 0
    check_equal(out, finished)


def check_equal(out: Path, finished: Path) -> None:
    assert same_weights(out, finished)
    assert rows(out) == rows(finished)
    assert read_jsonl(out / "trajectories.jsonl") == read_jsonl(finished / "trajectories.jsonl")
    assert read_jsonl(out / "alarms.jsonl") == read_jsonl(finished / "alarms.jsonl")
    assert (out / "manifest.json").read_bytes() == (finished / "manifest.json").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [{"lora__r": 2, "beta": 0.05}, {"beta": 0.05}, {"num_iterations": 2}], ids=["adapter", "reference", "reuse"]
)
def test_resumption_of_other_kinds_of_runs(
    more: dict[str, Any], small_world: Path, rl_argv: Argv, tmp_path: Path, killed_at: Callable[[int], Any]
) -> None:
    """Adapters (their reference is the model without them), a reference model, two updates per generation."""
    from safetensors.torch import load_file

    keys = {**KEYS, "max_steps": 4, **more}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert train.main(rl_argv(small_world, whole, **keys)) == 0
    with killed_at(3):
        train.main(rl_argv(small_world, broken, **keys))
    assert (find_checkpoint(broken) or "").endswith("checkpoint-2")
    assert train.main([*rl_argv(small_world, broken, **keys), "--resume", "true"]) == 0
    assert rows(broken) == rows(whole)
    name = "adapter_model.safetensors" if "lora__r" in more else "model.safetensors"
    left, right = (load_file(folder / name) for folder in (whole, broken))
    assert left.keys() == right.keys() and all((left[key] == right[key]).all() for key in left)


def test_another_curriculum_is_refused_by_its_name(finished: Path, small_world: Path, rl_argv: Argv) -> None:
    from autotools.errors import RunFolderError

    argv = rl_argv(small_world, finished, **{**KEYS, "curriculum__fraction": 0.5})
    with pytest.raises(RunFolderError, match=r"config differs in \[curriculum.fraction\]"):
        train.main([*argv, "--resume", "true"])


@pytest.mark.slow
def test_kill_9_at_ten_random_moments(finished: Path, small_world: Path, rl_argv: Argv, tmp_path: Path) -> None:
    """SIGKILL from outside after random whiles, in both phases of the curriculum; whatever is resumed to its end equals
    the run that never stopped."""
    rng, out, kills, ends = random.Random(0), tmp_path / "run", Counter[str](), 0
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "rl/train.py", *rl_argv(small_world, out, **KEYS), "--resume", "true"]
    while True:
        enough = kills.total() >= 10 and len(kills) == 2
        assert kills.total() < 30, kills
        with (tmp_path / "said").open("w") as said:
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=said, stderr=said)
            seen, since = size_of_metrics(out), time.monotonic()
            # Most of a start is imports: the random while begins when this try changes the metrics.
            while process.poll() is None and size_of_metrics(out) == seen and time.monotonic() - since < 120:
                time.sleep(0.02)
            until = time.monotonic() + (300 if enough else rng.uniform(0, 0.7))
            while process.poll() is None and time.monotonic() < until:
                time.sleep(0.02)
            process.kill()
        assert process.wait() in (0, -9), (tmp_path / "said").read_text()[-3000:]
        if process.returncode == 0:
            check_equal(out, finished)
            ends += 1
            if enough:
                break
            shutil.rmtree(out)
        else:
            path = out / "metrics.jsonl"  # its last line may be half
            kills["before" if not path.is_file() or path.read_text().count('"reward":') < 5 else "after"] += 1
    print(f"kills {dict(kills)} the curriculum's switch; runs that ended as the unbroken one: {ends}")


def size_of_metrics(out: Path) -> int:
    """Bytes of the metrics: any change means that a step was logged, or that a resumption has rewound."""
    path = out / "metrics.jsonl"
    return path.stat().st_size if path.is_file() else 0


def test_killed_after_the_last_step(finished: Path, small_world: Path, rl_argv: Argv, tmp_path: Path) -> None:
    """The last checkpoint is not used: Transformers would train a ninth step from it."""
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    saved = json.loads((out / "run_config.json").read_text())
    (out / "run_config.json").write_text(json.dumps({**saved, "output_dir": str(out)}))
    (out / "manifest.json").unlink()
    (out / "model.safetensors").write_bytes(b"half")
    assert {p.name for p in out.glob("checkpoint-*")} == {"checkpoint-6", "checkpoint-8"}
    assert train.main([*rl_argv(small_world, out, **KEYS), "--resume", "true"]) == 0
    assert same_weights(out, finished) and rows(out) == rows(finished)
    assert (out / "manifest.json").read_bytes() == (finished / "manifest.json").read_bytes()


@pytest.mark.parametrize(
    ("keys", "warned"),
    [({}, False), ({"num_iterations": 2}, False), ({"num_iterations": 2, "save_steps": 3}, True),
     ({"steps_per_generation": 3}, True), ({"num_iterations": 2, "save_steps": 3, "save_strategy": "no"}, False)],
)  # fmt: skip
def test_checkpoints_between_generations_are_warned_of(
    keys: dict[str, Any], warned: bool, small_world: Path, rl_argv: Argv, tmp_path: Path
) -> None:
    from autotools.config import load_config
    from rl.run import _saves_inside_a_generation, trainer_config

    argv = rl_argv(small_world, tmp_path, **{**KEYS, **keys})
    config = load_config(argv, train.SECTIONS, prog="test", description="")
    assert _saves_inside_a_generation(trainer_config(config)) is warned


def test_a_complete_run_is_left_alone(
    finished: Path, small_world: Path, rl_argv: Argv, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {p: p.stat().st_mtime_ns for p in finished.rglob("*") if p.is_file() and p.name != "run.json"}
    assert train.main([*rl_argv(small_world, finished, **KEYS), "--resume", "true"]) == 0
    assert "complete already" in capsys.readouterr().out
    assert {p: p.stat().st_mtime_ns for p in finished.rglob("*") if p.is_file() and p.name != "run.json"} == before
