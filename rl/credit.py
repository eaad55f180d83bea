"""Credit of ToolSearcher as pure functions over small arrays: event-level search, trajectory-aligned credit.

Shapes: N rollouts, E events (padded), K targets (padded). An event is one assistant turn; the answer is an event, too.

    z[i,t]        = (s[i,t] - mean_G s[:,t]) / (std_G s[:,t] + eps)     s[i,t] = 1 if rollout i ever saw target t
    A_search[i,e] = max of z[i,t] over the targets t that event e is the first in rollout i to show
    A_answer[i]   = z-score of the selection reward over the group

ESM removes events that find no new target; TCA removes the answer unless all targets were seen, and events whose new
targets every rollout of the group saw ("mastered"). Source: arXiv 2609.30906 sections 3.4.1, 3.4.2; std is unbiased.
"Removed" means no policy gradient (``keep`` False); whether the KL term goes too is the trainer's business.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

EPS = 1e-6
"""Added to the standard deviation; a deviation below it counts as zero, so that float noise earns no credit."""


@dataclass(frozen=True, kw_only=True)
class CreditOptions:
    """Config section ``credit``. The defaults are ours; ``REFERENCE`` holds those of the official code."""

    esm: bool = field(default=True, metadata={"help": "event-level search credit; off: outcome credit for searches"})
    tca: bool = field(default=True, metadata={"help": "gate the answer by complete search, remove mastered events"})
    selection_baseline: Literal["group", "finished"] = field(
        default="group", metadata={"help": "rollouts whose rewards centre the answer's credit"}
    )
    incomplete_selection: Literal["drop", "zero"] = field(
        default="drop", metadata={"help": "answer after incomplete search: drop removes it, zero keeps it at 0"}
    )
    mastered: Literal["drop", "zero"] = field(default="drop", metadata={"help": "the same for mastered events"})
    useless_cost: float = field(
        default=0.0, metadata={"help": "advantage -cost for an event that finds nothing new (0 removes it)"}
    )
    unanswered_cost: float = field(
        default=0.0, metadata={"help": "advantage -cost for the last event of a rollout that never answered"}
    )


REFERENCE = CreditOptions(incomplete_selection="zero", mastered="zero")


@dataclass(kw_only=True, slots=True)
class RolloutArrays:
    """A batch of rollouts as arrays.

    ``first_found`` [N, E, K] bool; ``target_mask`` [N, K] bool (True: a real target); ``num_events`` [N] int;
    ``answer`` [N] int, index of the answer event or -1; ``rewards`` [N] float, NaN for a rollout that was dropped
    because of a failure of ours; ``groups`` [N] int.
    """

    first_found: np.ndarray
    target_mask: np.ndarray
    num_events: np.ndarray
    answer: np.ndarray
    rewards: np.ndarray
    groups: np.ndarray


@dataclass(kw_only=True, slots=True)
class Credit:
    """``advantages`` [N, E] float, ``keep`` [N, E] bool (True: in the policy loss), ``z`` [N, K] float."""

    advantages: np.ndarray
    keep: np.ndarray
    z: np.ndarray


def group_zscores(values: np.ndarray, groups: np.ndarray, include: np.ndarray | None = None) -> np.ndarray:
    """Z-score of each column inside each group: values [N, M], groups [N] int, include [N] bool -> [N, M].

    Rows that are not included neither count in mean and deviation nor get a value (0). Groups with fewer than two
    included rows, and columns whose deviation is below EPS, give 0.
    """
    weight = np.ones(len(values)) if include is None else include.astype(float)
    _, index = np.unique(groups, return_inverse=True)
    num_groups = int(index.max()) + 1 if len(index) else 0
    shape = (num_groups, values.shape[1])
    count = np.bincount(index, weights=weight, minlength=num_groups)[:, None]
    total, squares = np.zeros(shape), np.zeros(shape)
    clean = np.where(weight[:, None] > 0, values, 0.0)
    np.add.at(total, index, clean)
    centred = (clean - (total / np.maximum(count, 1))[index]) * weight[:, None]
    np.add.at(squares, index, centred**2)
    std = np.sqrt(squares / np.maximum(count - 1, 1))[index]
    usable = (std >= EPS) & (count[index] >= 2)
    return np.where(usable, centred / (std + EPS), 0.0)


def event_credit(batch: RolloutArrays, options: CreditOptions) -> Credit:
    """Advantages and loss mask of every event (formulas in the module docstring)."""
    n, e, _ = batch.first_found.shape
    valid = ~np.isnan(batch.rewards)
    found = batch.first_found.any(axis=1) & batch.target_mask
    complete = (found | ~batch.target_mask).all(axis=1)
    z = group_zscores(found.astype(float), batch.groups, valid) * batch.target_mask
    everyone = _all_of_group(found | ~valid[:, None], batch.groups) & batch.target_mask

    position = np.arange(e)[None, :]
    real = (position < batch.num_events[:, None]) & valid[:, None]
    is_answer = (position == batch.answer[:, None]) & real
    is_search = real & ~is_answer
    finds = batch.first_found.any(axis=2) & is_search
    reward_baseline = valid & complete if options.selection_baseline == "finished" else valid
    reward_z = group_zscores(np.nan_to_num(batch.rewards)[:, None], batch.groups, reward_baseline)

    advantages, keep = np.zeros((n, e)), np.zeros((n, e), dtype=bool)
    if options.esm:
        best = np.where(batch.first_found, z[:, None, :], -np.inf).max(axis=2, initial=-np.inf)
        advantages = np.where(finds, best, 0.0)
        keep = finds.copy()
        if options.tca and options.mastered == "drop":
            keep &= ~(finds & (~batch.first_found | everyone[:, None, :]).all(axis=2))
    else:
        advantages = np.where(is_search, reward_z, 0.0)
        keep = is_search.copy()
    gate = complete[:, None] if options.tca else np.ones((n, 1), dtype=bool)
    advantages = np.where(is_answer, np.where(gate, reward_z, 0.0), advantages)
    keep |= is_answer & (gate | (options.incomplete_selection == "zero"))

    if options.useless_cost and options.esm:
        useless = is_search & ~finds
        advantages, keep = np.where(useless, -options.useless_cost, advantages), keep | useless
    if options.unanswered_cost:
        last = real & (position == batch.num_events[:, None] - 1) & (batch.answer < 0)[:, None]
        advantages, keep = np.where(last, -options.unanswered_cost, advantages), keep | last
    return Credit(advantages=advantages, keep=keep & real, z=z)


def outcome_credit(batch: RolloutArrays, options: CreditOptions) -> Credit:
    """GRPO's credit: the z-scored reward on every event of the rollout (``options`` are not used)."""
    n, e, k = batch.first_found.shape
    valid = ~np.isnan(batch.rewards)
    reward_z = group_zscores(np.nan_to_num(batch.rewards)[:, None], batch.groups, valid)
    real = (np.arange(e)[None, :] < batch.num_events[:, None]) & valid[:, None]
    return Credit(advantages=np.where(real, reward_z, 0.0), keep=real, z=np.zeros((n, k)))


