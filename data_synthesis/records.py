"""One chat record of the SFT files, and the two texts that several tasks share."""

from typing import Any

from autotools.schema import ToolSpec
from retriever.corpus import short_text


def record(
    record_id: str, task: str, source: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Row of ``sft/*.jsonl``; ``task`` is search, understanding, relevance, function or rag."""
    return {"id": record_id, "task": task, "source": source, "messages": messages, "tools": tools}


def chat(system: str, user: str, assistant: str) -> list[dict[str, Any]]:
    """One-turn conversation."""
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": user},
        {"role": "assistant", "content": assistant},
    ]


def code_block(source: str) -> str:
    """Python as a model is taught to write it: one fenced block."""
    return f"```python\n{source.strip()}\n```"


def candidate_line(spec: ToolSpec) -> str:
    """A candidate looks like a search hit, so that what is learnt here transfers to the search episode."""
    return f"{spec.id}: {short_text(spec)}"
