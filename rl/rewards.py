"""Rewards of a finished episode, as named parts. They call the evaluation's scorer, so the two cannot drift apart."""

from dataclasses import dataclass, field
from typing import Literal

from autotools.schema import Trajectory
from evaluation.selection import score_trajectory


@dataclass(frozen=True, kw_only=True)
class RewardOptions:
    """Config section ``reward``."""

    selection: Literal["f1", "match"] = field(default="f1", metadata={"help": "score of the final selection"})
    format_bonus: float = field(default=0.0, metadata={"help": "added when the last turn holds a tool list"})


def reward_parts(trajectory: Trajectory, options: RewardOptions) -> dict[str, float]:
    """``{"selection", "format"}``: their sum is the reward. Scores are grounded (evaluation/selection.py)."""
    scores = score_trajectory(trajectory)
    return {"selection": scores[options.selection], "format": options.format_bonus * scores["answered"]}
