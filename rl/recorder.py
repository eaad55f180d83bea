"""Writes sampled trajectories with their credit as JSON lines: what the report and the viewer read."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotools.schema import Trajectory


@dataclass(kw_only=True, slots=True)
class CreditedTrajectory:
    """A trajectory with what its events earned: ``advantages`` [E], ``keep`` [E] per event, ``z`` [K] per target.

    ``spans`` [E]: each event's ``(start, end)`` in the completion; ``tokens`` [E]: the texts of exactly those tokens.
    """

    group: int
    rollout: int
    trajectory: Trajectory
    rewards: dict[str, float]
    advantages: Sequence[float]
    keep: Sequence[bool]
    z: Sequence[float]
    spans: Sequence[tuple[int, int]] = ()
    tokens: Sequence[Sequence[str]] = ()

    def row(self, step: int) -> dict[str, Any]:
        """JSON-able row; ``z`` holds all targets' z-scores, each event lists those of the targets it found first."""
        z = {str(t): round(float(v), 4) for t, v in zip(self.trajectory.targets, self.z, strict=False)}
        credit = [
            {"advantage": round(float(a), 4), "kept": bool(k), "z": {str(t): z[str(t)] for t in found}}
            for a, k, found in zip(self.advantages, self.keep, self.trajectory.first_found(), strict=False)
        ]
        for event, span, tokens in zip(credit, self.spans, self.tokens, strict=False):
            event.update(span=list(span), tokens=list(tokens))
        return {
            "step": step,
            "group": self.group,
            "rollout": self.rollout,
            "trajectory": self.trajectory.model_dump(mode="json"),
            "rewards": self.rewards,
            "z": z,
            "credit": credit,
        }


class TrajectoryRecorder:
    """Appends whole groups: the first ``groups_per_step`` of every ``every``-th step."""

    def __init__(self, path: str | Path, *, every: int = 5, groups_per_step: int = 2):
        self.path, self.every, self.groups_per_step = Path(path), every, groups_per_step

    def is_due(self, step: int) -> bool:
        """Whether ``record`` would write at this step."""
        return self.every > 0 and step % self.every == 0

    def record(self, step: int, trajectories: Sequence[CreditedTrajectory]) -> None:
        """Write the chosen groups of one step; a step that is not due writes nothing."""
        if not self.is_due(step):
            return
        lines = [json.dumps(t.row(step), separators=(",", ":")) for t in trajectories if t.group < self.groups_per_step]
        with self.path.open("a", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))
