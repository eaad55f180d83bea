"""Credit of the methods that ToolSearcher is compared with, on the same arrays (shapes: ``rl/credit.py``).

    gdpo         A[i] = z(search recall) + z(reward), on every event; a sum of two z-scores, not scaled again
    rloo         A[i] = r[i] - mean of the group's other rewards, on every event; not divided by the deviation
    event_grpo   A[i] = z(reward), on the events that show a new target and on the answer; all others are removed

Sources: GDPO and RLOO as the official ToolSearcher code runs them (design notes 1.4, 1.5); event_grpo is ours: ESM's
mask with outcome credit, to separate the two. Rollouts without a reward (NaN) get nothing and count nowhere.
"""

import numpy as np

from rl.credit import Credit, CreditOptions, RolloutArrays, group_zscores


def _spread(batch: RolloutArrays, values: np.ndarray) -> Credit:
    """[N] -> the same advantage on every event of a rollout that was not dropped."""
    n, e, k = batch.first_found.shape
    real = (np.arange(e)[None, :] < batch.num_events[:, None]) & ~np.isnan(batch.rewards)[:, None]
    return Credit(advantages=np.where(real, values[:, None], 0.0), keep=real, z=np.zeros((n, k)))


def gdpo_credit(batch: RolloutArrays, options: CreditOptions) -> Credit:
    """z(search recall) + z(reward), each over the group (``options`` are not used)."""
    valid = ~np.isnan(batch.rewards)
    found = (batch.first_found.any(axis=1) & batch.target_mask).sum(axis=1)
    recall = found / np.maximum(batch.target_mask.sum(axis=1), 1)
    both = np.stack([recall, np.nan_to_num(batch.rewards)], axis=1)
    return _spread(batch, group_zscores(both, batch.groups, valid).sum(axis=1))


def rloo_credit(batch: RolloutArrays, options: CreditOptions) -> Credit:
    """Reward minus the mean of the group's other rewards (``options`` are not used); alone in a group: 0."""
    valid = ~np.isnan(batch.rewards)
    _, index = np.unique(batch.groups, return_inverse=True)
    rewards = np.nan_to_num(batch.rewards)
    count = np.bincount(index, weights=valid)[index]
    total = np.bincount(index, weights=rewards * valid)[index]
    others = (total - rewards) / np.maximum(count - 1, 1)
    return _spread(batch, np.where(count >= 2, rewards - others, 0.0))


def event_grpo_credit(batch: RolloutArrays, options: CreditOptions) -> Credit:
    """z(reward) on events that show a new target and on the answer (``options`` are not used)."""
    valid = ~np.isnan(batch.rewards)
    reward_z = group_zscores(np.nan_to_num(batch.rewards)[:, None], batch.groups, valid)[:, 0]
    credit = _spread(batch, reward_z)
    is_answer = np.arange(batch.first_found.shape[1])[None, :] == batch.answer[:, None]
    credit.keep &= batch.first_found.any(axis=2) | is_answer
    credit.advantages = np.where(credit.keep, credit.advantages, 0.0)
    return credit
