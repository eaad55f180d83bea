"""Parameters as Markdown pages list them: a row of a table, or a bullet ``- `page` (integer, optional): ...``."""

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from autotools.docs.markdown_blocks import code_spans, plain
from autotools.schema import ToolParameter

_COLUMNS = {
    "name": "name", "parameter": "name", "param": "name", "field": "name", "argument": "name", "property": "name",
    "in": "location", "where": "location", "location": "location", "sent in": "location", "place": "location",
    "type": "type", "required": "required", "required?": "required", "mandatory": "required", "needed": "required",
    "optional": "optional", "description": "description", "meaning": "description", "details": "description",
    "notes": "description", "default": "default", "example": "example", "allowed values": "enum", "values": "enum",
}  # fmt: skip
_LOCATIONS = {
    "path": "path", "url": "path", "route": "path", "query": "query", "querystring": "query", "header": "header",
    "headers": "header", "body": "body", "json": "body", "form": "body",
}  # fmt: skip
_TYPES = {
    "string": "string", "str": "string", "text": "string", "date": "string", "enum": "string", "integer": "integer",
    "int": "integer", "number": "number", "float": "number", "double": "number", "decimal": "number",
    "boolean": "boolean", "bool": "boolean", "flag": "boolean", "array": "array", "list": "array",
    "object": "object", "dict": "object", "map": "object",
}  # fmt: skip
_YES = {"yes", "y", "true", "required", "mandatory", "always", "✓", "✔", "x"}
_NO = {"no", "n", "false", "optional", "-", "–", "—", ""}
_BULLET = re.compile(r"(?:\*\*)?(`[^`]+`|\*\*[^*]+\*\*)(?:\*\*)?\s*(?:\(([^()]*)\))?\s*(?::|–|—|-)?\s*(.*)$", re.S)
_SPANS = r"((?:`[^`]*`(?:,| or| and)?\s*)+)"
_TAILS = (
    ("enum", re.compile(rf"[;,.]?\s*\(?(?:one of|allowed values|allowed)\s*:?\s*{_SPANS}\)?", re.I)),
    ("default", re.compile(r"[;,.]?\s*\(?defaults?(?: to)?\s*:?\s*(`[^`]*`)\)?", re.I)),
    ("example", re.compile(r"[;,.]?\s*\(?(?:example|e\.g\.|for example)\s*:?\s*(`[^`]*`)\)?", re.I)),
)


@dataclass
class Listed:
    """What a page says of one parameter; None where it is silent."""

    name: str
    location: str | None = None
    type: str | None = None
    required: bool | None = None
    description: str = ""
    enum: tuple[str, ...] = ()
    default: str | None = None
    example: str | None = None

    def parameter(self, verb: str, variables: list[str], notes: list[str]) -> ToolParameter:
        """The parameter of a call ``verb`` with the path ``variables``; each guess is added to ``notes``."""
        location = self.location or ("path" if self.name in variables else None)
        if location is None:
            location = "query" if verb in ("GET", "DELETE") else "body"
            notes.append(f"where parameter {self.name!r} goes is not said; {location} is guessed")
        if self.type is None:
            notes.append(f"the type of parameter {self.name!r} is not said; string is guessed")
        if self.required is None and location != "path":
            notes.append(f"whether parameter {self.name!r} is required is not said; optional is guessed")
        kind = self.type or "string"
        return ToolParameter(
            name=self.name,
            location=location,
            type=kind,
            required=bool(self.required) or location == "path",
            description=self.description,
            enum=tuple(_value(text, kind) for text in self.enum),
            default=None if self.default is None else _value(self.default, kind),
            example=None if self.example is None else _value(self.example, kind),
        )


def is_parameter_table(rows: list[list[str]]) -> bool:
    """A table with a column of names and at least one other column that we know."""
    known = {_COLUMNS.get(plain(cell).lower().strip(" :")) for cell in rows[0]} - {None}
    return "name" in known and len(known) > 1


def listed_in_table(rows: list[list[str]], location: str) -> list[Listed]:
    """One per row that has a name; ``location`` is that of the heading above ("" if it names none)."""
    columns = [_COLUMNS.get(plain(cell).lower().strip(" :")) for cell in rows[0]]
    out = []
    for row in rows[1:]:
        cells: dict[str, str] = {}
        for column, cell in zip(columns, row, strict=False):
            if column:
                cells.setdefault(column, cell)
        if not (name := plain(cells["name"])):
            continue
        listed = Listed(name=name, location=location or None)
        for word in _words(cells.get("location", "")):
            listed.location = _LOCATIONS.get(word, listed.location)
        listed.type = _type(cells.get("type", ""))
        listed.required = _required(cells)
        _describe(listed, cells.get("description", ""))
        for column in ("default", "example"):
            if said := plain(cells.get(column, "")).strip("-–— "):
                setattr(listed, column, said)
        if values := code_spans(cells.get("enum", "")):
            listed.enum = tuple(values)
        out.append(listed)
    return out


def listed_in_item(text: str, location: str, *, sure: bool) -> Listed | None:
    """The parameter of a bullet; None if it is none. Unless ``sure`` the bullet must name a type or "required"."""
    found = _BULLET.match(text)
    if not found:
        return None
    listed = Listed(name=plain(found[1]), location=location or None)
    words = _words(found[2] or "")
    for word in words:
        listed.location = _LOCATIONS.get(word, listed.location)
        listed.type = listed.type or _TYPES.get(word)
        if word in ("required", "mandatory", "optional"):
            listed.required = word != "optional"
    told = listed.type is not None or listed.required is not None
    if not listed.name or not (sure or told):
        return None
    # brackets that describe nothing we know belong to the text
    _describe(listed, found[3] if told or not found[2] else f"({found[2]}) {found[3]}")
    return listed


def _describe(listed: Listed, text: str) -> None:
    """Cut "one of ...; default ...; example ..." off a description."""
    for name, pattern in _TAILS:
        if found := pattern.search(text):
            spans = code_spans(found[1])
            setattr(listed, name, tuple(spans) if name == "enum" else next(iter(spans), None))
            text = text[: found.start()] + text[found.end() :]
    listed.description = plain(text)


def _required(cells: dict[str, str]) -> bool | None:
    for column, yes in (("required", True), ("optional", False)):
        if column in cells:
            said = plain(cells[column]).lower()
            if said in _YES | _NO:
                answer = said in _YES
                return answer if yes or said in ("required", "optional") else not answer
    return None


def _type(text: str) -> str | None:
    return next((_TYPES[word] for word in _words(text) if word in _TYPES), None)


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", plain(text).lower())


def _value(text: str, kind: str) -> Any:
    """A written value as one of the parameter's type; the text itself where it is none."""
    if kind in ("integer", "number", "boolean", "array", "object"):
        try:
            value = json.loads(text.lower() if kind == "boolean" else text)
        except (ValueError, RecursionError):
            return text
        return text if isinstance(value, float) and not math.isfinite(value) else value
    return text
