"""What the noisy expert may search with when a request has no template: words of the request and of the documents.

The tool world writes these hints beside each task (it knows which clause asks for which tool). For real requests they
are derived here, with knowledge of the targets, so they belong to demonstrations only and never to test tasks.
"""

import re
from collections.abc import Mapping
from typing import Any

from autotools.schema import Task, ToolId, ToolSpec
from data_synthesis.expert import content_words
from retriever.bm25 import STOP_WORDS, tokenize
from retriever.corpus import document_text

MAX_WORDS = 6  # of one query
_CLAUSE = re.compile(r"[.?!;:,()]\s+|\s(?:and|also|additionally|then|plus)\s", re.I)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]{2,}")  # getHospitalsByName gives four words


def hints(task: Task, specs: Mapping[ToolId, ToolSpec]) -> dict[str, dict[str, str]]:
    """``{"clauses", "objects", "good_query"}``, each by target id.

    Clause: the part of the request that shares most words with the target's document, cut to its content words.
    Object: the words of the tool's name. Good query: words of the API's name, the tool's name and the description.
    """
    parts = [part for part in _CLAUSE.split(task.query) if part.strip()] or [task.query]
    out: dict[str, dict[str, str]] = {"clauses": {}, "objects": {}, "good_query": {}}
    for target in task.targets:
        spec, name = specs[target], str(target)
        known = set(tokenize(document_text(spec)))
        clause = max(parts, key=lambda part: (len(known & set(tokenize(part))), len(part)))
        out["clauses"][name] = _first_words(content_words(clause).split())
        out["objects"][name] = _first_words(_words(spec.tool_name)) or spec.tool_name
        out["good_query"][name] = _first_words(_words(f"{spec.api_name} {spec.tool_name} {spec.description}"))
    return out


def with_hints(task: Task, specs: Mapping[ToolId, ToolSpec]) -> Task:
    """The task with its hints in ``meta``."""
    meta: dict[str, Any] = {**task.meta, **hints(task, specs)}
    return task.model_copy(update={"meta": meta})


def _words(text: str) -> list[str]:
    return [word for word in map(str.lower, _WORD.findall(text)) if len(word) > 1 and word not in STOP_WORDS]


def _first_words(words: list[str]) -> str:
    return " ".join(list(dict.fromkeys(words))[:MAX_WORDS])
