"""Turns the text of one assistant turn into what it means. Never raises: every fault of the policy has a kind.

Ours and not TRL's, because TRL ends a rollout at a malformed call, while here the policy is told what was wrong.
"""

import json
from dataclasses import dataclass
from typing import Any

from autotools.schema import EventKind

_EVERYWHERE = {"", "all", "none", "null"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedTurn:
    """SEARCH has a query; ANSWER has a tool list in ``text``; the fault kinds carry ``problem`` for the policy."""

    kind: EventKind
    text: str
    query: str | None = None
    category: str | None = None
    problem: str = ""
    extra_calls: int = 0


def parse_turn(text: str) -> ParsedTurn:
    """Read one assistant turn. A thinking part (up to ``</think>``) is skipped; of several calls the first counts."""
    body = text.rsplit("</think>", 1)[-1]
    if "<tool_call>" in body:
        return _parse_call(text, body)
    if "<tool_list>" in body:
        return ParsedTurn(kind=EventKind.ANSWER, text=text)
    return ParsedTurn(kind=EventKind.EMPTY_ANSWER, text=text)


def _encodable(text: str) -> str:
    """A JSON escape can spell half a surrogate pair; such a text could be neither searched for nor stored."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _parse_call(text: str, body: str) -> ParsedTurn:
    first, closed, _ = body.partition("<tool_call>")[2].partition("</tool_call>")
    extra = max(body.count("<tool_call>") - 1, 0)

    def fault(kind: EventKind, problem: str) -> ParsedTurn:
        return ParsedTurn(kind=kind, text=text, problem=problem, extra_calls=extra)

    if not closed:
        return fault(EventKind.MALFORMED_CALL, "The call was not closed with </tool_call>.")
    try:
        call = json.loads(first)
    except (ValueError, RecursionError):
        return fault(EventKind.MALFORMED_CALL, "The call is not valid JSON.")
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return fault(EventKind.MALFORMED_CALL, 'A call is a JSON object with "name" and "arguments".')
    if call["name"] != "search":
        return fault(EventKind.UNKNOWN_TOOL, f"There is no tool {call['name'][:60]!r}; the only tool is search.")
    arguments: Any = call.get("arguments")
    if isinstance(arguments, str):  # some models send the arguments as a JSON string
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = None
    if not isinstance(arguments, dict):
        return fault(EventKind.BAD_ARGUMENTS, '"arguments" must be a JSON object.')
    query, category = arguments.get("query"), arguments.get("category")
    if not isinstance(query, str) or not query.strip():
        return fault(EventKind.BAD_ARGUMENTS, '"query" must be a non-empty string.')
    if category is not None and not isinstance(category, str):
        return fault(EventKind.BAD_ARGUMENTS, '"category" must be a string.')
    if category is not None and category.strip().casefold() in _EVERYWHERE:
        category = None
    return ParsedTurn(
        kind=EventKind.SEARCH,
        text=text,
        query=_encodable(query).strip(),
        category=_encodable(category).strip() if category else None,
        extra_calls=extra,
    )
