"""RL of a tool searcher: ``deepspeed rl/train.py --config configs/rl/quickstart.yaml`` (or accelerate launch, python).

Keys are those of TRL's GRPOConfig plus the ones below; sections search, credit, reward, curriculum, alarms, lora, and
plan (what --dry-run is to plan for).
"""

import sys
from dataclasses import dataclass, field
from typing import Literal

from autotools.config import load_config, run_main
from autotools.search.episode import SearchSettings
from rl.alarm_rules import AlarmOptions
from rl.credit_options import CreditOptions
from rl.curriculum import CurriculumOptions
from rl.plan import PlanOptions
from rl.rewards import RewardOptions
from training import compiled_ops
from training.lora import LoraArgs
from training.runtime import is_main_process


@dataclass(frozen=True, kw_only=True)
class RLArgs:
    """Keys of ours beside those of ``trl.GRPOConfig``."""

    data: str = field(metadata={"help": "folder made by data_synthesis.build (rl/train.jsonl)"})
    tools: str = field(metadata={"help": "tool corpus (tools.jsonl) or tool world folder"})
    model: str = field(metadata={"help": "start checkpoint: folder or hub name"})
    output_dir: str = field(metadata={"help": "run folder: checkpoints, metrics.jsonl, trajectories.jsonl, model"})
    algorithm: str = field(
        default="toolsearcher",
        metadata={"help": "toolsearcher | grpo (Search-R1) | gspo | gdpo | rloo | marag | event_grpo | to_go"},
    )
    levels: list[str] = field(
        default_factory=list, metadata={"help": "train on prompts of these levels only, such as I2 I3; none: all"}
    )
    encoder: str = field(
        default="bm25",
        metadata={"help": "search engine: bm25 | hybrid | hybrid:NAME | a recipe name | a model folder or hub id"},
    )
    mask_kl: bool = field(default=False, metadata={"help": "removed events leave the KL term, too (reference code)"})
    max_dropped_share: float = field(
        default=0.2,
        metadata={"help": "share of a step's rollouts that failed searches may drop; above it the run stops"},
    )
    record_every: int = field(default=5, metadata={"help": "steps between recorded trajectories; 0: none"})
    record_groups: int = field(default=2, metadata={"help": "groups recorded at such a step"})
    record_choice: Literal["first", "random"] = field(
        default="first", metadata={"help": "the first groups of the batch, or seeded random ones of all ranks"}
    )
    record_max_mb: float = field(default=200.0, metadata={"help": "size at which recording ends; 0: no limit"})
    resume: bool = field(default=False, metadata={"help": "continue in output_dir from its newest checkpoint"})
    overwrite: bool = field(default=False, metadata={"help": "delete output_dir's earlier run first"})

    def __post_init__(self) -> None:
        for name in ("record_every", "record_groups", "record_max_mb"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, got {getattr(self, name)}")
        if not 0 <= self.max_dropped_share <= 1:
            raise ValueError(f"max_dropped_share lies between 0 and 1, got {self.max_dropped_share}")


SECTIONS = {
    "": (RLArgs, "trl:GRPOConfig"),
    "search": SearchSettings,
    "credit": CreditOptions,
    "reward": RewardOptions,
    "curriculum": CurriculumOptions,
    "alarms": AlarmOptions,
    "lora": LoraArgs,
    "plan": PlanOptions,
}


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code. Raises AutoToolsError subclasses for bad use."""
    compiled_ops.prepare()
    config = load_config(argv, SECTIONS, prog="rl/train.py", description=__doc__ or "")
    from rl.run import plan, train

    if config.dry_run:
        text = plan(config)
        if is_main_process():  # a launcher starts every rank
            print(text)
        return 0
    train(config)
    return 0


if __name__ == "__main__":
    run_main(lambda: main(sys.argv[1:]))
