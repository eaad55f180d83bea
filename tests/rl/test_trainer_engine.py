"""The trainer with an engine that gives sampling log-probs, as vLLM does: where they stand, drift, and its alarm.

vLLM itself is not here: a stand-in takes TRL's call and scores its scripted turns with the model that is trained.
"""

import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from autotools.config import load_config
from autotools.rundir import RunDir
from autotools.search.answer import NameIndex
from retriever.corpus import load_tools
from rl import run
from rl.alarm_rules import AlarmOptions
from rl.alarms import AlarmMonitor
from rl.train import SECTIONS


class Engine:
    """What ``trainer.vllm_generation`` does. ``shift`` is added to each log-prob; the very first is missing (None).

    Rollouts of the second prompt have half the shift.
    """

    def __init__(self, trainer: Any, turn_of: Callable[..., str], shift: float):
        self.trainer, self.turn_of, self.shift = trainer, turn_of, torch.full((12, 1), shift)
        self.shift[4:8] /= 2
        self.synced, self.calls = 0, 0

    def sync_weights(self) -> None:
        self.synced += 1

    def generate(self, prompts: list[list[int]], images: Any, num_generations: int, profiler: Any) -> tuple:
        live = [(i, e) for i, e in enumerate(self.trainer._episodes()) if not e.done]
        assert len(live) == len(prompts) and num_generations == (1 if self.calls else 4)
        ids, scores = [], []
        for (i, episode), prompt in zip(live, prompts, strict=True):
            text = self.turn_of(1, i, len(episode.events), episode.targets) + "<|im_end|>"
            new = self.trainer._tokenizer(text, add_special_tokens=False)["input_ids"]
            with torch.no_grad():
                logits = self.trainer.model(torch.tensor([prompt + new])).logits[0, len(prompt) - 1 : -1]
            chosen = logits.log_softmax(-1).gather(1, torch.tensor(new)[:, None])[:, 0]
            ids.append(new)
            scores.append([[float(value + self.shift[i, 0])] for value in chosen])
        if not self.calls:
            scores[0][0] = [None]  # type: ignore[list-item]
        self.calls += 1
        return prompts, ids, scores, None


@pytest.fixture
def make(small_world: Path, rl_argv: Callable[..., list[str]], tmp_path: Path, scripted: ModuleType) -> Any:
    from training.lora import load_start

    def build(shift: float, **keys: Any) -> Any:
        config = load_config(rl_argv(small_world, tmp_path, record_every=0, **keys), SECTIONS, prog="x", description="")
        names = NameIndex(spec.id for spec in load_tools(str(small_world)))
        rows, _ = run.read_prompts(small_world, names)
        start = (
            *load_start(str(small_world / "model"), config.section("lora")),
            run._search_batch(str(small_world), "bm25"),
        )
        trainer = run._trainer(config, run.trainer_config(config), rows, names, RunDir(tmp_path), start)
        trainer.use_vllm, trainer._last_loaded_step = True, -1
        trainer.vllm_generation = Engine(trainer, scripted.scripted_turn, shift)
        trainer.model.train()
        trainer.current_gradient_accumulation_steps = 1
        return trainer

    return build


def batch_of(trainer: Any) -> dict[str, Any]:
    return trainer._generate_and_score_completions([trainer.train_dataset[i // 4] for i in range(12)])


@pytest.mark.parametrize("shift", [0.0, 0.25])
def test_sampling_log_probs_stand_on_their_tokens(shift: float, make: Any) -> None:
    """Of all turns, also after observations: the drift that TRL measures is the shift, and nothing beside it."""
    trainer = make(shift)
    shifts = trainer.vllm_generation.shift
    out = batch_of(trainer)
    engine = trainer.vllm_generation
    assert engine.calls == 4 and engine.synced == 1  # one call a turn for all rollouts; weights once a step
    generated = torch.zeros_like(out["completion_ids"])
    for i, rollout in enumerate(trainer._rollouts):
        for start, end in rollout.spans:
            generated[i, start:end] = 1
    assert {len(r.spans) for r in trainer._rollouts} == {1, 4}
    sampled, trained = out["sampling_per_token_logps"], out["old_per_token_logps"]
    assert math.isnan(sampled[0, 0]) and not sampled[generated == 0].any()
    sampled[0, 0] = trained[0, 0] + shift
    torch.testing.assert_close(sampled * generated, (trained + shifts) * generated, atol=1e-4, rtol=0)
    figures = {name: values[-1] for name, values in trainer._metrics["train"].items()}
    assert figures["sampling/sampling_logp_difference/mean"] == pytest.approx(
        float((shifts * generated).sum() / generated.sum()), rel=0.02, abs=1e-4
    )  # TRL leaves the missing one out
    assert trainer.compute_loss(trainer.model, out).isfinite()
    raised = {a.name: a for a in AlarmMonitor(AlarmOptions(window=1)).update(1, figures, trainer.tasks_behind)}
    assert ("drift" in raised) == (shift > 0.1)
    if shift:  # the farthest first
        order = [t.task_id for t in trainer.trajectories[::4]]
        assert raised["drift"].tasks[2:] == [order[1]] and set(raised["drift"].tasks[:2]) == {order[0], order[2]}


def test_a_correction_per_token_acts_on_generated_tokens_only(make: Any) -> None:
    trainer = make(0.25, vllm_importance_sampling_mode="token_truncate")
    out = batch_of(trainer)
    ratio, generated = out["importance_sampling_ratio"], torch.zeros_like(out["completion_ids"])
    for i, rollout in enumerate(trainer._rollouts):
        for start, end in rollout.spans:
            generated[i, start:end] = 1
    want = torch.where(generated == 1, (-trainer.vllm_generation.shift).exp(), 1.0)
    want[0, 0] = 1.0  # no score, no correction
    torch.testing.assert_close(ratio, want, atol=1e-4, rtol=0)
