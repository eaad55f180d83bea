"""Models and tokenizers for SFT and RL: a checkpoint or hub name, or the tiny model built from the data itself."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotools.errors import ConfigError
from autotools.rundir import refuse_half

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True, kw_only=True)
class LoraArgs:
    """Config section ``lora``: adapters instead of full fine-tuning when ``r`` > 0."""

    r: int = field(default=0, metadata={"help": "rank; 0 trains all weights"})
    alpha: int = field(default=32, metadata={"help": "scale"})
    dropout: float = field(default=0.05, metadata={"help": "dropout on the adapter input"})
    target_modules: str = field(default="all-linear", metadata={"help": "modules that get an adapter"})

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


def load_checkpoint(model: str, dtype: str = "auto") -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """Model and left-padding tokenizer from a folder or hub name.

    Raises ConfigError if there is none, DataError if the run that makes it has not finished.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    refuse_half(model)
    path = Path(model).expanduser()
    # "runs/sft" reads like a hub name, too; where its first folder exists here, a folder was meant and the hub is not
    # asked (several tries with growing waits).
    if not path.exists() and (path.is_absolute() or len(path.parts) > 2 or path.parent.name and path.parent.is_dir()):
        raise ConfigError(f"model {model!r} cannot be loaded: there is no such folder")
    try:
        tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
        loaded = AutoModelForCausalLM.from_pretrained(model, dtype=dtype)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(f"model {model!r} cannot be loaded: {reason}") from error
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return loaded, tokenizer