def _all_of_group(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """[N, K] bool -> [N, K]: True where every row of the same group is True in this column."""
    _, index = np.unique(groups, return_inverse=True)
    out = np.ones((int(index.max()) + 1 if len(index) else 0, values.shape[1]), dtype=bool)
    np.logical_and.at(out, index, values)
    return out[index]


def pack_rollouts(
    first_found: Sequence[Sequence[Sequence[int]]],
    num_targets: Sequence[int],
    answered: Sequence[bool],
    rewards: Sequence[float],
    groups: Sequence[int],
) -> RolloutArrays:
    """Lists -> padded arrays. ``first_found[i][e]``: indices of the targets that event e of rollout i finds first.

    If ``answered[i]``, the last event of rollout i is its answer.
    """
    n = len(first_found)
    e, k = max((len(f) for f in first_found), default=1) or 1, max(num_targets, default=1) or 1
    array = np.zeros((n, e, k), dtype=bool)
    for i, events in enumerate(first_found):
        for j, targets in enumerate(events):
            array[i, j, list(targets)] = True
    num_events = np.array([len(f) for f in first_found], dtype=int)
    return RolloutArrays(
        first_found=array,
        target_mask=np.arange(k)[None, :] < np.array(num_targets)[:, None],
        num_events=num_events,
        answer=np.where(np.array(answered, dtype=bool), num_events - 1, -1),
        rewards=np.array(rewards, dtype=float),
        groups=np.array(groups, dtype=int),
    )
