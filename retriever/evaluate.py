"""``python -m retriever.evaluate --corpus FILE --queries PATH... --encoder bm25 ... --k 1 5 10 20 100 --out FILE``

How well engines find the known targets of requests: Recall, nDCG, COMP (all targets within k) and MRR, over all
requests, per group (level of the request file), per category and per number of targets, with 95 % intervals; and the
ceiling that no searcher can exceed (``retriever.ceiling``). Several encoders give one table; one that cannot be opened
here is listed with the command for a machine that can. Request files: all forms of ``python -m autotools.queries``.
Requests with a target that the corpus does not hold are set aside and counted.
"""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotools.config import load_config, run_main
from autotools.errors import AutoToolsError, ConfigError, DataError
from retriever import cpu_threads

if TYPE_CHECKING:
    from autotools.queries import RequestFile
    from autotools.schema import Task, ToolId, ToolSpec
    from retriever.engine import SearchEngine

BATCH = 256  # requests between two steps of the progress bar


@dataclass(kw_only=True)
class EvaluateArgs:
    """Keys of the command."""

    corpus: str = field(metadata={"help": "tools.jsonl, tool world folder, or documentation file or folder"})
    queries: list[str] = field(metadata={"help": "request files, or folders of them"})
    encoder: list[str] = field(default_factory=lambda: ["bm25"], metadata={"help": "bm25, hybrid, recipe or model"})
    k: list[int] = field(default_factory=lambda: [1, 5, 10, 20, 100], metadata={"help": "cut-offs"})
    out: str | None = field(default=None, metadata={"help": "file for all figures, as JSON"})
    split: str | None = field(default=None, metadata={"help": "only requests of this split (train, dev, test)"})
    constrained: bool = field(default=False, metadata={"help": "also with each search in the category of its targets"})
    turns: int = field(default=7, metadata={"help": "searches of the ceiling"})
    hits: int = field(default=5, metadata={"help": "hits per search of the ceiling"})
    index: str | None = field(default=None, metadata={"help": "index folder; {encoder} stands for the encoder's name"})
    device: str = field(default="auto", metadata={"help": "device of the encoder"})
    threads: int | None = field(default=None, metadata={"help": cpu_threads.HELP})
    seed: int = field(default=0, metadata={"help": "seed of the bootstrap"})
    overwrite: bool = field(default=False, metadata={"help": "replace the file that --out names"})

    def __post_init__(self) -> None:
        for name, value in (("k", min(self.k, default=0)), ("turns", self.turns), ("hits", self.hits)):
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be 1 or more")
        if not self.encoder or not self.queries:
            raise ValueError("encoder and queries need at least one entry each")
        self.k = sorted(set(self.k))
        self.encoder = list(dict.fromkeys(self.encoder))


def main(argv: list[str] | None = None) -> int:
    """Evaluate, print, write. Returns 0.

    Raises AutoToolsError for an unknown encoder, or if none could be opened or no request is left.
    """
    config = load_config(argv, {"": EvaluateArgs}, prog="python -m retriever.evaluate", description=__doc__ or "")
    args = config.top(EvaluateArgs)
    cpu_threads.set_threads(args.threads)
    if args.out and Path(args.out).exists() and not args.overwrite:
        raise ConfigError(f"--out {args.out} exists; give another name, or --overwrite")
    from retriever.corpus import find_corpus, read_corpus
    from retriever.engine import check_encoder

    for encoder in args.encoder:  # a slip of the pen; what is known but not here is listed with its command instead
        check_encoder(encoder)
    if config.dry_run:
        find_corpus(args.corpus)
        print(
            f"would search {args.corpus} for the requests of {', '.join(args.queries)} with {', '.join(args.encoder)}"
        )
        return 0
    from autotools.rundir import write_json
    from retriever.evaluate_table import print_results

    corpus = read_corpus(args.corpus)
    specs = {spec.id: spec for spec in corpus.specs}
    tasks, files = read_requests(args.queries, corpus.specs, args.split)
    results: dict[str, dict[str, Any]] = {}
    failed: dict[str, dict[str, str]] = {}
    for encoder in args.encoder:
        try:
            engine = _open(args, encoder)
            results[encoder] = evaluate(engine, tasks, specs, args)
        except AutoToolsError as error:
            if len(args.encoder) == 1:
                raise
            failed[encoder] = {"reason": str(error), "command": _command(args, encoder)}
    common = {
        "corpus": {"tools": len(specs), "rejected": len(corpus.rejects), "categories": len(corpus.categories)},
        "requests": files, "k": args.k, "seed": args.seed,
    }  # fmt: skip
    if args.out:
        one = next(iter(results.values())) if len(args.encoder) == 1 else {"encoders": results, "not_run": failed}
        write_json(args.out, {**one, **common})
    print_results(results, failed, common)
    if not results:
        raise ConfigError(f"none of the encoders could be opened: {', '.join(args.encoder)}")
    return 0


