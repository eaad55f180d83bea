"""Algorithms as rows of one table: credit, rewards and the TRL settings that go with them. No forks of the trainer.

All play the same episodes under the same budget; a key that the user sets wins over a row's ``settings``.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from autotools.errors import ConfigError
from rl.baselines import event_grpo_credit, gdpo_credit, rloo_credit
from rl.credit import Credit, CreditOptions, RolloutArrays, event_credit, outcome_credit
from rl.credit_options import PAPER
from rl.credit_to_go import to_go_credit
from rl.rewards import RewardFunction, RewardOptions, marag_parts, reward_parts

CreditFunction = Callable[[RolloutArrays, CreditOptions], Credit]


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """``credit``: arrays and options -> per-event advantages. ``rewards``: trajectory -> named parts of the reward.

    ``settings``: defaults for ``trl.GRPOConfig``. ``options``: the keys of section ``credit`` that its credit reads.
    """

    credit: CreditFunction
    options: tuple[str, ...] = ()
    rewards: RewardFunction = reward_parts
    settings: dict[str, Any] = field(default_factory=dict)


# Token mean over the whole batch, whatever its micro-batches (the reference: token-mean, but per micro-batch).
TOKEN_MEAN = {"loss_type": "dapo"}
# Mean over the tokens of each sequence, then over sequences.
SEQUENCE_MEAN = {"loss_type": "grpo"}

ALGORITHMS: dict[str, Algorithm] = {
    "toolsearcher": Algorithm(
        credit=event_credit, options=tuple(CreditOptions.__dataclass_fields__), settings=TOKEN_MEAN
    ),
    # Search-R1: one outcome advantage for all turns.
    "grpo": Algorithm(credit=outcome_credit, options=("std",), settings=SEQUENCE_MEAN),
    # One ratio per sequence, so clipped far tighter; no KL term. Differs from grpo only where the ratio is not 1.
    "gspo": Algorithm(
        credit=outcome_credit,
        options=("std",),
        settings={
            **SEQUENCE_MEAN,
            "importance_sampling_level": "sequence",
            "epsilon": 3e-4,
            "epsilon_high": 4e-4,
            "beta": 0.0,
        },
    ),
    "gdpo": Algorithm(credit=gdpo_credit, settings=TOKEN_MEAN),
    "rloo": Algorithm(credit=rloo_credit, settings=TOKEN_MEAN),
    # MARAG-R1: RLOO over its own three rewards; section ``reward`` has no effect.
    "marag": Algorithm(credit=rloo_credit, rewards=marag_parts, settings=TOKEN_MEAN),
    "event_grpo": Algorithm(credit=event_grpo_credit, settings=TOKEN_MEAN),
    # Outcome plus the finds to go, on every event; its expected update is a true gradient with credit.std false.
    "to_go": Algorithm(credit=to_go_credit, options=("std",), settings=TOKEN_MEAN),
}


def get_algorithm(name: str) -> Algorithm:
    """The row called ``name``. Raises ConfigError listing the known names."""
    if name not in ALGORITHMS:
        raise ConfigError(f"unknown algorithm {name!r}; known: {', '.join(ALGORITHMS)}")
    return ALGORITHMS[name]


def without_effect(name: str, credit: CreditOptions, reward: RewardOptions) -> list[str]:
    """Keys of sections ``credit`` and ``reward`` that are set, but not read by the algorithm.

    Set: neither at their default nor at the paper's value, which for a cost is none.
    """
    row = get_algorithm(name)
    reads_reward = tuple(RewardOptions.__dataclass_fields__) if row.rewards is reward_parts else ()
    sections = {
        "credit": (credit, (CreditOptions(), PAPER), row.options),
        "reward": (reward, (RewardOptions(),), reads_reward),
    }
    return [
        f"{section}.{key}"
        for section, (given, unset, read) in sections.items()
        for key, value in asdict(given).items()
        if key not in read and value not in [getattr(options, key) for options in unset]
    ]
