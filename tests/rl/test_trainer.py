"""The trainer on TRL's own tensors: masks, advantages and gradients against formulas written out here."""

import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from autotools.config import load_config
from autotools.rundir import RunDir
from autotools.search.answer import NameIndex
from retriever.corpus import load_tools
from rl import run
from rl.credit import Credit, CreditOptions, RolloutArrays, event_credit
from rl.train import SECTIONS

HOOKS = {
    "_get_train_sampler": "(self, dataset: datasets.arrow_dataset.Dataset | None = None) -> "
    "torch.utils.data.sampler.Sampler",
    "_tokenize_prompts": "(self, prompts: list)",
    "_generate_single_turn": "(self, prompt_ids, images, multimodal_fields, num_generations, has_tool_images=False)",
    "_tool_call_loop": "(self, prompts, prompt_ids, completion_ids, completions, logprobs, images, multimodal_fields)",
    "_calculate_rewards": "(self, inputs, prompts, completions, completion_ids_list)",
    "_generate_and_score_completions": "(self, inputs: list[dict[str, torch.Tensor | typing.Any]]) -> "
    "dict[str, torch.Tensor | typing.Any]",
    "_load_from_checkpoint": "(self, resume_from_checkpoint: str, model: torch.nn.modules.module.Module | None = None)"
    " -> None",
}


@pytest.mark.parametrize("hook", HOOKS)
def test_private_hooks_of_trl_are_as_we_know_them(hook: str) -> None:
    from trl import GRPOTrainer

    seen = str(inspect.signature(inspect.unwrap(getattr(GRPOTrainer, hook))))
    assert seen == HOOKS[hook], f"TRL changed GRPOTrainer.{hook}: re-read rl/trainer.py against the new source"


def test_what_the_tool_loop_returns_is_what_trl_unpacks() -> None:
    from trl import GRPOTrainer

    source = " ".join(inspect.getsource(GRPOTrainer._generate).split())
    wanted = (
        "( tool_mask, completions, completion_ids, logprobs, tool_call_count, tool_failure_count, tool_images, ) = "
        "self._tool_call_loop("
    )
    assert wanted in source, "TRL unpacks _tool_call_loop otherwise: re-read rl/trainer.py"


Make = Callable[..., Any]


@pytest.fixture(scope="module")
def make(small_world: Path, rl_argv: Callable[..., list[str]], tmp_path_factory: pytest.TempPathFactory) -> Make:
    """(class, key=value ...) -> a trainer of that class, in training mode and not started."""
    from rl import trainer as module
    from training.lora import load_start

    def build(cls: type, credit: Any = None, **keys: Any) -> Any:
        out = tmp_path_factory.mktemp("run")
        config = load_config(rl_argv(small_world, out, **keys), SECTIONS, prog="test", description="")
        trl_args = run.trainer_config(config)
        names = NameIndex(spec.id for spec in load_tools(str(small_world)))
        rows, _ = run.read_prompts(small_world, names)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "ToolSearchTrainer", cls)
            start = (
                *load_start(str(small_world / "model"), config.section("lora")),
                run._search_batch(str(small_world), "bm25"),
            )
            trainer = run._trainer(config, trl_args, rows, names, RunDir(out), start)
        trainer.model.train()
        trainer.current_gradient_accumulation_steps = 1
        if credit is not None:
            trainer._credit = credit
        return trainer

    return build


