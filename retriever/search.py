"""``python -m retriever.search "query" --tools FILE``: search from the shell, once or line by line.

Without a query each line of stdin is one; on a terminal there is a prompt. Lines that begin with ``:`` are commands:
``:k 10``, ``:category Travel`` (``:category`` alone: all), ``:categories``, ``:quit``. A query that begins with a
colon is written with a space before it.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from autotools.config import load_config, run_main
from autotools.errors import ConfigError, RetrieverError
from retriever import cpu_threads

if TYPE_CHECKING:
    from retriever.engine import SearchEngine


@dataclass(kw_only=True)
class SearchArgs:
    """Keys of the command."""

    query: str = field(default="", metadata={"help": "what to search for; also as the first bare words; none: stdin"})
    tools: str = field(metadata={"help": "tools.jsonl, a folder that holds one, or http://HOST:PORT of a server"})
    category: str | None = field(default=None, metadata={"help": "search in this raw category only"})
    k: int = field(default=5, metadata={"help": "number of hits at most"})
    encoder: str = field(default="bm25", metadata={"help": "bm25 | hybrid | a recipe name | a model folder or hub id"})
    index: str | None = field(default=None, metadata={"help": "index folder made by python -m retriever.build"})
    device: str = field(default="auto", metadata={"help": "where the encoder runs: auto | cpu | cuda"})
    threads: int | None = field(default=None, metadata={"help": cpu_threads.HELP})
    json: bool = field(default=False, metadata={"help": "one JSON object per query instead of a table"})

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k must be 1 or more, not {self.k}")


class Searcher:
    """Searches and prints; ``category`` and ``k`` hold until a command changes them."""

    def __init__(self, engine: "SearchEngine", args: SearchArgs) -> None:
        from rich.console import Console

        self._engine, self._json, self._console = engine, args.json, Console()
        self.category, self.k = args.category, args.k

    def search(self, query: str) -> None:
        """Print the hits of one query; that there is none is said, too."""
        (hits,) = self._engine.search_batch([query], [self.category], self.k)
        if self._json:
            results = [{"id": str(hit.id), "score": hit.score, "document": hit.document} for hit in hits]
            record: dict[str, Any] = {"query": query, "category": self.category, "k": self.k, "results": results}
            print(json.dumps(record, ensure_ascii=False), flush=True)
            return
        if not hits:
            self._console.print(f"no tool matches {query!r}", markup=False)
            return
        from rich.table import Table
        from rich.text import Text

        table = Table("score", "tool", "document")
        for hit in hits:
            table.add_row(f"{hit.score:.3f}", Text(str(hit.id), overflow="fold"), Text(hit.document))
        self._console.print(table)

    def command(self, line: str) -> bool:
        """Obey one ``:command``; False ends the loop. Raises ConfigError, RetrieverError; settings then stay."""
        from retriever.categories import unknown_category

        name, _, value = line[1:].partition(" ")
        value = value.strip()
        if name in ("q", "quit", "exit"):
            return False
        if name == "k" and value.isdecimal() and int(value):
            self.k = int(value)
        elif name == "k":
            raise ConfigError(f":k needs a whole number of 1 or more, not {value!r}")
        elif name == "category":
            if value and value not in self._engine.categories:
                raise unknown_category(value, self._engine.categories)
            self.category = value or None
        elif name == "categories":
            self._console.print(", ".join(self._engine.categories), markup=False, highlight=False)
        else:
            raise ConfigError(f"unknown command :{name}; there are :k N, :category NAME, :categories and :quit")
        return True


def main(argv: list[str] | None = None) -> int:
    """Search and print; 0 also when nothing was found (that is said)."""
    config = load_config(
        argv, {"": SearchArgs}, prog="python -m retriever.search", description=__doc__ or "", positional="query"
    )
    args = config.top(SearchArgs)
    cpu_threads.set_threads(args.threads)
    if "query" in config.explicit and not args.query.strip():
        raise ConfigError("the query is empty; give a text, or leave it out to search for each line of stdin")
    if config.dry_run:
        from retriever.corpus import find_corpus

        if not args.tools.startswith(("http://", "https://")):
            find_corpus(args.tools)
        print(f"would search {args.tools} for {args.query or 'the lines of stdin'!r}")
        return 0
    from retriever.engine import open_engine

    engine = open_engine(args.tools, args.encoder, index=args.index, device=args.device)
    searcher = Searcher(engine, args)
    if args.query:
        searcher.search(args.query)
        return 0
    talk = sys.stdin.isatty()
    if talk:
        print(f"{len(engine.categories)} categories; :k N, :category NAME, :categories, :quit (or Ctrl-D)")
    for line in _lines(talk):
        try:
            if line.startswith(":"):
                if not searcher.command(line.strip()):
                    break
            elif line.strip():
                searcher.search(line.strip())
        except (ConfigError, RetrieverError) as error:
            if not talk:  # a script must not mistake half an output for the whole
                raise
            print(f"error: {error}", file=sys.stderr)
    return 0


def _lines(talk: bool) -> Iterator[str]:
    if not talk:
        yield from sys.stdin
        return
    import readline  # noqa: F401 (gives input() a history and an editable line)

    while True:
        try:
            yield input("> ")
        except EOFError:
            print()
            return


if __name__ == "__main__":
    run_main(main)
