"""The corpus: tool documents of a file or folder, checked, each id once. ``render`` makes the text that is indexed.

A bad record never stops a run and never vanishes: read = kept + repeated + rejected, with line and reason.
"""

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from autotools.docs.files import byte_lines, suffix_of
from autotools.errors import DataError
from autotools.rundir import refuse_half
from autotools.schema import ToolId, ToolSpec
from retriever.render import TEMPLATE_VERSION, document_text, document_texts, response_keys, short_text

__all__ = [
    "TEMPLATE_VERSION", "Corpus", "document_text", "document_texts", "load_tools", "read_corpus", "short_text",
]  # fmt: skip

MAX_LINE_BYTES = 1_000_000  # of one tool: longer ones are data, not documentation
MAX_NAME_CHARS = 500
_SPEC_KEYS = {"id", "tool_name", "api_name"}
_LOOKED_AT = 20  # lines that may tell the form: the first one may be a broken one
_said: set[tuple[str, int]] = set()  # what a process has warned of: engines and names read the same corpus twice


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Tools that can be searched, in file order, and the records that could not be used."""

    specs: tuple[ToolSpec, ...]
    rejects: tuple[dict[str, Any], ...]  # {"source": file name, "line": 1-based, "reason": text, ...}
    read: int  # records; = len(specs) + repeated + len(rejects)
    repeated: int = 0  # documents that stand in a documentation file twice, word for word

    @property
    def categories(self) -> tuple[str, ...]:
        """Raw category names that occur, sorted."""
        return tuple(sorted({spec.id.category for spec in self.specs}))


@dataclass
class _Gathered:
    specs: list[ToolSpec] = field(default_factory=list)
    rejects: list[dict[str, Any]] = field(default_factory=list)
    repeated: int = 0
    place_of: dict[str, str] = field(default_factory=dict)

    def add(self, source: str, line: int, spec: ToolSpec | str, text: str = "") -> None:
        """Keep a spec whose id is new, else reject it with the reason (or with the one given in its place)."""
        reason = spec if isinstance(spec, str) else _fault(spec)
        if not reason and isinstance(spec, ToolSpec):
            name = str(spec.id)
            if name not in self.place_of:
                self.place_of[name] = f"line {line}" if line else source
                self.specs.append(spec)
                return
            reason = f"duplicate id: {name} already stands in {self.place_of[name]}"
        self.rejects.append({"source": source, "line": line, "reason": reason, "text": text[:500]})


def read_corpus(path: str | Path) -> Corpus:
    """Read ``tools.jsonl``, a tool world folder, or any documentation file (or folder) that ``autotools.docs`` reads.

    Records that are set aside are said once on stderr, with the first reason. Raises DataError if the file is missing,
    unreadable, of no known form, empty, or holds no usable tool at all, or if its folder is half made.
    """
    file = find_corpus(path)
    out = _Gathered()
    if file.is_dir():
        _read_folder(file, out)
    elif _holds_specs(file):
        for number, line in byte_lines(file):
            out.add(file.name, number, *_parse(line))
    else:
        _read_documents(file, file.name, out)
    if not out.specs:
        first = next(iter(out.rejects), None)
        why = f"; first reject: line {first['line']}: {first['reason']}" if first else " (it is empty)"
        raise DataError(f"tool corpus {file} holds no usable tool{why}")
    read = len(out.specs) + out.repeated + len(out.rejects)
    corpus = Corpus(specs=tuple(out.specs), rejects=tuple(out.rejects), read=read, repeated=out.repeated)
    _warn(corpus, file)
    return corpus


def _warn(corpus: Corpus, file: Path) -> None:
    seen = (str(file.resolve()), len(corpus.rejects))
    if not corpus.rejects or seen in _said or int(os.environ.get("RANK", "0")) != 0:
        return
    _said.add(seen)
    first = corpus.rejects[0]
    where = f"line {first['line']}" if first["source"] == file.name else f"{first['source']}, line {first['line']}"
    count = f"{len(corpus.rejects)} of {corpus.read} records set aside"
    print(f"warning: {file}: {count}; first: {where}: {first['reason']}", file=sys.stderr)


def find_corpus(path: str | Path) -> Path:
    """The file (or folder of documents) that ``read_corpus`` reads. Raises DataError if it is missing or half made."""
    path = Path(path)
    folder = path if path.is_dir() else path.parent
    refuse_half(folder)
    # a folder that one of our stages made is a world or nothing: its documents would give every tool several times
    ours = (folder / "manifest.json").is_file() or (folder / "tools.jsonl").is_file()
    file = path / "tools.jsonl" if path.is_dir() and ours else path
    if not file.exists():
        raise DataError(f"tool corpus {file} does not exist; make one with: python -m toolworld.build --out DIR")
    return file


def load_tools(path: str | Path) -> list[ToolSpec]:
    """The usable tools of a corpus. Raises DataError as ``read_corpus``; use that one to see the rejects."""
    return list(read_corpus(path).specs)


def _read_folder(folder: Path, out: _Gathered) -> None:
    from autotools.docs.forms import detect, walk

    for file in walk(folder):
        source = file.relative_to(folder).as_posix()
        try:
            if detect(file):
                _read_documents(file, source, out)
        except DataError as error:
            out.add(source, 0, f"file cannot be read: {error}")
    if not out.specs and not out.rejects:
        raise DataError(f"tool corpus {folder} holds neither tools.jsonl nor a documentation file of a known form")


def _read_documents(file: Path, source: str, out: _Gathered) -> None:
    from autotools.docs.forms import read_file

    reading = read_file(file)
    out.repeated += reading.repeated
    out.rejects += [{**row, "source": source} for row in reading.rejects]
    for spec in reading.specs:
        out.add(source, 0, spec)  # a documentation file has records within records: no line to name


def _holds_specs(file: Path) -> bool:
    """Whether a file is JSON lines of ToolSpecs; so is one of no known form, whose lines then are the rejects."""
    from autotools.docs.forms import detect

    if suffix_of(file) != ".jsonl":
        return False
    for number, line in byte_lines(file):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict) and row.keys() >= _SPEC_KEYS:
            return True
        if number >= _LOOKED_AT:
            break
    return detect(file) is None


def _parse(line: bytes) -> tuple[ToolSpec | str, str]:
    """A spec, or the reason why the line is none; and the line as text."""
    if len(line) > MAX_LINE_BYTES:
        shown = line[:500].decode("utf-8", "replace")
        return f"too long: {len(line):,} bytes, the limit is {MAX_LINE_BYTES:,}", shown
    try:
        text = line.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        shown = line.decode("utf-8", "replace").strip()
        return f"not UTF-8: byte 0x{line[error.start]:02x} at byte {error.start + 1} of the line", shown
    try:
        return ToolSpec.model_validate(json.loads(text)), text
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg} at column {error.colno}", text
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "record"
        return f"not a tool: {where}: {first['msg']}", text
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, thousands of brackets
        return f"not JSON: {error}", text


def _fault(spec: ToolSpec) -> str:
    """Why a spec that is well formed cannot be searched or shown; empty if it can."""
    name = max((spec.tool_name, spec.api_name, *_parts(spec.id)), key=len)
    if len(name) > MAX_NAME_CHARS:
        return f"name of {len(name):,} characters; the limit is {MAX_NAME_CHARS}"
    for text in _texts(spec):
        if "\0" in text:
            return f"NUL character in {text.replace(chr(0), '?')[:60]!r}"
        if not text.isascii() and text.encode("utf-8", "replace").decode() != text:
            return f"half of a surrogate pair in {text.encode('utf-8', 'replace').decode()[:60]!r}"
    try:
        read_back = ToolId.parse(str(spec.id))
    except ValueError:
        read_back = None
    return "" if read_back == spec.id else f"id {str(spec.id)!r} does not read back as category.tool.api"


def _parts(tool: ToolId) -> tuple[str, str, str]:
    return tool.category, tool.tool, tool.api


def _texts(spec: ToolSpec) -> Iterable[str]:
    yield from (*_parts(spec.id), spec.tool_name, spec.api_name, spec.description, spec.tool_description)
    for parameter in spec.parameters:
        yield parameter.name
        yield parameter.description
    yield from response_keys(spec.response)
