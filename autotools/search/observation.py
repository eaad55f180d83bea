"""Text that the policy sees after a turn. Made from structured hits; nothing is ever parsed back out of it."""

import difflib
from collections.abc import Sequence

from autotools.schema import Hit

NOTHING_FOUND = "No tool matches this query."
ONE_CALL_NOTE = "Only the first call of a turn is executed."


def hits_text(hits: Sequence[Hit], document_chars: int, note: str = "") -> str:
    """One block per hit: its name, then its document cut to ``document_chars`` characters.

    The cut is per document, so that the names of all hits always stay; a cut ends with an ellipsis.
    """
    lines = []
    for hit in hits:
        document = hit.document
        if len(document) > document_chars:
            document = document[: max(document_chars - 1, 0)].rstrip() + "…"
        lines.append(f"{hit.id}: {document}" if document else str(hit.id))
    text = "\n".join(lines) if lines else NOTHING_FOUND
    return f"{text}\n{note}" if note else text


def unknown_category_text(category: str, categories: Sequence[str]) -> str:
    """What the policy is told after naming a category that does not exist."""
    close = difflib.get_close_matches(category, categories, n=3, cutoff=0.3)
    hint = f" Did you mean: {', '.join(close)}?" if close else ""
    return f"There is no category {category[:60]!r}.{hint} Leave category out to search everywhere."
