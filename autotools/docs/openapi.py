"""Reader of OpenAPI 3 and Swagger 2 documents, JSON or YAML.

Documents in the wild are incomplete; what is repaired is written into the notes. An operation that cannot be read is
one reject, never the end of the document.
"""

import re
from pathlib import Path
from typing import Any

from autotools.docs import AUTH_NOTE
from autotools.docs.files import first_keys, read_json, stem_of, suffix_of
from autotools.docs.openapi_schema import References, media, properties_of, schema_template, schema_type
from autotools.docs.reading import (
    Reading,
    as_dict,
    as_list,
    as_text,
    first_paragraph,
    plain,
    shown,
    template_of,
    tool_id,
    with_path_variables,
    without_key_value,
)
from autotools.docs.yaml_text import read_yaml
from autotools.errors import DataError, ToolDocError
from autotools.schema import ToolParameter, ToolSpec, standardise

FORM = "openapi"
_VERBS = ("get", "post", "put", "patch", "delete")
_OTHER_VERBS = ("head", "options", "trace")
_LOCATIONS = ("path", "query", "header")
_KEYS_OF_VALUE = ("default", "example")
_NO_TITLES = ("api", "rest_api", "openapi", "swagger", "untitled")  # the file's name tells more


def matches(path: Path, head: str) -> bool:
    """A JSON object or a YAML mapping with the key ``openapi`` or ``swagger``."""
    if suffix_of(path) not in (".json", ".yaml", ".yml"):
        return False
    if head.lstrip().startswith("{"):
        return not {"openapi", "swagger"}.isdisjoint(first_keys(head))
    return suffix_of(path) != ".json" and bool(re.search(r"^[\"']?(openapi|swagger)[\"']?\s*:", head, re.M))


def read(path: Path) -> Reading:
    """All operations of one document. Raises DataError if it is no JSON or YAML, or has no ``paths``."""
    document = read_json(path) if suffix_of(path) == ".json" else read_yaml(path)
    try:
        return read_document(document, source=path.name, name=stem_of(path))
    except ToolDocError as error:
        raise DataError(f"{path}: {error}") from error


def read_openapi(document: dict[str, Any]) -> list[ToolSpec]:
    """One ToolSpec per operation, in document order. Raises ToolDocError at the first thing that cannot be read."""
    reading = read_document(document, source="document")
    for row in reading.rejects:
        raise ToolDocError(f"operation {row['line']}: {row['reason']}: {row['detail']}")
    return reading.specs


def read_document(document: Any, *, source: str, name: str = "api") -> Reading:
    """One ToolSpec per operation; local ``$ref``s are resolved.

    The id is made of the first tag (else the title), ``x-tool.tool`` (else the title) and ``x-api`` (else
    ``operationId``, else verb and path); equal ids get ``_v2``, ``_v3`` and a note. ``name`` stands in for a title that
    is missing or just "API". ``response`` is a type template of the first 2xx answer. Lines of rejects are numbers of
    operations.
    Raises ToolDocError if there is no ``paths`` object.
    """
    paths = as_dict(document).get("paths")
    if not isinstance(paths, dict):
        raise ToolDocError("not an OpenAPI document: 'paths' is missing or not an object")
    reading = Reading(source=source, form=FORM, documents=1)
    reader, number = _Reader(document, name), 0
    for path, item in paths.items():
        if path.startswith("x-"):
            continue
        try:
            item = reader.references.resolve(item) if isinstance(item, dict) else item
        except ToolDocError as error:
            number += 1
            reading.reject(number, "path item cannot be followed", error)
            continue
        if not isinstance(item, dict):
            number += 1
            reading.reject(number, "path item is not an object", path)
            continue
        for verb, operation in item.items():
            if verb.lower() in _VERBS:
                number += 1
                reading.attempt(number, reader.specs, path, verb.lower(), item, operation, rename=True)
            elif verb.lower() in _OTHER_VERBS:
                number += 1
                reading.reject(number, "verb that returns no data", f"{verb} {path}")
    return reading


