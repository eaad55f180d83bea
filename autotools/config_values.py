"""How one config value is read: from YAML text or command-line words to the type a dataclass field declares.

Pydantic does the conversion; this file adds what a person expects beyond it: ``1e-3`` is a number, ``None`` and
``null`` are nothing, ``--k 1 5 10`` is a list, ``{...}`` is a mapping, and ``yes`` is never silently the number 1.
"""

import dataclasses
import json
import math
import re
import typing
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any

import yaml
from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from autotools.errors import ConfigError

MISSING = dataclasses.MISSING
_BOUNDS = {  # by the key's own name: libraries' schemas take any number, and fail or train nonsense much later
    "seed": (0, 2**32 - 1),  # numpy's
    "data_seed": (0, 2**32 - 1),
    "learning_rate": (0, math.inf),
    "max_length": (1, math.inf),
    "per_device_train_batch_size": (1, math.inf),
    "per_device_eval_batch_size": (1, math.inf),
    "gradient_accumulation_steps": (1, math.inf),
}


class _Loader(yaml.SafeLoader):
    """YAML with YAML 1.2 floats (PyYAML reads ``1e-3`` as text) and without silently repeated keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if key_node.value in seen and key_node.tag != "tag:yaml.org,2002:merge":
                raise yaml.YAMLError(f"key {key_node.value!r} stands twice (line {key_node.start_mark.line + 1})")
            seen.add(key_node.value if isinstance(key_node.value, str) else repr(key_node.value))
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def load_yaml(text: str) -> Any:
    """Parse one YAML document. Raises yaml.YAMLError on bad syntax and on a key that stands twice."""
    return yaml.load(text, Loader=_Loader)  # a SafeLoader subclass


def read_config_file(path: str) -> dict[str, Any]:
    """Read a YAML or JSON config file into a mapping. Raises ConfigError naming the file and what is wrong."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        content = json.loads(text) if path.endswith(".json") else load_yaml(text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot read this config file ({error.strerror})") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{path}: not valid YAML/JSON: {' '.join(str(error).split())}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: a config file holds 'key: value' lines, this one is a {type(content).__name__}")
    return content


def _members(annotation: Any) -> Iterator[Any]:
    """The alternatives of a (possibly nested) union; the annotation itself otherwise."""
    if typing.get_origin(annotation) in (typing.Union, UnionType):
        for member in typing.get_args(annotation):
            yield from _members(member)
    elif typing.get_origin(annotation) is typing.Annotated:
        yield from _members(typing.get_args(annotation)[0])
    else:
        yield annotation


def _takes(annotation: Any, *kinds: type) -> bool:
    """Whether one alternative of the annotation is (a container of) one of ``kinds``, or Any."""
    for member in _members(annotation):
        base = typing.get_origin(member) or member
        if base is Any or (isinstance(base, type) and issubclass(base, kinds)):
            return True
        if base is typing.Literal and any(isinstance(value, kinds) for value in typing.get_args(member)):
            return True
    return False


def takes_bool(annotation: Any) -> bool:
    """Whether a bare ``--flag`` makes sense for this type."""
    return _takes(annotation, bool)


def _adapter(annotation: Any) -> TypeAdapter[Any] | None:
    try:
        return TypeAdapter(annotation, config=ConfigDict(arbitrary_types_allowed=True))
    except PydanticUserError:  # a config may not be given for dataclasses and models
        try:
            return TypeAdapter(annotation)
        except PydanticUserError:
            return None


def _convert(value: Any, annotation: Any) -> Any:
    """Convert one candidate. Raises ValueError with a short reason."""
    if isinstance(value, bool) and not _takes(annotation, bool):
        raise ValueError(f'{value} is a truth value; expected {type_name(annotation)} (quote words like "no")')
    if isinstance(value, str) and value == "None" and type(None) in _members(annotation):
        return None
    adapter = _adapter(annotation)
    if adapter is None:
        return value
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        if isinstance(value, str) and value.lower() == "none" and type(None) in _members(annotation):
            return None
        reason = error.errors()[0]["msg"]
        raise ValueError(f"{value!r} is not {type_name(annotation)} ({reason[0].lower()}{reason[1:]})") from error


