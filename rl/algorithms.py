"""Algorithms as rows of one table: a credit function and the TRL settings that go with it. No forks of the trainer."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from autotools.errors import ConfigError
from rl.credit import Credit, CreditOptions, RolloutArrays, event_credit, outcome_credit


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """``credit``: arrays and options -> per-event advantages. ``settings``: defaults for ``trl.GRPOConfig``."""

    credit: Callable[[RolloutArrays, CreditOptions], Credit]
    settings: dict[str, Any] = field(default_factory=dict)


ALGORITHMS: dict[str, Algorithm] = {
    # Token mean over the kept events of the whole batch (dapo), as the reference code's token-mean.
    "toolsearcher": Algorithm(credit=event_credit, settings={"loss_type": "dapo"}),
    # Search-R1 / GRPO: one outcome advantage for all turns, mean per sequence.
    "grpo": Algorithm(credit=outcome_credit, settings={"loss_type": "grpo"}),
}


def get_algorithm(name: str) -> Algorithm:
    """The row called ``name``. Raises ConfigError listing the known names."""
    if name not in ALGORITHMS:
        raise ConfigError(f"unknown algorithm {name!r}; known: {', '.join(ALGORITHMS)}")
    return ALGORITHMS[name]
