"""TRL's GRPOTrainer with the search episode as its turn loop and per-event advantages.

TRL keeps: batching, optimisation, loss variants, KL, vLLM, checkpoints, logging. Ours, by overriding six private
hooks of trl 1.16 and transformers (tests pin their signatures):

- ``_get_train_sampler``: a resumed run continues the order of the prompts;
- ``_tokenize_prompts``: prompts come from the one renderer;
- ``_generate_single_turn``: ranks generate in lockstep (equal batch sizes), the reason stands there;
- ``_tool_call_loop``: the shared turn loop; a malformed call is answered instead of ending the rollout, all searches
  of a turn reach the engine in one call, and event spans are recorded instead of guessed from masks;
- ``_generate_and_score_completions``: (B,) advantages become (B, T) by event;
- ``_load_from_checkpoint``: with a reference adapter beside it, the trained one is loaded, too.
"""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from torch.utils.data import Sampler
from trl import GRPOTrainer

from autotools.chat import ChatRenderer
from autotools.errors import RetrieverError
from autotools.schema import Trajectory
from autotools.search.episode import Episode, SearchBatch
from autotools.search.rollout import Rollout, take_turns
from rl.algorithms import CreditFunction
from rl.credit import Credit, CreditOptions, pack_rollouts
from rl.curriculum import Curriculum
from rl.facts import RolloutFacts, rollout_facts, tasks_behind
from rl.metrics import step_metrics
from rl.recorder import CreditedTrajectory, TrajectoryRecorder
from rl.rewards import RewardFunction, RewardOptions, reward_parts
from rl.sampling import ResumableSampler
from rl.spreading import is_dropped, spread_over_tokens

TOKEN_MEAN_LOSSES = ("dapo", "cispo", "vespo")
"""Loss types of TRL that divide the sum over tokens by ``num_items_in_batch``."""
ROW_MEAN_LOSSES = ("grpo", "sapo", "dr_grpo", "luspo")
"""Loss types of TRL that divide by the number of rollouts."""


