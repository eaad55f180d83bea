"""Two CPU ranks under ZeRO-3 whose rollouts end at different turns: both launchers, equal credit, and why lockstep.

The ranks' turns are scripted (``scripted_run.py``): in step 0 rank 0 answers at once while rank 1 goes to the last
turn, in step 1 the other way round. Twelve rollouts in groups of four, six per rank, so that a group straddles ranks.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotools.rundir import read_jsonl, read_manifest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("scripted_run.py")
pytestmark = pytest.mark.skipif(
    not any(shutil.which(name) for name in ("c++", "g++", "clang++")),
    reason="DeepSpeed compiles its communication op at first use, which needs a C++ compiler",
)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def launch(command: list[str], log: Path, timeout_s: float, **env: str) -> tuple[int | None, str]:
    """Exit code (None: still running after ``timeout_s``, so all its processes were killed) and output."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **env}
    environment.pop("RANK", None)
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT)
        family = psutil.Process(process.pid)
        try:
            code: int | None = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            alive = [family, *family.children(recursive=True)] if process.poll() is None else []
            for member in alive:
                try:
                    member.kill()
                except psutil.NoSuchProcess:
                    continue
            process.wait()
    return code, log.read_text(errors="replace")


def accelerate(words: list[str]) -> list[str]:
    config = "configs/accelerate/zero3_cpu.yaml"
    start = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", config]
    return [*start, "--main_process_port", str(free_port()), str(SCRIPT), *words]


def deepspeed(words: list[str]) -> list[str]:
    start = [sys.executable, str(Path(sys.executable).with_name("deepspeed")), "--num_gpus", "2"]
    config = ["--deepspeed", "configs/deepspeed/zero3_cpu.json"]
    return [*start, "--master_port", str(free_port()), str(SCRIPT), *words, *config]


def one_process(words: list[str]) -> list[str]:
    return [sys.executable, str(SCRIPT), *words]


def credits(folder: Path, step: int, ranks: int) -> dict[str, list[Any]]:
    """The step's dumps, joined in the order of the ranks."""
    parts = [json.loads((folder / f"step{step}-rank{rank}.json").read_text()) for rank in range(ranks)]
    return {key: [row for part in parts for row in part[key]] for key in parts[0]}


