"""``python benchmarks/rl_step.py --data D --tools W --model SFT --output_dir O``: where the time of an RL step goes.

Runs rl/train.py in this process with the settings of a row of a study (12 prompts x 5 rollouts, two optimiser steps per
generation), with timers put around its parts from outside, and prints what share each has. A part's time does not hold
that of parts inside it. CPU time of the process, so that other work on the machine does not count; one thread.

Must hold: everything outside the model (search with BM25, episodes, parsing, rendering, rewards, credit, figures,
recording, and what TRL does around them) under 10 % of a step.
"""

import functools
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotools.config import load_config, run_main
from autotools.errors import ConfigError

MUST_HOLD = 0.10
MODEL, OURS, REST = "model", "ours, outside the model", "TRL, Transformers, Accelerate"
PARTS = {  # part -> whose it is; the order of the table
    "generation, forward passes": MODEL,
    "generation, sampling loop": MODEL,
    "log-probs before the update": MODEL,
    "training, forward and loss": MODEL,
    "training, backward": MODEL,
    "training, clipping and optimiser": MODEL,
    "search": OURS,
    "episodes, parsing": OURS,
    "rendering, tokenising": OURS,
    "rewards": OURS,
    "facts of rollouts": OURS,
    "credit": OURS,
    "figures": OURS,
    "recording": OURS,
    "metrics file, alarms": OURS,
    "trainer subclass": OURS,
    "turn padding, generate's set-up": REST,
    "the rest of a step": REST,
}
OTHER = "the rest of a step"


@dataclass(kw_only=True)
class BenchArgs:
    """Keys of the command."""

    data: str = field(metadata={"help": "data folder of the study's seed"})
    tools: str = field(metadata={"help": "its tool world"})
    model: str = field(metadata={"help": "its SFT start"})
    output_dir: str = field(metadata={"help": "folder of the run; replaced"})
    rl: str = field(default="configs/rl/quickstart.yaml", metadata={"help": "config of the run"})
    study: str = field(default="configs/ablation/paper.yaml", metadata={"help": "study; '' for none"})
    row: str = field(default="toolsearcher", metadata={"help": "row of the study"})
    steps: int = field(default=24, metadata={"help": "optimiser steps"})
    warm_up: int = field(default=4, metadata={"help": "steps before the clock starts; whole generations"})

    def __post_init__(self) -> None:
        if not 0 <= self.warm_up < self.steps:
            raise ConfigError(f"warm_up is {self.warm_up} of {self.steps} steps; it is at least 0 and fewer than all")


class Stopwatch:
    """Seconds by part, each without the parts inside it; ``total`` since ``start``."""

    def __init__(self, clock: Callable[[], float] = time.process_time):
        self._clock, self._open = clock, []
        self.start()

    def start(self) -> None:
        """Forget what was measured; parts that are open now count from now on."""
        self.seconds, self.calls, self._begin = dict.fromkeys(PARTS, 0.0), dict.fromkeys(PARTS, 0), self._clock()
        self._last = self._begin

    @property
    def total(self) -> float:
        return self._last - self._begin

    def _charge(self) -> None:
        now = self._clock()
        self.seconds[self._open[-1] if self._open else OTHER] += now - self._last
        self._last = now

    def stop(self) -> None:
        """Charge the time up to now."""
        self._charge()

    def timed(self, function: Callable[..., Any], part: str, inside: dict[str, str] | None = None) -> Callable:
        """``function``, its time charged to ``part``; inside an open part that ``inside`` names, to another one."""

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self._charge()
            self._open.append(next((other for p, other in (inside or {}).items() if p in self._open), part))
            self.calls[self._open[-1]] += 1
            try:
                return function(*args, **kwargs)
            finally:
                self._charge()
                self._open.pop()

        return wrapper

    def patch(self, owner: Any, names: str, part: str, inside: dict[str, str] | None = None) -> None:
        """Put ``timed`` around the named attributes of a class or module."""
        for name in names.split():
            setattr(owner, name, self.timed(getattr(owner, name), part, inside))


