"""``python -m data_synthesis.real --corpus FILE --queries DIR --out DIR``: real tools and requests as a world folder.

Reads an API corpus (``.jsonl`` or ``.jsonl.gz``, one ToolBench API document per line) and, below DIR, the query files

    stabletoolbench/solvable_queries/test_instruction/*.json   -> test
    colt/datasets/ToolLens/                  train split       -> train and dev
    anytoolbench/*.json                                        -> train and dev

and writes ``tools.jsonl``, ``tasks/{train,dev,test}.jsonl``, ``rejected.jsonl`` and, last, ``manifest.json``: the
folder that ``toolworld.build`` writes, without functions, programs and answers. Dev is a share of the target sets of
train, so that no dev request is a train one with other values filled in. A train request that is also a test request
(same words) is set aside. kept + rejected = read, everywhere (a document that stands in the corpus twice is kept
once and counted as repeated).
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotools.config import load_config, run_main
from autotools.errors import DataError
from autotools.queries import RequestFile, normalised, read_anytoolbench, read_colt, read_toolbench, sort_out
from autotools.queries.places import ANYTOOLBENCH, STABLETOOLBENCH, TOOLLENS
from autotools.rundir import check_run, open_run, sha256_file, write_jsonl, write_manifest
from autotools.schema import Task

TEST_FILES = f"{STABLETOOLBENCH}/*.json"
ANYTOOLBENCH_FILES = f"{ANYTOOLBENCH}/*.json"
NOTE = (
    "Plumbing check, not a result: a tiny model trained from nothing for a few steps shows that every stage runs on "
    "real tools and requests. Its scores say nothing about either method."
)


@dataclass(kw_only=True)
class ImportArgs:
    """Keys of the command."""

    corpus: str = field(metadata={"help": "API corpus: .jsonl or .jsonl.gz"})
    queries: str = field(metadata={"help": "folder that holds stabletoolbench/, colt/ and anytoolbench/"})
    out: str = field(metadata={"help": "world folder to write"})
    seed: int = field(default=0, metadata={"help": "seed of the split into train and dev"})
    dev_share: float = field(default=0.05, metadata={"help": "share of the target sets of train that become dev"})
    overwrite: bool = field(default=False, metadata={"help": "replace an earlier world folder"})

    def __post_init__(self) -> None:
        if not 0 < self.dev_share < 1:
            raise ValueError(f"dev_share is {self.dev_share}; it lies between 0 and 1, both excluded")


def main(argv: list[str] | None = None) -> int:
    """Write the folder. Returns 0; raises AutoToolsError on missing or unreadable files, or a used folder."""
    config = load_config(argv, {"": ImportArgs}, prog="python -m data_synthesis.real", description=__doc__)
    args = config.top(ImportArgs)
    files = _find_files(Path(args.queries))
    if config.dry_run:
        sha256_file(args.corpus)
        check_run(args.out, config.resolved(), overwrite=args.overwrite)
        print(f"would read {args.corpus} and {sum(map(len, files.values()))} query files, and write {args.out}")
        return 0
    _print_summary(import_world(args, config.resolved(), files))
    return 0


def import_world(args: ImportArgs, config: dict[str, Any], files: dict[str, list[Path]]) -> dict[str, Any]:
    """Read everything, then claim and fill the folder; returns the manifest's counts."""
    from autotools.docs.corpus import read_api_corpus
    from data_synthesis.hints import with_hints

    corpus = read_api_corpus(args.corpus)
    by_id = {spec.id: spec for spec in corpus.specs}
    test = [sort_out(read_toolbench(p, suite="stabletoolbench", split="test"), by_id) for p in files["test"]]
    train = [sort_out(read_colt(p, split="train"), by_id) for p in files["toollens"]]
    train += [sort_out(read_anytoolbench(p, split="train"), by_id) for p in files["anytoolbench"]]
    train = without_repeats(train, {normalised(task.query) for part in test for _, task in part.tasks})
    tasks = split_tasks([task for part in train for _, task in part.tasks], args.dev_share, args.seed)
    tasks = {split: [with_hints(task, by_id) for task in rows] for split, rows in tasks.items()}
    tasks["test"] = [task for part in test for _, task in part.tasks]
    for split, rows in tasks.items():
        if not rows:
            raise DataError(f"no usable {split} request in {args.queries}; see --help for the files that are read")
    counts = _counts(corpus, [*test, *train], tasks)
    run = open_run(args.out, config, seed=args.seed, overwrite=args.overwrite)
    write_jsonl(run.path / "tools.jsonl", corpus.specs)
    for split, rows in tasks.items():
        write_jsonl(run.path / "tasks" / f"{split}.jsonl", rows)
    write_jsonl(run.path / "rejected.jsonl", _rejects(corpus, [*test, *train]))
    inputs = [Path(args.corpus), *files["test"], *files["anytoolbench"]]
    inputs += [folder / name for folder in files["toollens"] for name in ("corpus.jsonl", "queries.jsonl")]
    inputs += [folder / "qrels" / f"{split}.tsv" for folder in files["toollens"] for split in ("train", "test")]
    write_manifest(run.path, stage="real", inputs=inputs, counts=counts, seed=args.seed, extra={"note": NOTE})
    return counts