def _candidates(words: list[str], annotation: Any) -> Iterator[Any]:
    """Readings of command-line words, most likely first."""
    if len(words) > 1 or (words and "=" in words[0]):
        if _takes(annotation, dict) and all("=" in word for word in words):
            yield {key: load_scalar(text) for key, _, text in (word.partition("=") for word in words)}
    if len(words) == 1:
        yield load_scalar(words[0])
        yield words[0]
    if _takes(annotation, list, tuple, set):
        yield [load_scalar(word) for word in words]
        yield list(words)


def load_scalar(word: str) -> Any:
    """Read one word as YAML (number, truth value, null, ``[...]``, ``{...}``); text stays text."""
    try:
        value = load_yaml(word)
    except yaml.YAMLError:
        return word
    # 'a: b' without braces is text on a command line, and '' is an empty text rather than nothing
    return word if word == "" or (isinstance(value, dict) and not word.startswith("{")) else value


def coerce_file_value(value: Any, annotation: Any, default: Any = MISSING) -> Any:
    """Convert a value from a config file to ``annotation``. Raises ValueError saying what was expected.

    The field's own default is always accepted as it is, so that a resolved config can be read back.
    """
    if default is not MISSING and type(value) is type(default) and value == default:
        return value
    return _convert(value, annotation)


def check_bounds(key: str, value: Any) -> None:
    """Raise ValueError for a number that no run can use: not a number, or outside of what ``key`` allows."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if math.isnan(value):
        raise ValueError("nan is not a number to compute with")
    low, high = _BOUNDS.get(key, (-math.inf, math.inf))
    if value < low:
        raise ValueError(f"must be {low} or more, got {value}")
    if key in _BOUNDS and (value > high or math.isinf(value)):
        raise ValueError(f"must be {'finite' if math.isinf(value) else f'{high} or less'}, got {value}")


def coerce_words(words: list[str], annotation: Any, default: Any = MISSING) -> Any:
    """Convert the command-line words after ``--key`` to ``annotation``. Raises ValueError saying what was expected."""
    if not words:
        if takes_bool(annotation):
            return True
        if _takes(annotation, list, tuple, set):
            return _convert([], annotation)
        raise ValueError(f"needs a value ({type_name(annotation)})")
    first_problem: ValueError | None = None
    for candidate in _candidates(words, annotation):
        try:
            return coerce_file_value(candidate, annotation, default)
        except ValueError as problem:
            first_problem = first_problem or problem
    quote = f"; quote a text of several words: {' '.join(words)!r}" if _takes(annotation, str) else ""
    raise first_problem or ValueError(f"takes one value ({type_name(annotation)}), got {len(words)}{quote}")


def type_name(annotation: Any) -> str:
    """Short readable name of a type: ``int``, ``float | None``, ``one of 'a', 'b'``."""
    names = []
    for member in _members(annotation):
        if typing.get_origin(member) is typing.Literal:
            names.append("one of " + ", ".join(repr(value) for value in typing.get_args(member)))
        elif isinstance(member, type) and issubclass(member, Enum):
            names.append("one of " + ", ".join(repr(item.value) for item in member))
        elif member is type(None):
            names.append("None")
        elif typing.get_origin(member) is None and isinstance(member, type):
            names.append(member.__name__)
        else:
            names.append(str(member).replace("typing.", ""))
    return " | ".join(names)


def jsonable(value: Any) -> Any:
    """A value as JSON types: enums by value, paths as text, tuples and sets as lists, dataclasses as mappings."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: jsonable(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(jsonable(item) for item in value)
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
