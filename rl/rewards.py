"""Rewards of a finished episode, as named parts. They call the evaluation's scorer, so the two cannot drift apart."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from autotools.errors import ConfigError
from autotools.schema import EventKind, Trajectory
from evaluation.metrics import f1
from evaluation.selection import score_trajectory

_TOKEN = re.compile(r"[^\W_]+")


@dataclass(frozen=True, kw_only=True)
class RewardOptions:
    """Config section ``reward``."""

    selection: Literal["f1", "match"] = field(default="f1", metadata={"help": "score of the final selection"})
    format_bonus: float = field(default=0.0, metadata={"help": "added when the last turn holds a tool list"})

    def __post_init__(self) -> None:
        if self.format_bonus < 0:
            raise ConfigError(f"reward.format_bonus is {self.format_bonus}; it must be 0 or more, or answers cost")


RewardFunction = Callable[[Trajectory, RewardOptions], dict[str, float]]


def reward_parts(trajectory: Trajectory, options: RewardOptions) -> dict[str, float]:
    """``{"selection", "format"}``: their sum is the reward. Scores are grounded (evaluation/selection.py)."""
    scores = score_trajectory(trajectory)
    return {"selection": scores[options.selection], "format": options.format_bonus * scores["answered"]}


def marag_parts(trajectory: Trajectory, options: RewardOptions) -> dict[str, float]:
    """MARAG-R1's three rewards, each in [0, 1] (design notes 1.5); ``options`` are not used.

    ``answer``: F1 of the sets of word pieces of the selected and of the target names (the official code: of token ids,
    which differ by model); a name that was never shown has pieces of its own that equal no target's.
    ``exploration``: 1 while there are at most as many searching turns as targets, then targets / turns.
    ``retrieval``: F1 of all tools that were shown, as a set, against the targets.
    """
    targets = {str(tool) for tool in trajectory.targets}
    shown = {str(tool) for event in trajectory.events for tool in event.hits}
    selected = {str(tool) for tool in trajectory.selection or ()}
    answer = _pieces(selected & shown)
    answer |= {f"(never shown) {piece}" for piece in _pieces(selected - shown) | _pieces(trajectory.unknown_names)}
    turns = sum(event.kind not in (EventKind.ANSWER, EventKind.EMPTY_ANSWER) for event in trajectory.events)
    return {
        "answer": f1(answer, _pieces(targets)),
        "exploration": min(1.0, len(targets) / turns) if turns else 1.0,
        "retrieval": f1(shown, targets),
    }


def _pieces(names: Iterable[str]) -> set[str]:
    """Word pieces of names: ``Music.song_box.lyrics`` has four."""
    return {piece for name in names for piece in _TOKEN.findall(name)}
