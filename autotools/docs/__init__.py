"""The one home of tool-documentation readers; each module reads one form into ToolSpecs."""

from collections.abc import Iterable

from autotools.schema import ToolSpec

AUTH_NOTE = "needs an API key"
"""Start of the note that readers put on a tool whose calls must carry a key (the key itself is never stored)."""


def with_unique_ids(specs: Iterable[ToolSpec]) -> list[ToolSpec]:
    """The specs of one document, same order; a repeated id gets ``_v2``, ``_v3`` ... on its API name, and a note."""
    out: list[ToolSpec] = []
    seen: dict[str, int] = {}
    for spec in specs:
        first = str(spec.id)
        number = seen[first] = seen.get(first, 0) + 1
        while number > 1:
            renamed = spec.id.model_copy(update={"api": f"{spec.id.api}_v{number}"})
            if str(renamed) not in seen:
                note = f"id {first} occurs {seen[first]} times; this one was renamed"
                spec = spec.model_copy(update={"id": renamed, "notes": (*spec.notes, note)})
                seen[str(renamed)] = 1
                break
            number += 1  # the document has an API of that very name
        out.append(spec)
    return out
