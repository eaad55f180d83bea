"""Supervised fine-tuning on chat records: ``accelerate launch training/sft.py --config configs/sft/quickstart.yaml``.

Trains on assistant turns only. Keys are those of TRL's SFTConfig plus the ones below.
"""

import math
import sys
from dataclasses import dataclass, field

from autotools.config import load_config, run_main
from training import compiled_ops
from training.lora import LoraArgs
from training.tiny import TinyConfig


@dataclass(frozen=True, kw_only=True)
class SFTArgs:
    """Keys of ours beside those of ``trl.SFTConfig``."""

    data: str = field(metadata={"help": "folder made by data_synthesis.build"})
    output_dir: str = field(metadata={"help": "run folder: checkpoints, metrics.jsonl, final model"})
    model: str = field(default="tiny", metadata={"help": "checkpoint folder, hub name, or 'tiny'"})
    tools: str = field(default="", metadata={"help": "tiny model only: corpus whose names become single tokens"})
    mixture: dict[str, float] = field(
        default_factory=lambda: {"understanding": 2.6, "relevance": 15.0, "function": 17.0},
        metadata={"help": "task -> share of conversations (default: sizes of the AutoTools paper, in thousands)"},
    )
    max_records: int = field(default=0, metadata={"help": "use at most this many training records per task; 0: all"})
    keep_best: bool = field(default=True, metadata={"help": "end with the weights of the lowest held-out loss"})
    resume: bool = field(default=False, metadata={"help": "continue in output_dir from its newest checkpoint"})
    overwrite: bool = field(default=False, metadata={"help": "delete output_dir's earlier run first"})

    def __post_init__(self) -> None:
        if not self.mixture or not all(0 < share < math.inf for share in self.mixture.values()):
            raise ValueError(f"mixture {self.mixture} needs one share > 0 per task, such as {{search: 1.0}}")
        if self.max_records < 0:
            raise ValueError(f"max_records must be 0 (all) or more, got {self.max_records}")


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code. Raises AutoToolsError subclasses for bad use."""
    compiled_ops.prepare()
    sections = {"": (SFTArgs, "trl:SFTConfig"), "tiny": TinyConfig, "lora": LoraArgs}
    config = load_config(argv, sections, prog="training/sft.py", description=__doc__ or "")
    from training.sft_run import plan, train

    if config.dry_run:
        print(plan(config))
        return 0
    train(config)
    return 0


if __name__ == "__main__":
    run_main(lambda: main(sys.argv[1:]))
