"""Config section ``lora`` of SFT and RL, and how a run starts from a model or from an adapter."""

from dataclasses import dataclass, field
from typing import Any

from autotools.errors import ConfigError
from autotools.llm.loading import adapter_config, check_model, is_adapter, load_adapter, load_model


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
        if self.alpha < 1:
            raise ValueError(f"alpha must be 1 or more, got {self.alpha}; an adapter is scaled by alpha / r")
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


def check_start(model: str, lora: LoraArgs) -> None:
    """Raise ModelError or DataError as ``check_model``, ConfigError for an adapter that cannot be gone on with as
    ``lora`` says. Loads nothing.

    An adapter is trained on as it is, never wrapped in a second one: what it has learnt would be lost with it.
    """
    check_model(model)
    if not is_adapter(model):
        return
    config = adapter_config(model)
    shape = f"--lora.r {config.get('r')} --lora.alpha {config.get('lora_alpha')}"
    if not lora.r:
        raise ConfigError(
            f"model {model!r} is an adapter; train it on with {shape}, or all weights of the merged model: "
            f"python -m autotools.llm.merge {model} --out DIR"
        )
    if (lora.r, lora.alpha) != (config.get("r"), config.get("lora_alpha")):
        raise ConfigError(
            f"adapter {model!r} does not have r {lora.r} and alpha {lora.alpha}; it keeps its shape: {shape}"
        )


def load_start(model: str, lora: LoraArgs) -> tuple[Any, Any, Any]:
    """``(model, tokenizer, peft config or None)`` that a trainer starts from: the config is of the adapter it must add.

    An adapter comes with its weights, ready to be trained on; TRL keeps a copy of it as reference where beta > 0.
    Raises ConfigError as ``check_start``, ModelError and DataError as ``load_model``.
    """
    check_start(model, lora)
    if is_adapter(model):
        return (*load_adapter(model), None)
    return (*load_model(model), lora.peft_config())
