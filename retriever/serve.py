"""``python -m retriever.serve --tools FILE``: the search engine over HTTP (protocol: retriever/server_app.py)."""

import contextlib
import ipaddress
import os
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotools.config import load_config, run_main
from autotools.errors import ConfigError, RetrieverError
from retriever import cpu_threads

MAX_CONNECTIONS = 2048  # beyond it uvicorn answers 503 by itself
STOP_S = 10  # how long a stopping server waits for the answers it owes


@dataclass(kw_only=True)
class ServeArgs:
    """Keys of the command."""

    tools: str = field(metadata={"help": "tools.jsonl, a tool world folder, or another file of tool documents"})
    encoder: str = field(default="bm25", metadata={"help": "bm25 | hybrid | a recipe name | a model folder or hub id"})
    index: str | None = field(default=None, metadata={"help": "index folder made by python -m retriever.build"})
    device: str = field(default="auto", metadata={"help": "where the encoder runs: auto | cpu | cuda"})
    threads: int | None = field(default=None, metadata={"help": cpu_threads.HELP})
    host: str = field(default="127.0.0.1", metadata={"help": "address; any other than loopback needs --token_env"})
    port: int = field(default=8321, metadata={"help": "port; 0 picks a free one"})
    token_env: str = field(default="", metadata={"help": "NAME of the environment variable that holds a bearer token"})
    batch_queries: int = field(default=1024, metadata={"help": "queries of one engine call at most; 1: merge nothing"})
    max_waiting: int = field(default=16_384, metadata={"help": "queries that may wait; more get 503"})
    max_queries: int = field(default=4096, metadata={"help": "queries of one request; more get 413"})
    max_query_chars: int = field(default=20_000, metadata={"help": "characters of one query; more get 413"})
    max_body_bytes: int = field(default=16_000_000, metadata={"help": "bytes of one request; more get 413"})
    max_k: int = field(default=1000, metadata={"help": "largest k"})
    timeout_s: float = field(default=120.0, metadata={"help": "seconds until a request is given up with 504"})

    def __post_init__(self) -> None:
        for name in ("batch_queries", "max_waiting", "max_queries", "max_query_chars", "max_body_bytes", "max_k"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, not {getattr(self, name)}")
        if not self.timeout_s > 0:
            raise ValueError(f"timeout_s must be above 0, not {self.timeout_s}")
        if not self.token_env and not _is_loopback(self.host):
            raise ValueError(f"host {self.host} is reachable from outside: set token_env, too (or use 127.0.0.1)")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def bind(host: str, port: int) -> socket.socket:
    """Bound socket that does not listen yet: until it does, clients are refused at once instead of waiting.

    Raises RetrieverError if the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches Nagle off only if the protocol number is TCP's own; without it each reply waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise _no_address(host, port, error) from error
    return listener


def _no_address(host: str, port: int, error: Exception) -> RetrieverError:
    reason = getattr(error, "strerror", None) or str(error)
    return RetrieverError(f"cannot serve on {host}:{port}: {reason}; choose another --port (0 picks a free one)")


def make_server(app: Any) -> Any:
    """A uvicorn server for ``app``; ``run(sockets=[bound socket])`` serves until SIGINT or SIGTERM."""
    import uvicorn

    # h11 and asyncio by name: the same behaviour whether or not faster optional packages are installed.
    config = uvicorn.Config(
        app, http="h11", loop="asyncio", ws="none", lifespan="on", access_log=False, log_level="warning",
        limit_concurrency=MAX_CONNECTIONS, timeout_keep_alive=75, timeout_graceful_shutdown=STOP_S,
    )  # fmt: skip
    return uvicorn.Server(config)


def read_token(name: str) -> str:
    """The token that environment variable ``name`` holds; "" without a name. Raises ConfigError if it is not set."""
    token = os.environ.get(name, "").strip() if name else ""
    if name and not token:
        raise ConfigError(f"environment variable {name} (--token_env) is not set or empty; it must hold the token")
    return token


def corpus_hash(tools: str) -> str:
    """SHA-256 of the corpus file; "" for a folder without tools.jsonl."""
    from autotools.rundir import sha256_file

    path = Path(tools)
    path = path / "tools.jsonl" if path.is_dir() else path
    return sha256_file(path) if path.is_file() else ""


@contextlib.contextmanager
def _orderly_sigterm() -> Iterator[None]:
    """uvicorn raises a caught signal again after its orderly stop; that is then no reason to die of it."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM; returns 0 after an orderly stop."""
    config = load_config(argv, {"": ServeArgs}, prog="python -m retriever.serve", description=__doc__ or "")
    args = config.top(ServeArgs)
    token = read_token(args.token_env)
    if config.dry_run:
        from retriever.corpus import find_corpus

        find_corpus(args.tools)
        print(f"would serve {args.tools} with {args.encoder} on {args.host}:{args.port}")
        return 0
    cpu_threads.set_threads(args.threads)
    from retriever.engine import open_engine
    from retriever.search_request import Limits
    from retriever.server_app import SearchApp, Settings

    limits = Limits(
        max_queries=args.max_queries, max_query_chars=args.max_query_chars, max_body_bytes=args.max_body_bytes,
        max_k=args.max_k,
    )  # fmt: skip
    settings = Settings(
        limits=limits, timeout_s=args.timeout_s, batch_queries=args.batch_queries, max_waiting=args.max_waiting,
        token=token,
    )  # fmt: skip
    with bind(args.host, args.port) as listener:  # before the engine: a taken port shows at once, not after minutes
        engine = open_engine(args.tools, args.encoder, index=args.index, device=args.device)
        server = make_server(SearchApp(engine, settings, corpus_hash(args.tools)))
        try:
            listener.listen(MAX_CONNECTIONS)
        except OSError as error:  # somebody else bound the same port and was faster
            raise _no_address(args.host, args.port, error) from error
        host = f"[{args.host}]" if ":" in args.host else args.host
        address = f"http://{host}:{listener.getsockname()[1]}"
        print(f"search server ({args.encoder}, {args.tools}) at {address}; Ctrl-C ends", flush=True)
        with _orderly_sigterm():
            server.run(sockets=[listener])
    print("search server stopped", file=sys.stderr)
    return 0


if __name__ == "__main__":
    run_main(main)