def batch_of(trainer: Any) -> dict[str, Any]:
    """Three prompts x four rollouts through TRL's own scoring."""
    rows = [trainer.train_dataset[i // 4] for i in range(12)]
    return trainer._generate_and_score_completions(rows)


def gradient(loss: Any, trainer: Any) -> Any:
    import torch

    trainer.model.zero_grad()
    loss.backward()
    return torch.cat([p.grad.flatten() for p in trainer.model.parameters()])


def log_probs(trainer: Any, out: dict[str, Any], model: Any = None) -> Any:
    """[B, T] log-probabilities of the completion tokens by a plain forward pass."""
    import torch

    ids = torch.cat([out["prompt_ids"], out["completion_ids"]], dim=1)
    mask = torch.cat([out["prompt_mask"], out["completion_mask"]], dim=1)
    logits = (model or trainer.model)(input_ids=ids, attention_mask=mask).logits
    width = out["completion_ids"].shape[1]
    logits = logits[:, -width - 1 : -1]
    return logits.log_softmax(-1).gather(2, out["completion_ids"][:, :, None])[:, :, 0]


def by_hand(trainer: Any, credit: Credit, width: int) -> tuple[Any, Any, Any]:
    """[B, T] advantage, kept and generated, from the events' own token counts; built without spans or masks."""
    import torch

    advantages, kept, generated = (torch.zeros(12, width) for _ in range(3))
    for i, episode in enumerate(trainer._episodes()):
        position = 0
        for e, event in enumerate(episode.events):
            length = len(trainer._tokenizer(event.text + "<|im_end|>", add_special_tokens=False)["input_ids"])
            generated[i, position : position + length] = 1
            if credit.keep[i, e]:
                advantages[i, position : position + length] = float(credit.advantages[i, e])
                kept[i, position : position + length] = 1
            position += length + len(trainer._renderer.between_ids(event.observation or ""))
    return advantages, kept, generated


def spy(trainer: Any) -> list[Credit]:
    """The credits that the trainer computes from now on."""
    seen: list[Credit] = []
    inner = trainer._credit

    def record(batch: RolloutArrays, options: CreditOptions) -> Credit:
        seen.append(inner(batch, options))
        return seen[-1]

    trainer._credit = record
    return seen


def test_runs_of_ones_before_masking_are_the_turns(make: Make, scripted: ModuleType) -> None:
    trainer = make(scripted.ScriptedTrainer, beta=0.01)  # with a KL term no event leaves tool_mask
    out = batch_of(trainer)
    mask = (out["completion_mask"] * out["tool_mask"]).bool()
    kinds = set()
    for i, episode in enumerate(trainer._episodes()):
        edges = np.flatnonzero(np.diff(mask[i].int().numpy(), prepend=0, append=0))
        runs = [out["completion_ids"][i, a:b].tolist() for a, b in zip(edges[::2], edges[1::2], strict=True)]
        assert [trainer._tokenizer.decode(r) for r in runs] == [e.text + "<|im_end|>" for e in episode.events]
        kinds |= {e.kind.value for e in episode.events}
    assert {"search", "answer", "malformed_call", "over_limit"} <= kinds
    assert {len(e.events) for e in trainer._episodes()} == {1, 4}


def test_event_advantages_stand_on_their_tokens(make: Make, scripted: ModuleType) -> None:
    trainer = make(scripted.ScriptedTrainer)
    credits = spy(trainer)
    out = batch_of(trainer)
    advantages, kept, generated = by_hand(trainer, credits[0], out["completion_ids"].shape[1])
    assert 0 < kept.sum() < generated.sum() and (advantages != 0).any()
    np.testing.assert_allclose(out["advantages"].numpy(), advantages.numpy(), atol=1e-6)
    assert ((out["completion_mask"] * out["tool_mask"]) == kept).all()
    assert int(out["num_items_in_batch"]) == int(kept.sum())
    share = trainer._metrics["train"]["credit/kept_token_share"][-1]
    assert share == pytest.approx(float(kept.sum() / generated.sum()))


def test_gradient_is_the_mean_over_kept_tokens(make: Make, scripted: ModuleType) -> None:
    import torch

    trainer = make(scripted.ScriptedTrainer)
    credits = spy(trainer)
    out = batch_of(trainer)
    advantages, kept, _ = by_hand(trainer, credits[0], out["completion_ids"].shape[1])
    want = gradient(-(advantages * kept * log_probs(trainer, out)).sum() / kept.sum(), trainer)
    assert want.norm() > 1e-3
    torch.testing.assert_close(gradient(trainer.compute_loss(trainer.model, out), trainer), want, atol=1e-6, rtol=1e-4)


def test_a_removed_event_has_no_gradient_at_all(make: Make, scripted: ModuleType) -> None:
    import torch

    def shouting(batch: RolloutArrays, options: CreditOptions) -> Credit:
        credit = event_credit(batch, options)
        credit.advantages = np.where(credit.keep, credit.advantages, 1e3)
        return credit

    plain, loud = make(scripted.ScriptedTrainer), make(scripted.ScriptedTrainer, credit=shouting)
    first, second = batch_of(plain), batch_of(loud)
    second["advantages"] = second["advantages"] + 1e3 * (1 - second["tool_mask"])  # and past the spreading, too
    grads = [gradient(t.compute_loss(t.model, out), t) for t, out in ((plain, first), (loud, second))]
    assert grads[0].norm() > 1e-3
    torch.testing.assert_close(grads[0], grads[1], atol=0, rtol=0)


@pytest.mark.parametrize("removed", ["some", "all"])
def test_with_a_kl_term_each_mean_has_its_own_tokens(make: Make, scripted: ModuleType, removed: str) -> None:
    """Policy term: mean over kept tokens. KL term (k3): mean over all generated ones, also when nothing is kept.

    TRL's default multiplies the KL by the ratio, which is 1 here but has a gradient.
    """
    import torch

    def nothing(batch: RolloutArrays, options: CreditOptions) -> Credit:
        credit = event_credit(batch, options)
        credit.keep = np.zeros_like(credit.keep)
        return credit

    trainer = make(scripted.ScriptedTrainer, credit=nothing if removed == "all" else None, beta=0.1)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    credits = spy(trainer)
    out = batch_of(trainer)
    advantages, kept, generated = by_hand(trainer, credits[0], out["completion_ids"].shape[1])
    with torch.no_grad():
        reference = log_probs(trainer, out, trainer.ref_model)
    current = log_probs(trainer, out)
    ratio = (current - current.detach()).exp()
    kl = ((reference - current).exp() - (reference - current) - 1) * ratio * generated
    assert kl.sum() > 1e-3
    policy = -(advantages * kept * current).sum() / kept.sum().clamp(min=1)
    want = gradient(policy + 0.1 * kl.sum() / generated.sum(), trainer)
    got = gradient(trainer.compute_loss(trainer.model, out), trainer)
    torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-4)


def test_a_fault_in_the_credit_ends_the_step_and_is_not_trained_over(make: Make, scripted: ModuleType) -> None:
    def broken(batch: RolloutArrays, options: CreditOptions) -> Credit:
        raise ZeroDivisionError("in the credit")

    with pytest.raises(ZeroDivisionError, match="in the credit"):
        batch_of(make(scripted.ScriptedTrainer, credit=broken))


def test_mask_kl_removes_events_from_the_kl_term(make: Make, scripted: ModuleType) -> None:
    trainer = make(scripted.ScriptedTrainer, beta=0.1, mask_kl=True)
    credits = spy(trainer)
    out = batch_of(trainer)
    _, kept, _ = by_hand(trainer, credits[0], out["completion_ids"].shape[1])
    assert ((out["completion_mask"] * out["tool_mask"]) == kept).all()
    assert int(out["num_items_in_batch"]) == int(kept.sum())


def test_rewards_and_metrics_are_those_of_the_trajectories(make: Make, scripted: ModuleType) -> None:
    from evaluation.selection import score_trajectory

    trainer = make(scripted.ScriptedTrainer, reward__format_bonus=0.125)
    batch_of(trainer)
    scores = [score_trajectory(t) for t in trainer.trajectories]
    metrics = {name: values[-1] for name, values in trainer._metrics["train"].items()}
    for name in ("srecall", "recall", "precision", "searches", "useless_searches", "answered"):
        assert metrics[name] == pytest.approx(np.mean([s[name] for s in scores]), abs=1e-6)
    assert metrics["reward_f1"] == pytest.approx(np.mean([s["f1"] for s in scores]), abs=1e-6)
    assert metrics["reward"] == pytest.approx(np.mean([s["f1"] + 0.125 * s["answered"] for s in scores]), abs=1e-6)
    assert 0 < metrics["srecall"] < 1 and 0 < metrics["answered"] < 1


def test_outcome_credit_gives_trls_own_advantages(make: Make, scripted: ModuleType) -> None:
    """Algorithm grpo against the advantages that TRL computed for the same rollouts before ours replaced them."""
    trainer = make(scripted.ScriptedTrainer, algorithm="grpo")
    assert trainer.loss_type == "grpo"
    out = batch_of(trainer)
    trl = np.array(list(trainer._logs["advantages"])[-12:])
    generated = (out["completion_mask"] * out["tool_mask"]).bool()
    for i in range(12):
        # TRL adds 1e-4 to the deviation, we 1e-6
        np.testing.assert_allclose(out["advantages"][i][generated[i]].numpy(), trl[i], rtol=2e-3, atol=1e-6)
    assert (trl != 0).any()


def test_recorded_groups(make: Make, scripted: ModuleType) -> None:
    from autotools.rundir import read_jsonl

    trainer = make(scripted.ScriptedTrainer)
    batch_of(trainer)
    rows = read_jsonl(trainer._recorder.path)
    assert [(r["group"], r["rollout"]) for r in rows] == [(g, i) for g in range(2) for i in range(4)]
    assert [r["trajectory"]["task_id"] for r in rows] == [t.task_id for t in trainer.trajectories[:8]]


def test_recorded_tokens_are_those_under_the_loss(make: Make, scripted: ModuleType) -> None:
    """Span, texts and credit of each recorded event against TRL's own batch: ids, mask and advantages by position."""
    from autotools.rundir import read_jsonl

    trainer = make(scripted.ScriptedTrainer)
    out = batch_of(trainer)
    mask = (out["completion_mask"] * out["tool_mask"]).numpy()
    kinds = set()
    for i, row in enumerate(read_jsonl(trainer._recorder.path)):
        covered = np.zeros(mask.shape[1], dtype=bool)
        for event, credit in zip(row["trajectory"]["events"], row["credit"], strict=True):
            start, end = credit["span"]
            assert "".join(credit["tokens"]) == event["text"] + "<|im_end|>"
            assert credit["tokens"] == [trainer._tokenizer.decode([t]) for t in out["completion_ids"][i, start:end]]
            assert (mask[i, start:end] == credit["kept"]).all()
            want = credit["advantage"] if credit["kept"] else 0.0
            np.testing.assert_allclose(out["advantages"][i, start:end].numpy(), want, atol=1e-4)
            covered[start:end] = True
            kinds.add(credit["kept"])
        assert not mask[i, ~covered].any()
    assert kinds == {True, False}
