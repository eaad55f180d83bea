"""Type templates of responses: made of an example payload, or of a skeleton whose leaves are type words already.

Needs nothing of the other modules here, so that ``reading.py`` can offer it to every reader.
"""

import json
import re
from typing import Any

MAX_TEMPLATE_CHARS = 20_000  # of one response template as JSON
MAX_TEMPLATE_DEPTH = 12

_LIST_OF = re.compile(r"list of (\w+) with length \d+")
_JSON_TYPES = {
    "string": ("str", "string", "text", "enum", "date", "datetime", "time", "char", "uuid", "url", "file", "binary"),
    "integer": ("int", "integer", "long", "int32", "int64"),
    "number": ("float", "double", "number", "decimal"),
    "boolean": ("bool", "boolean"),
    "array": ("list", "array", "tuple", "set", "sequence"),
    "object": ("dict", "object", "map", "json", "mapping"),
}
TYPE_OF_WORD = {word: name for name, words in _JSON_TYPES.items() for word in words}


def clean(text: str) -> str:
    """The text with ``?`` for lone surrogates: JSON can escape them, no file can hold them."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def template_of(payload: Any, depth: int = 0) -> Any:
    """Type template of an example payload: leaves are JSON type names, a list shows its first element.

    ``{"price": 3.5, "tags": ["a", "b"]}`` -> ``{"price": "number", "tags": ["string"]}``.
    """
    if depth > MAX_TEMPLATE_DEPTH:
        return "object"
    if isinstance(payload, dict):
        return {clean(str(key)): template_of(value, depth + 1) for key, value in payload.items()}
    if isinstance(payload, list | tuple):
        return [template_of(payload[0], depth + 1)] if payload else []
    return "string" if isinstance(payload, str) else _type_name(payload)


def _type_name(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    return "number" if isinstance(value, float) else "null"


def template_of_words(skeleton: Any, notes: list[str]) -> Any:
    """Template of a skeleton whose leaves are type words (``str``, ``NoneType``, ToolBench's marks); also as JSON text.

    ``{"a": "str", "b": ["list of int with length 9"], "c": [{"d": "NoneType", "_list_length": 3}]}`` ->
    ``{"a": "string", "b": ["integer"], "c": [{"d": "null"}]}``. A leaf that is no type word is a value, of
    which the type counts. None where nothing is told; cut JSON text gives None and a note.
    """
    if isinstance(skeleton, str) and skeleton.lstrip()[:1] in ("{", "["):
        try:
            skeleton = json.loads(skeleton)
        except (ValueError, RecursionError):
            notes.append("response is cut JSON and left out")
            return None
    if skeleton is None or (isinstance(skeleton, str) and not skeleton.strip()):
        return None
    return fitted(_of_words(skeleton, 0), notes)


def _of_words(skeleton: Any, depth: int) -> Any:
    if depth > MAX_TEMPLATE_DEPTH:
        return "object"
    if isinstance(skeleton, dict):
        items = ((clean(str(key)), value) for key, value in skeleton.items() if key != "_list_length")
        return {key: _of_words(value, depth + 1) for key, value in items}
    if isinstance(skeleton, list | tuple):
        first = _of_words(skeleton[0], depth + 1) if skeleton else None
        if skeleton and isinstance(skeleton[0], str) and isinstance(first, list):
            return first  # ["list of str with length 3"] is how the skeleton writes a list of strings
        return [first] if skeleton else []
    return _of_word(skeleton) if isinstance(skeleton, str) else _type_name(skeleton)


def _of_word(word: str) -> Any:
    word = word.strip().lower()
    if word == "empty list":
        return []
    if found := _LIST_OF.fullmatch(word):
        return [_of_word(found[1])]
    return "null" if word in ("null", "none", "nonetype") else TYPE_OF_WORD.get(word, "string")


def fitted(template: Any, notes: list[str]) -> Any:
    """The template, cut at the depth that leaves at most MAX_TEMPLATE_CHARS as JSON (with a note); None if empty."""
    if not isinstance(template, dict | list):
        return template or None
    for depth in range(MAX_TEMPLATE_DEPTH + 2, 0, -1):
        cut = _pruned(template, depth)
        if len(json.dumps(cut, ensure_ascii=False)) <= MAX_TEMPLATE_CHARS:
            if cut != template:
                notes.append(f"response template cut at depth {depth}")
            return cut or None
    notes.append(f"response template longer than {MAX_TEMPLATE_CHARS} characters left out")
    return None


def _pruned(template: Any, depth: int) -> Any:
    if isinstance(template, dict):
        return {key: _pruned(value, depth - 1) for key, value in template.items()} if depth else "object"
    if isinstance(template, list):
        return [_pruned(value, depth - 1) for value in template] if depth else "array"
    return template
