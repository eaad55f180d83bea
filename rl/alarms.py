"""Alarms on the silent failures of RL: thresholds over the step metrics, one alarm per episode, written and said.

A rule compares the mean of a metric over the last ``window`` logged steps with its threshold:

    above, below   the mean is beyond the threshold
    rise, fall     the mean is that much worse than the best mean so far
    broken         the value is no number

An alarm is raised when a rule first fires; it can be raised again once the rule has been quiet for ``window`` steps.
The monitor is a plain state machine: what it says depends on nothing but the metrics it was fed, so that a resumed run
replays ``metrics.jsonl`` and goes on as if it had never been stopped.
"""

import json
import math
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotools.rundir import read_jsonl, write_jsonl, write_text
from rl.alarm_rules import RULES, AlarmOptions, Rule

if TYPE_CHECKING:
    from transformers import TrainerCallback

ALARMS = "alarms.jsonl"
EXAMPLES = 5
"""Tasks that an alarm names."""


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """``value``: the mean (or, for an at-once rule, the number) that went beyond ``threshold`` (None if broken)."""

    step: int
    name: str
    metric: str
    value: float | None
    threshold: float | None
    side: str
    window: int
    meaning: str
    advice: str
    tasks: list[str] = field(default_factory=list)

    def line(self) -> str:
        """One line for a terminal."""
        what = f"{self.metric} is " + ("not a number" if self.value is None else f"{self.value:.3g}")
        if self.threshold is not None:
            word = {"above": "above", "below": "below", "rise": "above its lowest +", "fall": "below its best -"}
            what += f", {word[self.side]} {self.threshold:g}"
        mean = f" (mean of {self.window} steps)" if self.window > 1 else ""
        tasks = f"; for example {', '.join(self.tasks)}" if self.tasks else ""
        return f"alarm {self.name}, step {self.step}: {what}{mean}: {self.meaning}{tasks}. Try: {self.advice}"


class _Watch:
    """One rule's state."""

    def __init__(self, rule: Rule, options: AlarmOptions):
        self.rule, self.window = rule, 1 if rule.at_once else options.window
        self.threshold: float | None = getattr(options, rule.option) if rule.option else None
        self._values: deque[float] = deque(maxlen=self.window)
        self._best: float | None = None
        self._quiet = self.window  # steps since the rule last fired; at ``window`` it may be raised (again)

    def fires(self, value: float) -> float | None:
        """Take the newest value; the mean if an alarm is due now."""
        broken = not math.isfinite(value)
        if broken != (self.rule.side == "broken"):  # a number where none is feared, or none where a mean is wanted
            self._quiet += self.rule.side == "broken"
            return None
        self._values.append(value)
        if len(self._values) < self.window:
            return None
        mean = sum(self._values) / self.window
        due = self._beyond(mean) and self._quiet >= self.window
        self._quiet = 0 if self._beyond(mean) else self._quiet + 1
        if self.rule.side in ("rise", "fall"):
            better = min if self.rule.side == "rise" else max
            self._best = mean if self._best is None else better(self._best, mean)
        return mean if due else None

    def _beyond(self, mean: float) -> bool:
        side, limit = self.rule.side, self.threshold or 0.0
        if side in ("rise", "fall"):
            if self._best is None:
                return False
            return mean > self._best + limit if side == "rise" else mean < self._best - limit
        return side == "broken" or (mean > limit if side == "above" else mean < limit)


class AlarmMonitor:
    """``update(step, metrics)`` once per logged step, in order."""

    def __init__(self, options: AlarmOptions):
        self._watches = [_Watch(rule, options) for rule in RULES if rule.name not in options.off]

    def update(
        self, step: int, metrics: Mapping[str, Any], tasks: Mapping[str, Sequence[str]] | None = None
    ) -> list[Alarm]:
        """Alarms that this step raises. A metric that is missing or None leaves its rules as they were; text that reads
        as a number counts (``metrics.jsonl`` holds "nan" as text). ``tasks``: who is behind a metric."""
        out = []
        for watch in self._watches:
            rule, value = watch.rule, _number(metrics.get(watch.rule.metric))
            mean = None if value is None else watch.fires(value)
            if mean is None:
                continue
            named = list((tasks or {}).get(rule.metric, ()))[:EXAMPLES]
            out.append(
                Alarm(
                    step=step, name=rule.name, metric=rule.metric, side=rule.side, window=watch.window,
                    value=round(mean, 6) if math.isfinite(mean) else None, threshold=watch.threshold,
                    meaning=_meaning(rule, metrics), advice=rule.advice, tasks=named,
                )
            )  # fmt: skip
        return out


def _meaning(rule: Rule, metrics: Mapping[str, Any]) -> str:
    """The rule's, with the largest kind of what it watches: ``(mostly over_limit, 0.2 at this step)``."""
    kinds = {name.removeprefix(rule.kinds): _number(value) or 0.0 for name, value in metrics.items()
             if rule.kinds and name.startswith(rule.kinds) and name != "stop/answered"}  # fmt: skip
    largest = max(kinds, key=lambda kind: kinds[kind], default="")
    return rule.meaning + (f" (mostly {largest}, {kinds[largest]:.2g} at this step)" if kinds.get(largest) else "")


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return float(value) if isinstance(value, int | float) else None


# --- in a run -------------------------------------------------------------------------------------------------------


def replay(folder: Path, monitor: AlarmMonitor, step: int) -> None:
    """Bring the monitor to the state after ``step``, and drop later alarms of a killed run."""
    if (folder / "metrics.jsonl").is_file():
        for row in read_jsonl(folder / "metrics.jsonl"):
            if row["step"] <= step:
                monitor.update(row["step"], row)
    if (folder / ALARMS).is_file():
        write_jsonl(folder / ALARMS, [row for row in read_jsonl(folder / ALARMS) if row["step"] <= step])


def alarm_callback(
    folder: Path, options: AlarmOptions, tasks: Callable[[], Mapping[str, Sequence[str]]]
) -> "TrainerCallback":
    """Callback that writes ``alarms.jsonl`` (empty: watched, and all was well) and one line on stderr per alarm.

    ``tasks()``: who is behind each metric in the newest batch. Only rank 0 watches: the figures are of all ranks.
    """
    from tqdm import tqdm
    from transformers import TrainerCallback

    class Alarms(TrainerCallback):
        def on_train_begin(self, args, state, control, **kwargs):
            self._monitor = AlarmMonitor(options)
            if not state.is_world_process_zero:
                return
            if state.global_step:
                replay(folder, self._monitor, state.global_step)
            else:
                write_text(folder / ALARMS, "")

        def on_log(self, args, state, control, logs=None, **kwargs):
            if not state.is_world_process_zero or not logs:
                return
            with (folder / ALARMS).open("a", encoding="utf-8") as file:
                for alarm in self._monitor.update(state.global_step, logs, tasks()):
                    file.write(json.dumps(asdict(alarm), ensure_ascii=False) + "\n")
                    tqdm.write(alarm.line(), file=sys.stderr)  # above the trainer's progress bar, not behind it

    return Alarms()
