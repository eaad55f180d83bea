"""Function learning: request + candidate function signatures -> program that solves it (AutoTools, section 4.2)."""

import ast
import random
from collections.abc import Iterator, Sequence
from typing import Any

from autotools.schema import Task, VerifiedFunction
from data_synthesis.inputs import Inputs, function_node
from data_synthesis.records import chat, code_block, record
from data_synthesis.tasks.candidates import CandidateMaker

SYSTEM_TEXT = "Write a Python program that solves the request with these functions and ends with finish(value)."


def signature(function: VerifiedFunction) -> str:
    """``def name(arguments): first line of the docstring``, without the body."""
    node = function_node(function)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    first = (ast.get_docstring(node) or "").strip().split("\n")[0]
    return f"def {node.name}({ast.unparse(node.args)}){returns}: {first}".rstrip(": ")


def function_records(
    inputs: Inputs, tasks: Sequence[Task], maker: CandidateMaker, *, size: int, seed: int
) -> Iterator[dict[str, Any]]:
    """One record per task; ``maker`` holds verified functions only; ``tasks`` have passed ``program_problem``."""
    signatures = {tool: signature(function) for tool, function in inputs.functions.items()}
    for task in tasks:
        rng = random.Random(f"{seed}/function/{task.id}")
        chosen = maker.draw(task.targets, size, rng)
        user = "\n".join([task.query, "Functions:", *(signatures[tool] for tool in chosen)])
        messages = chat(SYSTEM_TEXT, user, code_block(task.program or ""))
        yield record(f"function/{task.id}", "function", task.suite, messages)
