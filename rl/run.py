"""The RL run itself: prompts + corpus + start model -> ToolSearchTrainer -> final model."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotools.config import Config
from autotools.errors import ConfigError, DataError
from autotools.rundir import RunDir, check_run, open_run, read_manifest, write_jsonl, write_manifest
from autotools.schema import Hit
from autotools.search.answer import NameIndex
from autotools.search.episode import SearchBatch
from retriever.corpus import read_corpus
from retriever.engine import check_encoder, open_engine
from rl.alarms import alarm_callback
from rl.algorithms import get_algorithm
from rl.curriculum import Curriculum, curriculum_callback
from rl.environment import environment_factory, prompt_rows
from rl.plan import curriculum_warnings, describe, run_sizes, settings_without_effect
from rl.prompts import of_levels, read_prompts
from rl.recorder import TrajectoryRecorder
from rl.train import RLArgs
from training import runtime
from training.lora import LoraArgs, check_start, load_start

if TYPE_CHECKING:
    from trl import GRPOConfig

TRAJECTORIES = "trajectories.jsonl"


def trainer_config(config: Config) -> "GRPOConfig":
    """``trl.GRPOConfig`` with our defaults where the user set none; token budgets come from section ``search``.

    Raises ConfigError if ``max_completion_length`` is set and contradicts ``search.total_tokens``.
    """
    from trl import GRPOConfig

    args, search = config.top(RLArgs), config.section("search")
    given = config.explicit.get("max_completion_length", search.total_tokens)
    if given != search.total_tokens:
        raise ConfigError(
            f"max_completion_length {given} contradicts search.total_tokens {search.total_tokens}; set only the latter"
        )
    per_turn = "max_tokens" if config.explicit.get("use_vllm") else "max_new_tokens"
    defaults = (
        runtime.cpu_defaults()
        | get_algorithm(args.algorithm).settings
        | {
            "max_completion_length": search.total_tokens,
            "max_tool_calling_iterations": search.max_turns - 1,
            "generation_kwargs": {per_turn: search.turn_tokens},
            "logging_steps": 1,
            "remove_unused_columns": False,
        }
    )
    try:
        return config.top(GRPOConfig, **defaults)
    except ConfigError as error:
        if "generation_batch_size" not in str(error) or "generation_batch_size" in config.explicit:
            raise
        raise ConfigError(
            f"{error} It is per_device_train_batch_size x gradient_accumulation_steps x processes; make that a multiple"
            " of num_generations"
        ) from error


@dataclass(frozen=True)
class _Inputs:
    names: NameIndex
    rows: list[dict[str, Any]]  # usable prompts of the chosen levels
    other_levels: int  # usable prompts of other levels
    rejects: list[dict[str, Any]]  # prompts
    tools_aside: list[dict[str, Any]]


def _read_inputs(args: RLArgs, lora: LoraArgs) -> _Inputs:
    corpus = read_corpus(args.tools)
    names = NameIndex(spec.id for spec in corpus.specs)
    rows, rejects = read_prompts(args.data, names)
    chosen = of_levels(rows, args.levels, f"the prompts of {args.data}")
    read_manifest(args.data)
    check_start(args.model, lora)
    return _Inputs(names, chosen, len(rows) - len(chosen), rejects, list(corpus.rejects))


def plan(config: Config) -> str:
    """What would be trained, as text for --dry_run. Raises what the run would raise before it trains."""
    args, trl_args = config.top(RLArgs), trainer_config(config)
    check_encoder(args.encoder)
    inputs = _read_inputs(args, config.section("lora"))
    text = describe(config, trl_args, inputs.rows, inputs.names)
    _check_enough(inputs.rows, trl_args, run_sizes(config, trl_args, len(inputs.rows)).prompts_per_generation)
    check_run(args.output_dir, config.resolved(), resume=args.resume, overwrite=args.overwrite)
    return (
        f"RL ({args.algorithm}) of {args.model}: {len(inputs.rows)} prompts ({len(inputs.rejects)} unusable ones left "
        f"out, {inputs.other_levels} of other levels), {len(inputs.names)} tools, max_steps {trl_args.max_steps}, "
        f"learning rate {trl_args.learning_rate}, beta {trl_args.beta}; would write {args.output_dir}\n\n{text}"
    )


def _search_batch(tools: str, encoder: str) -> SearchBatch:
    engine = open_engine(tools, encoder)

    def search_batch(queries: Sequence[str], categories: Sequence[str | None], k: int) -> list[list[Hit]]:
        engine.prefetch(queries)  # all queries of a turn are embedded in one batch, whatever their categories
        return engine.search_batch(queries, categories, k)

    return search_batch


def _trainer(
    config: Config, trl_args: Any, rows: list[dict[str, Any]], names: NameIndex, run: RunDir, start: Any
) -> Any:
    from datasets import Dataset

    from rl.trainer import ToolSearchTrainer

    args, search = config.top(RLArgs), config.section("search")
    algorithm, curriculum = get_algorithm(args.algorithm), Curriculum(config.section("curriculum"), search)
    model, tokenizer, peft_config, search_batch = start
    recorder = TrajectoryRecorder(
        run.path / TRAJECTORIES,
        every=args.record_every,
        groups_per_step=args.record_groups,
        max_mb=args.record_max_mb,
        choice=args.record_choice,
        seed=trl_args.seed,
    )
    trainer = ToolSearchTrainer(
        model=model,
        args=trl_args,
        train_dataset=Dataset.from_list(prompt_rows(rows, names, search)),
        processing_class=tokenizer,
        peft_config=peft_config,
        environment_factory=environment_factory(search_batch, names, curriculum),
        search_batch=search_batch,
        curriculum=curriculum,
        max_dropped_share=args.max_dropped_share,
        credit=algorithm.credit,
        rewards=algorithm.rewards,
        credit_options=config.section("credit"),
        mask_kl=args.mask_kl,
        reward_options=config.section("reward"),
        recorder=recorder,
        # Only with a curriculum: Transformers cannot save a state that the checkpoint it resumed from does not know.
        callbacks=[
            runtime.metrics_callback(run),
            *([curriculum_callback(curriculum)] if curriculum.options.mode != "off" else []),
        ],
    )
    trainer.add_callback(alarm_callback(run.path, config.section("alarms"), lambda: trainer.tasks_behind))
    return trainer


def _saves_inside_a_generation(trl_args: Any) -> bool:
    micro_batches = trl_args.save_steps * trl_args.gradient_accumulation_steps
    reused_for = trl_args.steps_per_generation * trl_args.num_iterations
    return trl_args.save_strategy == "steps" and bool(micro_batches % reused_for)


def train(config: Config) -> None:
    """Train, then write the final model, tokenizer and manifest to ``output_dir``."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    args = config.top(RLArgs)
    trl_args = trainer_config(config)
    if trl_args.use_vllm and find_spec("vllm") is None:  # a dry run may plan for a machine that has it
        raise ConfigError(
            "key 'use_vllm' is true, but vLLM is not installed: pip install -e '.[vllm]', or --use_vllm false"
        )
    runtime.start_distributed_cpu()
    # All that can be wrong with the inputs is found before the folder is claimed, so that a second try needs no flag.
    inputs = _read_inputs(args, config.section("lora"))
    names, rows, rejects = inputs.names, inputs.rows, inputs.rejects
    _check_enough(rows, trl_args, trl_args.generation_batch_size // trl_args.num_generations)
    start = (*load_start(args.model, config.section("lora")), _search_batch(args.tools, args.encoder))
    run = open_run(args.output_dir, config.resolved(), seed=trl_args.seed, resume=args.resume, overwrite=args.overwrite)
    if (rejects or inputs.tools_aside) and run.main:
        write_jsonl(run.path / "rejected.jsonl", [*rejects, *inputs.tools_aside])
    if rejects and run.main:
        print(
            f"warning: {len(rejects)} of {len(rejects) + len(rows)} prompts are unusable; see {run.path}/rejected.jsonl"
        )
    for text in [*settings_without_effect(config), *curriculum_warnings(config, names)] if run.main else ():
        print(f"warning: {text}")
    if run.main and _saves_inside_a_generation(trl_args):
        print(
            f"warning: save_steps {trl_args.save_steps} falls between generations, whose rollouts a checkpoint does not"
            " hold; a resumed run draws new ones and so differs from an unbroken one"
        )
    if runtime.is_complete(run.path, args.resume):
        return
    checkpoint = runtime.rewind(args.output_dir, TRAJECTORIES) if args.resume else None
    with runtime.blaming_lora(config.section("lora").target_modules):
        trainer = _trainer(config, trl_args, rows, names, run, start)
    if checkpoint:
        trainer.curriculum.restore(checkpoint)
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model(args.output_dir)
    if run.main:
        shutil.rmtree(run.path / "ref", ignore_errors=True)  # TRL's copy of a start adapter
        trainer.processing_class.save_pretrained(args.output_dir)
        write_manifest(
            run.path,
            stage="rl",
            inputs=[Path(args.data) / "manifest.json"],
            counts={
                "prompts": len(rows),
                "other_levels": inputs.other_levels,
                "dropped_prompts": len(rejects),
                "steps": trainer.state.global_step,
            },
            seed=trl_args.seed,
        )
        print(f"RL: {trainer.state.global_step} steps on {len(rows)} prompts; model in {args.output_dir}")
    runtime.stop_distributed()


def _check_enough(rows: list[dict[str, Any]], trl_args: Any, needed: int) -> None:
    """TRL drops an incomplete last batch: with too few prompts it would train nothing and end well."""
    if len(rows) < needed:
        raise DataError(
            f"{len(rows)} prompts are fewer than the {needed} of one generation (generation_batch_size "
            f"{needed * trl_args.num_generations} / num_generations {trl_args.num_generations}); give more prompts or "
            "lower per_device_train_batch_size"
        )
