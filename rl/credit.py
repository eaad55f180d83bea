"""Credit of ToolSearcher as pure functions over small arrays: event-level search, trajectory-aligned credit.

Shapes: N rollouts, E events (padded), K targets (padded). An event is one assistant turn; the answer is an event, too.

    z[i,t]        = (s[i,t] - mean_G s[:,t]) / (std_G s[:,t] + eps)     s[i,t] = 1 if rollout i ever saw target t
    A_search[i,e] = max of z[i,t] over the targets t that event e is the first in rollout i to show
    A_answer[i]   = z-score of the selection reward over the group

ESM removes events that find no new target; TCA removes the answer unless all targets were seen, and events whose new
targets every rollout of the group saw ("mastered"). Source: arXiv 2609.30906 sections 3.4.1, 3.4.2; std is unbiased.
"Removed" means no policy gradient (``keep`` False); whether the KL term goes too is the trainer's business.

``python -m rl.credit GROUPS.json --preset reference`` prints the credit of groups in a file (``rl/credit_command.py``).
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rl.credit_options import REFERENCE as REFERENCE
from rl.credit_options import CreditOptions

EPS = 1e-6
"""Added to the standard deviation; a deviation below it counts as zero, so that float noise earns no credit."""


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


def group_zscores(
    values: np.ndarray, groups: np.ndarray, include: np.ndarray | None = None, *, std: bool = True
) -> np.ndarray:
    """Z-score of each column inside each group: values [N, M], groups [N] int, include [N] bool -> [N, M].

    Rows that are not included neither count in mean and deviation nor get a value (0). Groups with fewer than two
    included rows, and columns whose deviation is below EPS, give 0. ``std=False``: centred, not divided.
    """
    centred, deviation = group_centred(values, groups, include)
    return np.where(deviation >= EPS, centred / (deviation + EPS if std else 1.0), 0.0)


def group_centred(
    values: np.ndarray, groups: np.ndarray, include: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Like ``group_zscores``, but the centred values [N, M] and their group's unbiased deviation [N, M] apart."""
    weight = np.ones(len(values)) if include is None else include.astype(float)
    _, index = np.unique(groups, return_inverse=True)
    count = _group_sums(weight[:, None], index)
    clean = np.where(weight[:, None] > 0, values, 0.0)
    centred = (clean - (_group_sums(clean, index) / np.maximum(count, 1))[index]) * weight[:, None]
    deviation = np.sqrt(_group_sums(centred**2, index) / np.maximum(count - 1, 1))  # of a single row: 0
    return centred, deviation[index]


def _group_sums(values: np.ndarray, index: np.ndarray) -> np.ndarray:
    """[N, M], group number of each row [N] -> sums [groups, M]. Column by column, as bincount is the fastest way."""
    groups = int(index.max()) + 1 if len(index) else 0
    columns = [np.bincount(index, weights=column, minlength=groups) for column in values.T]
    return np.stack(columns, axis=1) if columns else np.zeros((groups, 0))


def event_credit(batch: RolloutArrays, options: CreditOptions) -> Credit:
    """Advantages and loss mask of every event (formulas in the module docstring)."""
    valid = ~np.isnan(batch.rewards)
    cells = _true_cells(batch.first_found)
    found = np.zeros_like(batch.target_mask)
    found[cells[0], cells[2]] = True
    complete = (found | ~batch.target_mask).all(axis=1)
    z = group_zscores(found.astype(float), batch.groups, valid, std=options.std)
    position = np.arange(batch.first_found.shape[1])[None, :]
    real = (position < batch.num_events[:, None]) & valid[:, None]
    is_answer = (position == batch.answer[:, None]) & real
    is_search = real & ~is_answer

    if options.esm:
        advantages, keep = _search_credit(batch, options, z, found, cells, is_search)
    else:
        advantages, keep = np.where(is_search, _reward_z(batch, options, valid), 0.0), is_search
    gate = complete[:, None] if options.tca else np.ones((len(valid), 1), dtype=bool)
    advantages = np.where(is_answer & gate, _answer_z(batch, options, valid, found, complete), advantages)
    keep = keep | (is_answer & (gate | (options.incomplete_selection == "zero")))

    if options.unanswered_cost:
        last = real & (position == batch.num_events[:, None] - 1) & (batch.answer < 0)[:, None]
        advantages, keep = np.where(last, -options.unanswered_cost, advantages), keep | last
    return Credit(advantages=advantages, keep=keep & real, z=z)


def _answer_z(
    batch: RolloutArrays, options: CreditOptions, valid: np.ndarray, found: np.ndarray, complete: np.ndarray
) -> np.ndarray:
    """[N, 1]: z-score of the reward over the rollouts that ``selection_baseline`` compares an answer with."""
    if options.selection_baseline == "finished":
        return _reward_z(batch, options, valid & complete)
    if options.selection_baseline == "seen":  # equal search, so that only the selection differs
        _, seen = np.unique(np.column_stack([batch.groups, found]), axis=0, return_inverse=True)
        return _reward_z(replace(batch, groups=seen.reshape(-1)), options, valid)
    return _reward_z(batch, options, valid)


def _reward_z(batch: RolloutArrays, options: CreditOptions, include: np.ndarray) -> np.ndarray:
    """[N, 1]: z-score of the reward over the group's included rollouts."""
    return group_zscores(np.nan_to_num(batch.rewards)[:, None], batch.groups, include, std=options.std)


