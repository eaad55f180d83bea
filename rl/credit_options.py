"""Options of the credit (config section ``credit``) and the named presets of it."""

import difflib
from dataclasses import dataclass, field, replace
from typing import Literal

from autotools.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class CreditOptions:
    """Config section ``credit``. The defaults are ours; formulas stand in ``rl/credit.py`` and docs/method.md."""

    esm: bool = field(default=True, metadata={"help": "event-level search credit; off: outcome credit for searches"})
    tca: bool = field(default=True, metadata={"help": "gate the answer by complete search, remove mastered events"})
    std: bool = field(default=True, metadata={"help": "divide by the group's deviation; off: centred values only"})
    selection_baseline: Literal["group", "finished", "seen"] = field(
        default="group",
        metadata={
            "help": "rollouts whose rewards centre the answer's credit: all of the group, those with complete search, "
            "or those that have seen the same targets (then switch tca off)"
        },
    )
    incomplete_selection: Literal["drop", "zero"] = field(
        default="drop", metadata={"help": "answer after incomplete search: drop removes it, zero keeps it at 0"}
    )
    mastered: Literal["drop", "zero"] = field(default="drop", metadata={"help": "the same for mastered events"})
    signed_search: float = field(
        default=0.0,
        metadata={
            "help": "weight of the negative credit of a search that finds nothing where the group has found more"
        },
    )
    # The paper's credit has no counterweight and stops answering where success is rare; this one holds (docs/log.md).
    useless_cost: float = field(
        default=0.1, metadata={"help": "advantage -cost for a search that finds nothing new (0, the paper: removed)"}
    )
    unanswered_cost: float = field(
        default=0.0, metadata={"help": "advantage -cost for the last event of a rollout that never answered"}
    )

    def __post_init__(self) -> None:
        for name in ("signed_search", "useless_cost", "unanswered_cost"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name} is {value}; it must be a number of at least 0 (the code puts the minus sign)")


PAPER = CreditOptions(
    esm=True,
    tca=True,
    std=True,
    selection_baseline="group",
    incomplete_selection="drop",
    mastered="drop",
    signed_search=0.0,
    useless_cost=0.0,
    unanswered_cost=0.0,
)
"""As the paper describes it: what is not optimised is removed. Written out, so that no change of a default moves it."""

REFERENCE = replace(PAPER, incomplete_selection="zero", mastered="zero")
"""As the official code computes it (it also removes the KL term of removed events: key ``mask_kl``)."""

PRESETS: dict[str, CreditOptions] = {
    "ours": CreditOptions(),
    "paper": PAPER,
    "reference": REFERENCE,
    "no_esm": replace(PAPER, esm=False),
    "no_tca": replace(PAPER, tca=False),
}


def preset(name: str) -> CreditOptions:
    """The options called ``name``. Raises ConfigError that lists the names and says the nearest one."""
    if name in PRESETS:
        return PRESETS[name]
    close = difflib.get_close_matches(name, PRESETS, n=1, cutoff=0.4)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise ConfigError(f"unknown credit preset {name!r}; {hint}known: {', '.join(PRESETS)}")
