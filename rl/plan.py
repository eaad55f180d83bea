"""The plan that ``rl/train.py --dry-run`` prints: sizes of a step, memory of a GPU, what differs from the paper.

Everything follows from the resolved config, the prompts and the model's config; no weights are read and no GPU is
needed, so a run of many GPUs can be planned on a laptop. The machine it is for stands in section ``plan``.
"""

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotools.config import Config
from autotools.errors import ConfigError
from autotools.rundir import read_manifest
from autotools.search.answer import NameIndex
from autotools.search.episode import Episode, SearchSettings
from rl.algorithms import without_effect
from rl.curriculum import Curriculum
from rl.plan_differences import difference_table, settings
from rl.plan_memory import (
    ModelShape,
    activation_bytes,
    kv_bytes_per_token,
    lora_params,
    model_config,
    model_shape,
    output_layer_bytes,
    sequences_that_fit,
    zero_states_bytes,
)

CHARS_PER_TOKEN = 4  # where no tokenizer is at hand; English text in a large vocabulary
SAMPLED_PROMPTS = 200
GB = 1e9


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Config section ``plan``: the machine that a dry run plans for. Training itself takes it from its launcher."""

    nodes: int = field(default=1, metadata={"help": "machines"})
    gpus_per_node: int = field(default=1, metadata={"help": "GPUs (ranks) of each machine"})
    gpu_memory_gb: float = field(default=80.0, metadata={"help": "memory of one GPU, 1e9 bytes"})

    def __post_init__(self) -> None:
        for name in ("nodes", "gpus_per_node", "gpu_memory_gb"):
            if (value := getattr(self, name)) <= 0:
                raise ValueError(f"{name} is {value}; it must be above 0")


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What a config amounts to on the planned machine. A generation = the rollouts made at one time by all ranks."""

    gpus: int
    rollouts_per_generation: int
    prompts_per_generation: int
    updates_per_generation: float
    steps: int
    passes: float


def planned_gpus(options: PlanOptions) -> int:
    """Ranks of the run: as launched, or, where nothing was launched, as section ``plan`` says."""
    launched = int(os.environ.get("WORLD_SIZE", "1"))
    return launched if launched > 1 else options.nodes * options.gpus_per_node


