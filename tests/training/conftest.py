"""A data folder of a few search conversations in three tasks, enough for an SFT run of some steps."""

import random
from pathlib import Path
from typing import Any

import pytest

from autotools.rundir import write_jsonl, write_manifest
from autotools.schema import ToolSpec
from autotools.search.prompt import SEARCH_TOOL, answer_text, call_text, prompt_messages


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def conversation(number: int, task: str, specs: list[ToolSpec], rng: random.Random) -> dict[str, Any]:
    spec = rng.choice(specs)
    if task == "search":
        shown = {"role": "tool", "name": "search", "content": f"{spec.id}: {spec.description}"}
        turns = [assistant(call_text(spec.description)), shown, assistant(answer_text([str(spec.id)]))]
        messages = [*prompt_messages(f"I need {spec.description}"), *turns]
    else:
        messages = [{"role": "user", "content": f"What does {spec.id} do?"}, assistant(spec.description)]
    tools = [SEARCH_TOOL] if task == "search" else None
    return {"id": f"{task}-{number}", "task": task, "source": "test", "messages": messages, "tools": tools}


@pytest.fixture(scope="session")
def sft_data(tmp_path_factory: pytest.TempPathFactory, ten_tools: list[ToolSpec]) -> Path:
    """Folder with sft/{train,dev}.jsonl: 24 search, 8 understanding and 4 function records; and tools.jsonl."""
    folder = tmp_path_factory.mktemp("data")
    rng = random.Random(0)
    sizes = {"search": 24, "understanding": 8, "function": 4}
    rows = [conversation(n, task, ten_tools, rng) for task, size in sizes.items() for n in range(size)]
    write_jsonl(folder / "sft" / "train.jsonl", rows)
    write_jsonl(folder / "sft" / "dev.jsonl", [rows[i] for i in (0, 1, 2, 24, 25, 32)])
    write_jsonl(folder / "tools.jsonl", ten_tools)
    write_manifest(folder, stage="data", inputs=[folder / "tools.jsonl"], counts={"sft": sizes}, seed=0)
    return folder
