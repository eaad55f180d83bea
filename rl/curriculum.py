"""Category-constrained tool discrimination (CCTD): the first steps search inside categories, the rest everywhere.

    phase 1: step < round(fraction * total steps)   tool with the argument category, categories listed in the prompt
    phase 2: all later steps                        tool and prompt without categories, search over the whole corpus

``offer``: in phase 1 the policy may use the argument. ``enforce``: a search with a missing or wrong category is moved
into the category of a target (``autotools/search/episode.py`` says which one). The phase of a rollout is that of the
step that generates it. Source: arXiv 2609.30906; the official code has no switch, so the rule is ours.
"""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from autotools.errors import ConfigError
from autotools.search.episode import SearchSettings

if TYPE_CHECKING:
    from transformers import TrainerCallback

STATE = "curriculum"
"""Key under ``stateful_callbacks`` of a checkpoint's ``trainer_state.json``."""


@dataclass(frozen=True, kw_only=True)
class CurriculumOptions:
    """Config section ``curriculum``."""

    mode: Literal["off", "offer", "enforce"] = field(
        default="off", metadata={"help": "searches of the first phase may (offer) or must (enforce) name a category"}
    )
    fraction: float = field(default=0.3, metadata={"help": "share of the steps that the first phase takes"})

    def __post_init__(self) -> None:
        if not 0 <= self.fraction <= 1:
            raise ConfigError(f"curriculum.fraction is {self.fraction}; it is a share of the steps, from 0 to 1")


@dataclass(frozen=True, kw_only=True)
class Phase:
    """``number``: 0 without a curriculum, else 1 or 2. ``settings`` and ``enforce`` are for the phase's episodes."""

    number: int
    settings: SearchSettings
    enforce: bool = False


class Curriculum:
    """The switch. ``begin(step, total)`` before the rollouts of a step; ``phase`` is what they are played under."""

    def __init__(self, options: CurriculumOptions, settings: SearchSettings):
        self.options, self._settings = options, settings
        self.total_steps: int | None = None
        self.phase = Phase(number=0, settings=settings) if options.mode == "off" else self._phase(1)

    def _phase(self, number: int) -> Phase:
        first = number == 1
        settings = replace(self._settings, category_argument=first, offer_categories=first)
        return Phase(number=number, settings=settings, enforce=first and self.options.mode == "enforce")

    @property
    def switch_step(self) -> int | None:
        """First step of phase 2, counted from 0; None before ``begin`` has said how many steps there are."""
        return None if self.total_steps is None else round(self.options.fraction * self.total_steps)

    def begin(self, step: int, total_steps: int) -> Phase:
        """Phase of the step. Raises ConfigError if a resumed run has another number of steps than it began with."""
        if self.options.mode == "off":
            return self.phase
        if self.total_steps not in (None, total_steps):
            raise ConfigError(
                f"max_steps is {total_steps}, but the curriculum began with {self.total_steps}, which decides when it "
                "switches; resume with the settings of the first start"
            )
        self.total_steps = total_steps
        number = 1 if step < round(self.options.fraction * total_steps) else 2
        if number != self.phase.number:
            self.phase = self._phase(number)
        return self.phase

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold to go on under the same curriculum."""
        return {
            "mode": self.options.mode,
            "fraction": self.options.fraction,
            "total_steps": self.total_steps,
            "phase": self.phase.number,
        }

    def restore(self, checkpoint: str | Path) -> None:
        """Take the state of a checkpoint. Raises ConfigError, naming the key, if it was made under another one."""
        path = Path(checkpoint) / "trainer_state.json"
        saved = json.loads(path.read_text(encoding="utf-8")).get("stateful_callbacks", {}).get(STATE)
        saved = saved["attributes"] if saved else {"mode": "off", "fraction": self.options.fraction}
        for key in ("mode", "fraction"):
            if saved[key] != getattr(self.options, key) and (key == "mode" or self.options.mode != "off"):
                raise ConfigError(
                    f"curriculum.{key} is {getattr(self.options, key)}, but {path} was made with {saved[key]}; "
                    "resume with the same curriculum"
                )
        if self.options.mode != "off":
            self.total_steps = saved["total_steps"]
            self.phase = self._phase(saved["phase"])


def curriculum_callback(curriculum: Curriculum) -> "TrainerCallback":
    """Callback through which the trainer saves the state with its own, in one file and so in one piece."""
    from transformers import TrainerCallback
    from transformers.trainer_callback import ExportableState

    def state(self: Any) -> dict[str, Any]:
        return {"args": {}, "attributes": curriculum.state()}

    # Transformers files a state under the name of its class.
    return type(STATE, (TrainerCallback, ExportableState), {"state": state})()
