"""The one home of tool-documentation readers; each module reads one form into ToolSpecs."""

from collections.abc import Iterable

from autotools.docs.reading import Reading
from autotools.schema import ToolSpec

AUTH_NOTE = "needs an API key"
"""Start of the note that readers put on a tool whose calls must carry a key (the key itself is never stored)."""

EVALUATION_NOTE = "for evaluation only: its authors ask to keep it out of training data"
"""Note on the tools of a set whose authors ask so; data synthesis sets such tools aside."""


def with_unique_ids(specs: Iterable[ToolSpec]) -> list[ToolSpec]:
    """The specs of one document, same order, each once; another one of an id gets ``_v2``, ``_v3`` ... and a note."""
    reading = Reading(source="", form="")
    for spec in specs:
        reading.keep(0, spec, rename=True)
    return reading.specs