class _Reader:
    def __init__(self, document: dict[str, Any], name: str) -> None:
        self.document, self.references = document, References(document)
        info = as_dict(document.get("info"))
        title = as_text(info.get("title"))
        names = (title if standardise(title) not in _NO_TITLES else "", name, title, "api")
        self.title = next(text for text in names if standardise(text))
        self.description = first_paragraph(info.get("description"))

    def specs(self, path: str, verb: str, item: dict[str, Any], operation: Any) -> list[ToolSpec]:
        """The one spec of an operation. Raises ToolDocError (``reason: detail``)."""
        if not isinstance(operation, dict):
            raise ToolDocError(f"operation is not an object: {verb} {path}")
        notes: list[str] = []
        tool = as_dict(operation.get("x-tool"))
        tags = [tag for tag in map(as_text, as_list(operation.get("tags"))) if tag]
        names = [as_text(operation.get("x-api")), as_text(operation.get("operationId")), f"{verb}_{path}"]
        api_name = next((text for text in names if standardise(text)), "")
        tool_name = as_text(tool.get("tool")) or self.title
        path = as_text(path)
        key = self._key(operation)
        parameters = self._parameters(as_list(item.get("parameters")), as_list(operation.get("parameters")), key, notes)
        parameters = with_path_variables(path, parameters, notes)
        body = self._body(operation, notes)
        if key:
            notes.append(f"{AUTH_NOTE} ({' '.join(key)})")
        spec = ToolSpec(
            id=tool_id((tags or [self.title])[0], tool_name, api_name),
            tool_name=as_text(tool.get("display_name")) or tool_name,
            api_name=api_name,
            description=as_text(operation.get("description"), notes) or as_text(operation.get("summary"), notes),
            tool_description=as_text(tool.get("description")) or ("" if tool else self.description),
            method=verb.upper(),
            server=self._server(item, operation),
            path=path,
            parameters=(*parameters, *body),
            response=self._response(operation, notes),
            notes=(),
        )
        if not spec.description:
            notes.append("no description")
        return [spec.model_copy(update={"notes": tuple(notes)})]

    def _server(self, item: dict[str, Any], operation: dict[str, Any]) -> str:
        """``servers`` of the operation, the path or the document, variables filled in; Swagger's host and basePath."""
        for owner in (operation, item, self.document):
            for server in map(as_dict, as_list(owner.get("servers"))):
                url = as_text(server.get("url"))
                for name, variable in as_dict(server.get("variables")).items():
                    url = url.replace(f"{{{name}}}", as_text(as_dict(variable).get("default")))
                return url.rstrip("/")
        host, base = as_text(self.document.get("host")), as_text(self.document.get("basePath"))
        schemes = [as_text(scheme) for scheme in as_list(self.document.get("schemes"))]
        scheme = "https" if "https" in schemes or not schemes else schemes[0]
        return (f"{scheme}://{host}{base}" if host else base).rstrip("/")

    def _parameters(
        self, shared: list[Any], own: list[Any], key: tuple[str, str] | None, notes: list[str]
    ) -> list[ToolParameter]:
        merged: dict[tuple[str, str], dict[str, Any]] = {}  # the operation's own declaration wins
        for raw in [*shared, *own]:
            entry = self.references.resolve(raw)
            name, location = as_text(entry.get("name")), as_text(entry.get("in"))
            location = {"formData": "body", "formdata": "body"}.get(location, location.lower())
            if not name or location not in (*_LOCATIONS, "body"):
                notes.append(f"parameter '{name[:60]}' in '{location[:60]}' was left out")
            elif (location, name) != key:  # the host adds it
                merged[name, location] = entry
        out: list[ToolParameter] = []
        for (name, location), entry in merged.items():
            content = media(entry.get("content"), [], "") if "schema" not in entry else entry
            schema = self.references.resolve_or_note(content["schema"], notes) if "schema" in content else entry
            if location == "body" and entry.get("in") == "body":
                out += schema_fields(name, schema, is_true(entry.get("required")), self.references, notes)
                continue
            if location == "body":
                notes.append("body is sent as a form")
            required = location == "path" or is_true(entry.get("required"))
            out.append(parameter_of(name, location, required, entry, schema, notes))
        return out

    def _body(self, operation: dict[str, Any], notes: list[str]) -> list[ToolParameter]:
        if operation.get("requestBody") is None:
            return []
        body = self.references.resolve(operation["requestBody"])
        return body_parameters(body, self.references, notes)

    def _key(self, operation: dict[str, Any]) -> tuple[str, str] | None:
        """(location, name) of the key that the operation requires; None if none, or an optional one."""
        schemes = as_dict(as_dict(self.document.get("components")).get("securitySchemes"))
        schemes = schemes or as_dict(self.document.get("securityDefinitions"))
        wanted = as_list(operation.get("security", self.document.get("security")))
        if any(requirement == {} for requirement in wanted):  # an empty requirement makes the key optional
            return None
        for name in (name for requirement in map(as_dict, wanted) for name in requirement):
            scheme = self.references.resolve(schemes.get(name))
            if scheme.get("type") == "apiKey":
                return as_text(scheme.get("in"))[:60], as_text(scheme.get("name"))[:60]
            if scheme:  # http, basic, oauth2, openIdConnect
                return "header", "Authorization"
        return None

    def _response(self, operation: dict[str, Any], notes: list[str]) -> Any:
        for status, raw in as_dict(operation.get("responses")).items():
            if status.startswith("2"):
                try:
                    found = response_template(self.references.resolve(raw), self.references, notes)
                except ToolDocError as error:
                    notes.append(f"part of the response left out: '{error}'")
                    continue
                if found is not None:
                    return found
        return None


