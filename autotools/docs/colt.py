"""Reader of COLT's documents (BEIR ``corpus.jsonl``): one line of text per API, cut at its key words."""

import re
from pathlib import Path
from typing import Any

from autotools.docs.files import first_keys, json_lines, parse_json, suffix_of
from autotools.docs.reading import Reading, as_dict, as_list, as_text, json_type, template_of_words, tool_id
from autotools.errors import ToolDocError
from autotools.schema import ToolId, ToolParameter, ToolSpec

FORM = "colt"

_DOCUMENT = re.compile(  # by its key words, not by commas: descriptions hold commas and colons themselves
    r"category_name:(?P<category>.*?), tool_name:(?P<tool>.*?), api_name:(?P<api>.*?), "
    r"api_description:(?P<description>.*), required_params: (?P<required>.*), "
    r"optional_params: (?P<optional>.*), return_schema: (?P<schema>.*)",
    re.S,
)


def matches(path: Path, head: str) -> bool:
    """JSON lines of ``_id``, ``title``, ``text`` (requests of BEIR sets look alike but for the text)."""
    return suffix_of(path) == ".jsonl" and {"_id", "text"} <= set(first_keys(head)) and "category_name:" in head


def read(path: Path) -> Reading:
    """One ToolSpec per document. Raises DataError if the file cannot be read."""
    reading = Reading(source=f"{path.parent.name}/{path.name}", form=FORM)
    for line, text in json_lines(path):
        reading.attempt(line, _spec, text)
    reading.documents = reading.read
    return reading


def document_id(text: str) -> ToolId | None:
    """Id of the API that a document's text describes; None if it names none."""
    found = _DOCUMENT.match(text)
    try:
        return tool_id(found["category"], found["tool"], found["api"]) if found else None
    except ToolDocError:
        return None


def _spec(line: str) -> list[ToolSpec]:
    row = as_dict(parse_json(line))
    text = row.get("text")
    found = _DOCUMENT.match(text) if isinstance(text, str) else None
    if not found:
        raise ToolDocError(f"no document of an API: {as_text(text) or as_text(row.get('_id'))}")
    notes: list[str] = []
    description = as_text(found["description"], notes)
    if not description:
        notes.append("no description")
    parameters = [
        *_parameters(found["required"], True, notes),
        *_parameters(found["optional"], False, notes),
    ]
    spec = ToolSpec(
        id=tool_id(found["category"], found["tool"], found["api"]),
        tool_name=as_text(found["tool"]),
        api_name=as_text(found["api"]),
        description=description,
        parameters=tuple(parameters),
        response=template_of_words(_json(found["schema"], "response", notes), notes),
        notes=tuple(notes),
    )
    return [spec]


def _json(text: str, what: str, notes: list[str]) -> Any:
    try:
        return parse_json(text)
    except ToolDocError:
        notes.append(f"{what} is cut JSON and left out")
        return None


def _parameters(text: str, required: bool, notes: list[str]) -> list[ToolParameter]:
    out = []
    for entry in map(as_dict, as_list(_json(text, "parameter list", notes))):
        name = as_text(entry.get("name"))
        if not name:
            notes.append("parameter without name left out")
            continue
        out.append(
            ToolParameter(
                name=name,
                type=json_type(entry.get("type"), notes),
                required=required,
                description=as_text(entry.get("description"), notes),
            )
        )
    return out
