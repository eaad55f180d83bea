"""What SFT and RL need around a trainer on any machine: CPU defaults, process groups, metrics file, checkpoints.

A killed run must resume as if nothing had happened. So a checkpoint counts only if every file of it is whole, and rows
that were logged after it are dropped, because the resumed run logs them again.
"""

import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotools.errors import ConfigError
from autotools.rundir import write_text

if TYPE_CHECKING:
    from transformers import TrainerCallback

    from autotools.rundir import RunDir


def uses_cpu() -> bool:
    """True where torch finds no accelerator; then bf16 and gradient checkpointing are off by default."""
    import torch

    return not torch.cuda.is_available()


def cpu_defaults() -> dict[str, Any]:
    """Defaults that replace TRL's own where there is no GPU (TRL: bf16 and gradient checkpointing on)."""
    defaults: dict[str, Any] = {"report_to": "none"}
    if uses_cpu():
        defaults |= {"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "dataloader_pin_memory": False}
    return defaults


def start_distributed_cpu() -> None:
    """Under the DeepSpeed launcher on CPU ranks: tell DeepSpeed of the gloo group. Call it before a model is loaded.

    The training arguments have made torch's group by then, but DeepSpeed keeps a state of its own; unless told it
    counts one rank ("train_batch_size is not equal to ..."). Does nothing on GPUs, on one rank, or without DeepSpeed.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or not uses_cpu():
        return
    from transformers.integrations.deepspeed import deepspeed_config

    if deepspeed_config() is not None:
        import deepspeed

        if not deepspeed.comm.is_initialized():
            deepspeed.init_distributed(dist_backend="gloo")


def stop_distributed() -> None:
    """Meet all ranks, then leave the process group: without it 1 of 10 two-rank runs crashed while exiting."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


def is_main_process() -> bool:
    """True on rank 0, also before any process group exists."""
    return int(os.environ.get("RANK", "0")) == 0


def _state(checkpoint: Path) -> dict[str, Any] | None:
    """The trainer's state if the checkpoint is complete: Transformers writes it last, torch ends its zip files last."""
    try:
        state = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    ranks = int(os.environ.get("WORLD_SIZE", "1"))  # only ranks above 0 may write after rank 0 wrote the state
    others = [checkpoint / f"rng_state_{rank}.pth" for rank in range(ranks) if ranks > 1]
    if not all(zipfile.is_zipfile(path) for path in [*checkpoint.rglob("*.pt"), *checkpoint.glob("*.pth"), *others]):
        return None
    return state


def _checkpoints(output_dir: str | Path) -> dict[int, Path]:
    """{step: folder}, whole or not."""
    found = [p for p in Path(output_dir).glob("checkpoint-*") if p.name.rpartition("-")[2].isdigit()]
    return {int(p.name.rpartition("-")[2]): p for p in found}


def find_checkpoint(output_dir: str | Path) -> str | None:
    """Newest complete ``checkpoint-N`` of a run folder that has steps left to train, or None.

    Not the last one of a run: Transformers would train one step beyond the end from there.
    """
    for step, path in sorted(_checkpoints(output_dir).items(), reverse=True):
        state = _state(path)
        if state is not None and step < state.get("max_steps", step + 1):
            return str(path)
    return None


def rewind(output_dir: str | Path, trajectories: str | None = None) -> str | None:
    """Bring a killed run's folder to the state of its newest complete checkpoint, and return that (None: the start).

    Newer and half-written checkpoints go, and so do the rows of ``metrics.jsonl`` and of the file ``trajectories``
    (whose ``step`` counts from 0) that the resumed run writes again. On ranks other than 0 nothing is changed.
    """
    found = find_checkpoint(output_dir)
    if not is_main_process():
        return found
    step = int(found.rpartition("-")[2]) if found else 0
    for path in _checkpoints(output_dir).values():
        if str(path) != found and (int(path.name.rpartition("-")[2]) > step or _state(path) is None):
            shutil.rmtree(path)

    def logged_before(row: dict[str, Any]) -> bool:  # nothing without a checkpoint; train_runtime ends a whole run
        return step > 0 and row["step"] <= step and "train_runtime" not in row

    _keep_rows(Path(output_dir) / "metrics.jsonl", logged_before)
    if trajectories:
        _keep_rows(Path(output_dir) / trajectories, lambda row: row["step"] < step)
    return found


def is_complete(output_dir: str | Path, resume: bool) -> bool:
    """Whether a resumption finds a finished run, and says so: there is nothing to do, and it must not start again."""
    done = resume and (Path(output_dir) / "manifest.json").is_file()
    if done:
        if is_main_process():
            print(f"{output_dir} is complete already; nothing to resume")
        stop_distributed()
    return done


def _keep_rows(path: Path, wanted: Callable[[dict[str, Any]], bool]) -> None:
    """Rewrite a JSON lines file with its wanted rows only; a last line that was cut off by a kill goes, too."""
    if not path.is_file():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if wanted(row):
            kept.append(line + "\n")
    write_text(path, "".join(kept))


@contextmanager
def blaming_lora(target_modules: str) -> Iterator[None]:
    """Around the making of a trainer: only peft knows what modules a model has; its complaint becomes a ConfigError."""
    try:
        yield
    except (ValueError, re.error) as error:
        if isinstance(error, ValueError) and not str(error).startswith("Target module"):
            raise
        raise ConfigError(
            f"key 'lora.target_modules': {target_modules!r} matches no module of the model that can have an adapter; "
            r"pass all-linear, or a pattern of whole module names such as .*\.(q_proj|v_proj)"
        ) from error


def tokens_seen(checkpoint: str | None) -> int:
    """Training tokens until a checkpoint, from its log. TRL's SFT trainer counts from 0 after a resumption."""
    history = (_state(Path(checkpoint)) or {}).get("log_history", []) if checkpoint else []
    return int(max((row["num_tokens"] for row in history if "num_tokens" in row), default=0))


def metrics_callback(run: "RunDir") -> "TrainerCallback":
    """Callback that appends every log of the trainer to ``metrics.jsonl`` as ``{"step", ...}``.

    Without ``train_loss``: after a resumption Transformers divides the loss since then by all steps.
    """
    from transformers import TrainerCallback

    class MetricsFile(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            if state.is_world_process_zero and logs:
                run.log({"step": state.global_step, **{k: v for k, v in logs.items() if k != "train_loss"}})

    return MetricsFile()
