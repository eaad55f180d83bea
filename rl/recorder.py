"""Writes sampled trajectories with their credit as JSON lines: what the report and the viewer read."""

import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from autotools.rundir import write_json
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
    """Appends whole groups of every ``every``-th step until the file has ``max_mb`` megabytes (0: no limit).

    ``choice``: the ``first`` groups of the batch, or ``random`` ones of all ranks (the same for a ``seed``).
    A group that has no room is the end of the recording: ``stopped_at`` then holds the step, and stderr says so once.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        every: int = 5,
        groups_per_step: int = 2,
        max_mb: float = 0.0,
        choice: Literal["first", "random"] = "first",
        seed: int = 0,
    ):
        self.path, self.every, self.groups_per_step = Path(path), every, groups_per_step
        self.max_mb, self.choice, self.seed = max_mb, choice, seed
        self._mark = self.path.with_name(self.path.name + ".full")

    def is_due(self, step: int) -> bool:
        """Whether ``record`` is to be called at this step. It looks at no file, so that all ranks agree."""
        return self.every > 0 and self.groups_per_step > 0 and step % self.every == 0

    def groups(self, step: int, count: int) -> set[int]:
        """Which of a step's ``count`` groups are recorded."""
        wanted = min(self.groups_per_step, count)
        if self.choice == "first":
            return set(range(wanted))
        return set(random.Random(f"{self.seed} {step}").sample(range(count), wanted))

    def stopped_at(self) -> int | None:
        """The step whose groups had no more room, or None."""
        return json.loads(self._mark.read_text(encoding="utf-8"))["step"] if self._mark.is_file() else None

    def record(self, step: int, rows: Sequence[dict[str, Any]]) -> None:
        """Write a step's rows (``CreditedTrajectory.row``), group by group, as far as there is room."""
        stopped = self.stopped_at()
        if stopped is not None and stopped < step:
            return
        self._mark.unlink(missing_ok=True)  # a run resumed from before that step: it decides again
        for _, members in groupby(rows, key=lambda row: row["group"]):
            text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in members)
            if self._has_room(len(text)):  # of ASCII only, so characters are bytes
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(text)
                continue
            write_json(self._mark, {"step": step, "max_mb": self.max_mb})
            print(
                f"warning: step {step}: {self.path} has reached record_max_mb {self.max_mb:g}, recording ends",
                file=sys.stderr,
            )
            return

    def _has_room(self, size: int) -> bool:
        used = self.path.stat().st_size if self.path.is_file() else 0
        return not self.max_mb or used + size <= self.max_mb * 1e6
