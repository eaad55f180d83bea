"""Reader of AppWorld's API documents, as ``launch/export_appworld.sh`` writes them (the package shares no environment).

AppWorld's files carry a canary: they must not enter training data. Any text with a canary is refused here, and every
tool that was read has EVALUATION_NOTE, so that data synthesis can keep it out.
"""

import json
import re
from pathlib import Path
from typing import Any

from autotools.docs import EVALUATION_NOTE
from autotools.docs.files import first_keys, json_lines, parse_json, read_json, suffix_of
from autotools.docs.python_source import literal_text
from autotools.docs.reading import (
    Reading,
    as_dict,
    as_list,
    as_text,
    json_type,
    path_variables,
    plain,
    template_of,
    tool_id,
    with_path_variables,
)
from autotools.errors import ToolDocError
from autotools.schema import ToolParameter, ToolSpec

FORM = "appworld"

_CANARY = re.compile(r"canary[\s_-]*(string|guid)|\b\w+:[0-9a-f]{7,40}:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.I)
_CHOICES = re.compile(r"value in (\[.*\])\s*", re.S)


def matches(path: Path, head: str) -> bool:
    """A ``.json`` or ``.jsonl`` file of the exported objects."""
    return suffix_of(path) in (".json", ".jsonl") and {"app_name", "api_name"} <= set(first_keys(head))


def read(path: Path) -> Reading:
    """Documents of a file (``.jsonl``, or ``.json`` with a list), or of all such files of a folder.

    Category and tool are the app. Refused: text with a canary. Raises DataError if a file cannot be read.
    """
    reading = Reading(source=path.name, form=FORM)
    files = sorted(p for p in path.rglob("*.json*") if p.is_file()) if path.is_dir() else [path]
    for file in files:
        if suffix_of(file) == ".jsonl":
            for line, text in json_lines(file):
                reading.attempt(line, _of_text, text)
        else:
            documents = read_json(file)
            for line, document in enumerate(documents if isinstance(documents, list) else [documents], start=1):
                reading.attempt(line, _specs, document)
    reading.documents = len(reading.specs)
    return reading


def has_canary(text: str) -> bool:
    """Does the text hold a canary of a data set (``canary string``, ``canary GUID``, or AppWorld's form of one)?"""
    return _CANARY.search(text) is not None


def _of_text(text: str) -> list[ToolSpec]:
    return _specs(parse_json(text))


def _specs(document: Any) -> list[ToolSpec]:
    if has_canary(_all_text(document)):
        raise ToolDocError("holds a canary: it asks to be kept out of training data")  # the text itself is not quoted
    fields = as_dict(document)
    if not fields:
        raise ToolDocError(f"not a document of an API: {type(document).__name__}")
    notes = [EVALUATION_NOTE]
    app, name, method = fields.get("app_name"), fields.get("api_name"), as_text(fields.get("method")).upper() or "GET"
    path, description = as_text(fields.get("path")), as_text(fields.get("description"), notes)
    if not description:
        notes.append("no description")
    in_path = path_variables(path)
    listed = (_parameter(as_dict(entry), method, in_path, notes) for entry in as_list(fields.get("parameters")))
    parameters = with_path_variables(path, filter(None, listed), notes)
    response = as_dict(fields.get("response_schemas")).get("success")
    spec = ToolSpec(
        id=tool_id(app, app, name),
        tool_name=as_text(app),
        api_name=as_text(name),
        description=description,
        method=method,
        path=path,
        parameters=parameters,
        response=None if response is None else template_of(response),
        notes=tuple(notes),
    )
    return [spec]


def _all_text(document: Any) -> str:
    try:
        return json.dumps(document, ensure_ascii=False)
    except RecursionError as error:
        raise ToolDocError("nested too deeply to be looked through") from error


def _parameter(entry: dict[str, Any], method: str, in_path: list[str], notes: list[str]) -> ToolParameter | None:
    name = as_text(entry.get("name"))
    if not name:
        notes.append("parameter without name left out")
        return None
    location = "body" if method in ("POST", "PUT", "PATCH") else "query"  # as the package's own client sends them
    if name in in_path:
        location = "path"
    elif name == "access_token":
        location = "header"
        notes.append("access_token is sent as header 'Authorization: Bearer ...'")
    description, choices = as_text(entry.get("description"), notes), ()
    for constraint in filter(None, map(as_text, as_list(entry.get("constraints")))):
        found = _CHOICES.fullmatch(constraint)
        if found and (values := as_list(literal_text(found[1]))):
            choices = tuple(values)
        else:
            description = f"{description} ({constraint})".strip()
    return ToolParameter(
        name=name,
        location=location,
        type=json_type(entry.get("type"), notes),
        required=entry.get("required") is True,
        description=description,
        enum=choices,
        default=plain(entry.get("default")),
    )
