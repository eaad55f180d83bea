"""Gradients on one fixed batch of rollouts: removed events, how it is cut into micro-batches, one rank or two."""

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
from rl import run, train

Make = Callable[..., Any]
CASES = {
    "toolsearcher": {},
    "toolsearcher, KL on all turns": {"beta": 0.1, "credit__useless_cost": 0.1},
    "toolsearcher, KL on kept events": {"beta": 0.1, "mask_kl": True},
    "toolsearcher, loss per sequence": {"loss_type": "grpo"},
    "toolsearcher, ratio per sequence": {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    "grpo with KL": {"algorithm": "grpo", "beta": 0.1},
    "gspo": {"algorithm": "gspo"},
}


@pytest.fixture(scope="module")
def make(
    small_world: Path, rl_argv: Callable[..., list[str]], tmp_path_factory: pytest.TempPathFactory, scripted: ModuleType
) -> Make:
    """(key=value ...) -> a trainer whose rollouts are scripted, as if training had started."""
    from rl import trainer as module
    from training.lora import load_start

    def build(**keys: Any) -> Any:
        out = tmp_path_factory.mktemp("run")
        argv = rl_argv(small_world, out, record_every=0, per_device_train_batch_size=8, num_iterations=2, **keys)
        config = load_config(argv, train.SECTIONS, prog="test", description="")
        names = NameIndex(spec.id for spec in load_tools(str(small_world)))
        rows, _ = run.read_prompts(small_world, names)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "ToolSearchTrainer", scripted.ScriptedTrainer)
            start = (
                *load_start(str(small_world / "model"), config.section("lora")),
                run._search_batch(str(small_world), "bm25"),
            )
            trainer = run._trainer(config, run.trainer_config(config), rows, names, RunDir(out), start)
        trainer.model.train()
        trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps
        return trainer

    return build


