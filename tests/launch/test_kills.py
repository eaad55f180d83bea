"""Real stages, killed and resumed: nothing is left running, and the run ends like one that was never disturbed."""

import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotools.rundir import read_jsonl, write_jsonl
from autotools.schema import ToolSpec
from autotools.search.prompt import SEARCH_TOOL, answer_text, call_text, prompt_messages

ROOT = Path(__file__).resolve().parents[2]
SANDBOX = re.compile(r"bwrap|/sandbox/")
TIMES = ("time", "runtime", "per_second")  # ends of the names of metrics that tell wall time
FINALS = (
    "model.safetensors",
    "tokenizer.json",
    "manifest.json",
    "trajectories.jsonl",
    "predictions.jsonl",
    "metrics.json",
)


# --- a driver under observation -----------------------------------------------------------------------------------


@dataclass
class Attempt:
    """One start of a driver, with every process that was ever seen below it."""

    command: Sequence[str]
    out: Path
    started: float = field(default_factory=time.time)
    seen: dict[int, psutil.Process] = field(default_factory=dict)

    def __post_init__(self) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
        self.process = psutil.Popen(
            list(self.command), cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def watch(self, until: Callable[[], bool], limit_s: float = 300) -> None:
        """Look at the process tree until ``until()`` or the driver's end."""
        end = time.monotonic() + limit_s
        while self.process.poll() is None and not until():
            assert time.monotonic() < end, f"{self.command} takes too long"
            try:
                self.seen |= {p.pid: p for p in self.process.children(recursive=True)}
            except psutil.Error:
                continue
            time.sleep(0.05)

    def started_stage(self, name: str) -> float | None:
        """When this attempt started a stage (seconds since the epoch)."""
        try:
            at = json.loads((self.out / "logs" / f"{name}.started.json").read_text())["time"]
        except (OSError, ValueError):
            return None
        return at if at >= self.started else None

    def victim(self, who: str, rng: random.Random) -> psutil.Process:
        """``driver``, ``guard`` (a child of it) or ``stage`` (anything below a guard outside the sandbox).

        A dead sandbox is a finding about the program that ran in it, not a fault of ours that stops the stage.
        """
        guards = [p for p in self.process.children() if "guard.main" in " ".join(p.cmdline())]
        if who == "guard" and guards:
            return rng.choice(guards)
        below = [p for g in guards for p in g.children(recursive=True) if not SANDBOX.search(" ".join(p.cmdline()))]
        return rng.choice(below) if who == "stage" and below else self.process

    def kill(self, who: str, number: int, rng: random.Random) -> str:
        """Send the signal, wait for the driver's end, and check that nothing is left. Returns whom it hit."""
        try:
            self.seen |= {p.pid: p for p in self.process.children(recursive=True)}
            victim = self.victim(who, rng)
            victim.send_signal(number)
        except psutil.Error:
            victim = self.process  # it has just ended
        said, _ = self.process.communicate(timeout=60)
        hit = "driver" if victim.pid == self.process.pid else who
        # a stage's end is shown with its own traceback
        assert hit != "driver" or "Traceback" not in said, said
        left = psutil.wait_procs(list(self.seen.values()), timeout=10)[1]
        left = [p for p in left if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
        assert not left, f"signal {number} to {who} left behind: {[p.cmdline() for p in left]}"
        marked = f"AUTOTOOLS_STAGE={self.out}/"
        assert not [p for p in psutil.process_iter() if marked in _environment(p)]
        return hit

    def finish(self) -> None:
        self.watch(lambda: False)
        said, _ = self.process.communicate()
        assert self.process.returncode == 0, said[-3000:]


def _environment(process: psutil.Process) -> str:
    try:
        return Path(f"/proc/{process.pid}/environ").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def outcome(out: Path) -> dict[str, Any]:
    """What two runs of one seed must share: hashes of models and results, and all metrics but wall times."""
    found: dict[str, Any] = {}
    for path in sorted(p for p in out.rglob("*") if p.name in FINALS and "checkpoint-" not in str(p)):
        found[str(path.relative_to(out))] = hashlib.sha256(path.read_bytes()).hexdigest()
    for path in sorted(out.glob("*/metrics.jsonl")):
        rows = [{k: v for k, v in row.items() if not k.endswith(TIMES)} for row in read_jsonl(path)]
        found[str(path.relative_to(out))] = rows
    if (out / "summary.json").exists():
        summary = json.loads((out / "summary.json").read_text())
        found["summary"] = {key: summary[key] for key in ("eval", "world", "functions", "seed")}
    halves = [str(p) for p in out.rglob("*.tmp")]
    assert not halves, f"halves of files are left: {halves}"
    return found


# --- quick: SFT and RL of a very small model, every run --------------------------------------------------------------

SMALL_DRIVER = """
import sys
sys.path.insert(0, sys.argv[1])
import quickstart
data, out = sys.argv[2], sys.argv[3]
tiny = "--tiny.hidden_size 32 --tiny.intermediate_size 64 --tiny.num_layers 1 --tiny.num_heads 2"
common = f"--data {data} --seed 1 --save_total_limit 2 --save_strategy steps --save_steps 2 --logging_steps 1"
sft = (f"training/sft.py {common} --tools {data} --mixture search=1 --max_steps 12 {tiny}"
       " --per_device_train_batch_size 4")
rl = (f"rl/train.py {common} --tools {data} --model {{out}}/sft --max_steps 12 --per_device_train_batch_size 12"
      " --num_generations 4 --record_every 1 --search.top_k 3 --search.turn_tokens 12 --search.total_tokens 300")
quickstart.PIPELINE = tuple(((name, f"{{python}} {command} --output_dir {{out}}/{name}"),)
                            for name, command in (("sft", sft), ("rl", rl)))
quickstart.write_summary = quickstart.closing = lambda *_: None
quickstart.run_main(lambda: quickstart.main(["--out", out, *sys.argv[4:]]))
"""


@pytest.fixture(scope="module")
def small_data(tmp_path_factory: pytest.TempPathFactory, ten_tools: list[ToolSpec]) -> Path:
    """A folder that serves as data and as tools: 48 conversations and 10 prompts over ten tools."""
    from autotools.rundir import write_manifest

    folder = tmp_path_factory.mktemp("data")
    sft, rl = [], []
    for n in range(48):
        spec = ten_tools[n % len(ten_tools)]
        request = f"please, number {n}: {spec.description}"
        shown = {"role": "tool", "name": "search", "content": f"{spec.id}: {spec.description}"}
        turns = [{"role": "assistant", "content": call_text(spec.description)}, shown,
                 {"role": "assistant", "content": answer_text([str(spec.id)])}]  # fmt: skip
        messages = [*prompt_messages(request), *turns]
        sft.append({"id": f"s{n}", "task": "search", "source": "test", "messages": messages, "tools": [SEARCH_TOOL]})
        rl.append({"id": f"p{n}", "query": request, "targets": [str(spec.id)], "level": "I1"})
    write_jsonl(folder / "tools.jsonl", ten_tools)
    write_jsonl(folder / "sft" / "train.jsonl", sft)
    write_jsonl(folder / "sft" / "dev.jsonl", sft[:4])
    write_jsonl(folder / "rl" / "train.jsonl", rl[:10])
    write_manifest(folder, stage="data", inputs=[folder / "tools.jsonl"], counts={}, seed=0)
    return folder


def test_killed_training_ends_as_if_undisturbed(small_data: Path, tmp_path: Path) -> None:
    """kill -9 of the driver while SFT writes a checkpoint, and of the trainer while RL does."""
    (tmp_path / "driver.py").write_text(SMALL_DRIVER)
    rng = random.Random(0)

    def attempt(name: str, *flags: str) -> Attempt:
        out = tmp_path / name
        command = [sys.executable, str(tmp_path / "driver.py"), str(ROOT / "launch"), str(small_data), str(out), *flags]
        return Attempt(command, out)

    attempt("undisturbed").finish()
    out = tmp_path / "killed"
    kills = [("sft/checkpoint-4", "driver"), ("rl/checkpoint-6", "stage")]
    for mark, who in kills:
        now = attempt("killed", *(["--resume"] if out.exists() else []))
        now.watch((out / mark).exists)
        assert now.kill(who, signal.SIGKILL, rng) == who
        assert not (out / mark.partition("/")[0] / "manifest.json").exists()
    attempt("killed", "--resume").finish()
    assert outcome(out) == outcome(tmp_path / "undisturbed")
    for stage in ("sft", "rl"):  # they went on, and did not simply start again
        assert len(json.loads((out / stage / "run.json").read_text())["resumed"]) == 1


# --- slow: the whole quickstart, cut short, killed twenty times ------------------------------------------------------

SHORT = (
    "--seed 3 --more data.num_search_demos=600 data.num_relevance=20 data.num_function=20"
    " sft.max_steps=60 sft.eval_steps=10 sft_longer.max_steps=30 sft_longer.eval_steps=10"
    " rl.max_steps=9 rl.save_steps=2 rl.per_device_train_batch_size=20 evaluate.limit=24"
).split()
KILLS = {"world": 3, "data": 2, "sft": 4, "rl": 6, "evaluate": 3, "report": 2}  # sft_longer runs beside rl


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_twenty_kills_at_random_moments(tmp_path: Path) -> None:
    """Three signals, to the driver or any process of a stage, at moments drawn with a seed over each stage's time."""
    rng = random.Random(int(os.environ.get("AUTOTOOLS_KILL_SEED", "0")))

    def attempt(name: str, *flags: str) -> Attempt:
        out = tmp_path / name
        return Attempt([sys.executable, "launch/quickstart.py", "--out", str(out), *SHORT, *flags], out)

    attempt("undisturbed").finish()
    wall_s = json.loads((tmp_path / "undisturbed" / "summary.json").read_text())["wall_s"]
    out, told = tmp_path / "killed", []
    for stage in (name for name, count in KILLS.items() for _ in range(count)):
        after = rng.uniform(0, wall_s[stage])
        who = rng.choice(["driver", "driver", "guard", "stage", "stage"])
        number = rng.choice([signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
        now = attempt("killed", *(["--resume"] if out.exists() else []))

        def due(now: Attempt = now, stage: str = stage, after: float = after) -> bool:
            # an earlier attempt may have come to the stage's end before its kill: then count from where this one starts
            at = now.started_stage(stage)
            if at is None and (out / "logs" / f"{stage}.done.json").exists():
                at = min(filter(None, map(now.started_stage, wall_s)), default=None)
            return at is not None and time.time() >= at + after

        now.watch(due)
        hit = now.kill(who, number, rng)
        told.append(f"{stage} +{after:.1f} s: {signal.Signals(number).name} to {hit}")
        print(told[-1], flush=True)
    attempt("killed", "--resume").finish()
    assert outcome(out) == outcome(tmp_path / "undisturbed"), "\n".join(told)
