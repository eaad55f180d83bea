"""The SFT run itself: data -> TRL SFTTrainer -> final model. Thin: TRL owns optimisation, checkpoints and logging."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotools.chat import ChatRenderer
from autotools.config import Config
from autotools.errors import ConfigError
from autotools.rundir import RunDir, check_run, open_run, read_manifest, write_manifest
from retriever.corpus import find_corpus, load_tools
from training import runtime
from training.lora import LoraArgs, check_start, load_start
from training.sft import SFTArgs
from training.sft_data import check_tasks, encode_records, mix_tasks, read_records
from training.tiny import answered_names, build_model, build_tokenizer, tool_id_pieces

if TYPE_CHECKING:
    from trl import SFTConfig


def trainer_config(config: Config) -> "SFTConfig":
    """``trl.SFTConfig`` with our defaults where the user set none (CPU: no bf16, no gradient checkpointing)."""
    from trl import SFTConfig

    args = config.top(SFTArgs)
    defaults = runtime.cpu_defaults() | {"packing": False, "logging_steps": 10, "save_total_limit": 2}
    if args.keep_best and "eval_steps" in config.explicit:
        every = config.explicit["eval_steps"]
        defaults |= {"eval_strategy": "steps", "save_strategy": "steps", "save_steps": every}
        defaults |= {"load_best_model_at_end": True, "metric_for_best_model": "eval_loss", "greater_is_better": False}
    return config.top(SFTConfig, **defaults)


def _read_data(args: SFTArgs) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    splits = [read_records(args.data, split, args.mixture) for split in ("train", "dev")]
    for rows in splits:
        check_tasks(rows, args.mixture)
    read_manifest(args.data)
    return splits[0], splits[1]


def plan(config: Config) -> str:
    """What would be trained, as text for --dry_run. Raises what the run would raise before it trains."""
    args, trl_args = config.top(SFTArgs), trainer_config(config)
    rows, _ = _read_data(args)
    _check_start(args, config.section("lora"))
    check_run(args.output_dir, config.resolved(), resume=args.resume, overwrite=args.overwrite)
    batch = trl_args.per_device_train_batch_size * trl_args.gradient_accumulation_steps
    return (
        f"SFT of {args.model} on {len(rows)} records of {args.data} (mixture {json.dumps(args.mixture)}), "
        f"{batch} conversations per step and device, max_steps {trl_args.max_steps}, "
        f"epochs {trl_args.num_train_epochs}, learning rate {trl_args.learning_rate}; would write {args.output_dir}"
    )


def _check_start(args: SFTArgs, lora: LoraArgs) -> None:
    if args.model != "tiny":
        check_start(args.model, lora)
    elif lora.r:
        raise ConfigError(
            f"lora.r {lora.r} with model 'tiny': it is made anew in each run, so nothing could load the adapter alone; "
            "leave lora.r out"
        )
    elif args.tools:
        find_corpus(args.tools)


def _start(config: Config, rows: list[dict[str, Any]], seed: int) -> tuple[Any, Any, Any]:
    """As ``load_start``."""
    args, lora = config.top(SFTArgs), config.section("lora")
    _check_start(args, lora)
    if args.model != "tiny":
        return load_start(args.model, lora)
    tiny = config.section("tiny")
    texts = [m["content"] for row in rows for m in row["messages"] if m["role"] != "system"]
    ids = [spec.id for spec in load_tools(args.tools)] if args.tools else []
    names = answered_names(texts, ids, tiny.max_names)
    tokenizer = build_tokenizer(texts, tool_id_pieces(map(str, names)), tiny)
    return build_model(tokenizer, tiny, seed), tokenizer, None


def train(config: Config) -> None:
    """Train, then write the final model, tokenizer and manifest to ``output_dir``."""
    args = config.top(SFTArgs)
    trl_args = trainer_config(config)
    runtime.start_distributed_cpu()
    rows, dev_rows = _read_data(args)
    if args.max_records:
        rows = _first_per_task(rows, args.max_records)
    # All that can be wrong with the inputs is found before the folder is claimed, so that a second try needs no flag.
    model, tokenizer, peft_config = _start(config, rows, trl_args.seed)
    renderer = ChatRenderer(tokenizer)
    limit = trl_args.max_length or 1_000_000
    encoded, counts = encode_records(rows, renderer, limit)
    dev, dev_counts = encode_records(dev_rows, renderer, limit)
    run = open_run(args.output_dir, config.resolved(), seed=trl_args.seed, resume=args.resume, overwrite=args.overwrite)
    if runtime.is_complete(run.path, args.resume):
        return
    checkpoint = runtime.rewind(args.output_dir) if args.resume else None
    with runtime.blaming_lora(config.section("lora").target_modules):
        trainer = _trainer(config, trl_args, (model, tokenizer, peft_config), encoded, dev, run)
    trainer._total_train_tokens = runtime.tokens_seen(checkpoint)
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model(args.output_dir)
    if run.main:
        tokenizer.save_pretrained(args.output_dir)
        best = {"best_step": trainer.state.best_global_step, "best_eval_loss": trainer.state.best_metric}
        write_manifest(
            run.path,
            stage="sft",
            inputs=[Path(args.data) / "manifest.json"],
            counts={"train": dict(counts), "dev": dict(dev_counts), "steps": trainer.state.global_step},
            seed=trl_args.seed,
            extra=best,
        )
        print(f"SFT: {trainer.state.global_step} steps, {counts['kept']} records, {best}; model in {args.output_dir}")
    runtime.stop_distributed()


def _first_per_task(rows: list[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    seen: dict[str, int] = {}
    out = []
    for row in rows:
        seen[row["task"]] = seen.get(row["task"], 0) + 1
        if seen[row["task"]] <= limit:
            out.append(row)
    return out


def _trainer(
    config: Config, trl_args: Any, start: tuple[Any, Any, Any], train_rows: list, dev_rows: list, run: RunDir
) -> Any:
    from trl import SFTTrainer

    mixture = config.top(SFTArgs).mixture
    model, tokenizer, peft_config = start
    return SFTTrainer(
        model=model,
        args=trl_args,
        train_dataset=mix_tasks(train_rows, mixture, trl_args.seed),
        eval_dataset=mix_tasks(dev_rows, mixture, trl_args.seed),
        processing_class=tokenizer,
        peft_config=peft_config,
        callbacks=[runtime.metrics_callback(run)],
    )