def _search_credit(
    batch: RolloutArrays,
    options: CreditOptions,
    z: np.ndarray,
    found: np.ndarray,
    cells: tuple[np.ndarray, ...],
    is_search: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """ESM: advantages [N, E] and keep [N, E] of the searches, 0 and False for every other event."""
    row, event, target = cells
    best = np.full(is_search.shape, -np.inf)
    np.maximum.at(best.reshape(-1), row * best.shape[1] + event, z[row, target])
    finds = (best > -np.inf) & is_search
    advantages, keep = np.where(finds, best, 0.0), finds
    if options.tca and options.mastered == "drop":
        keep = np.zeros_like(finds)
        everyone = _all_of_group(found | np.isnan(batch.rewards)[:, None], batch.groups)
        fresh = ~everyone[row, target]
        keep[row[fresh], event[fresh]] = True
    useless = is_search & ~finds
    if options.signed_search:
        behind = _worst_miss(batch, options)
        misses = useless & (behind < 0)
        advantages, keep = np.where(misses, options.signed_search * behind, advantages), keep | misses
    if options.useless_cost:
        advantages, keep = np.where(useless, advantages - options.useless_cost, advantages), keep | useless
    return advantages, keep


def _true_cells(array: np.ndarray) -> tuple[np.ndarray, ...]:
    """``np.nonzero``, but five times as fast. Few cells are True: a rollout first finds each target once at most."""
    return np.unravel_index(np.flatnonzero(array), array.shape)


def _worst_miss(batch: RolloutArrays, options: CreditOptions) -> np.ndarray:
    """[N, E]: the lowest z-score, over the targets, of what a rollout has seen by the end of its event e.

    A rollout that has ended counts with all it saw. Negative where the group is ahead in some target, else 0.
    """
    n, e, k = batch.first_found.shape
    valid = ~np.isnan(batch.rewards)
    seen = np.logical_or.accumulate(batch.first_found, axis=1)
    z = group_zscores(seen.reshape(n, e * k).astype(float), batch.groups, valid, std=options.std)
    return z.reshape(n, e, k).min(axis=2, initial=0.0)  # of a target it has seen, z is not negative


def outcome_credit(batch: RolloutArrays, options: CreditOptions) -> Credit:
    """GRPO's credit: the z-scored reward on every event of the rollout (of ``options`` only ``std`` is used)."""
    n, e, k = batch.first_found.shape
    valid = ~np.isnan(batch.rewards)
    real = (np.arange(e)[None, :] < batch.num_events[:, None]) & valid[:, None]
    return Credit(advantages=np.where(real, _reward_z(batch, options, valid), 0.0), keep=real, z=np.zeros((n, k)))


def _all_of_group(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """[N, K] bool -> [N, K]: True where every row of the same group is True in this column."""
    _, index = np.unique(groups, return_inverse=True)
    return (_group_sums(~values, index) == 0)[index]


# --- lists and ids to arrays ----------------------------------------------------------------------------------------


def first_found(shown: Sequence[Iterable[Hashable]], targets: Sequence[Hashable]) -> list[list[int]]:
    """Ids that each event showed -> per event, indices of the targets it is the first to show.

    A target named twice counts once, so an index is a position among the distinct targets.
    """
    unseen = {target: i for i, target in enumerate(dict.fromkeys(targets))}
    out = []
    for ids in shown:
        new = []
        for name in ids:  # a plain loop beats sets here: a search shows few ids, and few of them are targets
            if name in unseen:
                new.append(unseen.pop(name))
        out.append(sorted(new) if len(new) > 1 else new)
    return out


def pack_rollouts(
    first_found: Sequence[Sequence[Sequence[int]]],
    num_targets: Sequence[int],
    answered: Sequence[bool],
    rewards: Sequence[float],
    groups: Sequence[int],
) -> RolloutArrays:
    """Lists -> padded arrays. ``first_found[i][e]``: indices of the targets that event e of rollout i finds first.

    If ``answered[i]``, the last event of rollout i is its answer. Raises ValueError for an index beyond the targets.
    """
    n = len(first_found)
    e, k = max((len(f) for f in first_found), default=1) or 1, max(num_targets, default=1) or 1
    cells = []  # of the flattened array
    for i, events in enumerate(first_found):
        for j, new in enumerate(events):
            for t in new:
                if not 0 <= t < num_targets[i]:
                    raise ValueError(f"rollout {i} finds target {t}, but it has {num_targets[i]} targets")
                cells.append((i * e + j) * k + t)
    array = np.zeros(n * e * k, dtype=bool)
    array[np.array(cells, dtype=int)] = True
    num_events = np.array([len(f) for f in first_found], dtype=int)
    return RolloutArrays(
        first_found=array.reshape(n, e, k),
        target_mask=np.arange(k)[None, :] < np.array(num_targets, dtype=int)[:, None],
        num_events=num_events,
        answer=np.where(np.array(answered, dtype=bool), num_events - 1, -1),
        rewards=np.array(rewards, dtype=float),
        groups=np.array(groups, dtype=int),
    )


if __name__ == "__main__":
    from autotools.config import run_main
    from rl.credit_command import main

    run_main(main)