class ToolSearchTrainer(GRPOTrainer):
    """``environment_factory`` must make ``rl.environment.SearchEnvironment`` objects."""

    def __init__(
        self,
        *args: Any,
        search_batch: SearchBatch,
        curriculum: Curriculum,
        credit: CreditFunction,
        credit_options: CreditOptions,
        mask_kl: bool,
        reward_options: RewardOptions,
        rewards: RewardFunction = reward_parts,
        max_dropped_share: float = 0.2,
        recorder: TrajectoryRecorder | None = None,
        **kwargs: Any,
    ):
        self._search_batch, self._credit, self._credit_options = search_batch, credit, credit_options
        self._mask_kl, self._reward_options, self._recorder = mask_kl, reward_options, recorder
        self._rewards, self._max_dropped_share, self.curriculum = rewards, max_dropped_share, curriculum
        super().__init__(*args, reward_funcs=self._selection_reward, **kwargs)
        # With a template of answers TRL parses each first turn, and some turns end the run there (a thousand brackets).
        self._tokenizer.response_template = None
        self._renderer = ChatRenderer(self._tokenizer, dict(self.chat_template_kwargs or {}))
        self._rollouts: list[Rollout] = []
        self._last_failure: RetrieverError | None = None
        self.tasks_behind: dict[str, list[str]] = {}
        """Per figure that an alarm watches, the tasks of the newest batch that make it bad."""

    def _get_train_sampler(self, dataset: Any = None) -> Sampler:
        sampler = super()._get_train_sampler(dataset)
        return ResumableSampler(sampler, lambda: int(self.state.epoch or 0)) if self.shuffle_dataset else sampler

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        trained = self.model if model is None else model
        if "ref" in getattr(trained, "peft_config", {}):
            # Transformers loads what lies in sub-folders, which is TRL's copy of the start adapter, and leaves it at it
            trained.load_adapter(resume_from_checkpoint, "default", is_trainable=True)

    # --- rollout -----------------------------------------------------------------------------------------------

    def _episodes(self) -> list[Episode]:
        return [environment.episode for environment in self.environments]

    def _tokenize_prompts(self, prompts: list) -> tuple[list[list[int]], None, dict]:
        """Of the episodes, not of the data rows: the curriculum decides at a step which prompt and tool there are."""
        return [self._renderer.prompt_ids(e.messages, e.tools) for e in self._episodes()], None, {}

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
        played = (self._renderer, self._search_batch, self._search_failed)
        while True:
            live = take_turns(episodes, rollouts, live, turns, turn_logprobs, *played)
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

    def _search_failed(self, which: list[int], error: RetrieverError) -> None:
        tasks = sorted({self._episodes()[i].task_id for i in which})
        print(
            f"warning: step {self.state.global_step}, rank {self.accelerator.process_index}: a failed search drops "
            f"{len(which)} rollouts of {', '.join(tasks[:5])}{', ...' if len(tasks) > 5 else ''}: {error}",
            file=sys.stderr,
        )
        self._last_failure = error

    # --- reward and credit -------------------------------------------------------------------------------------

    def _selection_reward(self, environments: Sequence[Any], **_: Any) -> list[float]:
        """The one reward function that TRL sees; its named parts are kept for the credit and the figures."""
        self._trajectories = [environment.episode.trajectory() for environment in environments]
        self._reward_parts = [self._rewards(t, self._reward_options) for t in self._trajectories]
        for trajectory, parts in zip(self._trajectories, self._reward_parts, strict=True):
            if is_dropped(trajectory):
                parts.update(dict.fromkeys(parts, float("nan")))
        return [sum(parts.values()) for parts in self._reward_parts]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self.curriculum.begin(self.state.global_step, self.state.max_steps)
        out = super()._generate_and_score_completions(inputs)
        credit, first = self._group_credit(len(inputs))
        local = slice(first, first + len(inputs))
        advantages, keep = credit.advantages[local], credit.keep[local]
        shape = out["completion_ids"].shape
        per_token, kept = spread_over_tokens([r.spans for r in self._rollouts], advantages, keep, shape)
        device = out["completion_ids"].device
        out["advantages"] = torch.as_tensor(per_token, dtype=torch.float32, device=device)
        kept_mask = torch.as_tensor(kept, device=device)
        self._leave_out_dropped(out)
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
            out["num_items_in_batch"] = num_generated.to(out["num_items_in_batch"].dtype)
        self._log_credit(credit, num_kept, num_generated)
        if "sampling_per_token_logps" in out:
            self.tasks_behind["sampling/sampling_logp_difference/mean"] = self._drifting_tasks(out, generated)
        self._record(advantages, keep, credit.z[local], first)
        return out

    def _drifting_tasks(self, out: dict[str, Any], generated: torch.Tensor) -> list[str]:
        """Tasks of all ranks, those first whose sampling log-probs are farthest from the trained model's."""
        trained = out.get("old_per_token_logps", out["sampling_per_token_logps"])
        apart = torch.nan_to_num((trained - out["sampling_per_token_logps"]).abs() * generated).sum(1)
        means = (apart / generated.sum(1).clamp(min=1)).tolist()
        pairs = gather_object([(mean, t.task_id) for mean, t in zip(means, self._trajectories, strict=True)])
        return list(dict.fromkeys(task for mean, task in sorted(pairs, reverse=True) if mean > 0))

    def _leave_out_dropped(self, out: dict[str, Any]) -> None:
        """Rollouts that failed searches ended leave both terms of the loss, and the count of rollouts it divides by.

        Raises RetrieverError, on all ranks alike, if they are too many.
        """
        lost = [int(is_dropped(t)) for t in self._trajectories]
        dropped = torch.tensor(lost, device=out["tool_mask"].device)
        everywhere = self.accelerator.gather(dropped)
        self._log("dropped_rollouts", float(everywhere.sum()))
        share = float(everywhere.float().mean())
        if share > self._max_dropped_share:
            raise RetrieverError(
                f"step {self.state.global_step}: failed searches dropped {int(everywhere.sum())} of {len(everywhere)} "
                f"rollouts, more than max_dropped_share {self._max_dropped_share} allows"
                + (f"; last failure: {self._last_failure}" if self._last_failure else "")
            )
        if share:
            out["tool_mask"] = out["tool_mask"] * (1 - dropped)[:, None]
            if self.loss_type in ROW_MEAN_LOSSES:
                out["advantages"] = out["advantages"] / (1 - share)

    def _group_credit(self, num_local: int) -> tuple[Credit, int]:
        """Credit of all rollouts of all ranks (a group may straddle ranks), and the index of this rank's first one."""
        rollouts = zip(self._trajectories, self._reward_parts, self._episodes(), strict=True)
        mine = [rollout_facts(t, r, max_turns=e.settings.max_turns, corpus=e.names) for t, r, e in rollouts]
        facts: list[RolloutFacts] = gather_object(mine)
        size = self.num_generations if self.model.training else self.num_generations_eval
        columns = zip(*((f.found, f.num_targets, f.answered, sum(f.rewards.values())) for f in facts), strict=True)
        batch = pack_rollouts(*columns, [i // size for i in range(len(facts))])
        credit = self._credit(batch, self._credit_options)
        for name, value in step_metrics(facts, credit, group_size=size).items():
            self._log(name, value)
        self.tasks_behind = tasks_behind(facts, credit, group_size=size)
        return credit, self.accelerator.process_index * num_local

    def _log(self, name: str, value: float) -> None:
        """A figure of the whole batch, the same on every rank."""
        self._metrics["train" if self.model.training else "eval"][name].append(value)

    def _log_credit(self, credit: Credit, num_kept: torch.Tensor, num_generated: torch.Tensor) -> None:
        kept = credit.keep
        self._log("credit/kept_token_share", float(num_kept / num_generated.clamp(min=1)))
        self._log("credit/kept_zero_share", float((credit.advantages[kept] == 0).mean()) if kept.any() else 0.0)
        if self.curriculum.phase.number:
            self._log("curriculum/phase", float(self.curriculum.phase.number))
            moved = torch.tensor([float(e.enforced) for e in self._episodes()], device=num_kept.device)
            self._log("curriculum/moved_searches", float(self.accelerator.gather(moved).mean()))

    def _record(self, advantages: np.ndarray, keep: np.ndarray, z: np.ndarray, first: int) -> None:
        """Whole groups, wherever their rollouts were played: each rank sends its part of the chosen ones."""
        step, size = self.state.global_step, self.num_generations
        if self._recorder is None or not self.model.training or not self._recorder.is_due(step):
            return  # before the tokens are decoded for nothing
        count = len(self._trajectories) * self.accelerator.num_processes // size
        chosen = self._recorder.groups(step, count)
        rows = [
            CreditedTrajectory(
                group=(first + i) // size,
                rollout=(first + i) % size,
                trajectory=trajectory,
                rewards={} if is_dropped(trajectory) else self._reward_parts[i],
                advantages=advantages[i],
                keep=keep[i],
                z=z[i],
                spans=self._rollouts[i].spans,
                tokens=[self._token_texts(self._rollouts[i].completion_ids[a:b]) for a, b in self._rollouts[i].spans],
            ).row(step)
            for i, trajectory in enumerate(self._trajectories)
            if (first + i) // size in chosen
        ]
        rows = gather_object(rows)
        if self.accelerator.is_main_process:
            self._recorder.record(step, rows)

    def _token_texts(self, ids: list[int]) -> list[str]:
        """Each token decoded alone; a token that holds only part of a character gives U+FFFD."""
        return [self._tokenizer.decode([i], skip_special_tokens=False, clean_up_tokenization_spaces=False) for i in ids]

    @property
    def trajectories(self) -> list[Trajectory]:
        """Trajectories of the newest batch on this rank."""
        return self._trajectories
