"""The forms of documentation files that can be read, and which of them a file has: one table for all users."""

import importlib
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import ModuleType

from autotools.docs.files import HEAD_CHARS, head_of, json_lines, suffix_of, text_of
from autotools.docs.reading import Reading
from autotools.errors import DataError

NAMES = (  # modules of this package, each with FORM, matches(path, head) and read(path); the first that matches reads
    "openapi", "rapidapi", "endpoints", "query_objects", "corpus", "toolenv", "colt", "toolalpaca", "tooleyes",
    "apibank", "appworld", "markdown",
)  # fmt: skip
MAX_DETECT_BYTES = 1 << 26
_SUFFIXES = (".json", ".jsonl", ".yaml", ".yml", ".csv", ".py", ".md")
_LINES_LOOKED_AT = 20  # the first one may be a broken one


@lru_cache(maxsize=1)
def forms() -> dict[str, ModuleType]:
    """Reader modules by form name, in the order in which they are asked."""
    modules = [importlib.import_module(f"autotools.docs.{name}") for name in NAMES]
    return {module.FORM: module for module in modules}


def detect(path: Path) -> ModuleType | None:
    """The reader module of a file; None if no form fits. Raises DataError if the file cannot be read.

    The first 4,000 characters tell it for most files; where a key of the form comes later, the rest is looked at.
    """
    if suffix_of(path) not in _SUFFIXES:
        return None
    return next((module for head in _heads(path) for module in forms().values() if module.matches(path, head)), None)


def _heads(path: Path) -> Iterator[str]:
    head = head_of(path)
    yield head
    if suffix_of(path) == ".jsonl":
        yield from (text for _, text in islice(json_lines(path), _LINES_LOOKED_AT))
    elif len(head) == HEAD_CHARS and suffix_of(path) in (".json", ".yaml", ".yml"):
        yield text_of(path, MAX_DETECT_BYTES)


def read_file(path: Path, form: str | None = None) -> Reading:
    """All tools of one file, read as ``form``, else as the form that it has.

    Raises DataError if the file is missing or unreadable, has no known form, or ``form`` is none.
    """
    if form is not None and form not in forms():
        raise DataError(f"no form {form!r}; known are {', '.join(forms())}")
    if not path.is_file():
        raise DataError(f"{path} is not a file")
    module = forms()[form] if form else detect(path)
    if module is None:
        raise DataError(f"{path} has no known form; name one of {', '.join(forms())}")
    return module.read(path)


def walk(path: Path) -> list[Path]:
    """The file itself, or all files below a folder in order, hidden ones left out. Raises DataError if missing."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataError(f"{path} does not exist; give a documentation file or a folder of them")
    below = (child for child in sorted(path.rglob("*")) if child.is_file())
    return [child for child in below if not any(part.startswith(".") for part in child.relative_to(path).parts)]
