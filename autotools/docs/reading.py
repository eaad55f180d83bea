"""What reading a file of tool documents gives, and the small tools that every reader uses.

A reader never stops at one bad record and never loses one: read = kept + repeated + rejected.
"""

import json
import math
import re
import reprlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from autotools.docs.templates import (  # noqa: F401 (readers take all their tools from here)
    MAX_TEMPLATE_CHARS,
    MAX_TEMPLATE_DEPTH,
    TYPE_OF_WORD,
    clean,
    fitted,
    template_of,
    template_of_words,
)
from autotools.errors import ToolDocError
from autotools.schema import ToolId, ToolParameter, ToolSpec, standardise

MAX_TEXT_CHARS = 4_000  # of one description; a few hold whole lists of codes (147,526 characters the longest)
MAX_NOTE_CHARS = 300
MAX_VALUE_CHARS = 2_000  # of one default or example as JSON

_VARIABLE = re.compile(r"\{([^{}/]+)\}|(?<=/):([A-Za-z_]\w*)")  # /v1/a:batchGet is a verb, not a variable
_LONG_QUOTE = re.compile(r"('[^']{60})[^']*(')")
_ADDRESS = re.compile(r"(https?://[^/?#\s]+)?(/[^?#\s]*)?(?:[?#]\S*)?", re.I)
_KEY_NAME = re.compile(
    r"(x|toolbench)?[-_]?(rapid)?_?api[-_]?key|authorization|access[-_]?token|client[-_]?secret", re.I
)
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 100


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
    _by_id: dict[ToolId, list[ToolSpec]] = field(default_factory=dict, repr=False)

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
        self.rejects.append({"source": self.source, "line": line, "reason": reason, "detail": shown(detail)})

    def keep(self, line: int, spec: ToolSpec, *, rename: bool = False) -> None:
        """One usable API. The same document again is counted as repeated; another one of the same id is rejected.

        With ``rename`` the other one gets ``_v2``, ``_v3`` ... on its API name, and a note. A note counts once per API,
        and a response template over the limit is cut.
        """
        notes = list(spec.notes)
        response = fitted(spec.response, notes)
        short = (_LONG_QUOTE.sub(r"\1…\2", note)[:MAX_NOTE_CHARS] for note in notes)
        spec = spec.model_copy(update={"response": response, "notes": tuple(dict.fromkeys(short))})
        same = self._by_id.setdefault(spec.id, [])
        if spec in same:
            self.repeated += 1
        elif same and not rename:
            self.reject(line, "another document of an id that was read before", str(spec.id))
        else:
            same.append(spec)
            self.specs.append(self._renamed(spec, len(same)) if len(same) > 1 else spec)

    def _renamed(self, spec: ToolSpec, number: int) -> ToolSpec:
        note = f"id '{spec.id}' occurs {number} times; this one was renamed"
        while (new := spec.id.model_copy(update={"api": f"{spec.id.api}_v{number}"})) in self._by_id:
            number += 1  # the file has an API of that very name
        self._by_id[new] = [spec]
        return spec.model_copy(update={"id": new, "notes": (*spec.notes, note)})

    def attempt(self, line: int, read: Any, *args: Any, rename: bool = False) -> None:
        """Keep what ``read(*args)`` returns (specs); a ToolDocError (``reason: detail``) makes the record a reject."""
        try:
            specs: Iterable[ToolSpec] = list(read(*args))  # all or nothing: a half-read record would count twice
            for spec in specs:
                self.keep(line, spec, rename=rename)
        except ToolDocError as error:
            reason, _, detail = str(error).partition(": ")
            self.reject(line, reason, detail)
        except ValidationError as error:
            first = error.errors()[0]
            self.reject(line, "not a tool document", f"{'.'.join(map(str, first['loc']))}: {first['msg']}")


def tool_id(category: Any, tool: Any, api: Any) -> ToolId:
    """Id of raw names. Raises ToolDocError (``reason: detail``) where a name has no letter or digit."""
    names = [clean(name).strip() if isinstance(name, str) else "" for name in (category, tool, api)]
    if not names[0] or not standardise(names[1]) or not standardise(names[2]):
        raise ToolDocError(f"empty name: {' / '.join(map(shown, (category, tool, api)))}")
    return ToolId.make(*names)


def shown(value: Any, limit: int = 200) -> str:
    """A value as it stands in a note or error: text as it is, anything else abridged; cut to ``limit`` characters."""
    return clean(value if isinstance(value, str) else _SHORT.repr(value))[:limit]


def as_dict(value: Any) -> dict[str, Any]:
    """The value if it is an object with text keys, else an empty one: documents in the wild hold anything anywhere."""
    return value if isinstance(value, dict) and all(isinstance(key, str) for key in value) else {}


