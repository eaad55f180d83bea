"""YAML files as JSON values: keys are text, dates are text, aliases cannot blow a document up."""

import math
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from autotools.docs.files import text_of
from autotools.errors import DataError

MAX_NODES = 2_000_000  # aliases of aliases double at each level: a page of text can stand for millions of nodes
MAX_DEPTH = 200
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(path: Path) -> Any:
    """The value of a YAML file, as JSON would hold it. Raises DataError naming the file."""
    try:
        return _Json(path).of(yaml.load(text_of(path), _LOADER), 0)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: the date 2024-13-45
        raise DataError(f"{path}: not YAML: {' '.join(str(error).split())[:200]}") from error


class _Json:
    def __init__(self, path: Path) -> None:
        self.path, self.nodes = path, 0

    def of(self, node: Any, depth: int) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES or depth > MAX_DEPTH:
            raise DataError(f"{self.path}: YAML with more than {MAX_NODES:,} values or {MAX_DEPTH} levels")
        if isinstance(node, dict):
            return {self._key(key): self.of(value, depth + 1) for key, value in node.items()}
        if isinstance(node, list | tuple | set):
            return [self.of(value, depth + 1) for value in node]
        if isinstance(node, date):  # a datetime is one, too
            return node.isoformat()
        if isinstance(node, float) and not math.isfinite(node) or isinstance(node, bytes):
            return None
        if isinstance(node, int) and not isinstance(node, bool) and abs(node) >= 10**30:  # hexadecimal, of any length
            return None
        return node

    def _key(self, key: Any) -> str:
        """``200:`` and ``on:`` are a number and a truth value to YAML, and text to everybody who writes them."""
        if isinstance(key, bool):
            return "true" if key else "false"
        return key if isinstance(key, str) else str(self.of(key, 0))
