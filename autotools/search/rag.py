"""The baseline RAG: documents of one search with the raw request stand in the prompt, and the only turn is the answer.

``data_synthesis`` makes its training data (RAGSFT) and ``evaluation`` plays it, both through ``rag_episodes``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autotools.schema import Event, EventKind, Hit, Task
from autotools.search.answer import NameIndex
from autotools.search.episode import Episode, SearchBatch, SearchSettings
from autotools.search.observation import hits_text
from autotools.search.prompt import rag_messages


@dataclass(frozen=True, kw_only=True)
class RagSettings:
    """Config section ``rag``. 100 documents as in the paper's baselines; what is too long is cut, never left out."""

    documents: int = field(default=100, metadata={"help": "documents in the prompt, best first"})
    document_chars: int = field(default=200, metadata={"help": "characters of each document; its name always stays"})

    def __post_init__(self) -> None:
        for name in ("documents", "document_chars"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"{name} must be 1 or more, got {value}")


class RagEpisode(Episode):
    """An episode whose search is over before the policy speaks: a turn that is no answer ends it (``TURN_LIMIT``).

    The search counts as one event without an observation, so that SRecall and the check of shown names work as ever.
    """

    def __init__(
        self,
        request: str,
        names: NameIndex,
        settings: SearchSettings,
        hits: Sequence[Hit],
        document_chars: int,
        **kwargs: Any,
    ):
        super().__init__(request, names, replace(settings, max_turns=2), **kwargs)
        self.tools = None
        self.messages = rag_messages(request, hits_text(hits, document_chars))
        self.num_prompt_messages = len(self.messages)
        shown = tuple(hit.id for hit in hits)
        self.events = [Event(kind=EventKind.SEARCH, text=request, query=request, hits=shown)]


def rag_episodes(
    tasks: Sequence[Task], names: NameIndex, settings: SearchSettings, rag: RagSettings, search_batch: SearchBatch
) -> list[RagEpisode]:
    """One episode per task, in order; all requests go to the engine in one call. Raises RetrieverError as it does."""
    if not tasks:
        return []
    results = search_batch([task.query for task in tasks], [None] * len(tasks), rag.documents)
    return [
        RagEpisode(
            task.query, names, settings, hits, rag.document_chars,
            task_id=task.id, targets=task.targets, level=task.level, meta=task.meta,
        )
        for task, hits in zip(tasks, results, strict=True)
    ]  # fmt: skip