def put_timers(watch: Stopwatch, warm_up: int) -> None:
    """Around everything that PARTS names; the watch runs from step ``warm_up`` to the end of training."""
    import accelerate
    import transformers
    from accelerate.optimizer import AcceleratedOptimizer
    from transformers.models.qwen2.modeling_qwen2 import Qwen2ForCausalLM
    from trl import GRPOTrainer

    import rl.run
    import rl.trainer
    from autotools.chat import ChatRenderer
    from autotools.search.episode import Episode
    from retriever.bm25 import BM25Engine
    from rl.environment import SearchEnvironment
    from rl.recorder import TrajectoryRecorder
    from training import runtime

    trainer = rl.trainer.ToolSearchTrainer
    loop, loss = "generation, sampling loop", "training, forward and loss"
    watch.patch(GRPOTrainer, "_generate_single_turn", "turn padding, generate's set-up")
    watch.patch(transformers.GenerationMixin, "generate", loop)
    watch.patch(trainer, "compute_loss", loss)
    watch.patch(GRPOTrainer, "_get_per_token_logps_and_entropies", "log-probs before the update", {loss: loss})
    watch.patch(Qwen2ForCausalLM, "forward", OTHER, {
        loop: "generation, forward passes", loss: loss, "log-probs before the update": "log-probs before the update",
    })  # fmt: skip
    watch.patch(accelerate.Accelerator, "backward", "training, backward")
    watch.patch(accelerate.Accelerator, "clip_grad_norm_", "training, clipping and optimiser")
    watch.patch(AcceleratedOptimizer, "step zero_grad", "training, clipping and optimiser")
    watch.patch(BM25Engine, "search_batch prefetch", "search")
    watch.patch(Episode, "__init__ step observe accept refuse fail trajectory", "episodes, parsing")
    watch.patch(SearchEnvironment, "reset", "episodes, parsing")
    watch.patch(ChatRenderer, "prompt_ids between_ids turn_text", "rendering, tokenising")
    watch.patch(trainer, "_selection_reward", "rewards")
    watch.patch(rl.trainer, "rollout_facts", "facts of rollouts")
    watch.patch(trainer, "_group_credit", "credit")
    watch.patch(rl.trainer, "spread_over_tokens", "credit")
    watch.patch(rl.trainer, "step_metrics tasks_behind", "figures")
    watch.patch(trainer, "_log_credit", "figures")
    watch.patch(trainer, "_record", "recording")
    watch.patch(TrajectoryRecorder, "record", "recording")
    watch.patch(trainer, "_tool_call_loop _leave_out_dropped", "trainer subclass")
    make = rl.run._trainer
    rl.run._trainer = lambda *args: _with_callback(make(*args), clock_callback(watch, warm_up))
    for module, name in ((runtime, "metrics_callback"), (rl.run, "alarm_callback")):
        setattr(module, name, _with_timed_log(watch, getattr(module, name)))


def _with_timed_log(watch: Stopwatch, make: Callable[..., Any]) -> Callable[..., Any]:
    """A maker of callbacks whose ``on_log`` is timed."""

    def wrapper(*args: Any) -> Any:
        callback = make(*args)
        watch.patch(callback, "on_log", "metrics file, alarms")
        return callback

    return wrapper


def _with_callback(trainer: Any, callback: Any) -> Any:
    trainer.add_callback(callback)
    return trainer


def clock_callback(watch: Stopwatch, warm_up: int) -> Any:
    """Starts the watch after ``warm_up`` steps and stops it after the last one."""
    from transformers import TrainerCallback

    class Clock(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == warm_up:
                watch.start()

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            watch.stop()

    return Clock()


def run_command(args: BenchArgs) -> list[str]:
    """The keys of rl/train.py. Raises ConfigError for a row that the study does not have."""
    import yaml

    study = yaml.safe_load(Path(args.study).read_text(encoding="utf-8")) if args.study else {"table": {args.row: {}}}
    if args.row not in study["table"]:
        raise ConfigError(f"{args.study} has no row {args.row!r}; rows: {', '.join(study['table'])}")
    keys = {k.removeprefix("rl."): v for k, v in study.get("common", {}).items() if k.startswith("rl.")}
    keys |= {k: v for k, v in study["table"][args.row].items() if k not in ("label", "against")}
    keys |= {"max_steps": args.steps, "save_steps": 10 * args.steps, "data": args.data, "tools": args.tools}
    keys |= {"model": args.model, "output_dir": args.output_dir}
    words = [word for k, v in keys.items() for word in (f"--{k}", v if isinstance(v, str) else json.dumps(v))]
    return ["--config", args.rl, *words, "--overwrite"]


def main(argv: list[str] | None = None) -> int:
    """Print the table; returns 0, or 1 if what must hold does not."""
    config = load_config(argv, {"": BenchArgs}, prog="benchmarks/rl_step.py", description=__doc__ or "")
    args = config.top(BenchArgs)
    command = run_command(args)
    if config.dry_run:
        print("would time python rl/train.py " + " ".join(command))
        return 0
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    from rl.train import main as train

    watch = Stopwatch()
    put_timers(watch, args.warm_up)
    train(command)
    print_table(watch, args.steps - args.warm_up)
    outside = sum(seconds for part, seconds in watch.seconds.items() if PARTS[part] != MODEL) / watch.total
    holds = outside < MUST_HOLD
    limit = f"under {100 * MUST_HOLD:g} %"
    print(f"outside the model {100 * outside:.1f} % of a step, {limit}: {'yes' if holds else 'NO'}")
    return 0 if holds else 1


def print_table(watch: Stopwatch, steps: int) -> None:
    """Milliseconds and share of a step by part and by owner, with the calls of a step."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"CPU time of an optimiser step: {1000 * watch.total / steps:.0f} ms, mean of {steps}")
    for name in ("part", "ms", "%", "calls"):
        table.add_column(name, justify="left" if name == "part" else "right", no_wrap=True)
    for owner in (MODEL, OURS, REST):
        parts = [part for part in PARTS if PARTS[part] == owner]
        rows = [(part, watch.seconds[part], f"{watch.calls[part] / steps:.1f}") for part in parts]
        for name, seconds, calls in [*rows, (f"[bold]{owner}[/]", sum(watch.seconds[p] for p in parts), "")]:
            table.add_row(name, f"{1000 * seconds / steps:.1f}", f"{100 * seconds / watch.total:.2f}", calls)
        table.add_section()
    Console(width=100).print(table)


if __name__ == "__main__":
    run_main(main)
