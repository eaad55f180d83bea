"""Relevance learning: request + candidate tools -> names of those that solve it, listwise (AutoTools, section 4.2)."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

from autotools.schema import Task
from autotools.search.prompt import answer_text
from data_synthesis.inputs import Inputs
from data_synthesis.records import candidate_line, chat, record
from data_synthesis.tasks.candidates import CandidateMaker

SYSTEM_TEXT = "Name the tools that solve the user's request, in calling order: <tool_list>name, name</tool_list>"


def relevance_records(
    inputs: Inputs, tasks: Sequence[Task], maker: CandidateMaker, *, size: int, seed: int
) -> Iterator[dict[str, Any]]:
    """One record per task, with ``size`` candidates that look like search hits. Answer: targets in calling order."""
    by_id = inputs.by_id
    for task in tasks:
        rng = random.Random(f"{seed}/relevance/{task.id}")
        lines = [candidate_line(by_id[tool]) for tool in maker.draw(task.targets, size, rng)]
        user = "\n".join([task.query, "Tools:", *lines])
        messages = chat(SYSTEM_TEXT, user, answer_text([str(target) for target in task.targets]))
        yield record(f"relevance/{task.id}", "relevance", task.suite, messages)
