"""Reader of ToolAlpaca's tool files: each tool carries its OpenAPI document as text, and a description per function.

The OpenAPI document comes first; what it lacks (or all, where it is broken) is read from the functions' descriptions,
with a note. Names of APIs are those of the functions, as ToolAlpaca's solutions call them.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autotools.docs import AUTH_NOTE
from autotools.docs.files import first_keys, parse_json, read_json, suffix_of
from autotools.docs.openapi import read_document
from autotools.docs.reading import (
    Reading,
    as_dict,
    as_list,
    as_text,
    json_type,
    path_variables,
    tool_id,
    with_path_variables,
)
from autotools.errors import DataError, ToolDocError
from autotools.schema import ToolParameter, ToolSpec

FORM = "toolalpaca"

_TEXT = re.compile(r"(?P<description>.*?)\s*(?:\nParameters: (?P<parameters>\{.*?\}))?\s*(?:\nOutput: .*)?", re.S)
_PARAMETER = re.compile(
    r"(?P<required>Required\. )?(?P<type>#?\w+)(?:\[.*?\]|\{.*?\})?\. ?(?:One of: \[(?P<enum>[^\]]*)\]\. ?)?", re.I
)
_VERBS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def matches(path: Path, head: str) -> bool:
    """A list of tools with functions, or the list of services ``public_apis.json``."""
    if suffix_of(path) != ".json":
        return False
    keys = set(first_keys(head))
    if head.lstrip().startswith("["):
        return {"Name", "Description", "Category"} <= keys
    return {"count", "entries"} <= keys and '"API"' in head and '"Link"' in head


def read(path: Path) -> Reading:
    """One ToolSpec per function; category and tool name are the tool's own. ``documents`` counts the tools.

    The entries of ``public_apis.json`` name services without an API and are refused one by one. Raises DataError if
    the file is no JSON list.
    """
    reading = Reading(source=path.name, form=FORM)
    records = read_json(path)
    if isinstance(records, dict) and isinstance(records.get("entries"), list):
        records = records["entries"]
    if not isinstance(records, list):
        raise DataError(f"{path}: not a list of tools")
    for line, record in enumerate(records, start=1):
        reading.documents += 1
        _read_tool(reading, line, as_dict(record))
    return reading


def _read_tool(reading: Reading, line: int, tool: dict[str, Any]) -> None:
    texts = as_dict(tool.get("Function_Description")) or as_dict(tool.get("Functions"))
    texts = {name: text for name, text in texts.items() if name != "components"}
    calls = {name: call for name in texts if (call := _call(as_dict(tool.get("Function_Projection")).get(name)))}
    specs, problem = _from_openapi(reading, line, tool)
    if not specs and not texts:
        name = as_text(tool.get("Name")) or as_text(tool.get("API"))
        reading.reject(line, "names a service, documents no API" if name else "not a tool", name)
        return
    name_of = {call: name for name, call in calls.items()}
    covered = set()
    for spec in specs:
        name = name_of.get((spec.method, spec.path), spec.api_name)
        covered.add(name)
        reading.attempt(line, _renamed, tool, name, spec)
    for name in [name for name in texts if name not in covered]:
        note = problem or "its OpenAPI document lacks this function; read from the description"
        reading.attempt(line, _from_text, tool, name, texts[name], calls.get(name), note)


def _call(value: Any) -> tuple[str, str] | None:
    """(verb, path) of ``["/path", "get"]``."""
    parts = [as_text(part) for part in as_list(value)]
    return (parts[1].upper(), parts[0]) if len(parts) == 2 and parts[1].upper() in _VERBS else None


def _from_openapi(reading: Reading, line: int, tool: dict[str, Any]) -> tuple[list[ToolSpec], str]:
    """Specs of the OpenAPI document, and the note for functions that must be read otherwise."""
    document = tool.get("Documentation")
    if not document:
        return [], "no OpenAPI document; read from the description"
    try:
        parsed = parse_json(document) if isinstance(document, str) else document
        found = read_document(parsed, source=reading.source, name=as_text(tool.get("Name")) or "api")
    except ToolDocError as error:
        return [], f"OpenAPI document is broken ('{str(error)[:80]}'); read from the description"
    for row in found.rejects:
        reading.reject(line, row["reason"], row["detail"])
    return found.specs, ""


def _renamed(tool: dict[str, Any], name: str, spec: ToolSpec) -> list[ToolSpec]:
    notes = list(spec.notes)
    changes = {
        **_names(tool, name),
        "parameters": tuple(_without_keys(tool, spec.parameters, notes)),
        "notes": tuple(notes),
    }
    return [spec.model_copy(update=changes)]


def _names(tool: dict[str, Any], name: str) -> dict[str, Any]:
    return {
        "id": tool_id(tool.get("Category"), tool.get("Name"), name),
        "tool_name": as_text(tool.get("Name")),
        "api_name": as_text(name),
        "tool_description": as_text(tool.get("Introduction")) or as_text(tool.get("Description")),
    }


def _without_keys(
    tool: dict[str, Any], parameters: tuple[ToolParameter, ...], notes: list[str]
) -> Iterator[ToolParameter]:
    """``Authentication`` names the parameters that carry the key; the host adds them."""
    slots = as_dict(tool.get("Authentication"))
    for parameter in parameters:
        if parameter.name in slots:
            notes.append(f"{AUTH_NOTE} ({parameter.location} {parameter.name})")
        else:
            yield parameter


def _from_text(tool: dict[str, Any], name: str, text: Any, call: tuple[str, str] | None, note: str) -> list[ToolSpec]:
    """A function of which only the description is usable; the structure of its response is not read."""
    found = _TEXT.fullmatch(text) if isinstance(text, str) else None
    if not found:
        raise ToolDocError(f"function without description: {as_text(name)}")
    notes = [note, "its response is not read"]
    if not call:
        notes.append("the request is not documented")
    verb, path = call or ("GET", "")
    try:
        listed = as_dict(parse_json(found["parameters"] or "{}"))
    except ToolDocError:
        listed = {}
        notes.append("parameter list is cut JSON and left out")
    in_path, other = path_variables(path), "body" if verb in ("POST", "PUT", "PATCH") else "query"
    parameters = [
        _parameter(key, as_text(entry, notes), "path" if key in in_path else other, notes)
        for key, entry in listed.items()
        if key.strip()
    ]
    placed = with_path_variables(path, parameters, notes)
    spec = ToolSpec(
        **_names(tool, name),
        description=as_text(found["description"], notes),
        method=verb,
        path=path,
        parameters=tuple(_without_keys(tool, placed, notes)),
        notes=tuple(notes),
    )
    return [spec]


def _parameter(name: str, text: str, location: Any, notes: list[str]) -> ToolParameter:
    """``Required. string. One of: [red, green]. Colour of the thing.``"""
    found = _PARAMETER.match(text)
    enum = [value.strip() for value in (found["enum"] or "").split(",") if value.strip()] if found else []
    return ToolParameter(
        name=as_text(name),
        location=location,
        type=json_type(found["type"] if found else "", notes),
        required=bool(found and found["required"]),
        description=text[found.end() :].strip() if found else text,
        enum=tuple(enum),
    )