def as_list(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: Any, notes: list[str] | None = None) -> str:
    """Stripped text; numbers as they print, anything else empty. Long text is cut, with a note."""
    text = clean(str(value)).strip() if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    if len(text) > MAX_TEXT_CHARS:
        if notes is not None:
            notes.append(f"description cut to {MAX_TEXT_CHARS} characters")
        text = text[:MAX_TEXT_CHARS]
    return text


def first_paragraph(value: Any, limit: int = 500) -> str:
    """The first paragraph that is no heading, on one line: whole manuals stand where a service describes itself."""
    paragraphs = re.split(r"\n\s*\n", as_text(value))
    text = next((part for part in paragraphs if part.strip() and not part.lstrip().startswith("#")), "")
    return " ".join(text.split())[:limit]


def json_type(word: Any, notes: list[str] | None = None) -> str:
    """JSON-schema type name of whatever a document calls a type (``String``, ``List[int]``, ``int, optional``).

    Unknown ones become ``string``, with a note.
    """
    text = as_text(word).lower()
    stem = re.split(r"[\[\(<,| ]", text, maxsplit=1)[0]
    found = TYPE_OF_WORD.get(stem)
    if found is None and notes is not None:
        notes.append(f"type {text[:60]!r} is unknown; read as string" if text else "parameter without type")
    return found or "string"


def plain(value: Any) -> Any:
    """A default or example as JSON can hold it: NaN, infinities and foreign objects become None.

    So does a value that is nested over 12 deep or longer than 2,000 characters: it is data, not documentation.
    """
    value = _plain(value, 0)
    size = len(value) if isinstance(value, str) else len(json.dumps(value)) if isinstance(value, list | dict) else 0
    return value if size <= MAX_VALUE_CHARS else None


def _plain(value: Any, depth: int) -> Any:
    if depth > MAX_TEMPLATE_DEPTH or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {clean(str(key)): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, str):
        return clean(value)
    return value if isinstance(value, int | float | bool) else None


def without_key_value(parameter: ToolParameter, notes: list[str]) -> ToolParameter:
    """The parameter without default and example if its name is that of a key (``api_key``): keys are never stored."""
    if not _KEY_NAME.fullmatch(parameter.name) or (parameter.default is None and parameter.example is None):
        return parameter
    notes.append(f"value of the key {parameter.name!r} left out")
    return parameter.model_copy(update={"default": None, "example": None})


def path_variables(path: str) -> list[str]:
    """Names in braces (``/a/{id}``) or after a colon (``/a/:id``), in order, each once."""
    return list(dict.fromkeys((brace or colon).strip() for brace, colon in _VARIABLE.findall(path)))


def split_address(url: str) -> tuple[str, str]:
    """(server, path) of an address or of a path alone; ``/:id`` becomes ``/{id}``, what follows ``?`` is left out.

    Raises ToolDocError (``reason: detail``) for text that is no address.
    """
    found = _ADDRESS.fullmatch(url.strip())
    if not found:
        raise ToolDocError(f"not an address: {shown(url)}")
    return found[1] or "", braced(found[2] or "")


def braced(path: str) -> str:
    """The path with ``{id}`` for ``/:id``: two ways to write one thing."""
    return re.sub(r"(?<=/):([A-Za-z_]\w*)", r"{\1}", path)


def with_path_variables(path: str, parameters: Iterable[ToolParameter], notes: list[str]) -> tuple[ToolParameter, ...]:
    """The parameters, those in the URL moved to location ``path``, undeclared ones added as required strings.

    One that says ``path`` but is not in the URL becomes a query parameter. What was changed goes into ``notes``.
    """
    wanted = path_variables(path)
    out = list(parameters)
    missing = [name for name in wanted if all(p.name != name or p.location != "path" for p in out)]
    for number, parameter in enumerate(out):
        name = parameter.name
        if parameter.location == "path" and name not in wanted:
            notes.append(f"parameter {name!r} is not in the URL; location path became query")
            out[number] = parameter.model_copy(update={"location": "query"})
        elif parameter.location == "path":
            out[number] = parameter.model_copy(update={"required": True})
        elif name in missing:  # the first of that name only: /{id}?id= has two
            missing.remove(name)
            notes.append(f"parameter {name!r} is in the URL; location {parameter.location} became path")
            out[number] = parameter.model_copy(update={"location": "path", "required": True})
    for name in missing:
        notes.append(f"path variable {name!r} is not declared; added as a required string")
        out.append(ToolParameter(name=name, location="path", required=True))
    return tuple(out)
