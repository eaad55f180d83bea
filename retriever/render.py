"""The text of a tool: what an engine indexes (one versioned template) and the short form that a searcher is shown.

Template: names first (category, identifiers, display names), then descriptions, parameters, keys of the response.
Each part has a limit and is cut at a border (sentence, word, whole parameter, whole key); names are never cut.
On the 405 StableToolBench requests category and response keys raised BM25's Recall@5 from 0.557 to 0.583; the limits
cost nothing (without them 0.583).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from autotools.schema import ToolParameter, ToolSpec

TEMPLATE_VERSION = "category-names-description-parameters-response/2"  # another template or limit is another index
MAX_CHARS = 2_000  # of a document beyond its names: about 500 tokens, what the encoders read; 1 in 100 real ones is cut
MAX_DESCRIPTION = 1_000
MAX_PARAMETER = 200  # of the description of one parameter
MAX_SHOWN = 4_000  # of what a searcher is shown; the documentation readers cut there, too

_SENTENCE_END = re.compile(r"[.!?](?=\s)|[。！？]|\n")


def short_text(spec: ToolSpec) -> str:
    """What a searcher is shown of a tool: its description on one line (the id travels beside it)."""
    text = " ".join((spec.description or spec.tool_description).split())
    return cut(text, MAX_SHOWN) or spec.api_name


def document_text(spec: ToolSpec) -> str:
    """Text an engine indexes, lines joined by newlines. The version of this template is ``TEMPLATE_VERSION``."""
    names = f"{spec.id.category} {spec.id.tool} {spec.id.api}\n{spec.tool_name}: {spec.api_name}"
    body = body_text(spec)
    return f"{names}\n{body}" if body else names


def body_text(spec: ToolSpec) -> str:
    """The indexed text without its two lines of names; at most ``MAX_CHARS`` characters."""
    texts = [cut(text, MAX_DESCRIPTION) for text in (spec.description, spec.tool_description)]
    lines = [text for text in texts if text]
    keys = ((key, key) for key in response_keys(spec.response))
    for label, entries in (("parameters", _parameters(spec.parameters)), ("returns", keys)):
        line = _filled(f"{label}: ", entries, MAX_CHARS - sum(len(line) + 1 for line in lines))
        lines += [line] if line else []
    return "\n".join(lines)


def document_texts(specs: Sequence[ToolSpec]) -> list[str]:
    """``document_text`` of each spec, same order."""
    return [document_text(spec) for spec in specs]


def cut(text: str, limit: int) -> str:
    """At most ``limit`` characters: up to the last sentence end in the second half, else the last blank.

    Text without a border (a code of a thousand characters) is left out: half a word is another word.
    """
    text = text.strip()
    if len(text) <= limit:
        return text
    head = text[: limit + 1]
    ends = [match.end() for match in _SENTENCE_END.finditer(head) if limit // 2 < match.end() <= limit]
    if ends:
        return head[: ends[-1]].strip()
    parts = re.split(r"\s+(?=\S*$)", head, maxsplit=1)
    return parts[0].strip() if len(parts) == 2 else ""


def _parameters(parameters: Iterable[ToolParameter]) -> Iterator[tuple[str, str]]:
    """(whole entry, its name alone) of each parameter."""
    for parameter in parameters:
        about = " ".join(cut(parameter.description, MAX_PARAMETER).split())
        yield (f"{parameter.name} ({about})" if about else parameter.name), parameter.name


def response_keys(response: Any) -> Iterator[str]:
    """Keys of a response template, outer before inner, each once."""
    seen: set[str] = set()
    level: list[Any] = [response]
    while level:
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                for key in value:
                    if key not in seen:
                        seen.add(key)
                        yield key
                inner += value.values()
            elif isinstance(value, list | tuple):
                inner += value
        level = inner


def _filled(label: str, entries: Iterable[tuple[str, str]], room: int) -> str:
    """Label and entries while there is room: where an entry does not fit, its name alone, and then no more than names.

    Empty if not even one name fits.
    """
    out: list[str] = []
    room -= len(label)
    names_only = False
    for whole, name in entries:
        names_only = names_only or len(whole) > room
        text = name if names_only else whole
        if len(text) > room:
            break
        out.append(text)
        room -= len(text) + 2
    return label + ", ".join(out) if out else ""
