"""Memory of one GPU in a planned run, from the model's config alone: nothing is loaded, no accelerator is needed.

Model states come from DeepSpeed's own estimators. The rest is arithmetic on the model's shape; 1 GB = 1e9 bytes.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotools.errors import ConfigError
from autotools.llm.loading import adapter_config, is_adapter

# Shapes for planning where neither a folder nor the hub is at hand; from the models' public config.json.
_QWEN3 = {"model_type": "qwen3", "head_dim": 128, "num_key_value_heads": 8, "vocab_size": 151_936}
KNOWN_SHAPES: dict[str, dict[str, Any]] = {
    "qwen2.5-7b": {
        "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18_944, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152_064, "tie_word_embeddings": False,
    },
    "qwen3-4b": _QWEN3 | {
        "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32,
        "tie_word_embeddings": True,
    },
    "qwen3-1.7b": _QWEN3 | {
        "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16,
        "tie_word_embeddings": True,
    },
}  # fmt: skip
LOGIT_TILE = 4096 * 32_768
"""Values of logits held at once: TRL 1.16 scores tokens in tiles (``kernels/chunked_logprob.py``), never all logits."""


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """What the formulas need. ``params`` counts shared weights once; ``largest`` is DeepSpeed's largest layer."""

    params: int
    largest: int
    linear_in_out: tuple[tuple[int, int], ...]
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int


def model_config(model: str) -> Any:
    """The model's config object (of an adapter: its base's): from its folder, the built-in shapes, or the hub.

    Raises ConfigError if none of the three knows it.
    """
    from transformers import AutoConfig

    if is_adapter(model):
        model = adapter_config(model)["base_model_name_or_path"]
    if (Path(model).expanduser() / "config.json").is_file():
        return AutoConfig.from_pretrained(str(Path(model).expanduser()))
    name = model.rstrip("/").rpartition("/")[2].lower()
    for known, shape in KNOWN_SHAPES.items():
        if name == known or name.startswith(f"{known}-"):  # Qwen3-4B-Instruct-2507 has the shape of Qwen3-4B
            return AutoConfig.for_model(**shape)
    try:
        return AutoConfig.from_pretrained(model)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"no config of model {model!r}: it is no folder with config.json, not one of the built-in shapes "
            f"({', '.join(KNOWN_SHAPES)}), and the hub did not give it: {str(error).splitlines()[0]}"
        ) from error


def model_shape(model: str) -> ModelShape:
    """Shape of a model, counted on a copy without storage (torch's meta device)."""
    import torch
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    config = model_config(model)
    # The class itself, not from_config(): where a DeepSpeed config is active, that would start process groups.
    with torch.device("meta"):
        built = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)](config)
    built.tie_weights()
    linear = [m for name, m in built.named_modules() if isinstance(m, torch.nn.Linear) and "lm_head" not in name]
    heads = config.num_attention_heads
    return ModelShape(
        params=sum(p.numel() for p in built.parameters()),  # torch lists a shared weight once
        # as deepspeed.runtime.zero.stage3.model_to_params, which cannot be called here: on meta all addresses are 0
        largest=max(sum(p.numel() for p in m.parameters(recurse=False)) for m in built.modules()),
        linear_in_out=tuple((m.in_features, m.out_features) for m in linear),
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        intermediate=config.intermediate_size,
        heads=heads,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        vocab=config.vocab_size,
    )


def lora_params(shape: ModelShape, rank: int) -> int:
    """Parameters of adapters on all linear layers but the output: r (in + out) each [Hu et al. 2021, 4.1]."""
    return sum(rank * (inputs + outputs) for inputs, outputs in shape.linear_in_out)


def zero_states_bytes(params: int, largest: int, gpus_per_node: int, nodes: int) -> dict[int, int]:
    """Bytes of weights, gradients and Adam states on one GPU per ZeRO stage, 16-bit training, nothing offloaded.

    2 and 3 are DeepSpeed's functions. It has none for stage 1, so: that of stage 2 with the 16-bit gradients whole on
    every GPU, 4 params + 16 params / GPUs [Rajbhandari et al. 2020, ZeRO, 5]; 16 = gradients,
    weights and 2 x Adam in fp32.
    """
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs as stage_3
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs as stage_2

    return {
        1: 4 * params + 16 * params // (gpus_per_node * nodes),
        2: stage_2(params, gpus_per_node, nodes, cpu_offload=False)[1],
        3: stage_3(params, largest, gpus_per_node, nodes, cpu_offload=False, cpu_offload_params=False)[1],
    }


def activation_bytes(shape: ModelShape, sequences: int, tokens: int, checkpointing: bool) -> int:
    """Bytes that the layers keep of ``sequences`` x ``tokens`` for the backward pass, in 16 bits.

    Counted like Korthikanti et al. 2022 (arXiv 2205.05198, 4.1), for attention that keeps no score matrix and a gated
    MLP: per token of a layer two norm inputs and outputs (4 h), q, k, v and the attention's output (2 q + 2 kv), and
    four MLP tensors (4 f), each value 2 bytes. With checkpointing: every layer's input, and one layer in full.
    """
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    layer = 2 * (4 * shape.hidden + 2 * q + 2 * kv + 4 * shape.intermediate)
    per_token = 2 * shape.hidden * shape.layers + layer if checkpointing else layer * shape.layers
    return sequences * tokens * per_token


def output_layer_bytes(shape: ModelShape, sequences: int, tokens: int, trained: bool) -> int:
    """Bytes of the output layer: a tile of logits (2), gradients of its inputs and, if trained, its weights (fp32)."""
    inputs, weights = sequences * tokens * shape.hidden, shape.vocab * shape.hidden if trained else 0
    return 2 * min(LOGIT_TILE, sequences * tokens * shape.vocab) + 4 * (inputs + weights)


def kv_bytes_per_token(shape: ModelShape) -> int:
    """Bytes of keys and values of one token over all layers, in 16 bits: 2 x layers x kv heads x head size x 2."""
    return 2 * shape.layers * shape.kv_heads * shape.head_dim * 2


def sequences_that_fit(free_bytes: float, shape: ModelShape, tokens: int) -> int:
    """Rollouts of ``tokens`` tokens whose keys and values fit into ``free_bytes``."""
    return max(0, math.floor(free_bytes / (kv_bytes_per_token(shape) * tokens)))
