"""Reads a final selection back: tolerant in layout, strict in meaning (only ids of the corpus count)."""

import re
from collections.abc import Iterable, Iterator

from autotools.schema import ToolId

_BULLET = re.compile(r"^\s*(?:[-*+•–—]|[(\[]?\d{1,3}[.):\]](?!\d)|\[[ xX]\]|[\"'{]*tool_list[\"']?\s*[:=]|and\s)\s*")
_FENCE = re.compile(r"\s*```\w*\s*")
_BETWEEN = re.compile(r" ?\]? ?\. ?\[? ?")  # [category].[tool].[api], as the paper's prompt writes a name
_BULLETS = 2  # "- 1. name"
_QUOTES = " \t\r\"'`“”‘’"
_WRAP = _QUOTES + "[](){}<>*.,;"


class NameIndex:
    """Maps names as a model writes them to the ids of one corpus.

    Exact first, then a unique match blind to case. An id whose category is its tool (AppWorld's apps) is also called
    ``tool.api``, where no other id is.
    """

    def __init__(self, ids: Iterable[ToolId]):
        self._exact = {str(i): i for i in ids}
        folded: dict[str, ToolId | None] = {}
        for text, tool_id in self._exact.items():
            folded[text.casefold()] = None if text.casefold() in folded else tool_id
        short: dict[str, ToolId | None] = {}
        for tool_id in self._exact.values():
            if tool_id.category.casefold() == tool_id.tool.casefold():
                name = f"{tool_id.tool}.{tool_id.api}".casefold()
                short[name] = None if name in short else tool_id
        self._folded = {**short, **folded}
        self.categories = sorted({i.category for i in self._exact.values()})
        self.max_commas = max((text.count(",") for text in self._exact), default=0)

    def __len__(self) -> int:
        return len(self._exact)

    def find(self, name: str) -> ToolId | None:
        """The id called ``name``, or None."""
        return self._exact.get(name) or self._folded.get(name.casefold())


def _clean(item: str) -> str:
    return _BULLET.sub("", item).strip(_WRAP)


def _readings(item: str) -> Iterator[str]:
    """What an item may name, from the text as it stands (a name may begin like a bullet) to the barest."""
    yield item.strip()
    yield item.strip(_QUOTES)
    for _ in range(_BULLETS):
        item = _BULLET.sub("", item).rstrip()
        yield item
    item = item.strip(_WRAP)
    yield item
    if "[" in item or " ." in item or ". " in item:
        yield _BETWEEN.sub(".", " ".join(item.split()))


def _read_line(line: str, names: NameIndex) -> tuple[list[ToolId], list[str]]:
    """Split on commas, but let neighbouring parts join first: a category may itself hold a comma."""
    parts = [p for p in line.split(",")]
    found, unknown, start = [], [], 0
    while start < len(parts):
        for end in range(min(len(parts), start + 1 + names.max_commas), start, -1):
            item = ",".join(parts[start:end])
            tool_id = next(filter(None, map(names.find, _readings(item))), None)
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

    Accepts commas, semicolons, newlines, bullets, numbering, quotes and brackets around names, code fences, a JSON
    list or object, ``[category].[tool].[api]``, and a block that was never closed. Ids are unique, in order of first
    mention.
    """
    _, mark, block = text.rpartition("<tool_list>")
    if not mark:
        return None
    found: dict[ToolId, None] = {}
    unknown: dict[str, None] = {}
    for line in re.split(r"[\n;]", block.partition("</tool_list>")[0]):
        ids, rest = ([], []) if _FENCE.fullmatch(line) else _read_line(line, names)
        found.update(dict.fromkeys(ids))
        unknown.update(dict.fromkeys(rest))
    return tuple(found), tuple(unknown)
