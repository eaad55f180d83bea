"""``python -m retriever.search --tools FILE "query"``: one search from the shell, as a table."""

import sys
from dataclasses import dataclass, field

from autotools.config import load_config, run_main
from autotools.errors import ConfigError


@dataclass(kw_only=True)
class SearchArgs:
    """Keys of the command."""

    query: str = field(default="", metadata={"help": "what to search for (also as a bare word)"})
    tools: str = field(default="", metadata={"help": "tools.jsonl, or the tool world folder that holds one"})
    category: str | None = field(default=None, metadata={"help": "search in this raw category only"})
    k: int = field(default=5, metadata={"help": "number of hits at most"})
    encoder: str = field(default="bm25", metadata={"help": "search engine"})
    dry_run: bool = field(default=False, metadata={"help": "print the settings and stop"})


def main(argv: list[str] | None = None) -> int:
    """Search once and print the hits; 0 also when nothing was found (that is said)."""
    config = load_config(
        argv, {"": SearchArgs}, prog="python -m retriever.search", description=__doc__, positional="query"
    )
    args: SearchArgs = config.top(SearchArgs)
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if args.dry_run:
        console.print_json(data=config.resolved())
        return 0
    if not args.tools or not args.query:
        raise ConfigError('give a corpus and a query: python -m retriever.search --tools FILE "price of a hotel"')
    from retriever.engine import open_engine

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
    sys.exit(run_main(main))
