"""The one interface of every search engine, and the function that opens one by name."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from autotools.errors import ConfigError
from autotools.schema import Hit
from retriever.corpus import load_tools

ENCODERS = ("bm25",)


@runtime_checkable
class SearchEngine(Protocol):
    """Searches a fixed corpus. A failure raises RetrieverError; it is never an empty list."""

    @property
    def categories(self) -> tuple[str, ...]:
        """Categories a search may be restricted to, sorted."""
        ...

    def search_batch(
        self, queries: Sequence[str], categories: Sequence[str | None] | None = None, k: int = 5
    ) -> list[list[Hit]]:
        """One list of at most ``k`` hits per query, best first, every score above 0."""
        ...


def open_engine(path: str | Path, encoder: str = "bm25") -> SearchEngine:
    """Engine over a ``tools.jsonl`` file or a tool world folder.

    Raises ConfigError for an unknown ``encoder``, DataError for a missing or empty corpus.
    """
    if encoder not in ENCODERS:
        raise ConfigError(f"unknown encoder {encoder!r}; known: {', '.join(ENCODERS)}")
    from retriever.bm25 import BM25Engine

    return BM25Engine(load_tools(path))
