"""``python -m autotools.docs FILE_OR_DIR``: tool documentation in any known form, and what became of each document.

Prints a table, what was set aside or repaired, with counts, and the files that were not read. For every file
read = kept + repeated + rejected. With ``--out`` the tools of all files are written as one corpus: a document that
another file has, too, is written once, and another document of an id that is taken is set aside.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotools.config import load_config, run_main
from autotools.docs import AUTH_NOTE
from autotools.docs.reading import Reading
from autotools.errors import ConfigError, DataError
from autotools.listing import print_list, refuse_inputs, refuse_used
from autotools.schema import ToolId, ToolSpec

SHOWN = 20  # files that were not read


@dataclass(kw_only=True)
class DocsArgs:
    """Keys of the command."""

    path: str = field(metadata={"help": "documentation file, or folder to walk; also as the first bare word"})
    form: str | None = field(default=None, metadata={"help": "read every file as this form, in place of its own"})
    out: str | None = field(default=None, metadata={"help": "file to write the tools to: tools.jsonl"})
    rejects: str | None = field(default=None, metadata={"help": "file to write every reject to, one a line"})
    overwrite: bool = field(default=False, metadata={"help": "replace files that --out and --rejects name"})


@dataclass(kw_only=True)
class Found:
    """What a walk gave: readings by file name, files that could not be read (with the reason), of no known form."""

    readings: dict[str, Reading] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def main(argv: list[str] | None = None) -> int:
    """Read, print, write. Returns 0; raises DataError if there is no tool, ConfigError on an --out in use or read."""
    config = load_config(
        argv, {"": DocsArgs}, prog="python -m autotools.docs", description=__doc__ or "", positional="path"
    )
    args = config.top(DocsArgs)
    refuse_used(args.out, args.rejects, args.overwrite)
    from autotools.docs.forms import forms, walk

    if args.form and args.form not in forms():
        raise ConfigError(f"no form {args.form!r}; known are {', '.join(forms())}")
    files = walk(Path(args.path))
    refuse_inputs(args.out, args.rejects, files)
    if config.dry_run:
        print(f"would look at {len(files)} files in {args.path}" + (f" and write {args.out}" if args.out else ""))
        return 0
    found = read_all(files, Path(args.path), args.form)
    specs, clashes = one_corpus(found.readings)
    if not any(reading.read for reading in found.readings.values()):
        why = f"; {found.unread[0]}" if found.unread else ""
        raise DataError(
            f"{args.path}: no tool documentation in {len(files)} files ({len(found.unknown)} of no known form){why}"
        )
    _print(found, len(specs), clashes)
    _write(args, found, specs, clashes)
    if not specs:
        documents = sum(reading.read for reading in found.readings.values())
        raise DataError(f"{args.path}: none of {documents} documents gives a tool; why stands above")
    return 0


def read_all(files: Sequence[Path], root: Path, form: str | None = None) -> Found:
    """Read files one by one, with a progress bar on stderr; names are relative to ``root``."""
    from rich.console import Console
    from rich.progress import track

    from autotools.docs.forms import detect, read_file

    found = Found()
    for path in track(files, "reading", console=Console(stderr=True), transient=True):
        name = path.name if path == root else path.relative_to(root).as_posix()
        try:
            if form or detect(path):
                found.readings[name] = read_file(path, form)
            else:
                found.unknown.append(name)
        except DataError as error:
            found.unread.append(str(error))
    return found


def one_corpus(readings: dict[str, Reading]) -> tuple[list[ToolSpec], list[dict[str, Any]]]:
    """(tools of all files, each id once; rejects for other documents of an id that an earlier file has)."""
    first: dict[ToolId, tuple[str, ToolSpec]] = {}
    clashes = []
    for name, reading in readings.items():
        for spec in reading.specs:
            file, kept = first.setdefault(spec.id, (name, spec))
            if kept is not spec and kept != spec:
                detail = f"{spec.id} (first in {file})"
                reason = "another document of an id that an earlier file has"
                clashes.append({"source": name, "line": 0, "reason": reason, "detail": detail})
    return [spec for _, spec in first.values()], clashes


def _print(found: Found, tools: int, clashes: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table()
    table.add_column("file", overflow="fold")
    table.add_column("form", overflow="fold")
    for count in ("read", "kept", "repeated", "rejected", "repaired"):
        table.add_column(count, justify="right", no_wrap=True)
    for name, reading in found.readings.items():
        table.add_row(name, reading.form, *_numbers([reading]))
    if len(found.readings) > 1:
        table.add_section()
        table.add_row("all", "", *_numbers(found.readings.values()))
    console.print(table)
    reasons = Counter(row["reason"] for reading in found.readings.values() for row in reading.rejects)
    notes = sum((reading.repaired for reading in found.readings.values()), Counter())
    print_list(console, "rejected", (f"{number} x {why}" for why, number in reasons.most_common()))
    print_list(console, "notes on kept tools", (f"{number} x {note}" for note, number in notes.most_common()))
    kept = sum(len(reading.specs) for reading in found.readings.values())
    if len(found.readings) > 1:
        again = kept - tools - len(clashes)
        more = f"{again} repeat a document of another file, {len(clashes)} clash with another one of their id"
        console.print(f"as one corpus: {tools} tools; {more}", markup=False, highlight=False)
    print_list(console, "files that could not be read", found.unread)
    print_list(console, "files of no known form", found.unknown, SHOWN)


def _numbers(readings: Iterable[Reading]) -> list[str]:
    readings = list(readings)
    return [
        str(sum(reading.read for reading in readings)),
        str(sum(len(reading.specs) for reading in readings)),
        str(sum(reading.repeated for reading in readings)),
        str(sum(len(reading.rejects) for reading in readings)),
        str(sum(_is_repaired(spec) for reading in readings for spec in reading.specs)),
    ]


def _is_repaired(spec: ToolSpec) -> bool:
    return any(not note.startswith(AUTH_NOTE) for note in spec.notes)  # to need a key is no fault


def _write(args: DocsArgs, found: Found, specs: Sequence[ToolSpec], clashes: list[dict[str, Any]]) -> None:
    from autotools.rundir import write_jsonl

    if args.rejects:
        rows = [row | {"source": name} for name, reading in found.readings.items() for row in reading.rejects]
        write_jsonl(args.rejects, [*rows, *clashes])
    if args.out and specs:
        write_jsonl(args.out, specs)


if __name__ == "__main__":
    run_main(main)
