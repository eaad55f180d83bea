"""``python -m retriever.corpus_report FILE [--out report.json]``: what a corpus holds that makes searching hard.

Exact and near duplicates (a searcher cannot tell them apart, so targets among them are luck), empty descriptions,
lengths, category sizes, names that several tools have, and what was set aside when the corpus was read. Duplicates are
judged by the text that is indexed, without the names: another name for the same document is still a duplicate.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotools.config import load_config, run_main
from autotools.errors import ConfigError
from autotools.schema import ToolSpec
from retriever.render import body_text, document_text

SHOWN = 10  # entries of a list on the screen; the file has all
BLOCK = 512  # rows of the similarity matrix at a time
MIN_WORDS = 3  # of a document without names: "get users" is the same text in many tools, but no copy


@dataclass(kw_only=True)
class ReportArgs:
    """Keys of the command."""

    corpus: str = field(metadata={"help": "tools.jsonl, world folder or documentation; also as the first bare word"})
    out: str | None = field(default=None, metadata={"help": "file for the whole report, as JSON"})
    near: float = field(default=0.9, metadata={"help": "least cosine (TF-IDF) of near duplicates"})
    overwrite: bool = field(default=False, metadata={"help": "replace the file that --out names"})

    def __post_init__(self) -> None:
        if not 0 < self.near <= 1:
            raise ValueError(f"near is {self.near}; it lies above 0 and at most at 1")


def main(argv: list[str] | None = None) -> int:
    """Read, print, write. Returns 0; raises DataError as ``read_corpus``."""
    config = load_config(
        argv, {"": ReportArgs}, prog="python -m retriever.corpus_report", description=__doc__ or "", positional="corpus"
    )
    args = config.top(ReportArgs)
    if args.out and Path(args.out).exists() and not args.overwrite:
        raise ConfigError(f"--out {args.out} exists; give another name, or --overwrite")
    from retriever.corpus import find_corpus, read_corpus

    if config.dry_run:
        find_corpus(args.corpus)
        print(f"would report on {args.corpus}" + (f" and write {args.out}" if args.out else ""))
        return 0
    from autotools.rundir import write_json

    corpus = read_corpus(args.corpus)
    reasons = Counter(reject["reason"].partition(":")[0] for reject in corpus.rejects)
    counts = {"read": corpus.read, "kept": len(corpus.specs), "repeated": corpus.repeated, "rejected": dict(reasons)}
    found = {"records": counts, **report(corpus.specs, args.near)}
    if args.out:
        write_json(args.out, found)
    _print(found)
    return 0


def report(specs: Sequence[ToolSpec], near: float = 0.9) -> dict[str, Any]:
    """All figures as JSON types; lists of ids are sorted, groups by size. ``near``: cosine, see ``near_duplicates``."""
    bodies = [body_words(spec) for spec in specs]
    ids = [str(spec.id) for spec in specs]
    by_body: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, body in zip(ids, bodies, strict=True):
        if len(body) >= MIN_WORDS:
            by_body[body].append(name)
    exact = _groups(by_body.values())
    firsts = [(names[0], body) for body, names in by_body.items()]  # one of each group: copies would be near anyway
    categories = Counter(spec.id.category for spec in specs)
    return {
        "tools": len(specs),
        "exact_duplicates": {"tools": sum(map(len, exact)), "groups": exact},
        "near_duplicates": {"cosine": near, **near_duplicates(firsts, near)},
        "empty_descriptions": sorted(
            name for name, spec in zip(ids, specs, strict=True) if not spec.description.strip()
        ),
        "lengths": {
            "characters": _spread([len(spec.description) for spec in specs]),
            "words": _spread([len(spec.description.split()) for spec in specs]),
            "indexed_characters": _spread([len(document_text(spec)) for spec in specs]),
            "parameters": _spread([len(spec.parameters) for spec in specs]),
        },
        "categories": dict(sorted(categories.items(), key=lambda item: (-item[1], item[0]))),
        "collisions": collisions(specs),
    }


def body_words(spec: ToolSpec) -> tuple[str, ...]:
    """Words, lower case, of descriptions, parameters and response keys: the indexed text without its names."""
    return tuple(re.findall(r"[^\W_]+", body_text(spec).lower()))


def near_duplicates(documents: Sequence[tuple[str, Sequence[str]]], near: float) -> dict[str, Any]:
    """``{"tools", "pairs": [[id, id, cosine], ...]}``: pairs of TF-IDF vectors with at least that cosine, best first.

    Weights: count times log(n / holders) + 1, length 1. Exact: all pairs are compared, in blocks of a sparse product.
    """
    from scipy import sparse

    if len(documents) < 2:
        return {"tools": 0, "pairs": []}
    import numpy as np

    words = {word: number for number, word in enumerate(sorted({word for _, body in documents for word in body}))}
    rows, columns = [], []
    for row, (_, body) in enumerate(documents):
        rows += [row] * len(body)
        columns += [words[word] for word in body]
    counts = sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(documents), len(words)))
    holders = np.asarray((counts > 0).sum(axis=0)).ravel()
    weights = counts.multiply(np.log(len(documents) / holders) + 1).tocsr()
    weights = sparse.diags(1 / np.sqrt(np.asarray(weights.multiply(weights).sum(axis=1)).ravel())) @ weights
    pairs = []
    for start in range(0, len(documents), BLOCK):
        block = (weights[start : start + BLOCK] @ weights.T).tocoo()
        close = (block.data >= near - 1e-9) & (block.row + start < block.col)
        found = zip(block.row[close].tolist(), block.col[close].tolist(), block.data[close].tolist(), strict=True)
        for row, column, cosine in found:
            pairs.append([*sorted((documents[start + row][0], documents[column][0])), round(cosine, 4)])
    pairs.sort(key=lambda pair: (-pair[2], pair[:2]))
    return {"tools": len({name for pair in pairs for name in pair[:2]}), "pairs": pairs}


def collisions(specs: Sequence[ToolSpec]) -> dict[str, Any]:
    """Names that do not tell tools apart.

    ``api_names``: names that several tools have, with how many; ``tool_names``: pairs of tool and API in several
    categories (ids where only the category differs); ``ids``: ids that differ only in case or signs.
    """
    apis = Counter(spec.id.api for spec in specs)
    pairs: dict[tuple[str, str], list[str]] = defaultdict(list)
    alike: dict[str, list[str]] = defaultdict(list)
    for spec in specs:
        pairs[spec.id.tool, spec.id.api].append(str(spec.id))
        alike["".join(re.findall(r"[^\W_]", str(spec.id).lower()))].append(str(spec.id))
    return {
        "api_names": {name: number for name, number in apis.most_common() if number > 1},
        "tool_names": _groups(pairs.values()),
        "ids": _groups(alike.values()),
    }


def _groups(groups: Iterable[Sequence[str]]) -> list[list[str]]:
    """Groups of more than one, the largest first."""
    return sorted((sorted(group) for group in groups if len(group) > 1), key=lambda group: (-len(group), group))


def _spread(values: Sequence[int]) -> dict[str, float]:
    import numpy as np

    at = {"min": 0, "p5": 5, "median": 50, "p95": 95, "p99": 99, "max": 100}
    return {"mean": round(float(np.mean(values)), 1)} | {k: float(np.percentile(values, q)) for k, q in at.items()}


def _print(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(title="corpus")
    table.add_column("what")
    table.add_column("number", justify="right")
    exact, near, names = found["exact_duplicates"], found["near_duplicates"], found["collisions"]
    records = found["records"]
    for what, number in (
        ("records read", records["read"]), ("tools", found["tools"]), ("repeated word for word", records["repeated"]),
        *((f"rejected: {why}", number) for why, number in records["rejected"].items()),
        ("tools with an exact copy", exact["tools"]), ("  groups of such", len(exact["groups"])),
        (f"tools with a near duplicate (cosine {near['cosine']})", near["tools"]),
        ("without description", len(found["empty_descriptions"])), ("categories", len(found["categories"])),
        ("API names of several tools", len(names["api_names"])),
        ("same tool and API in several categories", len(names["tool_names"])),
        ("ids that differ in case or signs only", len(names["ids"])),
    ):  # fmt: skip
        table.add_row(what, f"{number:,}")
    console.print(table)
    columns = list(next(iter(found["lengths"].values())))
    lengths = Table("length of", *columns, title="lengths")
    for what, spread in found["lengths"].items():
        lengths.add_row(what.replace("_", " "), *(f"{spread[column]:,.0f}" for column in columns))
    console.print(lengths)
    _list(console, "largest categories", (f"{name}: {n:,}" for name, n in found["categories"].items()))
    _list(console, "most frequent API names", (f"{name}: {n:,}" for name, n in names["api_names"].items()))
    _list(console, "exact copies", (f"{len(group)} x {', '.join(group[:3])}" for group in exact["groups"]))
    _list(console, "near duplicates", (f"{cosine:.3f} {a} = {b}" for a, b, cosine in near["pairs"]))
    _list(console, "ids alike", (", ".join(group) for group in names["ids"]))


def _list(console: Any, title: str, lines: Iterable[str]) -> None:
    lines = list(lines)
    if lines:
        more = f" (the first {SHOWN} of {len(lines):,})" if len(lines) > SHOWN else ""
        console.print(f"{title}{more}:", markup=False, highlight=False)
    for line in lines[:SHOWN]:
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    run_main(main)
