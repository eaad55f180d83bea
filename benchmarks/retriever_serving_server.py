"""The server process of ``benchmarks/retriever_serving.py``: its engines, its queries, and what it is told."""

import random
from dataclasses import dataclass, field
from typing import Any

from autotools.config import load_config, run_main

TURN, DISTINCT = 1280, 478  # queries of one RL turn, distinct ones among them
WORDS = (
    "find list current price flight hotel weather song lyrics station delay room book cancel convert currency code "
    "city country news sports team score player stock market history daily forecast email validate address phone "
    "number search by name recipe food image text language translate video stream channel user profile movie rating"
).split()  # fmt: skip


@dataclass
class ServerArgs:
    """Keys that the server process shares with the benchmark."""

    encoder: str = field(default="minilm", metadata={"help": "recipe name, or a model folder"})
    dtype: str = field(default="float32", metadata={"help": "float32 | bfloat16 | float16, of the query side"})
    documents: int = field(default=16_384, metadata={"help": "random document vectors to search"})


@dataclass
class ModeArgs:
    """What only the server process is told."""

    mode: str = field(
        default="on", metadata={"help": "off: no merging, no cache; on: as users get it; null: no search"}
    )


class NullEngine:
    """Answers every query with the same five hits at once: what is left is HTTP, JSON and the queue."""

    categories = ("Any",)

    def __init__(self) -> None:
        from autotools.schema import Hit, ToolId

        tool = ToolId(category="Any", tool="tool", api="find")
        self._hits = [Hit(id=tool, score=1.0, document="find anything in a large list of things") for _ in range(5)]

    def search_batch(self, queries: list[str], categories: Any = None, k: int = 5) -> list[list[Any]]:
        return [self._hits[:k] for _ in queries]

    def prefetch(self, queries: list[str]) -> None:
        pass

    def describe(self) -> dict[str, Any]:
        return {"engine": "null"}

    def counters(self) -> dict[str, int]:
        return {}


def dense_engine(args: ServerArgs, *, cache: bool) -> Any:
    """Engine over ``args.documents`` random unit vectors (the same in every process)."""
    import numpy as np

    from autotools.schema import ToolId, ToolSpec
    from retriever.dense import DenseEngine
    from retriever.encoder import CACHE_BYTES, Encoder
    from retriever.index import arrange

    rng = random.Random(1)
    specs = [
        ToolSpec(
            id=ToolId(category=f"C{n % 49}", tool=f"tool_{n}", api="use"), tool_name=f"tool {n}", api_name="use",
            description=" ".join(rng.choices(WORDS, k=12)),
        )
        for n in range(args.documents)
    ]  # fmt: skip
    encoder = Encoder(args.encoder, dtype=args.dtype, device="cpu", cache_bytes=CACHE_BYTES if cache else 0)
    matrix = np.random.default_rng(1).standard_normal((args.documents, encoder.dim), dtype=np.float32)
    return DenseEngine(arrange(specs), encoder, matrix / np.linalg.norm(matrix, axis=1, keepdims=True))


def texts(count: int, seed: int) -> list[str]:
    """``count`` distinct queries of 4 to 12 words; other seeds give others."""
    rng = random.Random(seed)
    return [f"{' '.join(rng.choices(WORDS, k=rng.randint(3, 11)))} {seed}x{n}" for n in range(count)]


def turn(seed: int) -> list[str]:
    """The queries of one RL turn: DISTINCT of them, each at least once, TURN in all, shuffled."""
    rng, distinct = random.Random(seed), texts(DISTINCT, seed)
    queries = distinct + rng.choices(distinct, k=TURN - DISTINCT)
    rng.shuffle(queries)
    return queries


def main(argv: list[str] | None = None) -> int:
    """Serve on a free port, which is the first line of stdout, until a signal."""
    sections = {"": (ServerArgs, ModeArgs)}
    config = load_config(argv, sections, prog="benchmarks/retriever_serving_server.py", description=__doc__ or "")
    args, mode = config.top(ServerArgs), config.top(ModeArgs).mode
    from retriever.serve import bind, make_server
    from retriever.server_app import SearchApp, Settings

    engine = NullEngine() if mode == "null" else dense_engine(args, cache=mode == "on")
    settings = Settings(batch_queries=1) if mode == "off" else Settings()
    with bind("127.0.0.1", 0) as listener:
        listener.listen(256)
        print(listener.getsockname()[1], flush=True)
        make_server(SearchApp(engine, settings)).run(sockets=[listener])
    return 0


if __name__ == "__main__":
    run_main(main)
