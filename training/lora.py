"""Config section ``lora`` of SFT and RL."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class LoraArgs:
    """Config section ``lora``: adapters instead of full fine-tuning when ``r`` > 0."""

    r: int = field(default=0, metadata={"help": "rank; 0 trains all weights"})
    alpha: int = field(default=32, metadata={"help": "scale"})
    dropout: float = field(default=0.05, metadata={"help": "dropout on the adapter input"})
    target_modules: str = field(default="all-linear", metadata={"help": "modules that get an adapter"})

    def __post_init__(self) -> None:
        if self.r < 0:
            raise ValueError(f"r must be 0 or more, got {self.r}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), got {self.dropout}")

    def peft_config(self) -> Any:
        """``peft.LoraConfig``, or None for full fine-tuning."""
        if self.r <= 0:
            return None
        from peft import LoraConfig

        return LoraConfig(
            r=self.r,
            lora_alpha=self.alpha,
            lora_dropout=self.dropout,
            target_modules=self.target_modules,
            task_type="CAUSAL_LM",
        )
