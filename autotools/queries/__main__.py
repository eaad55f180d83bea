"""``python -m autotools.queries FILE_OR_DIR``: request files with known target tools, and what became of them.

Prints a table (a COLT data set gives a row per split), what was set aside or mended, with counts, and files of no known
form. ``--corpus`` names the tools that there are: then requests with another target are set aside, too, and those
targets are listed. read = kept + rejected, for every file.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotools.config import load_config, run_main
from autotools.errors import DataError
from autotools.listing import print_list, refuse_inputs, refuse_used
from autotools.queries.found import Dangling, RequestFile, dangling, once, sort_out
from autotools.schema import ToolId, ToolSpec

SHOWN = 20  # of dangling targets and of files that were not read


@dataclass(kw_only=True)
class QueriesArgs:
    """Keys of the command."""

    path: str = field(metadata={"help": "request file, or folder to walk; also as the first bare word"})
    corpus: str | None = field(
        default=None, metadata={"help": "tools.jsonl, or any documentation file or folder that autotools.docs reads"}
    )
    suite: str | None = field(default=None, metadata={"help": "name of the suite, in place of the one by content"})
    out: str | None = field(default=None, metadata={"help": "file to write the usable requests to, as Task lines"})
    rejects: str | None = field(default=None, metadata={"help": "file to write every reject to, one a line"})
    overwrite: bool = field(default=False, metadata={"help": "replace files that --out and --rejects name"})


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One line of the table: a file as it was read, and as it is with the corpus (the same without one)."""

    name: str
    suite: str
    found: RequestFile
    kept: RequestFile


def main(argv: list[str] | None = None) -> int:
    """Read, print, write. Returns 0; raises DataError if no request can be used, or a file is missing."""
    config = load_config(
        argv, {"": QueriesArgs}, prog="python -m autotools.queries", description=__doc__ or "", positional="path"
    )
    args = config.top(QueriesArgs)
    refuse_used(args.out, args.rejects, args.overwrite)
    from autotools.queries.forms import walk

    paths = list(walk(Path(args.path)))
    refuse_inputs(args.out, args.rejects, [*paths, *([Path(args.corpus)] if args.corpus else [])])
    if config.dry_run:
        print(f"would look at {len(paths)} files in {args.path}" + (f" and write {args.out}" if args.out else ""))
        return 0
    specs, corpus_unread = corpus_specs(Path(args.corpus)) if args.corpus else ([], [])
    ids = {spec.id for spec in specs} if args.corpus else None
    rows, unread, unknown = _read_all(paths, Path(args.path), args.suite, specs, ids)
    if not any(row.found.read for row in rows):
        why = f"; {unread[0]}" if unread else ""
        raise DataError(f"{args.path}: no requests in {len(paths)} files ({len(unknown)} of no known form){why}")
    lost = dangling([row.found for row in rows], ids) if ids is not None else []
    _write(args, rows)  # first: a reader that leaves (``| head``) costs no file
    _print(rows, lost, ids, unread + corpus_unread, unknown)
    if not any(row.kept.tasks for row in rows):
        requests = sum(row.found.read for row in rows)
        raise DataError(f"{args.path}: none of {requests} requests can be used; why stands above")
    return 0


def corpus_specs(path: Path) -> tuple[list[ToolSpec], list[str]]:
    """The tools of a ``tools.jsonl``, of a folder that holds one, or of documentation in any known form.

    Also what could not be read in a folder: targets may dangle only because of it. Raises DataError if there is no
    tool, or a single file cannot be read.
    """
    from autotools.docs.forms import detect, read_file, walk
    from autotools.rundir import read_jsonl

    if (path / "tools.jsonl").is_file():
        path = path / "tools.jsonl"
    if path.is_file():
        return (read_jsonl(path, ToolSpec) if _is_spec(path) else read_file(path).specs), []
    specs: dict[ToolId, ToolSpec] = {}
    unread = []
    for file in walk(path):
        try:
            for spec in read_file(file).specs if detect(file) else ():
                specs.setdefault(spec.id, spec)
        except DataError as error:
            unread.append(str(error))
    if not specs:
        raise DataError(f"corpus {path} holds no tool; give tools.jsonl or documentation that autotools.docs reads")
    return list(specs.values()), unread