def run_sizes(config: Config, trl_args: Any, num_prompts: int) -> Sizes:
    """Sizes as TRL computes them, for the planned number of ranks instead of the present one.

    TRL drops the prompts of an incomplete last generation of each pass. Raises ConfigError if the rollouts of a
    generation do not divide into groups.
    """
    gpus, group = planned_gpus(config.section("plan")), trl_args.num_generations
    micro, window = trl_args.per_device_train_batch_size * gpus, trl_args.gradient_accumulation_steps
    # TRL derives each of the two from the other, for the present number of ranks
    rollouts = config.explicit.get("generation_batch_size") or micro * trl_args.steps_per_generation
    if rollouts % group or rollouts % micro:
        raise ConfigError(
            f"{rollouts} rollouts per generation do not divide into groups of {group} (num_generations) and into "
            f"batches of {micro} ({trl_args.per_device_train_batch_size} per GPU x {gpus} GPUs)"
        )
    batches = rollouts // micro * trl_args.num_iterations
    per_pass = math.ceil(num_prompts // (rollouts // group) * batches / window)
    steps = trl_args.max_steps if trl_args.max_steps > 0 else math.ceil(per_pass * trl_args.num_train_epochs)
    return Sizes(
        gpus=gpus,
        rollouts_per_generation=rollouts,
        prompts_per_generation=rollouts // group,
        updates_per_generation=batches / window,
        steps=steps,
        passes=steps / per_pass if per_pass else float("inf"),
    )


def prompt_lengths(model: str, rows: Sequence[dict[str, Any]], names: NameIndex, search: SearchSettings) -> list[int]:
    """Tokens of a sample of the prompts as the policy gets them; negative lengths are estimated from characters."""
    from autotools.chat import ChatRenderer

    sample = rows[:: max(1, len(rows) // SAMPLED_PROMPTS)]
    episodes = [Episode(row["query"], names, search) for row in sample]
    if not (Path(model).expanduser() / "tokenizer_config.json").is_file():
        tool = len(json.dumps(episodes[0].tools))
        texts = [sum(len(message["content"]) for message in episode.messages) for episode in episodes]
        return [-((text + tool) // CHARS_PER_TOKEN + 1) for text in texts]
    from transformers import AutoTokenizer

    renderer = ChatRenderer(AutoTokenizer.from_pretrained(str(Path(model).expanduser())))
    return [len(renderer.prompt_ids(episode.messages, episode.tools)) for episode in episodes]


def zero_stage(trl_args: Any) -> int:
    """ZeRO stage of the config's ``deepspeed`` file (or of the launcher's environment); 0 without DeepSpeed.

    Raises ConfigError if the file cannot be read.
    """
    given = trl_args.deepspeed
    if isinstance(given, str):
        try:
            given = json.loads(Path(given).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"key 'deepspeed': {given}: {error}") from error
    if isinstance(given, dict):
        return int(given.get("zero_optimization", {}).get("stage", 0))
    launched = os.environ.get("ACCELERATE_USE_DEEPSPEED", "false").lower() == "true"
    return int(os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "0")) if launched else 0


def _states(shape: ModelShape, config: Config, gpus: int) -> dict[str, float]:
    """Bytes of weights, gradients and optimiser of one GPU, by ZeRO stage (key "0": without DeepSpeed)."""
    rank = config.section("lora").r
    trained = lora_params(shape, rank) if rank else shape.params
    frozen = 2 * shape.params if rank else 0
    options = config.section("plan")
    nodes = options.nodes if gpus == options.nodes * options.gpus_per_node else 1
    stages = zero_states_bytes(trained, 0 if rank else shape.largest, gpus // nodes, nodes)
    # adapters are fp32 (weight, gradient, 2 x Adam); full weights keep the checkpoint's 16 bits, and so does Adam
    stages[0] = (16 if rank else 8) * trained
    return {stage: size + frozen / (gpus if stage == 3 else 1) for stage, size in sorted(stages.items())}


def memory_lines(shape: ModelShape, config: Config, trl_args: Any, sizes: Sizes, prompt: int) -> list[str]:  # fmt: skip
    """Memory of one GPU, part by part, while it trains and while it generates."""
    search, lora, options = config.section("search"), config.section("lora").r, config.section("plan")
    stage, longest, batch = zero_stage(trl_args), prompt + search.total_tokens, trl_args.per_device_train_batch_size
    states = _states(shape, config, sizes.gpus)
    sharded = sizes.gpus if stage == 3 else 1
    weights, reference = 2 * shape.params, 0 if lora or not trl_args.beta else 2 * shape.params / sharded
    kept = activation_bytes(shape, batch, longest, trl_args.gradient_checkpointing)
    output = output_layer_bytes(shape, batch, longest, trained=not lora)
    name = f"ZeRO-{stage}" if stage else "no DeepSpeed"
    lines = [
        f"model                {shape.params:,} parameters, {weights / GB:.1f} GB in 16 bits"
        + (f"; LoRA trains {lora_params(shape, lora):,}" if lora else ""),
        "states per GPU       "
        + ", ".join(f"{f'ZeRO-{s}' if s else 'no DeepSpeed'} {size / GB:.1f} GB" for s, size in states.items())
        + f"; this run: {name}",
        f"reference model      {reference / GB:.1f} GB",
        f"activations          {kept / GB:.1f} GB for {batch} x {longest} tokens, "
        f"{'with' if trl_args.gradient_checkpointing else 'without'} checkpointing; output layer {output / GB:.1f} GB",
        f"KV cache             {kv_bytes_per_token(shape):,} bytes a token, "
        f"{kv_bytes_per_token(shape) * longest / GB:.2f} GB for a rollout of {longest} tokens",
    ]
    training = states[stage] + reference + kept + output
    rollouts = sizes.rollouts_per_generation // sizes.gpus
    return lines + _generation_lines(shape, trl_args, options, training, states[stage] + reference, rollouts, longest)


def _generation_lines(shape: ModelShape, trl_args: Any, options: PlanOptions, training: float, resident: float,
                      rollouts: int, longest: int) -> list[str]:  # fmt: skip
    """How the rollouts of one GPU are generated, and the sums that must fit."""
    weights = 2 * shape.params
    if trl_args.use_vllm and trl_args.vllm_mode == "server":
        engine, held = "vLLM on GPUs of its own", 0.0
        generating = resident
    elif trl_args.use_vllm:
        share, split = trl_args.vllm_gpu_memory_utilization, trl_args.vllm_tensor_parallel_size
        engine_bytes = share * options.gpu_memory_gb * GB
        fit = sequences_that_fit(engine_bytes - weights / split, shape, longest) * split
        engine = f"vLLM beside the trainer, {engine_bytes / GB:.1f} GB: weights and {fit} longest rollouts at once"
        held = 0.0 if trl_args.vllm_enable_sleep_mode else engine_bytes
        generating = resident + engine_bytes
    else:
        cache = kv_bytes_per_token(shape) * longest * rollouts
        gathered = weights if zero_stage(trl_args) == 3 and trl_args.ds3_gather_for_generation else 0
        engine, held = f"plain generate, all at once: {cache / GB:.1f} GB of KV cache", 0.0
        generating = resident + gathered + cache
    lines = [f"generation           {rollouts} rollouts per GPU; {engine}"]
    for what, size in (("training", training + held), ("generating", generating)):
        fits = "fits" if size <= options.gpu_memory_gb * GB else "DOES NOT FIT"
        lines.append(f"{what:<21}{size / GB:.1f} of {options.gpu_memory_gb:.0f} GB: {fits} (without fragmentation)")
    return lines


def settings_without_effect(config: Config) -> list[str]:
    """One line if keys are set that the algorithm does not read, else none."""
    from rl.train import RLArgs

    name = config.top(RLArgs).algorithm
    keys = without_effect(name, config.section("credit"), config.section("reward"))
    return [f"{', '.join(keys)}: set, but algorithm {name} does not read it"] if keys else []


def curriculum_warnings(config: Config, names: NameIndex) -> list[str]:
    """What the data and the corpus of a run with a curriculum lack. Raises DataError without the data's manifest."""
    from rl.train import RLArgs

    mode, data = config.section("curriculum").mode, config.top(RLArgs).data
    if mode == "off":
        return []
    found = []
    if len(names.categories) < 2:
        found.append(f"curriculum.mode {mode}: the corpus has a single category, so searches are not made easier by it")
    settings = read_manifest(data).get("expert", {}).get("settings")
    if settings and not settings.get("curriculum_prompts"):
        found.append(
            f"curriculum.mode {mode}: {data} has no demonstrations under the curriculum's two prompts, and a small "
            "model trained on it alone needs them (measured: answered 0.0 instead of 1.0). Make data with "
            "--expert.curriculum_prompts 0.3 and SFT with --tiny.curriculum_prompts true (in a study "
            "data.expert.curriculum_prompts and sft.tiny.curriculum_prompts)"
        )
    return found


def warnings(config: Config, trl_args: Any, longest_prompt: int) -> list[str]:
    """Settings that run but hardly do what was meant, or that end a run in its middle."""
    from rl.train import RLArgs

    found = settings_without_effect(config)
    longest = longest_prompt + config.section("search").total_tokens
    places = getattr(model_config(config.top(RLArgs).model), "max_position_embeddings", None)
    limits = {"positions of the model": places, "vllm_max_model_length": trl_args.vllm_max_model_length}
    found += [
        f"a rollout may have {longest} tokens (longest prompt {longest_prompt} + search.total_tokens), more than the "
        f"{limit} of {name}"
        for name, limit in limits.items()
        if limit and longest > limit
    ]
    if trl_args.bf16 and not zero_stage(trl_args) and not config.section("lora").r:
        found.append(
            "without DeepSpeed all weights are trained in the checkpoint's type; in bf16 an update of learning rate "
            f"{trl_args.learning_rate:g} is mostly rounded away. Use DeepSpeed (it keeps fp32 weights) or LoRA"
        )
    if trl_args.max_steps <= 0 and trl_args.num_train_epochs != int(trl_args.num_train_epochs):
        found.append(f"num_train_epochs {trl_args.num_train_epochs:g} ends inside a pass over the prompts")
    return found


def describe(config: Config, trl_args: Any, rows: Sequence[dict[str, Any]], names: NameIndex) -> str:
    """The plan as text. Raises ConfigError for an impossible batch, or a model whose config cannot be found."""
    from rl.train import RLArgs

    args, search = config.top(RLArgs), config.section("search")
    sizes = run_sizes(config, trl_args, len(rows))
    first_phase = Curriculum(config.section("curriculum"), search).phase.settings  # its prompts are the longest
    lengths = prompt_lengths(args.model, rows, names, first_phase)
    low, high = min(map(abs, lengths)), max(map(abs, lengths))
    n = sizes.rollouts_per_generation
    reuse = (
        f", each used for {sizes.updates_per_generation:g} optimiser steps" if sizes.updates_per_generation != 1 else ""
    )
    lines = [
        f"generation           {sizes.prompts_per_generation} prompts x {trl_args.num_generations} rollouts = {n} "
        f"on {sizes.gpus} GPU(s){reuse}",
        f"prompt               {low} to {high} tokens"
        + (f" (estimated, {CHARS_PER_TOKEN} characters a token)" if lengths[0] < 0 else ""),
        f"tokens a generation  {n * (low + 1):,} (one-token rollouts) to {n * (high + search.total_tokens):,} "
        f"(all {search.total_tokens} after the prompt)",
        f"steps                {sizes.steps} optimiser steps, {sizes.passes:.2f} passes over {len(rows)} prompts",
        "",
        *memory_lines(model_shape(args.model), config, trl_args, sizes, high),
        "",
        difference_table(settings(config, trl_args, sizes)),
    ]
    found = [*warnings(config, trl_args, high), *curriculum_warnings(config, names)]
    return "\n".join(lines + [f"warning: {text}" for text in found])
