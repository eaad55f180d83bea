"""RL prompts: rows of ``data/rl/SPLIT.jsonl`` whose targets the corpus has; all others are set aside with a reason."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotools.errors import DataError
from autotools.search.answer import NameIndex


def read_prompts(
    data: str | Path, names: NameIndex, split: str = "train"
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Usable rows, and rejects ``{"source", "line", "reason"}``; kept + rejected = lines that are not blank.

    Raises DataError if the file is missing, is not text, or holds no usable row.
    """
    path = Path(data) / "rl" / f"{split}.jsonl"
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise DataError(
            f"no RL prompts at {path}; make them with: python -m data_synthesis.build --out {data}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    kept, rejects = [], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        row, problem = _parse(line, names)
        if problem:
            rejects.append({"source": path.name, "line": number, "reason": problem})
        else:
            kept.append(row)
    if not kept:
        first = f"; first: line {rejects[0]['line']}: {rejects[0]['reason']}" if rejects else ""
        raise DataError(f"none of the {len(rejects)} prompts in {path} is usable{first}")
    return kept, rejects


def of_levels(rows: list[dict[str, Any]], levels: Sequence[str], source: str = "the prompts") -> list[dict[str, Any]]:
    """The rows whose ``level`` is one of ``levels``; all for none. Raises DataError for a level that no row has."""
    there = Counter(str(row.get("level", "")) for row in rows)
    for level in levels:
        if level not in there:
            known = ", ".join(f"{name or 'none'} ({count})" for name, count in sorted(there.items()))
            raise DataError(f"level {level!r} in key levels: {source} have none; they have {known}")
    return [row for row in rows if not levels or str(row.get("level", "")) in levels]


def _parse(line: str, names: NameIndex) -> tuple[dict[str, Any], str]:
    """The row, and why it cannot be used (empty if it can).

    Kept are ``id``, ``query``, ``targets`` (each once, as the corpus spells them) and ``level`` ("" if it has none);
    other keys are left out, as a table wants one type per column.
    """
    try:
        row = json.loads(line)
    except ValueError as error:
        return {}, f"not JSON: {error}"
    if not isinstance(row, dict):
        return {}, f"a {type(row).__name__} instead of an object"
    texts = {"id": row.get("id"), "query": row.get("query"), "level": "" if row.get("level") is None else row["level"]}
    for key, text in texts.items():
        if key != "level" and not (isinstance(text, str) and text.strip()):
            return {}, f"{key!r} is not a non-empty text"
        if not isinstance(text, str):
            return {}, f"{key!r} is not a text"
        if not _is_whole(text):
            return {}, f"{key!r} holds half a character (a lone surrogate)"
    targets = row.get("targets")
    if not isinstance(targets, list) or not targets or not all(isinstance(target, str) for target in targets):
        return {}, "'targets' is not a non-empty list of texts"
    found = [names.find(target) for target in targets]
    if None in found:
        outside = targets[found.index(None)]
        return {}, f"target not in the corpus: {outside if _is_whole(outside) else ascii(outside)}"
    return {**texts, "targets": list(dict.fromkeys(map(str, found)))}, ""


def _is_whole(text: str) -> bool:
    """Whether it can be tokenised and stored. JSON can spell half a surrogate pair, which is no text."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
