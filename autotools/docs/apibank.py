"""Reader of API-Bank: sources of its API classes, its table of APIs, and the descriptions inside its prompts.

API-Bank knows no categories; the category is ``API-Bank`` and every API is its own tool, as in its dialogues, which
call APIs by one name.
"""

import ast
import csv
import io
import json
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from autotools.docs.files import json_lines, parse_json, read_json, suffix_of, text_of
from autotools.docs.python_source import arguments, assigned, literal, literal_text, parse
from autotools.docs.reading import Reading, as_dict, as_list, as_text, json_type, tool_id
from autotools.errors import DataError, ToolDocError
from autotools.schema import ToolParameter, ToolSpec

FORM = "apibank"
CATEGORY = "API-Bank"

_COLUMNS = ("类名", "api_info")  # name of the class, body of the class
_MENDED = "description was mended"  # a key of our own in a document
_FIELDS = ("description", "input_parameters", "output_parameters")
_IN_TEXT = re.compile(r'^\{"(?:name|apiCode)".*$', re.M)
_AS_RESULT = re.compile(r"\[ToolSearcher\(.*\)\]->(\{.*\})\s*$", re.M)
_INNER_QUOTE = re.compile(r"(?<![{\[ ])'(?![:,}\]])")
_BARE_TYPE = re.compile(r"(?<='type': )(\w+)")


def matches(path: Path, head: str) -> bool:
    """Class sources, ``all_apis.csv``, or a list of prompts with API descriptions."""
    kind = suffix_of(path)
    if kind == ".csv":
        return all(column in head for column in _COLUMNS)
    if kind == ".jsonl":
        return '"text"' in head and "(API)" in head and "input_parameters" in head
    return kind == ".json" and (
        ("API-Request: [" in head and "API descriptions:" in head)
        or ('"requirement"' in head and '"apis"' in head and '"api_name"' in head)
    )


def read(path: Path) -> Reading:
    """All documents of a file; one that occurs again (prompts repeat them) counts as repeated.

    ``response`` is made of the declared output parameters. Raises DataError if the file cannot be read.
    """
    reading = Reading(source=path.name, form=FORM)
    if suffix_of(path) == ".csv":
        _read_table(path, reading)
    elif suffix_of(path) == ".jsonl":
        for line, text in json_lines(path):
            reading.attempt(line, _of_row, text)
    else:
        records = read_json(path)
        if not isinstance(records, list):
            raise DataError(f"{path}: not a list of API-Bank records")
        for line, record in enumerate(records, start=1):
            _read_record(line, record, reading)
    reading.documents = len(reading.specs)
    return reading


def _read_table(path: Path, reading: Reading) -> None:
    try:
        rows = list(csv.DictReader(io.StringIO(text_of(path), newline="")))
    except csv.Error as error:
        raise DataError(f"{path}: not a table: {error}") from error
    for line, row in enumerate(rows, start=1):
        reading.attempt(line, _of_class_body, row.get(_COLUMNS[0]), row.get(_COLUMNS[1]))


def _read_record(line: int, record: Any, reading: Reading) -> None:
    """A prompt (descriptions as JSON lines and, after a tool search, as Python text) or a level 3 dialogue."""
    fields = as_dict(record)
    found = list(_searched(fields)) + list(_in_prompt(fields))
    for document in found:
        reading.attempt(line, _spec, document)
    if not found:
        reading.reject(line, "no API description in the record")


def _searched(fields: dict[str, Any]) -> Iterator[Any]:
    for call in map(as_dict, as_list(fields.get("apis"))):
        if call.get("api_name") == "ToolSearcher":
            result = as_dict(call.get("output")).get("output")
            yield from result if isinstance(result, list) else [result]


def _in_prompt(fields: dict[str, Any]) -> Iterator[Any]:
    """Objects at the start of a line of the prompt; those that do not parse are given as their text."""
    for part in ("instruction", "input"):
        text = fields.get(part)
        if not isinstance(text, str):
            continue
        for found in _IN_TEXT.finditer(text):
            yield from _objects(found[0])
        for found in _AS_RESULT.finditer(text):
            yield literal_text(found[1]) or _mended(found[1])


def _mended(text: str) -> Any:
    """Python text with unescaped apostrophes or type names without quotes; the text itself if that is not all."""
    document = as_dict(literal_text(_INNER_QUOTE.sub(r"\'", _BARE_TYPE.sub(r"'\1'", text))))
    return document | {_MENDED: True} if document else text


def _objects(text: str) -> Iterator[Any]:
    """JSON objects that stand one after the other."""
    while text.startswith("{"):
        try:
            value, end = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):
            yield text
            return
        yield value
        text = text[end:].lstrip()


def _of_row(text: str) -> list[ToolSpec]:
    source = as_dict(parse_json(text)).get("text")
    if not isinstance(source, str):
        raise ToolDocError("not a source: the row has no 'text'")
    out = []
    for node in parse(source).body:
        if isinstance(node, ast.ClassDef) and "description" in assigned(node.body):
            calls = (f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "call")
            optional = [a.name for call in calls for a in arguments(call) if not a.required]
            out += _spec(_of_body(node.name, node.body), optional)
    if not out:
        raise ToolDocError("no API class in the source: a class with a 'description' is needed")
    return out


def _of_body(name: str, body: Sequence[ast.stmt]) -> dict[str, Any]:
    values = assigned(body)
    return {"name": name} | {key: literal(values.get(key)) for key in _FIELDS}


def _of_class_body(name: Any, body: Any) -> list[ToolSpec]:
    if not as_text(body).strip(". "):
        raise ToolDocError(f"the table has no document: {as_text(name)}")
    return _spec(_of_body(as_text(name), parse(str(body)).body))


def _spec(document: Any, optional: Collection[str] = ()) -> list[ToolSpec]:
    """API-Bank's calls name every parameter, so that all are required but those with a default in the class."""
    fields, notes = as_dict(document), []
    name = fields.get("name", fields.get("apiCode"))
    if not isinstance(name, str) or not {"description", "input_parameters", "parameters"} & set(fields):
        raise ToolDocError(f"not a description of an API: {str(document)[:100]}")
    description = as_text(fields.get("description"), notes)
    if not description:
        notes.append("no description")
    if _MENDED in fields:
        notes.append("quotes of the description were mended")
    inputs = fields.get("input_parameters", fields.get("parameters"))
    outputs = as_dict(fields.get("output_parameters", fields.get("response")))
    if not isinstance(inputs, dict):
        notes.append("no parameters are documented")
    spec = ToolSpec(
        id=tool_id(CATEGORY, name, name),
        tool_name=as_text(name),
        api_name=as_text(name),
        description=description,
        parameters=tuple(
            _parameter(key, as_dict(value), key not in optional, notes)
            for key, value in as_dict(inputs).items()
            if key.strip()
        ),
        response={as_text(key): json_type(as_dict(value).get("type")) for key, value in outputs.items()} or None,
        notes=tuple(notes),
    )
    return [spec]


def _parameter(name: str, entry: dict[str, Any], required: bool, notes: list[str]) -> ToolParameter:
    return ToolParameter(
        name=as_text(name),
        type=json_type(entry.get("type"), notes),
        required=required,
        description=as_text(entry.get("description"), notes),
    )