def _find_files(queries: Path) -> dict[str, list[Path]]:
    """Query files by kind. Raises DataError if there is no test file or nothing to train on."""
    found = {
        "test": sorted(queries.glob(TEST_FILES)),
        "toollens": [folder for folder in [queries / TOOLLENS] if folder.is_dir()],
        "anytoolbench": sorted(queries.glob(ANYTOOLBENCH_FILES)),
    }
    if not found["test"]:
        raise DataError(f"no test requests: {queries / TEST_FILES} matches no file")
    if not found["toollens"] and not found["anytoolbench"]:
        raise DataError(f"nothing to train on: neither {queries / TOOLLENS} nor {queries / ANYTOOLBENCH} exists")
    return found


def without_repeats(train: Sequence[RequestFile], test: set[str]) -> list[RequestFile]:
    """Train files without requests that are also in ``test`` or came before (by their normalised words)."""
    seen: dict[str, str] = {}
    out = []
    for part in train:
        kept = RequestFile(source=part.source, rejects=list(part.rejects), repaired=part.repaired)
        for line, task in part.tasks:
            words = normalised(task.query)
            if words in test:
                kept.reject(line, "request is also a test request", task.id)
            elif words in seen:
                kept.reject(line, "same request as an earlier one", f"{task.id} = {seen[words]}")
            else:
                seen[words] = task.id
                kept.tasks.append((line, task))
        out.append(kept)
    return out


def split_tasks(tasks: Sequence[Task], dev_share: float, seed: int) -> dict[str, list[Task]]:
    """Train and dev, in file order. Requests with the same targets stay together: ToolLens asks for one set many times.

    Of each suite the same share of target sets (at least one) goes to dev.
    """
    by_suite: dict[str, set[str]] = {}
    for task in tasks:
        by_suite.setdefault(task.suite, set()).add(_target_set(task))
    held_out: set[str] = set()
    for suite, keys in sorted(by_suite.items()):
        order = random.Random(f"{seed}/dev/{suite}").sample(sorted(keys), len(keys))
        held_out.update(order[: max(1, round(len(order) * dev_share))])
    out: dict[str, list[Task]] = {"train": [], "dev": []}
    for task in tasks:
        split = "dev" if _target_set(task) in held_out else "train"
        out[split].append(task.model_copy(update={"split": split}))
    return out


def _target_set(task: Task) -> str:
    return " ".join(sorted(map(str, task.targets)))


def _rejects(corpus: Any, parts: Sequence[RequestFile]) -> list[dict[str, Any]]:
    return [*corpus.rejects, *(row for part in parts for row in part.rejects)]


def _counts(corpus: Any, parts: Sequence[RequestFile], tasks: dict[str, list[Task]]) -> dict[str, Any]:
    read = {"corpus": corpus.read, **{part.source: part.read for part in parts}}
    kept = {"corpus": len(corpus.specs), **{part.source: len(part.tasks) for part in parts}}
    rejected = {"corpus": len(corpus.rejects), **{part.source: len(part.rejects) for part in parts}}
    repeated = {"corpus": corpus.repeated}
    for source, number in read.items():
        if kept[source] + repeated.get(source, 0) + rejected[source] != number:
            raise DataError(f"{source}: kept {kept[source]} + repeated + rejected {rejected[source]} != read {number}")
    if sum(map(len, tasks.values())) != sum(len(part.tasks) for part in parts):
        raise DataError("a request was lost or doubled between reading and splitting")
    reasons = Counter(row["reason"] for row in _rejects(corpus, parts))
    repaired = Counter(corpus.repaired)
    for part in parts:
        repaired.update(part.repaired)
    return {
        "tools": len(corpus.specs),
        "categories": len({spec.id.category for spec in corpus.specs}),
        "tasks": sum(map(len, tasks.values())),
        "by_level": {split: dict(sorted(Counter(t.level for t in rows).items())) for split, rows in tasks.items()},
        "sources": {
            name: {"read": read[name], "kept": kept[name], "rejected": rejected[name]}
            | ({"repeated": repeated[name]} if repeated.get(name) else {})
            for name in read
        },
        "rejected_reasons": dict(sorted(reasons.items())),
        "repaired": dict(sorted(repaired.items())),
    }


def _print_summary(counts: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("source", "read", "kept", "rejected", title="real tools and requests")
    for name, row in counts["sources"].items():
        table.add_row(name, *(str(row[key]) for key in ("read", "kept", "rejected")))
    console = Console()
    console.print(table)
    for title in filter(counts.get, ("rejected_reasons", "repaired")):
        console.print(f"{title.replace('_', ' ')}: " + "; ".join(f"{n} x {why}" for why, n in counts[title].items()))
    console.print("tasks: " + ", ".join(f"{split} {sum(rows.values())}" for split, rows in counts["by_level"].items()))


if __name__ == "__main__":
    run_main(main)
