"""Reader of an API corpus: one ToolBench API document per line, ``.jsonl`` or ``.jsonl.gz``.

A row that cannot be used is a reject with line and reason, never a stop and never lost.
"""

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from autotools.docs.files import first_keys, json_lines, parse_json, suffix_of
from autotools.docs.rapidapi import api_spec
from autotools.docs.reading import Reading, shown
from autotools.errors import DataError, ToolDocError
from autotools.schema import ToolSpec

FORM = "corpus"
_REMOVED_SECRET = re.compile(r"(API_?KEY|TOKEN|SECRET)_?PLACEHOLDER")


class _Row(BaseModel):
    """Fields of an API object that are read; others (docid, std_key, source) are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)

    category_name: str
    tool_name: str
    api_name: str
    api_description: str | None = ""
    required_parameters: list[Any] = []
    optional_parameters: list[Any] = []
    method: str = "GET"
    template_response: Any = None


def matches(path: Path, head: str) -> bool:
    """JSON lines whose objects have the three names."""
    names = {"category_name", "tool_name", "api_name"}
    return suffix_of(path) == ".jsonl" and names.issubset(first_keys(head))


def read(path: Path) -> Reading:
    """One ToolSpec per usable line, in file order. Raises DataError if the file cannot be read.

    Rejected: no JSON object, missing or mistyped fields, a name without any letter or digit, a name that is the
    placeholder of a removed secret, another document of an id that an earlier line has.
    """
    reading = Reading(source=path.name, form=FORM)
    for number, text in json_lines(path):
        reading.attempt(number, lambda text=text: object_specs(parse_json(text)))
    return reading


def read_api_corpus(path: str | Path) -> Reading:
    """``read`` for a corpus that something is to be made of: raises DataError, too, if no line is usable."""
    reading = read(Path(path))
    if not reading.specs:
        first = next(iter(reading.rejects), None)
        why = f"; line {first['line']}: {first['reason']}" if first else " (the file is empty)"
        raise DataError(f"{path} holds no usable API document{why}")
    return reading


def object_specs(document: Any) -> list[ToolSpec]:
    """The one spec of an API object as ToolBench's corpus and query files hold it.

    The id is made of ``category_name``, ``tool_name`` and ``api_name``, the last two standardised.
    Raises ToolDocError (``reason: detail``) or ValidationError.
    """
    row = _Row.model_validate(document)
    names = (row.category_name, row.tool_name, row.api_name)
    if any(_REMOVED_SECRET.search(name) for name in names):
        raise ToolDocError(f"name was a secret: {shown(' / '.join(names))}")
    api = {
        "name": row.api_name, "description": row.api_description, "method": row.method,
        "required_parameters": row.required_parameters, "optional_parameters": row.optional_parameters,
        "schema": row.template_response,
    }  # fmt: skip
    return [api_spec(api, row.category_name, row.tool_name)]
