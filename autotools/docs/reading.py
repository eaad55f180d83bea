"""What reading a file of tool documents gives, and the small tools that every reader uses.

A reader never stops at one bad record and never loses one: read = kept + repeated + rejected.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from autotools.errors import ToolDocError
from autotools.schema import ToolId, ToolParameter, ToolSpec, standardise

MAX_TEXT_CHARS = 4_000  # of one description; a few hold whole lists of codes (147,526 characters the longest)
MAX_TEMPLATE_CHARS = 20_000  # of one response template as JSON
MAX_TEMPLATE_DEPTH = 12

_VARIABLE = re.compile(r"\{([^{}/]+)\}|:([A-Za-z_]\w*)")
_JSON_TYPES = {
    "string": ("str", "string", "text", "enum", "date", "datetime", "time", "char", "uuid", "url", "file"),
    "integer": ("int", "integer", "long", "int32", "int64"),
    "number": ("float", "double", "number", "decimal"),
    "boolean": ("bool", "boolean"),
    "array": ("list", "array", "tuple", "set", "sequence"),
    "object": ("dict", "object", "map", "json", "mapping"),
}
_TYPE_OF_WORD = {word: name for name, words in _JSON_TYPES.items() for word in words}


@dataclass(kw_only=True)
class Reading:
    """What one file gave. ``rejects`` rows: {"source", "line" (record number from 1), "reason", "detail"}.

    ``documents`` counts whole tool documents where one holds several APIs; the other counts are of APIs (or of
    records that no API could be read from).
    """

    source: str
    form: str
    specs: list[ToolSpec] = field(default_factory=list)
    rejects: list[dict[str, Any]] = field(default_factory=list)
    repeated: int = 0
    documents: int = 0
    _by_id: dict[ToolId, ToolSpec] = field(default_factory=dict, repr=False)

    @property
    def read(self) -> int:
        """kept + repeated + rejected."""
        return len(self.specs) + self.repeated + len(self.rejects)

    @property
    def repaired(self) -> Counter[str]:
        """How often each note occurs in the kept specs; what is quoted or counted in a note does not separate it."""
        return Counter(re.sub(r"'[^']*'|\"[^\"]*\"|\d+", "…", note) for spec in self.specs for note in spec.notes)

    def reject(self, line: int, reason: str, detail: Any = "") -> None:
        """One record cannot be used. ``detail`` is cut to 200 characters."""
        self.rejects.append({"source": self.source, "line": line, "reason": reason, "detail": str(detail)[:200]})

    def keep(self, line: int, spec: ToolSpec) -> None:
        """One usable API. The same document again is counted as repeated; another one of the same id is rejected."""
        first = self._by_id.setdefault(spec.id, spec)
        if first is spec:
            self.specs.append(spec)
        elif first == spec:
            self.repeated += 1
        else:
            self.reject(line, "another document of an id that was read before", spec.id)

    def attempt(self, line: int, read: Any, *args: Any) -> None:
        """Keep what ``read(*args)`` returns (specs); a ToolDocError (``reason: detail``) makes the record a reject."""
        try:
            specs: Iterable[ToolSpec] = read(*args)
            for spec in specs:
                self.keep(line, spec)
        except ToolDocError as error:
            reason, _, detail = str(error).partition(": ")
            self.reject(line, reason, detail)
        except ValidationError as error:
            first = error.errors()[0]
            self.reject(line, "not a tool document", f"{'.'.join(map(str, first['loc']))}: {first['msg']}")


def tool_id(category: Any, tool: Any, api: Any) -> ToolId:
    """Id of raw names. Raises ToolDocError (``reason: detail``) where a name has no letter or digit."""
    names = [name if isinstance(name, str) else "" for name in (category, tool, api)]
    if not names[0].strip() or not standardise(names[1]) or not standardise(names[2]):
        raise ToolDocError(f"empty name: {(category, tool, api)!r}")
    return ToolId.make(names[0].strip(), names[1], names[2])


def as_dict(value: Any) -> dict[str, Any]:
    """The value if it is an object with text keys, else an empty one: documents in the wild hold anything anywhere."""
    return value if isinstance(value, dict) and all(isinstance(key, str) for key in value) else {}


def as_list(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: Any, notes: list[str] | None = None) -> str:
    """Stripped text; numbers as they print, anything else empty. Long text is cut, with a note."""
    text = str(value).strip() if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    text = text.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate cannot be written to any file
    if len(text) > MAX_TEXT_CHARS:
        if notes is not None:
            notes.append(f"description cut to {MAX_TEXT_CHARS} characters")
        text = text[:MAX_TEXT_CHARS]
    return text


def json_type(word: Any, notes: list[str] | None = None) -> str:
    """JSON-schema type name of whatever a document calls a type (``String``, ``List[int]``, ``int, optional``).

    Unknown ones become ``string``, with a note.
    """
    text = as_text(word).lower()
    stem = re.split(r"[\[\(<,| ]", text, maxsplit=1)[0]
    found = _TYPE_OF_WORD.get(stem)
    if found is None and notes is not None:
        notes.append(f"type {text!r} is unknown; read as string" if text else "parameter without type; read as string")
    return found or "string"


def plain(value: Any) -> Any:
    """A default or example as JSON can hold it: NaN, infinities and foreign objects become None."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return value if isinstance(value, str | int | float | bool) or value is None else None


def template_of(payload: Any, depth: int = 0) -> Any:
    """Type template of an example payload: leaves are JSON type names, a list shows its first element.

    ``{"price": 3.5, "tags": ["a", "b"]}`` -> ``{"price": "number", "tags": ["string"]}``.
    """
    if depth > MAX_TEMPLATE_DEPTH:
        return "object"
    if isinstance(payload, dict):
        return {str(key): template_of(value, depth + 1) for key, value in payload.items()}
    if isinstance(payload, list | tuple):
        return [template_of(payload[0], depth + 1)] if payload else []
    if isinstance(payload, bool):
        return "boolean"
    if isinstance(payload, int):
        return "integer"
    if isinstance(payload, float):
        return "number"
    return "string" if isinstance(payload, str) else "null"


def path_variables(path: str) -> list[str]:
    """Names in braces (``/a/{id}``) or after a colon (``/a/:id``), in order, each once."""
    return list(dict.fromkeys((brace or colon).strip() for brace, colon in _VARIABLE.findall(path)))


def with_path_variables(path: str, parameters: Iterable[ToolParameter], notes: list[str]) -> tuple[ToolParameter, ...]:
    """The parameters, those in the URL moved to location ``path``, undeclared ones added as required strings.

    What was changed goes into ``notes``.
    """
    wanted = path_variables(path)
    out = []
    for parameter in parameters:
        if parameter.name in wanted:
            if parameter.location != "path":
                notes.append(f"parameter {parameter.name!r} is in the URL; location {parameter.location} became path")
            parameter = parameter.model_copy(update={"location": "path", "required": True})
        out.append(parameter)
    for name in wanted:
        if all(parameter.name != name for parameter in out):
            notes.append(f"path variable {name!r} is not declared; added as a required string")
            out.append(ToolParameter(name=name, location="path", required=True))
    return tuple(out)
