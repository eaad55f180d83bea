"""TRL's GRPOTrainer with the search episode as its turn loop and per-event advantages.

TRL keeps: batching, optimisation, loss variants, KL, vLLM, checkpoints, logging. Ours, by overriding five private
hooks of trl 1.16 (tests pin their signatures):

- ``_get_train_sampler``: a resumed run continues the order of the prompts;
- ``_tokenize_prompts``: prompts come from the one renderer;
- ``_generate_single_turn``: ranks generate in lockstep (equal batch sizes), the reason stands there;
- ``_tool_call_loop``: the shared turn loop; a malformed call is answered instead of ending the rollout, all searches
  of a turn reach the engine in one call, and event spans are recorded instead of guessed from masks;
- ``_generate_and_score_completions``: (B,) advantages become (B, T) by event.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from torch.utils.data import Sampler
from trl import GRPOTrainer
from trl.trainer.utils import RepeatSampler

from autotools.chat import ChatRenderer
from autotools.schema import Trajectory
from autotools.search.episode import Episode, SearchBatch
from autotools.search.prompt import SEARCH_TOOL
from autotools.search.rollout import Rollout, take_turns
from evaluation.selection import score_trajectory
from rl.credit import Credit, CreditOptions, RolloutArrays, pack_rollouts
from rl.recorder import CreditedTrajectory, TrajectoryRecorder
from rl.rewards import RewardOptions, reward_parts

TOKEN_MEAN_LOSSES = ("dapo", "cispo", "vespo")
"""Loss types of TRL that divide the sum over tokens by ``num_items_in_batch``."""

CreditFunction = Callable[[RolloutArrays, CreditOptions], Credit]


class ToolSearchTrainer(GRPOTrainer):
    """``environment_factory`` must make ``rl.environment.SearchEnvironment`` objects."""

    def __init__(
        self,
        *args: Any,
        search_batch: SearchBatch,
        credit: CreditFunction,
        credit_options: CreditOptions,
        mask_kl: bool,
        reward_options: RewardOptions,
        recorder: TrajectoryRecorder | None = None,
        **kwargs: Any,
    ):
        self._search_batch, self._credit, self._credit_options = search_batch, credit, credit_options
        self._mask_kl, self._reward_options, self._recorder = mask_kl, reward_options, recorder
        super().__init__(*args, reward_funcs=self._selection_reward, **kwargs)
        self._renderer = ChatRenderer(self._tokenizer, dict(self.chat_template_kwargs or {}))
        self._rollouts: list[Rollout] = []

    def _get_train_sampler(self, dataset: Any = None) -> Sampler:
        sampler = super()._get_train_sampler(dataset)
        return ResumableSampler(sampler, lambda: int(self.state.epoch or 0)) if self.shuffle_dataset else sampler

    # --- rollout -----------------------------------------------------------------------------------------------

    def _episodes(self) -> list[Episode]:
        return [environment.episode for environment in self.environments]

    def _tokenize_prompts(self, prompts: list) -> tuple[list[list[int]], None, dict]:
        return [self._renderer.prompt_ids(p, [SEARCH_TOOL]) for p in prompts], None, {}

    def _max_over_ranks(self, count: int) -> int:
        if self.accelerator.num_processes == 1:
            return count
        return int(self.accelerator.gather(torch.tensor([count], device=self.accelerator.device)).max())

    def _generate_single_turn(self, prompt_ids: list[list[int]], *args: Any, **kwargs: Any) -> tuple[list, list | None]:
        """Every generation is collective under ZeRO-3 (and in vLLM server mode), so all ranks bring equally many rows.

        A rank that has fewer live rollouts, or none, repeats one context and throws the result away. Without it
        ranks that finish early leave the others waiting in a collective (observed with gloo: mismatch, abort).
        """
        wanted = self._max_over_ranks(len(prompt_ids))
        filler = prompt_ids[0] if prompt_ids else self._filler
        padded = list(prompt_ids) + [filler] * (wanted - len(prompt_ids))
        ids, logprobs = super()._generate_single_turn(padded, *args, **kwargs)
        return ids[: len(prompt_ids)], logprobs[: len(prompt_ids)] if logprobs is not None else None

    def _tool_call_loop(
        self, prompts: list, prompt_ids: list, completion_ids: list, completions: list, logprobs: Any, *_: Any
    ) -> tuple:
        """Play all episodes to their end from the first turns, which TRL generated; returns what TRL's loop returns."""
        episodes = self._episodes()
        self._filler = prompt_ids[0]
        rollouts = [Rollout(prompt_ids=list(ids)) for ids in prompt_ids]
        live = list(range(len(episodes)))
        turns, turn_logprobs = completion_ids, logprobs
        while True:
            live = take_turns(episodes, rollouts, live, turns, turn_logprobs, self._renderer, self._search_batch)
            if self._max_over_ranks(len(live)) == 0:
                break
            contexts = [rollouts[i].prompt_ids + rollouts[i].completion_ids for i in live]
            turns, turn_logprobs = self._generate_single_turn(contexts, None, {}, 1)
        self._rollouts = rollouts
        events = [event for episode in episodes for event in episode.events]
        num_faults = sum(event.kind.value not in ("search", "answer") for event in events)
        num_calls = sum(event.kind.value not in ("answer", "empty_answer") for event in events)
        messages = [episode.messages[episode.num_prompt_messages :] for episode in episodes]
        sampled = [r.logprobs for r in rollouts] if logprobs is not None else None
        masks, ids = [r.mask for r in rollouts], [r.completion_ids for r in rollouts]
        return masks, messages, ids, sampled, num_calls, num_faults, [[] for _ in rollouts]

    # --- reward and credit -------------------------------------------------------------------------------------

    def _selection_reward(self, environments: Sequence[Any], log_metric: Callable, **_: Any) -> list[float]:
        """The one reward function that TRL sees; it also logs the named parts and the search metrics."""
        self._trajectories = [environment.episode.trajectory() for environment in environments]
        self._reward_parts = [reward_parts(t, self._reward_options) for t in self._trajectories]
        for trajectory, parts in zip(self._trajectories, self._reward_parts, strict=True):
            scores = score_trajectory(trajectory)
            for name in ("f1", "match"):
                log_metric(f"reward_{name}", scores[name])
            for name in ("srecall", "recall", "precision", "searches", "useless_searches", "answered"):
                log_metric(name, scores[name])
            log_metric("reward_format", parts["format"])
            if scores["srecall"] == 1.0:
                log_metric("match_given_complete", scores["match"])
            log_metric("malformed_turns", sum(e.kind.value not in ("search", "answer") for e in trajectory.events))
        return [sum(parts.values()) for parts in self._reward_parts]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        out = super()._generate_and_score_completions(inputs)
        credit, first = self._group_credit(len(inputs))
        local = slice(first, first + len(inputs))
        advantages, keep = credit.advantages[local], credit.keep[local]
        shape = out["completion_ids"].shape
        per_token, kept = spread_over_tokens([r.spans for r in self._rollouts], advantages, keep, shape)
        device = out["completion_ids"].device
        out["advantages"] = torch.as_tensor(per_token, dtype=torch.float32, device=device)
        kept_mask = torch.as_tensor(kept, device=device)
        generated = out["tool_mask"] * out["completion_mask"]  # TRL pads tool_mask with 1
        num_kept = self.accelerator.gather((generated * kept_mask).sum()).sum()
        num_generated = self.accelerator.gather(generated.sum()).sum()
        if self.beta == 0.0 or self._mask_kl:
            out["tool_mask"] = out["tool_mask"] * kept_mask
            out["num_items_in_batch"] = num_kept.to(out["num_items_in_batch"].dtype)
        elif self.loss_type in TOKEN_MEAN_LOSSES:
            # Removed events have advantage 0 but stay under the KL term, which keeps the policy answering. TRL divides
            # both terms by one count: the KL is a mean over all generated tokens, the policy term over the kept ones.
            out["advantages"] = out["advantages"] * (num_generated / num_kept.clamp(min=1))
        self._log_credit(credit, num_kept, num_generated)
        self._record(advantages, keep, credit.z[local], first)
        return out

    def _group_credit(self, num_local: int) -> tuple[Credit, int]:
        """Credit of all rollouts of all ranks (a group may straddle ranks), and the index of this rank's first one."""
        mine = []
        for trajectory, parts in zip(self._trajectories, self._reward_parts, strict=True):
            index = {t: i for i, t in enumerate(trajectory.targets)}
            found = [[index[t] for t in event] for event in trajectory.first_found()]
            answered = trajectory.selection is not None
            mine.append((found, len(trajectory.targets), answered, sum(parts.values())))
        everyone = gather_object(mine)
        size = self.num_generations if self.model.training else self.num_generations_eval
        columns = zip(*everyone, strict=True)
        batch = pack_rollouts(*columns, [i // size for i in range(len(everyone))])
        return self._credit(batch, self._credit_options), self.accelerator.process_index * num_local

    def _log_credit(self, credit: Credit, num_kept: torch.Tensor, num_generated: torch.Tensor) -> None:
        mode = "train" if self.model.training else "eval"
        kept = credit.keep
        self._metrics[mode]["credit/kept_token_share"].append(float(num_kept / num_generated.clamp(min=1)))
        self._metrics[mode]["credit/kept_zero_share"].append(
            float((credit.advantages[kept] == 0).mean()) if kept.any() else 0.0
        )

    def _record(self, advantages: np.ndarray, keep: np.ndarray, z: np.ndarray, first: int) -> None:
        if self._recorder is None or not self.model.training or not self.accelerator.is_main_process:
            return
        if not self._recorder.is_due(self.state.global_step):  # before the tokens are decoded for nothing
            return
        rows = [
            CreditedTrajectory(
                group=(first + i) // self.num_generations,
                rollout=(first + i) % self.num_generations,
                trajectory=trajectory,
                rewards=self._reward_parts[i],
                advantages=advantages[i],
                keep=keep[i],
                z=z[i],
                spans=self._rollouts[i].spans,
                tokens=[self._token_texts(self._rollouts[i].completion_ids[a:b]) for a, b in self._rollouts[i].spans],
            )
            for i, trajectory in enumerate(self._trajectories)
        ]
        self._recorder.record(self.state.global_step, rows)

    def _token_texts(self, ids: list[int]) -> list[str]:
        """Each token decoded alone; a token that holds only part of a character gives U+FFFD."""
        return [self._tokenizer.decode([i], skip_special_tokens=False, clean_up_tokenization_spaces=False) for i in ids]

    @property
    def trajectories(self) -> list[Trajectory]:
        """Trajectories of the newest batch on this rank."""
        return self._trajectories


class ResumableSampler(Sampler):
    """TRL's prompt order, also after a resumption in a later pass over the data.

    TRL shuffles each pass with the next numbers of one generator, so a resumed run would take the first pass's order
    again. ``passes_done()`` is asked when a pass begins. Transformers skips what the pass has had before.
    """

    def __init__(self, sampler: RepeatSampler, passes_done: Callable[[], int]):
        self._sampler, self._passes_done = sampler, passes_done

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[int]:
        generator = self._sampler.generator.manual_seed(self._sampler.seed)
        for _ in range(self._passes_done()):
            torch.randperm(self._sampler.num_samples, generator=generator)
        yield from self._sampler


def spread_over_tokens(
    spans: Sequence[Sequence[tuple[int, int]]], advantages: np.ndarray, keep: np.ndarray, shape: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Event values to token values: spans of B rollouts, [B, E], [B, E] bool, (B, T) -> [B, T] float, [B, T] int.

    Tokens outside every span get 0. A span beyond T is an error of ours and raises ValueError.
    """
    per_token, kept = np.zeros(shape), np.zeros(shape, dtype=np.int64)
    for i, events in enumerate(spans):
        for e, (start, end) in enumerate(events):
            if end > shape[1]:
                raise ValueError(f"event {e} of rollout {i} ends at token {end}, but the batch has {shape[1]}")
            if keep[i, e]:
                per_token[i, start:end] = advantages[i, e]
                kept[i, start:end] = 1
    return per_token, kept
