"""Search demonstrations: whole episodes played by the noisy expert through the shared search episode."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

from autotools.schema import Task, Trajectory
from data_synthesis.expert import Expert
from data_synthesis.records import record


def search_records(
    tasks: Sequence[Task], expert: Expert, *, count: int, seed: int
) -> Iterator[tuple[dict[str, Any], Trajectory]]:
    """``count`` demonstrations: the tasks again and again, in a new order and with new noise every round."""
    order: list[Task] = []
    for number in range(count):
        turn, position = divmod(number, len(tasks))
        if position == 0:
            order = random.Random(f"{seed}/search/order/{turn}").sample(list(tasks), len(tasks))
        task = order[position]
        prompt = expert.prompt_settings(random.Random(f"{seed}/search/prompt/{task.id}/{turn}").random())
        episode = expert.play(task, random.Random(f"{seed}/search/{task.id}/{turn}"), prompt)
        yield (
            record(f"search/{task.id}/{turn}", "search", task.suite, episode.messages, episode.tools),
            episode.trajectory(),
        )
