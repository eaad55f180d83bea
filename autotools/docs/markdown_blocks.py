"""Markdown text -> flat list of blocks: headings, paragraphs, list items, tables, code fences.

Only what API pages are made of. Nested lists become one item, quotes and HTML are paragraphs. Linear in the text.
"""

import re
from dataclasses import dataclass, field
from typing import Literal

_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_ITEM = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)])[ \t]+(.*)$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([\w+-]*)")
_RULE_CELL = re.compile(r":?-+:?$")
_CELL_END = re.compile(r"(?<!\\)\|")
_CODE = re.compile(r"(?<![\\`])(`[^`]+`)(?!`)")
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*\)")
_EMPHASIS = re.compile(r"(?<!\\)[*`]+|(?<![\w\\])_{1,3}(?=\w)|(?<=\w)(?<!\\)_{1,3}(?!\w)")
_SPECIAL = re.compile(r"[\\`*\[\]<>|#~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")


@dataclass(frozen=True)
class Block:
    """One block. ``text`` is raw inline Markdown (of a fence: its content); ``rows`` are a table's cells, head first.

    ``level`` is the depth of a heading, ``language`` the word after a fence.
    """

    kind: Literal["heading", "paragraph", "item", "table", "fence"]
    text: str = ""
    level: int = 0
    language: str = ""
    rows: list[list[str]] = field(default_factory=list)


def blocks(text: str) -> list[Block]:
    """All blocks of a page, in order. Never fails: what is no other block is a paragraph."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").expandtabs(4).split("\n")
    out: list[Block] = []
    row = 0
    while row < len(lines):
        line = lines[row]
        if not line.strip():
            row += 1
        elif fence := _FENCE.match(line):
            row, block = _fence(lines, row, fence[1], fence[2])
            out.append(block)
        elif heading := _HEADING.match(line):
            title = re.sub(r"(^|[ \t])#+[ \t]*$", "", heading[2] or "")  # "## Title ##"
            out.append(Block("heading", title.strip(), level=len(heading[1])))
            row += 1
        elif _starts_table(lines, row):
            row, block = _table(lines, row)
            out.append(block)
        elif item := _ITEM.match(line):
            row, more = _continued(lines, row + 1)
            out.append(Block("item", " ".join([item[1].strip(), *more])))
        elif row + 1 < len(lines) and _UNDERLINE.match(lines[row + 1]):
            out.append(Block("heading", line.strip(), level=1 if "=" in lines[row + 1] else 2))
            row += 2
        else:
            row, more = _continued(lines, row + 1)
            out.append(Block("paragraph", " ".join([line.strip(), *more])))
    return out


def plain(text: str) -> str:
    """Inline Markdown as text: escapes resolved, emphasis and code marks dropped, links reduced to their words."""
    parts = _CODE.split(text)  # code spans, at odd places, are taken as they stand
    for i, part in enumerate(parts):
        parts[i] = part[1:-1] if i % 2 else _ESCAPED.sub(r"\1", _EMPHASIS.sub("", _LINK.sub(r"\1", part)))
    return " ".join("".join(parts).split())


def code_spans(text: str) -> list[str]:
    """Contents of the code spans of inline Markdown."""
    return [part[1:-1].strip() for part in _CODE.findall(text)]


def escape(text: str) -> str:
    """Text as inline Markdown that ``plain`` gives back (white space apart), also at the start of a line."""
    text = " ".join(_SPECIAL.sub(r"\\\g<0>", text).split())
    return re.sub(r"^(\d*)([-+=.)])", r"\1\\\2", text)


def _fence(lines: list[str], row: int, mark: str, language: str) -> tuple[int, Block]:
    closing = re.compile(rf" {{0,3}}{re.escape(mark[0])}{{{len(mark)},}}[ \t]*$")
    end = row + 1
    while end < len(lines) and not closing.match(lines[end]):
        end += 1
    return end + 1, Block("fence", "\n".join(lines[row + 1 : end]), language=language.lower())


def _starts_table(lines: list[str], row: int) -> bool:
    if "|" not in lines[row] or row + 1 >= len(lines) or "|" not in lines[row + 1]:
        return False
    return all(_RULE_CELL.match(cell) for cell in _cells(lines[row + 1]))


def _table(lines: list[str], row: int) -> tuple[int, Block]:
    head = _cells(lines[row])
    rows = [head]
    row += 2
    while row < len(lines) and "|" in lines[row]:
        cells = _cells(lines[row])
        rows.append((cells + [""] * len(head))[: len(head)])
        row += 1
    return row, Block("table", rows=rows)


def _cells(line: str) -> list[str]:
    line = line.strip()
    line = line.removeprefix("|")
    if line.endswith("|") and not line.endswith("\\|"):
        line = line[:-1]
    return [cell.strip().replace("\\|", "|") for cell in _CELL_END.split(line)]


def _continued(lines: list[str], row: int) -> tuple[int, list[str]]:
    """Lines from ``row`` on that belong to the block above: up to an empty line or the start of another block."""
    more = []
    while row < len(lines) and lines[row].strip() and not _starts_block(lines, row):
        more.append(lines[row].strip())
        row += 1
    return row, more


def _starts_block(lines: list[str], row: int) -> bool:
    line = lines[row]
    return bool(_FENCE.match(line) or _HEADING.match(line) or _ITEM.match(line)) or _starts_table(lines, row)
