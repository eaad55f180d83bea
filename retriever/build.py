"""``python -m retriever.build --tools FILE --encoder minilm --out DIR``: embed a corpus into an index on disk.

Run again after an edit, it embeds only what changed; interrupted, it continues where it stopped.
"""

from dataclasses import dataclass, field
from typing import Any

from autotools.config import load_config, run_main
from retriever import cpu_threads


@dataclass(kw_only=True)
class BuildArgs:
    """Keys of the command."""

    tools: str = field(metadata={"help": "tool documents: tools.jsonl, a tool world folder, any documentation file"})
    out: str = field(metadata={"help": "folder of the index; made, or updated if it is one"})
    encoder: str = field(default="minilm", metadata={"help": "recipe name, NAME@FOLDER, a model folder or a hub id"})
    device: str = field(default="auto", metadata={"help": "auto (CUDA if there is one), cpu, cuda"})
    dtype: str = field(default="auto", metadata={"help": "auto (float32 on a CPU), float32, bfloat16, float16"})
    max_seq_length: int | None = field(default=None, metadata={"help": "tokens per document; default: the recipe's"})
    threads: int | None = field(default=None, metadata={"help": cpu_threads.HELP})
    batch_tokens: int | None = field(default=None, metadata={"help": "padded tokens of one batch; default: by device"})

    def __post_init__(self) -> None:
        for name in ("max_seq_length", "batch_tokens"):
            value = getattr(self, name)
            if value is not None and value < 8:
                raise ValueError(f"{name} must be 8 or more, got {value}")
        if self.encoder == "bm25" or self.encoder.partition(":")[0] == "hybrid":
            raise ValueError(f"encoder {self.encoder} has no index of its own; name the dense encoder, such as minilm")


def main(argv: list[str] | None = None) -> int:
    """Build or update the index and print what was done; with ``--dry_run`` only what would be."""
    config = load_config(argv, {"": BuildArgs}, prog="python -m retriever.build", description=__doc__ or "")
    args = config.top(BuildArgs)
    cpu_threads.set_threads(args.threads)
    from rich.console import Console

    from retriever.corpus import read_corpus
    from retriever.index import arrange
    from retriever.recipes import recipe_for

    console = Console()
    recipe = recipe_for(args.encoder)
    corpus = read_corpus(args.tools)
    documents = arrange(corpus.specs)
    if config.dry_run:
        console.print(_plan(args, documents, recipe))
        return 0
    from retriever.dense import progress_on_stderr
    from retriever.encoder import Encoder
    from retriever.index_writing import build_index

    settings = {"max_seq_length": args.max_seq_length, "batch_tokens": args.batch_tokens}
    encoder = Encoder(recipe, device=args.device, dtype=args.dtype, **settings)
    summary = build_index(documents, encoder, args.out, progress_on_stderr(f"embedding with {encoder.recipe.name}"))
    console.print(_table(f"index {args.out}", _rows(summary, encoder)))
    return 0


def _plan(args: BuildArgs, documents: Any, recipe: Any) -> Any:
    """Table of the dry run. Where the weights are missing, tokens are guessed from the characters and it says so."""
    from autotools.errors import ConfigError
    from retriever.encoder import Encoder

    count, characters = len(documents.ids), sum(map(len, documents.texts))
    dim: Any = recipe.dim
    try:
        encoder = Encoder(recipe, device=args.device, dtype=args.dtype, max_seq_length=args.max_seq_length)
        tokens = f"{encoder.document_tokens(documents.texts):,}"
        dim = encoder.dim
        cut = f"{encoder.counters()['truncated']:,} (over {encoder.max_seq_length} tokens)"
    except ConfigError as error:
        tokens, cut = f"about {characters // 4:,} (4 characters each; weights missing)", str(error)
    size = f"{count * dim * 4 / 1e6:,.1f} MB ({dim} dims, float32)" if dim else "unknown"
    return _table("would build", [
        ("index", args.out), ("encoder", args.encoder), ("documents", f"{count:,}"),
        ("distinct texts", f"{len(set(documents.hashes)):,}"), ("categories", f"{len(documents.offsets):,}"),
        ("characters", f"{characters:,}"), ("tokens", tokens), ("truncated", cut), ("size", size),
    ])  # fmt: skip


def _rows(summary: Any, encoder: Any) -> list[tuple[str, str]]:
    """What was done, in words."""
    names = {
        "documents": "documents", "embedded": "embedded now", "reused": "reused from the old index",
        "resumed": "taken from an interrupted build", "repeated": "same text as another", "truncated": "truncated",
    }  # fmt: skip
    rows = [(label, f"{getattr(summary, name):,}") for name, label in names.items()]
    state = "was up to date, nothing done" if summary.fresh else "complete"
    return [("state", state), ("encoder", f"{encoder.recipe.name}, {encoder.dtype}, {encoder.device}"), *rows]


def _table(title: str, rows: list[tuple[str, str]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, title=Text(title))
    for name, value in rows:
        table.add_row(name, Text(value))
    return table


if __name__ == "__main__":
    run_main(main)
