"""What the policy reads first: the system text, the one tool, and the request. Exists once for all users.

Demonstrations, SFT, RL and evaluation call ``prompt_messages``; nobody else writes prompt text. The tool comes with a
``category`` argument (``SEARCH_TOOL``) or without (``GLOBAL_SEARCH_TOOL``, the second phase of the curriculum).
"""

import copy
import json
from collections.abc import Sequence
from typing import Any

SYSTEM_TEXT = (
    "Find the tools that solve the user's request. Call search, one call per turn, as often as needed. "
    "When all needed tools have been shown, answer with their names, exactly as shown: "
    "<tool_list>name, name</tool_list>"
)
RAG_SYSTEM_TEXT = (
    "Tools are listed first, then the user's request. Answer with the names of those that solve it, exactly as shown: "
    "<tool_list>name, name</tool_list>"
)

SEARCH_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search the tool corpus. Returns the names and descriptions of the best matching tools.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What the tool should do, in a few words."},
                "category": {
                    "type": "string",
                    "description": "Search only inside this category; leave it out to search everywhere.",
                },
            },
            "required": ["query"],
        },
    },
}
GLOBAL_SEARCH_TOOL: dict[str, Any] = copy.deepcopy(SEARCH_TOOL)
del GLOBAL_SEARCH_TOOL["function"]["parameters"]["properties"]["category"]


def prompt_messages(request: str, categories: Sequence[str] = ()) -> list[dict[str, Any]]:
    """System and user message of one episode; ``categories`` are listed when the run offers them."""
    system = SYSTEM_TEXT
    if categories:
        system += "\nCategories: " + ", ".join(categories)
    return [{"role": "system", "content": system}, {"role": "user", "content": request}]


def rag_messages(request: str, documents: str) -> list[dict[str, Any]]:
    """System and user message of a policy that gets its documents at once; the request stands behind them."""
    user = f"Tools:\n{documents}\n\nRequest: {request}"
    return [{"role": "system", "content": RAG_SYSTEM_TEXT}, {"role": "user", "content": user}]


def call_text(query: str, category: str | None = None) -> str:
    """Assistant turn that searches, in the form that Qwen's chat templates give to a tool call."""
    arguments = {"query": query} if category is None else {"query": query, "category": category}
    call = {"name": "search", "arguments": arguments}
    return f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>"


def answer_text(names: Sequence[str]) -> str:
    """Final turn that selects ``names``."""
    return f"<tool_list>{', '.join(names)}</tool_list>"
