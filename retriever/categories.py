"""The one check of category names for every engine: what a search may be restricted to, and the error that helps."""

import difflib
from collections.abc import Collection, Sequence

from autotools.errors import RetrieverError, UnknownCategoryError


def wanted_categories(
    queries: Sequence[str], categories: Sequence[str | None] | None, k: int, known: Collection[str]
) -> list[str | None]:
    """The category of each query (None: whole corpus), after the checks that all engines share.

    Raises RetrieverError for k < 1 or lengths that differ, UnknownCategoryError for a name that is not ``known``.
    """
    if k < 1:
        raise RetrieverError(f"k must be 1 or more, got {k}")
    wanted = [None] * len(queries) if categories is None else list(categories)
    if len(wanted) != len(queries):
        raise RetrieverError(f"{len(queries)} queries but {len(wanted)} categories; give one (or None) per query")
    for category in set(wanted):
        if category is not None and category not in known:
            raise unknown_category(category, known)
    return wanted


def unknown_category(category: str, known: Collection[str]) -> UnknownCategoryError:
    """The error for a category the corpus does not have: lists close names (case ignored), else all of them."""
    lowered = {name.lower(): name for name in sorted(known)}
    close = [lowered[name] for name in difflib.get_close_matches(category.lower(), lowered, n=3, cutoff=0.5)]
    hint = f"close names: {', '.join(close)}" if close else f"known: {', '.join(sorted(known))}"
    return UnknownCategoryError(f"unknown category {category!r}; {hint}")
