"""Reader of OpenAPI 3 documents. Documents in the wild are incomplete; what is repaired is written into the notes."""

import re
from collections.abc import Iterator
from typing import Any

from autotools.docs import AUTH_NOTE, with_unique_ids
from autotools.errors import ToolDocError
from autotools.schema import ToolId, ToolParameter, ToolSpec, standardise

_VERBS = ("get", "post", "put", "patch", "delete")
_LOCATIONS = ("path", "query", "header")
_VARIABLE = re.compile(r"\{([^{}]+)\}")
_TYPES = ("string", "integer", "number", "boolean", "array", "object")
_MAX_DEPTH = 12  # of a response template; recursive schemas end here


def read_openapi(document: dict[str, Any]) -> list[ToolSpec]:
    """One ToolSpec per operation, in document order; local ``$ref``s are resolved.

    The id is made of the first tag (else the title), ``x-tool.tool`` (else the title) and ``x-api`` (else
    ``operationId``, else verb and path); equal ids get ``_v2``, ``_v3`` and a note. ``response`` is a type template
    of the first 2xx JSON schema. Raises ToolDocError if there is no ``paths`` object or a ``$ref`` leads nowhere.
    """
    paths = document.get("paths")
    if not isinstance(paths, dict):
        raise ToolDocError("not an OpenAPI document: 'paths' is missing or not an object; give an OpenAPI 3 file")
    reader = _Reader(document)
    return with_unique_ids(reader.spec(*operation) for operation in _operations(reader, paths))


def _operations(reader: "_Reader", paths: dict[str, Any]) -> Iterator[tuple[str, str, list[Any], dict[str, Any]]]:
    for path, item in paths.items():
        item = reader.resolve(item)
        for verb in _VERBS:
            if isinstance(item.get(verb), dict):
                yield path, verb, item.get("parameters") or [], item[verb]


