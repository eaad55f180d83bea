"""rl/train.py with forced turns, so that it is certain at which turn each rollout ends. Started by test_two_ranks.py.

Every turn is really generated (the collective part), and its result replaced by the script's. Environment:
SCRIPT_DUMP: folder for the credit of each step and rank; SCRIPT_LOCKSTEP=0: ranks generate without waiting;
SCRIPT_SEED: another script for each number, in which the halves still end at different turns.
"""

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

from autotools.config import run_main
from autotools.schema import ToolId
from autotools.search.prompt import answer_text, call_text
from rl import train as rl_train
from rl import trainer as rl_trainer

HALF = 6  # of the 12 rollouts of a step; with two ranks one rank's share
TURNS = 4


def turns_of(step: int, row: int) -> int:
    """Turns of rollout ``row``: one half of a step's rollouts answers at once, the other goes to the last turn.

    With SCRIPT_SEED each half has a longest rollout of its own length, first in the half; the others are no longer.
    """
    if not (seed := os.environ.get("SCRIPT_SEED")):
        return 1 if (row < HALF) == (step % 2 == 0) else TURNS
    longest = random.Random(f"{seed} {step}").sample(range(1, TURNS + 1), 2)[row // HALF]
    return longest if row % HALF == 0 else random.Random(f"{seed} {step} {row}").randint(1, longest)


def scripted_turn(step: int, row: int, turn: int, targets: tuple[ToolId, ...]) -> str:
    """What rollout ``row`` says in its turn ``turn``; on the last turn that there is, some search again."""
    right = [str(t) for t in targets]
    last = turns_of(step, row) - 1
    if last == turn < TURNS - 1:
        return answer_text(right if row % 2 else right[:1])
    words = targets[turn % len(targets)]
    query = f"{words.tool} {words.api}".replace("_", " ")
    if turn < TURNS - 1:
        return ["<tool_call>broken", call_text(query), call_text(query), call_text("zzz")][(row + turn) % 4]
    return call_text(query) if row % 3 == 0 else answer_text(right[row % 2 :])


class ScriptedTrainer(rl_trainer.ToolSearchTrainer):
    """Real generation, scripted result; writes each step's credit to SCRIPT_DUMP."""

    def _generate_single_turn(self, prompt_ids: list, *args: Any, **kwargs: Any) -> tuple[list, None]:
        super()._generate_single_turn(prompt_ids, *args, **kwargs)
        live = [(i, episode) for i, episode in enumerate(self._episodes()) if not episode.done]
        assert len(live) == len(prompt_ids)
        first = self.accelerator.process_index * len(self._episodes())
        turns = [scripted_turn(self.state.global_step, first + i, len(e.events), e.targets) for i, e in live]
        end = self._renderer.end_of_turn
        return [self._tokenizer(t + end, add_special_tokens=False)["input_ids"] for t in turns], None

    def _group_credit(self, num_local: int) -> tuple[Any, int]:
        credit, first = super()._group_credit(num_local)
        if folder := os.environ.get("SCRIPT_DUMP"):
            local = slice(first, first + num_local)
            content = {
                "tasks": [t.task_id for t in self._trajectories],
                "events": [[e.kind.value for e in t.events] for t in self._trajectories],
                "advantages": credit.advantages[local].tolist(),
                "keep": credit.keep[local].tolist(),
            }
            name = f"step{self.state.global_step}-rank{self.accelerator.process_index}.json"
            Path(folder, name).write_text(json.dumps(content), encoding="utf-8")
        return credit, first


class WithoutLockstep(ScriptedTrainer):
    """TRL's own behaviour: every rank generates for its own live rollouts, and leaves when it has none."""

    def _max_over_ranks(self, count: int) -> int:
        return count


if __name__ == "__main__":
    locked = os.environ.get("SCRIPT_LOCKSTEP", "1") == "1"
    rl_trainer.ToolSearchTrainer = ScriptedTrainer if locked else WithoutLockstep  # type: ignore[misc]
    run_main(lambda: rl_train.main(sys.argv[1:]))