@pytest.fixture(scope="module")
def alone(
    small_world: Path, rl_argv: Callable[..., list[str]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[dict[str, Any]]]:
    """The same scripted rollouts on one rank: folder of its credit dumps, and its metrics."""
    folder = tmp_path_factory.mktemp("alone")
    words = rl_argv(small_world, folder / "run")
    code, output = launch(one_process(words), folder / "log", 240, SCRIPT_DUMP=str(folder))
    assert code == 0, output[-3000:]
    return folder, read_jsonl(folder / "run" / "metrics.jsonl")


def check_two_ranks(
    launcher: Callable[[list[str]], list[str]],
    world: Path,
    rl_argv: Callable[..., list[str]],
    folder: Path,
    alone: tuple[Path, list[dict[str, Any]]],
) -> None:
    from transformers import AutoModelForCausalLM

    words = rl_argv(world, folder / "run", per_device_train_batch_size=6)
    code, output = launch(launcher(words), folder / "log", 300, SCRIPT_DUMP=str(folder))
    assert code == 0, output[-3000:]
    for step in range(2):
        one, two = credits(alone[0], step, 1), credits(folder, step, 2)
        assert one == two
        lengths = [len(events) for events in two["events"]]
        early, late = (lengths[:6], lengths[6:]) if step == 0 else (lengths[6:], lengths[:6])
        assert (early, late) == ([1] * 6, [4] * 6)
        assert any(a for row in two["advantages"] for a in row)
        assert two["tasks"][4] == two["tasks"][7]  # the group that straddles the ranks
    rows = [row for row in read_jsonl(folder / "run" / "metrics.jsonl") if "reward" in row]
    single = [row for row in alone[1] if "reward" in row]
    for row, want in zip(rows, single, strict=True):
        for name in ("loss", "reward", "srecall", "answered", "credit/kept_token_share", "grad_norm"):
            assert row[name] == pytest.approx(want[name], rel=1e-3, abs=1e-5), name
        figures = {name for name in want if name.partition("/")[0] in ("turn", "faults", "stop", "targets", "credit")}
        assert len(figures) > 30 and {n: row[n] for n in figures} == pytest.approx({n: want[n] for n in figures})
    # whole groups, also the one whose rollouts were played on both ranks
    both_recorded, lone_recorded = (read_jsonl(f / "run" / "trajectories.jsonl") for f in (folder, alone[0]))
    assert len(both_recorded) == 2 * 2 * 4 and both_recorded == lone_recorded
    assert read_manifest(folder / "run")["counts"]["steps"] == 2
    start = AutoModelForCausalLM.from_pretrained(world / "model").state_dict()
    both = AutoModelForCausalLM.from_pretrained(folder / "run").state_dict()
    lone = AutoModelForCausalLM.from_pretrained(alone[0] / "run").state_dict()
    assert any((start[name] != both[name]).any() for name in start)
    for name, value in lone.items():
        assert (value - both[name]).abs().max() < 1e-3, name


def test_accelerate_two_ranks_that_finish_at_different_turns(
    small_world: Path, rl_argv: Callable[..., list[str]], tmp_path: Path, alone: Any
) -> None:
    check_two_ranks(accelerate, small_world, rl_argv, tmp_path, alone)


def test_deepspeed_two_ranks_that_finish_at_different_turns(
    small_world: Path, rl_argv: Callable[..., list[str]], tmp_path: Path, alone: Any
) -> None:
    check_two_ranks(deepspeed, small_world, rl_argv, tmp_path, alone)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("launcher", [accelerate, deepspeed], ids=lambda launcher: launcher.__name__)
def test_twenty_of_twenty_runs_end(
    launcher: Callable[[list[str]], list[str]],
    number: int,
    small_world: Path,
    rl_argv: Callable[..., list[str]],
    tmp_path: Path,
) -> None:
    """Each run has a script of its own, in which the ranks end at two different turns in every one of three steps."""
    words = rl_argv(small_world, tmp_path / "run", per_device_train_batch_size=6, max_steps=3)
    code, output = launch(launcher(words), tmp_path / "log", 900, SCRIPT_DUMP=str(tmp_path), SCRIPT_SEED=str(number))
    assert code == 0, output[-3000:]
    assert read_manifest(tmp_path / "run")["counts"]["steps"] == 3
    longest = []
    for step in range(3):
        turns = [len(events) for events in credits(tmp_path, step, 2)["events"]]
        longest.append((max(turns[:6]), max(turns[6:])))
    assert all(first != second for first, second in longest)
    print(f"{launcher.__name__} {number}: longest rollouts of the two ranks by step: {longest}")


@pytest.mark.slow
def test_a_resumed_run_of_two_ranks_equals_the_unbroken_one(
    small_world: Path, rl_argv: Callable[..., list[str]], tmp_path: Path
) -> None:
    """ZeRO-3 checkpoints are in parts, one per rank: a run that lost all after its first step ends as it did before."""
    from safetensors.torch import load_file

    keys = {"per_device_train_batch_size": 6, "max_steps": 3, "save_strategy": "steps", "save_steps": 1}
    keys |= {"curriculum__mode": "enforce", "curriculum__fraction": 0.6, "beta": 0.05}
    out = tmp_path / "run"
    words = rl_argv(small_world, out, **keys)
    code, output = launch(accelerate(words), tmp_path / "log", 900)
    assert code == 0, output[-3000:]
    metrics, weights = read_jsonl(out / "metrics.jsonl"), load_file(out / "model.safetensors")
    for lost in ("checkpoint-2", "checkpoint-3"):
        shutil.rmtree(out / lost)
    (out / "manifest.json").unlink()
    code, output = launch(accelerate([*words, "--resume", "true"]), tmp_path / "log", 900)
    assert code == 0, output[-3000:]
    again, ends = read_jsonl(out / "metrics.jsonl"), load_file(out / "model.safetensors")
    steps = [[row for row in rows if "reward" in row] for rows in (metrics, again)]
    untimed = [[{k: v for k, v in row.items() if k not in ("step_time", "num_tokens")} for row in s] for s in steps]
    assert len(untimed[0]) == 3 and untimed[0] == untimed[1]
    assert all((ends[name] == value).all() for name, value in weights.items())


@pytest.mark.slow
def test_without_lockstep_the_same_run_does_not_end_well(
    small_world: Path, rl_argv: Callable[..., list[str]], tmp_path: Path
) -> None:
    """If this passes under plain TRL one day, the lockstep in rl/trainer.py can go."""
    words = rl_argv(small_world, tmp_path / "run", per_device_train_batch_size=6)
    code, output = launch(accelerate(words), tmp_path / "log", 120, SCRIPT_LOCKSTEP="0")
    assert code != 0, output[-3000:]
    assert not (tmp_path / "run" / "manifest.json").exists()
    assert code is None or "gloo" in output or "mismatch" in output or "Connection" in output, output[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [{}, {"beta": 0.1}, {"algorithm": "grpo"}, {"algorithm": "gspo"}],
    ids=["toolsearcher", "toolsearcher with KL", "grpo", "gspo"],
)
def test_gradient_of_two_ranks_is_that_of_one(
    keys: dict[str, Any], small_world: Path, rl_argv: Callable[..., list[str]], tmp_path: Path
) -> None:
    """Eight rollouts on one rank, or four on each of two (a group on each): the same mean gradient to 1e-5."""
    import torch

    script = str(Path(__file__).with_name("gradient_run.py"))
    found = {}
    for ranks in (1, 2):
        words = rl_argv(small_world, tmp_path / f"run{ranks}", per_device_train_batch_size=8 // ranks, **keys)
        start = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(ranks), "--master_addr"]
        start += ["127.0.0.1", "--master_port", str(free_port()), script, str(tmp_path / f"{ranks}.pt")]
        code, output = launch([*start, *words], tmp_path / f"log{ranks}", 300)
        assert code == 0, output[-3000:]
        found[ranks] = torch.load(tmp_path / f"{ranks}.pt")
        assert found[ranks]["ranks"] == ranks
    assert found[1]["gradient"].norm() > 1e-3
    torch.testing.assert_close(found[2]["gradient"], found[1]["gradient"], atol=1e-5, rtol=0)
