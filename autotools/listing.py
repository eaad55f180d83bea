"""What the reading commands (``autotools.docs``, ``autotools.queries``) share: lists on the screen, files to write."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from autotools.errors import ConfigError


def print_list(console: Any, title: str, lines: Iterable[str], limit: int | None = None, more: str = "") -> None:
    """Print a title with the count and one indented line each; nothing for an empty list.

    Beyond ``limit`` lines the rest is only counted, and ``more`` says where it can be found.
    """
    lines = list(lines)
    if not lines:
        return
    console.print(f"{title} ({len(lines)}):", markup=False, highlight=False)
    for line in lines[:limit]:
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
    if limit and len(lines) > limit:
        console.print(f"  and {len(lines) - limit} others{more}", markup=False, highlight=False)


def refuse_used(out: str | None, rejects: str | None, overwrite: bool) -> None:
    """Raise ConfigError if ``--out`` or ``--rejects`` exists (without ``--overwrite``), or if both are one file."""
    for key, name in (("out", out), ("rejects", rejects)):
        if name and Path(name).exists() and not overwrite:
            raise ConfigError(f"--{key} {name} exists; give another name, or --overwrite")
    if out and rejects and Path(out).resolve() == Path(rejects).resolve():
        raise ConfigError(f"--out and --rejects are both {out}")


def refuse_inputs(out: str | None, rejects: str | None, inputs: Iterable[Path]) -> None:
    """Raise ConfigError if ``--out`` or ``--rejects`` is a file that is read, also as one of a folder among them."""
    read = {path.resolve() for path in inputs}
    for key, name in (("out", out), ("rejects", rejects)):
        path = Path(name).resolve() if name else None
        if path and (path in read or (path.is_file() and path.parent in read)):
            raise ConfigError(f"--{key} {name} is one of the files that are read; give another name")