class _Reader:
    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.title = str((document.get("info") or {}).get("title") or "api")
        servers = document.get("servers") or [{}]
        self.server = str(servers[0].get("url", "")).rstrip("/")

    def resolve(self, node: Any) -> dict[str, Any]:
        """Follow ``$ref`` until a real object; anything but an object counts as empty."""
        followed = set()
        while isinstance(node, dict) and isinstance(node.get("$ref"), str):
            reference = node["$ref"]
            if not reference.startswith("#/") or reference in followed:
                raise ToolDocError(f"$ref {reference!r} cannot be followed (only local, non-circular ones can)")
            followed.add(reference)
            node = self.document
            for part in reference[2:].split("/"):
                part = part.replace("~1", "/").replace("~0", "~")
                if not isinstance(node, dict) or part not in node:
                    raise ToolDocError(f"$ref {reference!r} leads nowhere: {part!r} is missing")
                node = node[part]
        return node if isinstance(node, dict) else {}

    def spec(self, path: str, verb: str, shared: list[Any], operation: dict[str, Any]) -> ToolSpec:
        tool = operation.get("x-tool") if isinstance(operation.get("x-tool"), dict) else {}
        tags = operation.get("tags") or [self.title]
        api_name = str(operation.get("x-api") or operation.get("operationId") or f"{verb}_{path}")
        tool_name = str(tool.get("tool") or self.title)
        notes: list[str] = []
        parameters = self._parameters(shared, operation, notes)
        declared = {p.name for p in parameters if p.location == "path"}
        for name in _VARIABLE.findall(path):
            if name not in declared:
                notes.append(f"path variable {name!r} is not declared; added as a required string")
                parameters.append(ToolParameter(name=name, location="path", required=True))
        parameters += self._body(operation, notes)
        if scheme := self._key_scheme(operation):
            notes.append(f"{AUTH_NOTE} ({scheme})")
        return ToolSpec(
            id=ToolId(category=str(tags[0]), tool=standardise(tool_name), api=standardise(api_name)),
            tool_name=str(tool.get("display_name") or tool_name),
            api_name=api_name,
            description=str(operation.get("description") or operation.get("summary") or ""),
            tool_description=str(tool.get("description") or ""),
            method=verb.upper(),
            server=self.server,
            path=path,
            parameters=tuple(parameters),
            response=self._response(operation),
            notes=tuple(notes),
        )

    def _parameters(self, shared: list[Any], operation: dict[str, Any], notes: list[str]) -> list[ToolParameter]:
        merged: dict[tuple[str, str], dict[str, Any]] = {}  # the operation's own declaration wins
        for raw in [*shared, *(operation.get("parameters") or [])]:
            entry = self.resolve(raw)
            name, location = str(entry.get("name") or ""), entry.get("in")
            if not name or location not in _LOCATIONS:
                notes.append(f"parameter {name!r} in {location!r} was left out")
                continue
            merged[name, location] = entry
        out = []
        for (name, location), entry in merged.items():
            schema = self.resolve(entry.get("schema"))
            required = location == "path" or _is_true(entry.get("required"))
            out.append(self._parameter(name, location, required, entry, schema))
        return out

    def _body(self, operation: dict[str, Any], notes: list[str]) -> list[ToolParameter]:
        body = self.resolve(operation.get("requestBody"))
        if not body:
            return []
        media = body.get("content") or {}
        if "application/json" not in media:
            notes.append(f"request body is not JSON ({', '.join(media) or 'no content'}); left out")
            return []
        schema = self.resolve(media["application/json"].get("schema"))
        if not isinstance(schema.get("properties"), dict):
            notes.append("request body is not an object with properties; left out")
            return []
        required = schema.get("required") or []
        fields = ((name, self.resolve(entry)) for name, entry in schema["properties"].items())
        return [self._parameter(name, "body", name in required, entry, entry) for name, entry in fields]

    def _parameter(
        self, name: str, location: Any, required: bool, entry: dict[str, Any], schema: dict[str, Any]
    ) -> ToolParameter:
        example = entry.get("example", schema.get("example"))
        return ToolParameter(
            name=name,
            location=location,
            type=_type(schema) or "string",
            required=required,
            description=str(entry.get("description") or schema.get("description") or ""),
            enum=tuple(schema.get("enum") or ()),
            default=schema.get("default"),
            example=example,
        )

    def _key_scheme(self, operation: dict[str, Any]) -> str:
        """``in name`` of the apiKey scheme that the operation requires, else empty."""
        schemes = (self.document.get("components") or {}).get("securitySchemes") or {}
        wanted = operation.get("security", self.document.get("security")) or []
        if {} in wanted:  # an empty requirement makes the key optional
            return ""
        for name in (name for requirement in wanted for name in requirement):
            scheme = self.resolve(schemes.get(name))
            if scheme.get("type") == "apiKey":
                return f"{scheme.get('in')} {scheme.get('name')}"
        return ""

    def _response(self, operation: dict[str, Any]) -> Any:
        for status, raw in (operation.get("responses") or {}).items():
            if str(status).startswith("2"):
                media = self.resolve(raw).get("content") or {}
                if "application/json" in media:
                    return self._template(media["application/json"].get("schema"), 0)
        return None

    def _template(self, node: Any, depth: int) -> Any:
        schema = self.resolve(node)
        if depth > _MAX_DEPTH:
            return "object"
        if isinstance(schema.get("allOf"), list):
            parts = [self._template(part, depth + 1) for part in schema["allOf"]]
            return {k: v for part in parts if isinstance(part, dict) for k, v in part.items()}
        for choice in ("oneOf", "anyOf"):
            if schema.get(choice):
                return self._template(schema[choice][0], depth + 1)
        kind = _type(schema)
        if isinstance(schema.get("properties"), dict):
            return {name: self._template(entry, depth + 1) for name, entry in schema["properties"].items()}
        if kind == "array":
            return [self._template(schema.get("items"), depth + 1)] if schema.get("items") else []
        return kind


def _type(schema: dict[str, Any]) -> str | None:
    """JSON-schema type name; OpenAPI 3.1 lists such as ``["string", "null"]`` give their first real type."""
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    return next((k for k in kinds if k in _TYPES), "object" if "properties" in schema else None)


def _is_true(value: Any) -> bool:
    return value is True or (isinstance(value, str) and value.lower() == "true")
