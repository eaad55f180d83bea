"""References and schemas of OpenAPI and Swagger documents, as data for the reader ``openapi.py``.

Schemas refer to each other and to themselves; a template that follows them is bounded in depth and in size.
"""

from typing import Any
from urllib.parse import unquote

from autotools.docs.reading import MAX_TEMPLATE_DEPTH, as_dict, as_list, as_text, clean, json_type, shown
from autotools.errors import ToolDocError

MAX_NODES = 3_000  # of one template: schemas that refer to two others each would have thousands of leaves
_DEPTHS = (MAX_TEMPLATE_DEPTH, 8, 6, 5, 4, 3, 2, 1)
_TYPES = ("string", "integer", "number", "boolean", "array", "object")


class References:
    """Looks up ``$ref`` in one document."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    def resolve(self, node: Any) -> dict[str, Any]:
        """Follow ``$ref`` until a real object; anything but an object counts as empty.

        Raises ToolDocError if a reference leaves the document, leads nowhere or in a circle.
        """
        followed: set[str] = set()
        while isinstance(node, dict) and isinstance(node.get("$ref"), str):
            if node["$ref"] in followed:
                raise ToolDocError(f"$ref leads in a circle: {shown(node['$ref'])}")
            followed.add(node["$ref"])
            node = self.follow(node["$ref"])
        return as_dict(node)

    def resolve_or_note(self, node: Any, notes: list[str]) -> dict[str, Any]:
        """Like ``resolve``, but what cannot be followed is empty, with a note: for parts that have a name anyway."""
        try:
            return self.resolve(node)
        except ToolDocError as error:
            notes.append(f"schema left out: '{error}'")
            return {}

    def follow(self, reference: str) -> Any:
        """What one reference points at. Raises ToolDocError if it leaves the document or leads nowhere."""
        if not reference.startswith("#/"):
            raise ToolDocError(f"$ref leaves the document: {shown(reference)}")
        node: Any = self.document
        for part in reference[2:].split("/"):
            part = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(node, list) and part.isdecimal() and len(part) < 9 and int(part) < len(node):
                node = node[int(part)]
            elif isinstance(node, dict) and part in node:
                node = node[part]
            else:
                raise ToolDocError(f"$ref leads nowhere: {shown(part)} of {shown(reference)} is missing")
        return node


def schema_type(schema: dict[str, Any], notes: list[str] | None = None) -> str | None:
    """JSON-schema type name; a list such as ``["string", "null"]`` gives its first real type. None if not told."""
    kind = schema.get("type")
    kinds = [k for k in (kind if isinstance(kind, list) else [kind]) if isinstance(k, str) and k != "null"]
    known = next((k for k in kinds if k in _TYPES), None)
    if known or not kinds:
        return known or ("object" if isinstance(schema.get("properties"), dict) else None)
    return json_type(kinds[0], notes)


def properties_of(schema: dict[str, Any], references: References, depth: int = 0) -> tuple[dict[str, Any], list[Any]]:
    """(properties, names of the required ones) of an object schema, those of ``allOf`` parts included."""
    properties: dict[str, Any] = {}
    required = [name for name in as_list(schema.get("required")) if isinstance(name, str)]
    if depth <= MAX_TEMPLATE_DEPTH:
        for part in as_list(schema.get("allOf")):
            inner, names = properties_of(references.resolve(part), references, depth + 1)
            properties |= inner
            required += names
            if len(properties) > MAX_NODES:
                break
    return properties | as_dict(schema.get("properties")), required


def schema_template(schema: Any, references: References, notes: list[str]) -> Any:
    """Type template of a schema: ``{"price": "number"}``; None if it tells nothing. What was cut is noted.

    It is cut at the largest depth at which it has at most MAX_NODES parts, so that no branch starves another.
    """
    for depth in _DEPTHS:
        template = _Template(references, depth)
        found = template.of(schema, 0, ())
        if template.nodes <= MAX_NODES:
            break
    notes += template.notes
    return found


class _Template:
    def __init__(self, references: References, max_depth: int) -> None:
        self.references, self.max_depth = references, max_depth
        self.notes: list[str] = []
        self.nodes = 0

    def of(self, node: Any, depth: int, trail: tuple[str, ...]) -> Any:
        """``trail`` holds the references that lead here: one of them again is a circle."""
        self.nodes += 1
        if self.nodes > MAX_NODES or depth > self.max_depth:
            self.notes.append(f"response template cut at depth {self.max_depth}")
            return "object"
        while isinstance(node, dict) and isinstance(node.get("$ref"), str):
            if node["$ref"] in trail:
                self.notes.append(f"response schema '{shown(node['$ref'])}' contains itself; cut there")
                return "object"
            trail = (*trail, node["$ref"])
            try:
                node = self.references.follow(node["$ref"])
            except ToolDocError as error:
                self.notes.append(f"part of the response left out: '{error}'")
                return "object"
        return self._object(as_dict(node), depth + 1, trail)

    def _object(self, schema: dict[str, Any], depth: int, trail: tuple[str, ...]) -> Any:
        parts = [self.of(part, depth, trail) for part in as_list(schema.get("allOf"))[:MAX_NODES]]
        fields = {name: value for part in parts if isinstance(part, dict) for name, value in part.items()}
        for name, entry in as_dict(schema.get("properties")).items():
            if self.nodes > MAX_NODES:
                break
            fields[clean(name)] = self.of(entry, depth, trail)
        if fields:
            return fields
        for choice in ("oneOf", "anyOf"):
            options = [o for o in as_list(schema.get(choice)) if as_dict(o).get("type") != "null"]
            if options:
                return self.of(options[0], depth, trail)
        kind = schema_type(schema)
        if kind == "array":
            return [self.of(schema["items"], depth, trail)] if as_dict(schema.get("items")) else []
        return kind or next((part for part in parts if part), None)


def media(content: Any, notes: list[str], what: str) -> dict[str, Any]:
    """The JSON entry of a ``content`` object; else the first one, with a note; else empty."""
    entries = as_dict(content)
    json_like = [name for name in entries if "json" in name.lower()]
    if not json_like and entries:
        notes.append(f"{what} is not JSON but '{as_text(next(iter(entries)))[:60]}'")
    return as_dict(entries.get((json_like or list(entries) or [""])[0]))