def _is_spec(path: Path) -> bool:
    from autotools.docs.files import json_lines

    if path.suffix != ".jsonl":
        return False
    try:
        row = json.loads(next(json_lines(path), (0, ""))[1])
    except (ValueError, RecursionError):
        return False
    return isinstance(row, dict) and {"id", "tool_name", "api_name"} <= set(row)


def _read_all(
    paths: Sequence[Path], root: Path, suite: str | None, specs: Sequence[ToolSpec], ids: set[ToolId] | None
) -> tuple[list[_Row], list[str], list[str]]:
    """Table rows, files that could not be read (with the reason), files of no known form."""
    from rich.console import Console
    from rich.progress import track

    from autotools.queries.forms import detect, read_any, suite_of

    rows: list[_Row] = []
    unread: list[str] = []
    unknown: list[str] = []
    first: dict[tuple[Any, ...], str] = {}
    for path in track(paths, "reading", console=Console(stderr=True), transient=True):
        name = path.name if path == root else path.relative_to(root).as_posix()
        try:
            form = detect(path)
            if form is None:
                unknown.append(name)
                continue
            parts = read_any(path, form, suite=suite, specs=specs)
        except DataError as error:
            unread.append(str(error))
            continue
        for part in (once(part, first) for part in parts):
            split = {task.split for _, task in part.tasks} if len(parts) > 1 else set()
            row_suite = suite or next((task.suite for _, task in part.tasks), suite_of(path, form))
            kept = sort_out(part, ids) if ids is not None else part
            rows.append(_Row(name=" ".join([name, *split]), suite=row_suite, found=part, kept=kept))
    return rows, unread, unknown


def _print(
    rows: Sequence[_Row], lost: Sequence[Dangling], ids: set[ToolId] | None, unread: list[str], unknown: list[str]
) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    counts = ("read", "kept", "rejected", "repaired", "targets", "dangling")
    table = Table()
    table.add_column("file", overflow="fold")
    table.add_column("suite", overflow="fold")
    for count in counts:
        table.add_column(count, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row.name, row.suite, *_numbers([row], ids))
    if len(rows) > 1:
        table.add_section()
        table.add_row("all", "", *_numbers(rows, ids))
    console.print(table)
    reasons = Counter(reject["reason"] for row in rows for reject in row.kept.rejects)
    repaired = sum((row.found.repaired for row in rows), Counter())
    print_list(console, "rejected", (f"{number} x {why}" for why, number in reasons.most_common()))
    print_list(console, "repaired", (f"{number} x {why}" for why, number in repaired.most_common()))
    wanted = (
        f"{row.target}: wanted {row.requests} times, first by {row.example} ({row.source}:{row.line})" for row in lost
    )
    print_list(console, "targets that the corpus does not hold", wanted, SHOWN, "; see --rejects for all")
    print_list(console, "files that could not be read", unread)
    print_list(console, "files of no known form", unknown, SHOWN)


def _numbers(rows: Sequence[_Row], ids: set[ToolId] | None) -> list[str]:
    parts = [(row.found, row.kept) for row in rows]
    targets = {target for found, _ in parts for _, task in found.tasks for target in task.targets}
    return [
        str(sum(kept.read for _, kept in parts)),
        str(sum(len(kept.tasks) for _, kept in parts)),
        str(sum(len(kept.rejects) for _, kept in parts)),
        str(sum(sum(found.repaired.values()) for found, _ in parts)),
        str(len(targets)),
        "-" if ids is None else str(len(targets - ids)),
    ]


def _write(args: QueriesArgs, rows: Sequence[_Row]) -> None:
    from autotools.rundir import write_jsonl

    if args.rejects:
        write_jsonl(args.rejects, (reject for row in rows for reject in row.kept.rejects))
    if args.out and any(row.kept.tasks for row in rows):
        write_jsonl(args.out, (task for row in rows for _, task in row.kept.tasks))


if __name__ == "__main__":
    run_main(main)