def response_template(response: dict[str, Any], references: References, notes: list[str]) -> Any:
    """Type template of one response object (OpenAPI 3 or Swagger 2): of its schema, else of an example; else None."""
    entry = media(response.get("content"), notes, "response") if "content" in response else response
    found = schema_template(entry["schema"], references, notes) if as_dict(entry.get("schema")) else None
    if found is not None and found not in ("object", "array", [], [None]):
        return found
    examples = [entry["example"]] if "example" in entry else []
    for example in as_dict(entry.get("examples")).values():
        if "content" not in response:  # Swagger 2 has the payload itself below the media type
            examples.append(example)
        elif "value" in as_dict(example):
            examples.append(example["value"])
    made = next((template_of(example) for example in examples if isinstance(example, dict | list)), None)
    return made or found


def body_parameters(body: dict[str, Any], references: References, notes: list[str]) -> list[ToolParameter]:
    """Parameters of a request body object (``content`` by media type): the fields of its schema."""
    entry = media(body.get("content"), notes, "request body")
    schema = references.resolve(entry.get("schema"))
    if not schema:
        notes.append("request body without schema; left out")
        return []
    return schema_fields("body", schema, is_true(body.get("required")), references, notes)


def schema_fields(
    name: str, schema: dict[str, Any], required: bool, references: References, notes: list[str]
) -> list[ToolParameter]:
    """The properties of a body's schema as parameters; a body that is no object becomes one parameter ``name``."""
    for choice in ("oneOf", "anyOf"):
        if as_list(schema.get(choice)) and not as_dict(schema.get("properties")):
            notes.append("request body has alternatives; the first one is read")
            schema = references.resolve(as_list(schema[choice])[0])
    properties, wanted = properties_of(schema, references)
    if not properties:
        notes.append(f"request body is not an object with properties; given as parameter '{shown(name, 60)}'")
        return [parameter_of(name, "body", required, {}, schema, notes)]
    out = []
    for field, raw in properties.items():
        if text := as_text(field):
            entry = references.resolve_or_note(raw, notes)
            out.append(parameter_of(text, "body", field in wanted, entry, entry, notes))
    return out


def parameter_of(
    name: str, location: Any, required: bool, entry: dict[str, Any], schema: dict[str, Any], notes: list[str]
) -> ToolParameter:
    """One parameter from its entry and its schema (the same object in Swagger 2)."""
    kind = schema_type(schema, notes)
    if kind is None:
        notes.append("parameter without type")
    default, example = (plain(entry.get(key, schema.get(key))) for key in _KEYS_OF_VALUE)
    parameter = ToolParameter(
        name=name,
        location=location,
        type=kind or "string",
        required=required,
        description=as_text(entry.get("description"), notes) or as_text(schema.get("description"), notes),
        enum=tuple(plain(value) for value in as_list(schema.get("enum"))),
        default=default,
        example=example,
    )
    return without_key_value(parameter, notes)


def is_true(value: Any) -> bool:
    """``true``, also as text."""
    return value is True or (isinstance(value, str) and value.lower() == "true")
