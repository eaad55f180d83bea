"""What SFT and RL need around a trainer on any machine: CPU defaults, process groups, metrics file, checkpoints."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


def find_checkpoint(output_dir: str | Path) -> str | None:
    """Newest ``checkpoint-N`` of a run folder, or None."""
    found = [p for p in Path(output_dir).glob("checkpoint-*") if p.name.rpartition("-")[2].isdigit()]
    complete = [p for p in found if (p / "trainer_state.json").exists()]
    return str(max(complete, key=lambda p: int(p.name.rpartition("-")[2]))) if complete else None


def metrics_callback(run: "RunDir") -> "TrainerCallback":
    """Callback that appends every log of the trainer to ``metrics.jsonl`` as ``{"step", ...}``."""
    from transformers import TrainerCallback

    class MetricsFile(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            if state.is_world_process_zero and logs:
                run.log({"step": state.global_step, **logs})

    return MetricsFile()
