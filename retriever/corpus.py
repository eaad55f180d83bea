"""The corpus: tool documents read from a ``tools.jsonl`` file, and the text an engine indexes for each.

A bad line never stops a run and never vanishes: it is kept as a reject (line, reason), and kept + rejected = read.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from autotools.errors import DataError
from autotools.rundir import refuse_half
from autotools.schema import ToolSpec

TEMPLATE_VERSION = "names-description-parameters/1"  # goes into manifests: another template is another index


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Tools that can be searched, in file order, and the lines that could not be used."""

    specs: tuple[ToolSpec, ...]
    rejects: tuple[dict[str, Any], ...]  # {"source": file name, "line": 1-based, "reason": text, "text": the line}
    read: int  # non-blank lines; = len(specs) + len(rejects)

    @property
    def categories(self) -> tuple[str, ...]:
        """Raw category names that occur, sorted."""
        return tuple(sorted({spec.id.category for spec in self.specs}))


def read_corpus(path: str | Path) -> Corpus:
    """Read ``tools.jsonl`` (or the tool world folder that holds one).

    Raises DataError if the file is missing, empty, or holds no usable tool at all, or if its folder is half made.
    """
    file = Path(path)
    if file.is_dir():
        file = file / "tools.jsonl"
    refuse_half(file.parent)
    if not file.is_file():
        raise DataError(f"tool corpus {file} does not exist; make one with: python -m toolworld.build --out DIR")
    specs: list[ToolSpec] = []
    rejects: list[dict[str, Any]] = []
    first_line: dict[str, int] = {}
    with file.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            spec = _parse(line)
            reason = spec if isinstance(spec, str) else None
            if isinstance(spec, ToolSpec):
                first = first_line.setdefault(str(spec.id), number)
                if first == number:
                    specs.append(spec)
                else:
                    reason = f"duplicate id: {spec.id} already stands in line {first}"
            if reason:
                rejects.append({"source": file.name, "line": number, "reason": reason, "text": line.strip()[:500]})
    if not specs:
        why = (
            f"; first reject: line {rejects[0]['line']}: {rejects[0]['reason']}" if rejects else " (the file is empty)"
        )
        raise DataError(f"tool corpus {file} holds no usable tool{why}")
    return Corpus(specs=tuple(specs), rejects=tuple(rejects), read=len(specs) + len(rejects))


def load_tools(path: str | Path) -> list[ToolSpec]:
    """The usable tools of a corpus file. Raises DataError as ``read_corpus``; use that one to see the rejects."""
    return list(read_corpus(path).specs)


def short_text(spec: ToolSpec) -> str:
    """What a searcher is shown of a tool: its description on one line (the id travels beside it)."""
    return " ".join((spec.description or spec.tool_description or spec.api_name).split())


def document_text(spec: ToolSpec) -> str:
    """Text an engine indexes: names first (identifier and display form), then descriptions, then parameters.

    The version of this template is ``TEMPLATE_VERSION``; a change must change both.
    """
    lines = [f"{spec.id.tool} {spec.id.api}", f"{spec.tool_name}: {spec.api_name}"]
    lines += [text for text in (spec.description, spec.tool_description) if text]
    if spec.parameters:
        lines.append("parameters: " + ", ".join(_parameter_text(p.name, p.description) for p in spec.parameters))
    return "\n".join(lines)


def document_texts(specs: Sequence[ToolSpec]) -> list[str]:
    """``document_text`` of each spec, same order."""
    return [document_text(spec) for spec in specs]


def _parameter_text(name: str, description: str) -> str:
    return f"{name} ({description})" if description else name


def _parse(line: str) -> ToolSpec | str:
    """A spec, or the reason why the line is none."""
    try:
        return ToolSpec.model_validate(json.loads(line))
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg} at column {error.colno}"
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "record"
        return f"not a tool: {where}: {first['msg']}"
