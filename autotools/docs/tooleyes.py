"""Reader of ToolEyes: function lists as they are given to GPT-4, one per tool folder.

Either a ``config_gpt4.json`` in its folder ``<Group>/<Tool>/``, or rows that pack such folders. The group is the
category. Two functions of every list are moves of the agent (ask, finish), not tools; they are set aside.
"""

from pathlib import Path, PurePosixPath
from typing import Any

from autotools.docs.files import first_keys, json_lines, parse_json, read_json, suffix_of
from autotools.docs.reading import (
    Reading,
    as_dict,
    as_list,
    as_text,
    json_type,
    plain,
    tool_id,
    without_key_value,
)
from autotools.errors import DataError, ToolDocError
from autotools.schema import ToolParameter, ToolSpec

FORM = "tooleyes"
CONFIG = "config_gpt4.json"

_MOVES = ("ask_to_user", "finish")


def matches(path: Path, head: str) -> bool:
    """A ``config_gpt4.json``, or JSON lines of packed folders."""
    if path.name.removesuffix(".gz") == CONFIG:
        return head.lstrip().startswith("[")
    return suffix_of(path) == ".jsonl" and {"path", CONFIG} <= set(first_keys(head))


def read(path: Path) -> Reading:
    """One ToolSpec per function. A name that a list holds twice gets ``_v2``; the same function again is ``repeated``.

    ``documents`` counts the lists. Raises DataError if the file cannot be read or is no list of functions.
    """
    reading = Reading(source=path.name, form=FORM)
    if suffix_of(path) == ".jsonl":
        for line, text in json_lines(path):
            reading.attempt(line, _read_row, reading, line, text)
    else:
        functions = read_json(path)
        if not isinstance(functions, list):
            raise DataError(f"{path}: not a list of functions")
        folder = path.resolve().parent
        _read_list(reading, 1, folder.parent.name, folder.name, functions)
    return reading


def _read_row(reading: Reading, line: int, text: str) -> list[ToolSpec]:
    row = as_dict(parse_json(text))
    parts = PurePosixPath(as_text(row.get("path"))).parts
    if len(parts) < 2 or not isinstance(row.get(CONFIG), list):
        raise ToolDocError(f"not a tool folder: 'path' must end in GROUP/TOOL and {CONFIG!r} be a list")
    _read_list(reading, line, parts[-2], parts[-1], row[CONFIG])
    return []  # kept one by one above: one bad function costs only itself


def _read_list(reading: Reading, line: int, category: str, tool: str, functions: list[Any]) -> None:
    reading.documents += 1
    for function in functions:
        reading.attempt(line, _spec, category, tool, function, rename=True)


def _spec(category: str, tool: str, function: Any) -> list[ToolSpec]:
    fields, notes = as_dict(function), []
    fields = as_dict(fields.get("function")) or fields  # {"type": "function", "function": {...}}
    name = as_text(fields.get("name"))
    if not fields:
        raise ToolDocError(f"not a function: {str(function)[:100]}")
    if name in _MOVES:
        raise ToolDocError(f"a move of the agent, not a tool: {name}")
    description = as_text(fields.get("description"), notes)
    if not description:
        notes.append("no description")
    schema = as_dict(fields.get("parameters"))
    properties, required = as_dict(schema.get("properties")), as_list(schema.get("required"))
    for missing in (text for text in map(as_text, required) if text not in properties):
        notes.append(f"required parameter {missing!r} is not declared; left out")
    spec = ToolSpec(
        id=tool_id(category, tool, name),
        tool_name=tool,
        api_name=name,
        description=description,
        parameters=tuple(
            _parameter(key, as_dict(entry), key in required, notes) for key, entry in properties.items() if key.strip()
        ),
        notes=tuple(notes),
    )
    return [spec]


def _parameter(name: str, entry: dict[str, Any], required: bool, notes: list[str]) -> ToolParameter:
    parameter = ToolParameter(
        name=as_text(name),
        type=json_type(entry.get("type"), notes),
        required=required,
        description=as_text(entry.get("description"), notes),
        enum=tuple(plain(value) for value in as_list(entry.get("enum"))),
        default=plain(entry.get("default")),
    )
    return without_key_value(parameter, notes)
