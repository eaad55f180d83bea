"""Reader of an API corpus: one ToolBench API document per line, ``.jsonl`` or ``.jsonl.gz``.

A row that cannot be used is a reject with line and reason, never a stop and never lost: kept + rejected = read.
"""

import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from autotools.docs.rapidapi import read_rapidapi
from autotools.errors import DataError, ToolDocError
from autotools.schema import ToolId, ToolSpec, standardise

MAX_TEXT_CHARS = 4_000  # of one description; a few hold whole lists of codes (147,526 characters the longest)
MAX_RESPONSE_CHARS = 20_000
_REMOVED_SECRET = re.compile(r"(API_?KEY|TOKEN|SECRET)_?PLACEHOLDER")


class _Row(BaseModel):
    """Fields of a line that are read; others (docid, std_key, source) are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)

    category_name: str
    tool_name: str
    api_name: str
    api_description: str | None = ""
    required_parameters: list[dict[str, Any]] = []
    optional_parameters: list[dict[str, Any]] = []
    method: str = "GET"
    template_response: Any = None


@dataclass(frozen=True, kw_only=True)
class ApiCorpus:
    """``rejects`` rows: {"source": file name, "line": 1-based, "reason", "detail"}; read = specs + rejects.

    ``repaired`` counts what was mended in documents that were kept (also in the notes of each).
    """

    specs: tuple[ToolSpec, ...]
    rejects: tuple[dict[str, Any], ...]
    read: int
    repaired: dict[str, int]


def read_api_corpus(path: str | Path) -> ApiCorpus:
    """One ToolSpec per usable line, in file order.

    The id is made of ``category_name``, ``tool_name`` and ``api_name`` (the last two standardised). Rejected: no JSON
    object, missing or mistyped fields, a name without any letter or digit, a name that is the placeholder of a removed
    secret, an id that an earlier line has. Raises DataError if the file cannot be read or has no usable line.
    """
    file = Path(path)
    specs: list[ToolSpec] = []
    rejects: list[dict[str, Any]] = []
    first_line: dict[ToolId, int] = {}
    for number, line in _lines(file):
        try:
            spec = _spec(line)
            first = first_line.setdefault(spec.id, number)
            if first != number:
                raise ToolDocError(f"duplicate name: {spec.id} already stands in line {first}")
            specs.append(spec)
        except ToolDocError as error:
            reason, _, detail = str(error).partition(": ")
            rejects.append({"source": file.name, "line": number, "reason": reason, "detail": detail})
    if not specs:
        why = f"; line {rejects[0]['line']}: {rejects[0]['reason']}" if rejects else " (the file is empty)"
        raise DataError(f"{file} holds no usable API document{why}")
    repaired = Counter(note for spec in specs for note in spec.notes)
    return ApiCorpus(
        specs=tuple(specs), rejects=tuple(rejects), read=len(specs) + len(rejects), repaired=dict(repaired)
    )


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    try:
        with gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):  # bytes: a line ends at \n only
                if text := line.decode("utf-8", "replace").strip():
                    yield number, text
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{file}: cannot read the API corpus ({reason}); give a .jsonl or .jsonl.gz file") from error


def _spec(line: str) -> ToolSpec:
    """Raises ToolDocError, its text being ``reason: detail``."""
    try:
        row = _Row.model_validate(json.loads(line))
    except json.JSONDecodeError as error:
        raise ToolDocError(f"not JSON: {error.msg} at column {error.colno}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "row"
        raise ToolDocError(f"not an API document: {where}: {first['msg']}") from error
    names = (row.category_name, row.tool_name, row.api_name)
    if not row.category_name.strip() or not all(standardise(name) for name in names[1:]):
        raise ToolDocError(f"empty name: {' / '.join(names)!r}")
    if any(_REMOVED_SECRET.search(name) for name in names):
        raise ToolDocError(f"name was a secret: {' / '.join(names)!r}")
    notes: list[str] = []
    document = {
        "name": row.tool_name,
        "api_list": [{
            "name": row.api_name, "description": _cut(row.api_description, notes), "method": row.method,
            "required_parameters": _named(row.required_parameters, notes),
            "optional_parameters": _named(row.optional_parameters, notes),
            "schema": _response(row.template_response, notes),
        }],
    }  # fmt: skip
    if not (row.api_description or "").strip():
        notes.append("no description")
    try:
        (spec,) = read_rapidapi(document, row.category_name)
    except (ValidationError, TypeError, AttributeError) as error:
        raise ToolDocError(f"not an API document: {type(error).__name__}: {str(error).splitlines()[0]}") from error
    return spec.model_copy(update={"notes": (*spec.notes, *notes)})


def _named(parameters: list[dict[str, Any]], notes: list[str]) -> list[dict[str, Any]]:
    named = [entry for entry in parameters if str(entry.get("name") or "").strip()]
    if len(named) < len(parameters):
        notes.append("parameter without name left out")
    return [entry | {"description": _cut(entry.get("description"), notes)} for entry in named]


def _cut(text: Any, notes: list[str]) -> str:
    text = str(text or "")
    if len(text) > MAX_TEXT_CHARS:
        notes.append(f"description cut to {MAX_TEXT_CHARS} characters")
    return text[:MAX_TEXT_CHARS]


def _response(template: Any, notes: list[str]) -> Any:
    """Type skeleton; some documents hold it as JSON text."""
    if isinstance(template, str) and template.strip():
        try:
            template = json.loads(template)
        except ValueError:
            notes.append("response is cut JSON and left out")
            return None
    if len(json.dumps(template, ensure_ascii=False)) > MAX_RESPONSE_CHARS:
        notes.append(f"response longer than {MAX_RESPONSE_CHARS} characters left out")
        return None
    return template or None
