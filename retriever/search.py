"""``python -m retriever.search "query" --tools FILE``: one search from the shell, as a table."""

from dataclasses import dataclass, field

from autotools.config import load_config, run_main


@dataclass(kw_only=True)
class SearchArgs:
    """Keys of the command."""

    query: str = field(metadata={"help": "what to search for; also as the first bare word"})
    tools: str = field(metadata={"help": "tools.jsonl, or the tool world folder that holds one"})
    category: str | None = field(default=None, metadata={"help": "search in this raw category only"})
    k: int = field(default=5, metadata={"help": "number of hits at most"})
    encoder: str = field(default="bm25", metadata={"help": "search engine"})


def main(argv: list[str] | None = None) -> int:
    """Search once and print the hits; 0 also when nothing was found (that is said)."""
    config = load_config(
        argv, {"": SearchArgs}, prog="python -m retriever.search", description=__doc__ or "", positional="query"
    )
    args = config.top(SearchArgs)
    if config.dry_run:
        print(f"would search {args.tools} for {args.query!r}")
        return 0
    from rich.console import Console
    from rich.table import Table

    from retriever.engine import open_engine

    console = Console()
    engine = open_engine(args.tools, args.encoder)
    (hits,) = engine.search_batch([args.query], [args.category], args.k)
    if not hits:
        console.print(f"no tool matches {args.query!r}", markup=False)
        return 0
    table = Table("score", "tool", "document")
    for hit in hits:
        table.add_row(f"{hit.score:.3f}", str(hit.id), hit.document)
    console.print(table)
    return 0


if __name__ == "__main__":
    run_main(main)
