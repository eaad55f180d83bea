"""The gradient of one fixed batch of scripted rollouts, over the ranks that torchrun started. Run by test_two_ranks.py.

python gradient_run.py OUT ARGV...: the keys of rl/train.py. Rank 0 writes OUT: mean gradient over ranks (what DDP
gives) and its norm. Eight rollouts in all, whatever the number of ranks.
"""

import os
import sys
from pathlib import Path

import torch
from scripted_run import ScriptedTrainer

from autotools.config import load_config
from autotools.rundir import RunDir
from autotools.search.answer import NameIndex
from retriever.corpus import load_tools
from rl import run, train
from rl import trainer as rl_trainer
from training.lora import load_start
from training.runtime import stop_distributed

ROLLOUTS = 8


def main(out: str, argv: list[str]) -> None:
    rl_trainer.ToolSearchTrainer = ScriptedTrainer  # type: ignore[misc]
    config = load_config(argv, train.SECTIONS, prog="gradient_run", description="")
    trl_args = run.trainer_config(config)
    world = config.top(train.RLArgs).tools
    names = NameIndex(spec.id for spec in load_tools(world))
    rows, _ = run.read_prompts(world, names)
    start = (*load_start(f"{world}/model", config.section("lora")), run._search_batch(world, "bm25"))
    trainer = run._trainer(config, trl_args, rows, names, RunDir(Path(out).parent), start)
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    trainer.state.global_step = 1
    ranks, rank = trainer.accelerator.num_processes, trainer.accelerator.process_index
    local = range(rank * ROLLOUTS // ranks, (rank + 1) * ROLLOUTS // ranks)
    batch = trainer._generate_and_score_completions([trainer.train_dataset[i // 4] for i in local])
    trainer.compute_loss(trainer.model, batch).backward()
    gradient = torch.cat([p.grad.flatten() for p in trainer.model.parameters()])
    if ranks > 1:
        torch.distributed.all_reduce(gradient)
    if rank == 0:
        torch.save({"gradient": gradient / ranks, "ranks": ranks}, out)
    stop_distributed()


if __name__ == "__main__":
    assert int(os.environ.get("WORLD_SIZE", "1")) in (1, 2)
    main(sys.argv[1], sys.argv[2:])