def read_requests(
    paths: Sequence[str], specs: Sequence["ToolSpec"], split: str | None = None
) -> tuple[list["Task"], list[dict[str, Any]]]:
    """Requests whose targets ``specs`` all holds, and one row of counts per file (read = kept + rejected).

    Raises DataError if a path is missing, a named file has no known form, or no request is left.
    """
    from autotools.queries import dangling, once, sort_out
    from autotools.queries.forms import detect, read_any, walk

    ids = {spec.id for spec in specs}
    tasks: list[Task] = []
    rows: list[dict[str, Any]] = []
    seen: set[Path] = set()
    first: dict[tuple[Any, ...], str] = {}
    for path in map(Path, paths):
        for file in walk(path, seen):
            form = detect(file)
            if form is None and file == path:
                raise DataError(f"{file} is no request file of a known form; see python -m autotools.queries --help")
            for part in read_any(file, form, specs=specs) if form else ():
                part = once(_of_split(part, split), first)
                kept = sort_out(part, ids)
                lost = {str(row.target): row.requests for row in dangling(part, ids)}
                tasks += [task for _, task in kept.tasks]
                counts = {"read": kept.read, "kept": len(kept.tasks), "rejected": len(kept.rejects)}
                rows.append({"file": part.source, **counts, "dangling": lost})
    if not tasks:
        why = f"; {sum(len(row['dangling']) for row in rows)} targets are not in the corpus" if rows else ""
        raise DataError(f"no request with known targets in {', '.join(paths)}{why}")
    return tasks, rows


def _of_split(part: "RequestFile", split: str | None) -> "RequestFile":
    if split is not None:
        part.tasks = [(line, task) for line, task in part.tasks if task.split == split]
    return part


def evaluate(
    engine: "SearchEngine", tasks: Sequence["Task"], specs: dict["ToolId", "ToolSpec"], args: EvaluateArgs
) -> dict[str, Any]:
    """``{"engine", "overall", "by_group", "by_category", "by_num_targets", "ceiling"}``, and the same constrained.

    A request counts in every category that one of its targets is in. Constrained, each pair of request and category
    is a search of its own, whose targets are those of that category. Raises RetrieverError as the engine does.
    """
    from retriever.ceiling import ceiling

    wanted = [(task, None, task.targets) for task in tasks]
    out = {"engine": engine.describe(), **_scored(engine, wanted, args)}
    out["ceiling"] = ceiling(engine, tasks, specs, turns=args.turns, k=args.hits, seed=args.seed)
    if args.constrained:
        pairs = []
        for task in tasks:
            for category in dict.fromkeys(target.category for target in task.targets):
                pairs.append((task, category, tuple(t for t in task.targets if t.category == category)))
        out["constrained"] = _scored(engine, pairs, args)
        limits = {"turns": args.turns, "k": args.hits, "seed": args.seed, "constrained": True}
        out["constrained"]["ceiling"] = ceiling(engine, tasks, specs, **limits)
    out["counters"] = engine.counters()
    return out


def _scored(
    engine: "SearchEngine", wanted: Sequence[tuple["Task", str | None, Sequence["ToolId"]]], args: EvaluateArgs
) -> dict[str, Any]:
    from rich.console import Console
    from rich.progress import track

    from retriever.ranking_metrics import all_scores, summary

    several = len({task.suite for task, _, _ in wanted}) > 1
    groups: dict[str, dict[str, list[dict[str, float]]]] = {"by_group": {}, "by_category": {}, "by_num_targets": {}}
    rows = []
    starts = range(0, len(wanted), BATCH)
    for start in track(starts, "searching", console=Console(stderr=True), transient=True):
        batch = wanted[start : start + BATCH]
        categories = [category for _, category, _ in batch]
        found = engine.search_batch([task.query for task, _, _ in batch], categories, max(args.k))
        for (task, _, targets), hits in zip(batch, found, strict=True):
            row = all_scores([hit.id for hit in hits], targets, args.k)
            rows.append(row)
            group = f"{task.suite}/{task.level}" if several else task.level
            groups["by_group"].setdefault(group, []).append(row)
            groups["by_num_targets"].setdefault(str(len(targets)), []).append(row)
            for category in {target.category for target in targets}:
                groups["by_category"].setdefault(category, []).append(row)
    out: dict[str, Any] = {"overall": summary(rows, args.seed)}
    for name, parts in groups.items():
        order: Iterable[str] = sorted(parts, key=int) if name == "by_num_targets" else sorted(parts)
        out[name] = {part: summary(parts[part], args.seed) for part in order}
    return out


def _open(args: EvaluateArgs, encoder: str) -> "SearchEngine":
    from retriever.engine import open_engine

    index = args.index.replace("{encoder}", encoder.replace("/", "_")) if args.index else None
    return open_engine(args.corpus, encoder, index=None if encoder == "bm25" else index, device=args.device)


def _command(args: EvaluateArgs, encoder: str) -> str:
    """The command that evaluates one encoder, for a machine that has it."""
    words = ["--corpus", args.corpus, "--queries", *args.queries, "--encoder", encoder, "--k", *map(str, args.k)]
    words += ["--turns", str(args.turns), "--hits", str(args.hits)]
    words += ["--split", args.split] if args.split else []
    words += ["--constrained"] if args.constrained else []
    return shlex.join(["python", "-m", "retriever.evaluate", *words, "--out", f"{encoder.replace('/', '_')}.json"])


if __name__ == "__main__":
    run_main(main)
