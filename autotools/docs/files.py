"""How documentation files are opened: plain or ``.gz``, JSON, JSON lines, and a cheap look at the beginning.

Bytes that are no UTF-8 become the replacement character; a file that cannot be read at all is a DataError.
"""

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from autotools.errors import DataError, ToolDocError

HEAD_CHARS = 4_000
MAX_FILE_BYTES = 1 << 29  # unpacked: a small .gz can hold more than the machine's memory
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.S)
_READ_ERRORS = (OSError, EOFError, zlib.error)


def suffix_of(path: Path) -> str:
    """Lower-case suffix without ``.gz``: ``.jsonl`` for ``corpus.jsonl.gz``."""
    return (Path(path.stem) if path.suffix.lower() == ".gz" else path).suffix.lower()


def stem_of(path: Path) -> str:
    """Name without suffixes: ``tmdb_oas`` for ``tmdb_oas.json.gz``."""
    return Path(path.stem).stem if path.suffix.lower() == ".gz" else path.stem


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb")  # type: ignore[return-value]


def _cannot_read(path: Path, error: BaseException) -> DataError:
    return DataError(f"{path}: cannot read ({getattr(error, 'strerror', None) or error})")


def text_of(path: Path, max_bytes: int = MAX_FILE_BYTES) -> str:
    """Whole text, without a byte order mark. Raises DataError if unreadable or longer than ``max_bytes`` unpacked."""
    try:
        with _open(path) as file:
            content = file.read(max_bytes + 1)
    except _READ_ERRORS as error:
        raise _cannot_read(path, error) from error
    if len(content) > max_bytes:
        raise DataError(f"{path}: longer than {max_bytes:,} bytes; split it")
    return content.decode("utf-8", "replace").removeprefix("\ufeff")


def head_of(path: Path, chars: int = HEAD_CHARS) -> str:
    """The first characters of the (unpacked) text. Raises DataError if unreadable."""
    try:
        with _open(path) as file:
            return file.read(4 * chars).decode("utf-8", "replace").removeprefix("\ufeff")[:chars]
    except _READ_ERRORS as error:
        raise _cannot_read(path, error) from error


def byte_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """(number from 1, line) of every line that is not blank, without a byte order mark. Raises DataError if unreadable.

    Bytes: a line ends at ``\\n`` only, never at U+2028, and can be decoded, and rejected, on its own.
    """
    try:
        with _open(path) as lines:
            for number, line in enumerate(lines, start=1):
                line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                if line.strip():
                    yield number, line
    except _READ_ERRORS as error:
        raise _cannot_read(path, error) from error


def json_lines(path: Path) -> Iterator[tuple[int, str]]:
    """``byte_lines`` as stripped text."""
    for number, line in byte_lines(path):
        if text := line.decode("utf-8", "replace").removeprefix("\ufeff").strip():
            yield number, text


def parse_json(text: str) -> Any:
    """The JSON value of a text. Raises ToolDocError (``not JSON: detail``)."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ToolDocError(f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; thousands of brackets
        raise ToolDocError(f"not JSON: {error}") from error


def read_json(path: Path) -> Any:
    """The JSON value of a whole file. Raises DataError naming it."""
    try:
        return parse_json(text_of(path))
    except ToolDocError as error:
        raise DataError(f"{path}: {error}") from error


def first_keys(head: str) -> list[str]:
    """Keys of the first object of a JSON text that may be cut anywhere: of the outermost one, or the first in a list.

    ``[{"query": 1, "api_list": [{"name": ...`` -> ``["query", "api_list"]``; empty if the text starts otherwise.
    """
    start = re.match(r"\s*(?:\[\s*)?\{", head)
    if not start:
        return []
    keys, depth = [], 1
    for token in _TOKEN.finditer(head, start.end()):
        text = token[0]
        if text in "{[":
            depth += 1
        elif text in "}]":
            depth -= 1
            if not depth:
                break
        elif depth == 1 and head[token.end() : token.end() + 20].lstrip().startswith(":"):
            keys.append(text[1:-1])
    return keys
