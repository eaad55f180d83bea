"""Reader of ToolBench/RapidAPI tool files: one tool with its ``api_list``. The folder of the file is the category."""

from pathlib import Path
from typing import Any

from autotools.docs import AUTH_NOTE
from autotools.docs.files import first_keys, read_json, suffix_of
from autotools.docs.openapi_schema import References, schema_template
from autotools.docs.reading import (
    Reading,
    as_dict,
    as_list,
    as_text,
    json_type,
    path_variables,
    plain,
    shown,
    split_address,
    template_of_words,
    tool_id,
    with_path_variables,
    without_key_value,
)
from autotools.errors import DataError, ToolDocError
from autotools.schema import ToolParameter, ToolSpec

FORM = "rapidapi"
_KEY_HEADERS = ("x-api-key", "x-rapidapi-key", "authorization")


def matches(path: Path, head: str) -> bool:
    """One JSON object with ``api_list`` and a name of the tool (files of recorded answers have no name)."""
    keys = first_keys(head)
    named = not {"name", "title", "tool_description"}.isdisjoint(keys)
    return suffix_of(path) == ".json" and head.lstrip().startswith("{") and "api_list" in keys and named


def read(path: Path) -> Reading:
    """All APIs of one tool file. Raises DataError if it is no JSON or no tool."""
    try:
        return read_document(read_json(path), path.resolve().parent.name, source=path.name)
    except ToolDocError as error:
        raise DataError(f"{path}: {error}") from error


def read_rapidapi(document: dict[str, Any], category: str) -> list[ToolSpec]:
    """One ToolSpec per entry of ``api_list``. Raises ToolDocError at the first thing that cannot be read."""
    reading = read_document(document, category, source="document")
    for row in reading.rejects:
        raise ToolDocError(f"API {row['line']} (category {category!r}): {row['reason']}: {row['detail']}")
    return reading.specs


def read_document(document: Any, category: str, *, source: str) -> Reading:
    """One ToolSpec per entry of ``api_list``; ``category`` is the folder that the file lies in.

    Names: ``name`` (else ``title``) makes the id, ``title`` is shown. Equal ids within a file get ``_v2``, ``_v3``.
    Lines of rejects are places in the list. Raises ToolDocError if there is no name or no ``api_list``.
    """
    fields = as_dict(document)
    title, apis = as_text(fields.get("title")), fields.get("api_list")
    name = as_text(fields.get("name")) or title
    if not name or not isinstance(apis, list):
        raise ToolDocError(f"not a RapidAPI tool file (category {category!r}): 'name' or 'api_list' is missing")
    reading = Reading(source=source, form=FORM, documents=1)
    about = as_text(fields.get("tool_description"))
    for number, api in enumerate(apis, start=1):
        reading.attempt(number, _specs, api, category, name, title or name, about, rename=True)
    return reading


def _specs(api: Any, category: str, name: str, title: str, about: str) -> list[ToolSpec]:
    if not isinstance(api, dict):
        raise ToolDocError(f"API is not an object: {shown(api)}")
    return [api_spec(api, category, name).model_copy(update={"tool_name": title, "tool_description": about})]


def api_spec(api: dict[str, Any], category: Any, tool: Any) -> ToolSpec:
    """ToolSpec of one API object (``name``, ``url``, ``required_parameters`` ...). Raises ToolDocError."""
    notes: list[str] = []
    headers, body = as_dict(api.get("headers")), as_dict(api.get("body"))
    try:
        server, path = split_address(as_text(api.get("url")))
    except ToolDocError as error:
        notes.append(f"url left out: '{error}'")
        server = path = ""
    places = {"path": path_variables(path), "header": headers, "body": body}
    parameters: dict[tuple[str, str], ToolParameter] = {}
    for key, required in (("required_parameters", True), ("optional_parameters", False)):
        for entry in map(as_dict, as_list(api.get(key))):
            if name := as_text(entry.get("name")):
                if name != entry["name"]:
                    notes.append(f"blanks around the name of parameter {name[:60]!r} removed")
                location = next((place for place, names in places.items() if name in names), "query")
                parameter = _parameter(name, entry, required, location, notes)
                if parameters.setdefault((name, location), parameter) is not parameter:
                    notes.append(f"parameter {name[:60]!r} is listed twice; the first one counts")
            else:
                notes.append("parameter without name left out")
    placed = with_path_variables(path, parameters.values(), notes)
    description = as_text(api.get("description"), notes)
    if not description:
        notes.append("no description")
    if key := next((header for header in headers if header.lower() in _KEY_HEADERS), None):
        notes.append(f"{AUTH_NOTE} (header {shown(key, 60)})")
    return ToolSpec(
        id=tool_id(category, tool, api.get("name")),
        tool_name=as_text(tool),
        api_name=as_text(api.get("name")),
        description=description,
        method=as_text(api.get("method")).upper()[:20] or "GET",
        server=server,
        path=path,
        parameters=placed,
        response=_response(api.get("schema"), notes),
        notes=tuple(notes),
    )


def _parameter(name: str, entry: dict[str, Any], required: bool, location: Any, notes: list[str]) -> ToolParameter:
    """The form has no locations: they follow from the URL template and from the ``headers`` and ``body`` fields."""
    default = plain(entry.get("default"))
    parameter = ToolParameter(
        name=name,
        location=location,
        type=json_type(entry.get("type"), notes),
        required=required,
        description=as_text(entry.get("description"), notes),
        enum=tuple(plain(value) for value in as_list(entry.get("enum"))),
        default=None if default == "" else default,  # "" means "none" in this form
    )
    return without_key_value(parameter, notes)


def _response(schema: Any, notes: list[str]) -> Any:
    """``schema`` is a skeleton of type words, or a JSON schema as RapidAPI itself writes it."""
    fields = as_dict(schema)
    if isinstance(fields.get("properties"), dict) or (fields.get("type") == "array" and "items" in fields):
        return schema_template(fields, References(fields), notes)
    return template_of_words(schema, notes)
