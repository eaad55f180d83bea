"""Reader of ToolBench/RapidAPI tool files (one tool with its ``api_list``)."""

import re
from typing import Any
from urllib.parse import urlsplit

from autotools.docs import AUTH_NOTE, with_unique_ids
from autotools.errors import ToolDocError
from autotools.schema import ToolId, ToolParameter, ToolSpec, standardise

_TYPES = {
    "STRING": "string", "ENUM": "string", "DATE (YYYY-MM-DD)": "string", "TIME (24-HOUR HH:MM)": "string",
    "NUMBER": "number", "INTEGER": "integer", "BOOLEAN": "boolean", "ARRAY": "array", "OBJECT": "object",
}  # fmt: skip
_VARIABLE = re.compile(r"\{([^{}]+)\}")
_KEY_HEADERS = ("x-api-key", "x-rapidapi-key")


def read_rapidapi(document: dict[str, Any], category: str) -> list[ToolSpec]:
    """One ToolSpec per entry of ``api_list``; ``category`` is the folder that the file lies in.

    Names: ``name`` (else ``title``) makes the id, ``title`` is shown. Equal ids within a file get ``_v2``, ``_v3``.
    Raises ToolDocError if the document has no name or no ``api_list``.
    """
    name = document.get("name") or document.get("title")
    apis = document.get("api_list")
    if not name or not isinstance(apis, list):
        raise ToolDocError(f"not a RapidAPI tool file (category {category!r}): 'name' or 'api_list' is missing")
    for api in apis:
        if not isinstance(api, dict) or not api.get("name"):
            raise ToolDocError(f"tool {name!r} (category {category!r}): an entry of api_list has no name")
    return with_unique_ids(_spec(document, str(name), category, api) for api in apis)


def _spec(document: dict[str, Any], name: str, category: str, api: dict[str, Any]) -> ToolSpec:
    parts = urlsplit(str(api.get("url") or ""))
    headers = api.get("headers") if isinstance(api.get("headers"), dict) else {}
    notes: list[str] = []
    parameters: list[ToolParameter] = []
    for field, required in (("required_parameters", True), ("optional_parameters", False)):
        for entry in api.get(field) or []:
            parameters.append(_parameter(entry, required, parts.path, headers, api.get("body")))
    declared = {p.name for p in parameters if p.location == "path"}
    for variable in _VARIABLE.findall(parts.path):
        if variable not in declared:
            notes.append(f"path variable {variable!r} is not declared; added as a required string")
            parameters.append(ToolParameter(name=variable, location="path", required=True))
    if key := next((h for h in headers if h.lower() in _KEY_HEADERS), None):
        notes.append(f"{AUTH_NOTE} (header {key})")
    return ToolSpec(
        id=ToolId(category=category, tool=standardise(name), api=standardise(str(api["name"]))),
        tool_name=str(document.get("title") or name),
        api_name=str(api["name"]),
        description=str(api.get("description") or ""),
        tool_description=str(document.get("tool_description") or ""),
        method=str(api.get("method") or "GET").upper(),
        server=f"{parts.scheme}://{parts.netloc}" if parts.netloc else "",
        path=parts.path,
        parameters=tuple(parameters),
        response=api.get("schema") or None,
        notes=tuple(notes),
    )


def _parameter(entry: dict[str, Any], required: bool, path: str, headers: dict[str, Any], body: Any) -> ToolParameter:
    """The form has no locations: they follow from the URL template and from the ``headers`` and ``body`` fields."""
    name = str(entry.get("name") or "")
    location = "query"
    if "{" + name + "}" in path:
        location = "path"
    elif name in headers:
        location = "header"
    elif isinstance(body, dict) and name in body:
        location = "body"
    default = entry.get("default")
    return ToolParameter(
        name=name,
        location=location,
        type=_TYPES.get(str(entry.get("type") or "").upper(), "string"),
        required=required or location == "path",
        description=str(entry.get("description") or ""),
        enum=tuple(entry.get("enum") or ()),
        default=None if default == "" else default,  # "" means "none" in this form
    )