def moved(trainer: Any) -> None:
    """Move the policy off its reference and off the policy that spoke, so that KL and ratio are not trivial."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.add_(0.002 * torch.randn_like(parameter))


def rollouts(trainer: Any) -> dict[str, Any]:
    """Two prompts x four rollouts through TRL's own scoring; the policy has moved since."""
    rows = [trainer.train_dataset[i // 4] for i in range(8)]
    trainer.state.global_step = 1  # the script of odd steps: rollouts 6 and 7 answer at once, the others search
    out = trainer._generate_and_score_completions(rows)
    moved(trainer)
    return out


def gradient(trainer: Any, micro_batches: list[dict[str, Any]]) -> torch.Tensor:
    trainer.model.zero_grad()
    for batch in micro_batches:
        trainer.compute_loss(trainer.model, batch).backward()
    return torch.cat([p.grad.flatten() for p in trainer.model.parameters()])


@pytest.mark.parametrize("case", CASES)
def test_micro_batches_do_not_change_the_gradient(case: str, make: Make) -> None:
    """1x8, 2x4 and 8x1: the denominators are those of the whole batch, whatever its cut (old log-probs included)."""
    from trl.trainer.utils import split_tensor_dict

    trainer = make(**CASES[case])
    out = rollouts(trainer)
    assert "old_per_token_logps" in out
    found = []
    for parts in (1, 2, 8):
        trainer.args.steps_per_generation = trainer.args.gradient_accumulation_steps = parts
        trainer.current_gradient_accumulation_steps = parts
        found.append(gradient(trainer, split_tensor_dict(out, parts)))
    assert found[0].norm() > 1e-3
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("case", ["toolsearcher", "toolsearcher, KL on kept events", "toolsearcher, KL on all turns"])
def test_tokens_of_a_removed_event(case: str, make: Make) -> None:
    """Shout on the tokens of removed events: their advantages and, where they have left the KL, their reference."""
    trainer = make(**{**CASES[case], "credit__useless_cost": 0})
    out = rollouts(trainer)
    _, kept = by_event(trainer, out)
    removed = (1 - kept) * out["completion_mask"]
    assert removed.sum() > 50
    base = gradient(trainer, [out])
    keeps_kl = case.endswith("all turns")
    if keeps_kl:  # such an event is under the mask; its advantage is exactly 0, its KL is not
        assert (out["advantages"] * removed == 0).all()
        assert (out["tool_mask"] * removed).sum() > 50
    else:
        loud = {**out, "advantages": out["advantages"] + 1e3 * removed}
        torch.testing.assert_close(gradient(trainer, [loud]), base, atol=0, rtol=0)
    if "ref_per_token_logps" in out:
        loud = {**out, "ref_per_token_logps": out["ref_per_token_logps"] - 0.5 * removed}
        same = torch.equal(gradient(trainer, [loud]), base)
        assert same != keeps_kl


SEQUENCES = ["toolsearcher, loss per sequence", "toolsearcher, ratio per sequence"]


@pytest.mark.parametrize("case", SEQUENCES)
def test_a_rollout_without_kept_events_is_no_division_by_zero(case: str, make: Make) -> None:
    """Its mean over no tokens is 0, and the other rollouts' gradient is what it is without it."""
    trainer = make(**CASES[case])
    out = rollouts(trainer)
    kept = (out["tool_mask"] * out["completion_mask"]).sum(dim=1)
    some = kept > 0
    assert some.any() and not some.all()
    whole = gradient(trainer, [out])
    others = gradient(trainer, [{k: v[some] if v.dim() else v for k, v in out.items()}])
    torch.testing.assert_close(whole, others * some.sum() / len(some), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("case", ["toolsearcher", *SEQUENCES])
def test_where_nothing_is_kept_the_gradient_is_zero_and_a_number(case: str, make: Make) -> None:
    trainer = make(**CASES[case])
    inner = trainer._credit

    def nothing(*args: Any) -> Any:
        credit = inner(*args)
        credit.keep[:] = False
        return credit

    trainer._credit = nothing
    assert gradient(trainer, [rollouts(trainer)]).tolist() == [0.0] * sum(p.numel() for p in trainer.model.parameters())


def by_event(trainer: Any, out: dict[str, Any]) -> tuple[Any, Any]:
    """[B, T] generated and kept, from the events' spans and a fresh credit; not from the trainer's own masks."""
    credit, _ = trainer._group_credit(8)
    generated, kept = (torch.zeros_like(out["completion_ids"]) for _ in range(2))
    for i, rollout in enumerate(trainer._rollouts):
        for e, (start, end) in enumerate(rollout.spans):
            generated[i, start:end] = 1
            kept[i, start:end] = int(credit.keep[i, e])
    return generated, kept


@pytest.mark.parametrize("case", ["toolsearcher", "toolsearcher, KL on all turns", "grpo with KL"])
def test_a_dropped_rollout_is_as_if_it_had_never_been(case: str, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tokens are under no term, and the others' gradient is that of a batch whose mean leaves it out."""
    import rl.trainer as module

    trainer = make(**CASES[case])
    seen: list[Any] = []

    def fourth(trajectory: Any) -> bool:
        return trajectory in seen

    inner = module.ToolSearchTrainer._selection_reward

    def reward(self: Any, environments: Any, **rest: Any) -> list[float]:
        seen[:] = [environments[3].episode.trajectory()]
        return inner(self, environments, **rest)

    monkeypatch.setattr(module, "is_dropped", fourth)
    monkeypatch.setattr(module.ToolSearchTrainer, "_selection_reward", reward)
    trainer.reward_funcs = [trainer._selection_reward]
    out = rollouts(trainer)
    assert not (out["tool_mask"] * out["completion_mask"])[3].any()
    others = [i for i in range(8) if i != 3]
    part = {k: v[others] if v.dim() else v for k, v in out.items()}
    whole = gradient(trainer, [out])
    assert whole.norm() > 1e-3
    if trainer.loss_type == "grpo":  # the policy term is a mean over 7 rollouts; TRL divides the KL term by 8
        credit, _ = trainer._group_credit(8)
        part["advantages"] = part["tool_mask"] * torch.tensor(credit.advantages[others][:, :1], dtype=torch.float32)
        trainer.beta = trainer.beta * 7 / 8
    torch.testing.assert_close(gradient(trainer, [part]), whole, atol=1e-6, rtol=1e-4)
