"""The one interface of every search engine, and the function that opens one by name."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from autotools.errors import ConfigError
from autotools.schema import Hit
from retriever.corpus import load_tools

DEFAULT_RECIPE = "minilm"  # what ``hybrid`` uses


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
        """One list of at most ``k`` hits per query, best first. Scores are above 0, but for a dense engine's cosines.

        Raises UnknownCategoryError (lists close names), RetrieverError on k < 1 or lengths that differ.
        """
        ...

    def prefetch(self, queries: Sequence[str]) -> None:
        """Prepare all queries of a turn at once; a later search for them is then cheap. Never changes a result."""
        ...

    def describe(self) -> dict[str, Any]:
        """What decides its results, as JSON types without paths of this machine; goes into manifests."""
        ...

    def counters(self) -> dict[str, int]:
        """At least calls, queries, distinct, cache_hits and encoder_batches since the engine was opened."""
        ...


def _recipe(encoder: str) -> tuple[str, bool]:
    """Name of the dense recipe, and whether BM25 is mixed in."""
    kind, colon, name = encoder.partition(":")
    hybrid = kind == "hybrid" and (bool(name) or not colon)
    return ((name or DEFAULT_RECIPE) if hybrid else encoder), hybrid


def check_encoder(encoder: str) -> None:
    """Raise ConfigError for a name that ``open_engine`` does not know. Reads no corpus and no weights."""
    if encoder != "bm25":
        from retriever.recipes import recipe_for

        recipe_for(_recipe(encoder)[0])


def open_engine(
    path: str | Path,
    encoder: str = "bm25",
    *,
    index: str | Path | None = None,
    device: str = "auto",
    dtype: str = "auto",
    allow_stale: bool = False,
) -> SearchEngine:
    """Engine over a tools file, a tool world folder, or (``http://...``) the engine of a running search server.

    ``encoder``: ``bm25``, ``hybrid``, ``hybrid:NAME``, or what ``retriever.recipes.recipe_for`` knows (a recipe name,
    NAME@FOLDER, a folder, a hub id). ``index``: folder made by ``python -m retriever.build``; None keeps one in the
    user's cache folder. Raises ConfigError for an unknown ``encoder``, DataError for a missing or empty corpus,
    RetrieverError for an index that is missing, broken or stale.
    """
    if str(path).startswith(("http://", "https://")):
        from retriever.remote import RemoteEngine

        return RemoteEngine(str(path))
    if encoder == "bm25":
        if index is not None:
            raise ConfigError("encoder bm25 has no index on disk (it is made in under a second); leave --index out")
        from retriever.bm25 import BM25Engine

        return BM25Engine(load_tools(path))
    check_encoder(encoder)  # an unknown name shows before anything is read
    recipe, hybrid = _recipe(encoder)
    from retriever.dense import open_dense

    dense = open_dense(path, recipe, index=index, device=device, dtype=dtype, allow_stale=allow_stale)
    if not hybrid:
        return dense
    from retriever.bm25 import BM25Engine
    from retriever.hybrid import HybridEngine

    return HybridEngine(BM25Engine(load_tools(path)), dense)
