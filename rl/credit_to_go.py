"""An event credit of ours whose expected update is a true gradient: outcome on every event, plus the finds to go.

    g[i,e] = share of the targets that rollout i first shows at event e or later
    A[i,e] = (r[i] - mean_G r) / std_G r  +  (g[i,e] - mean_G g[:,e]) / std_G g[:,0]

Nothing is removed. The first part is GRPO's. The second sends each search credit for what it and its successors find,
negative where the group finds more from that turn on, and an answer that comes too early pays for what the others
still found. What was found before e is not in the sum: it did not depend on e. A rollout that has ended has g = 0 and
stays in the mean. With ``std: false`` the expectation is (1 - 1/G) times the gradient of E[r] + E[share of targets
shown], because what other rollouts do at turn e does not depend on this one's action (docs/method.md, section 9).
"""

import numpy as np

from rl.credit import EPS, Credit, RolloutArrays, group_centred, outcome_credit
from rl.credit_options import CreditOptions


def to_go_credit(batch: RolloutArrays, options: CreditOptions) -> Credit:
    """Credit of every event (formula above). Of ``options`` only ``std`` is used. NaN rewards: dropped rollouts."""
    outcome = outcome_credit(batch, options)
    shares = batch.first_found.sum(axis=2) / np.maximum(batch.target_mask.sum(axis=1), 1)[:, None]
    to_go = np.cumsum(shares[:, ::-1], axis=1)[:, ::-1]
    centred, deviation = group_centred(to_go, batch.groups, ~np.isnan(batch.rewards))
    if options.std:  # one scale for all turns: a scale of its own would favour turns at which the group is alike
        scale = deviation[:, :1]
        centred = np.where(scale >= EPS, centred / (scale + EPS), 0.0)
    advantages = np.where(outcome.keep, outcome.advantages + centred, 0.0)
    return Credit(advantages=advantages, keep=outcome.keep, z=outcome.z)
