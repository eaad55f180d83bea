"""Reads a final selection back: tolerant in layout, strict in meaning (only ids of the corpus count)."""

import re
from collections.abc import Iterable

from autotools.schema import ToolId

_BULLET = re.compile(r"^\s*(?:[-*•]|\(?\d{1,3}[.):](?!\d))\s*")
_WRAP = " \t\r\"'`[](){}<>*.,;"


class NameIndex:
    """Maps names as a model writes them to the ids of one corpus (exact first, then a unique case-blind match)."""

    def __init__(self, ids: Iterable[ToolId]):
        self._exact = {str(i): i for i in ids}
        folded: dict[str, ToolId | None] = {}
        for text, tool_id in self._exact.items():
            folded[text.casefold()] = None if text.casefold() in folded else tool_id
        self._folded = folded
        self.categories = sorted({i.category for i in self._exact.values()})
        self.max_commas = max((text.count(",") for text in self._exact), default=0)

    def __len__(self) -> int:
        return len(self._exact)

    def find(self, name: str) -> ToolId | None:
        """The id called ``name``, or None."""
        return self._exact.get(name) or self._folded.get(name.casefold())


def _clean(item: str) -> str:
    return _BULLET.sub("", item).strip(_WRAP)


def _read_line(line: str, names: NameIndex) -> tuple[list[ToolId], list[str]]:
    """Split on commas, but let neighbouring parts join first: a category may itself hold a comma."""
    parts = [p for p in line.split(",")]
    found, unknown, start = [], [], 0
    while start < len(parts):
        for end in range(min(len(parts), start + 1 + names.max_commas), start, -1):
            tool_id = names.find(_clean(",".join(parts[start:end])))
            if tool_id is not None:
                found.append(tool_id)
                start = end
                break
        else:
            if item := _clean(parts[start]):
                unknown.append(item)
            start += 1
    return found, unknown


def parse_tool_list(text: str, names: NameIndex) -> tuple[tuple[ToolId, ...], tuple[str, ...]] | None:
    """Ids and unknown names in the last ``<tool_list>`` block of ``text``; None if there is no block.

    Accepts commas, semicolons, newlines, bullets, numbering, quotes and brackets around names, and a block that
    was never closed. Ids are unique, in order of first mention.
    """
    _, mark, block = text.rpartition("<tool_list>")
    if not mark:
        return None
    found: dict[ToolId, None] = {}
    unknown: dict[str, None] = {}
    for line in re.split(r"[\n;]", block.partition("</tool_list>")[0]):
        ids, rest = _read_line(line, names)
        found.update(dict.fromkeys(ids))
        unknown.update(dict.fromkeys(rest))
    return tuple(found), tuple(unknown)
