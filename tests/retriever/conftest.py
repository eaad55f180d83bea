"""A search server in a thread of the test process, for any engine."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest


@contextlib.contextmanager
def _running(engine: Any, corpus: str = "", port: int = 0, **settings: Any) -> Iterator[int]:
    from retriever import serve
    from retriever.server_app import SearchApp, Settings

    listener = serve.bind("127.0.0.1", port)
    listener.listen(256)
    server = serve.make_server(SearchApp(engine, Settings(**settings), corpus))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
        assert not thread.is_alive()


@pytest.fixture(scope="session")
def running() -> Callable[..., contextlib.AbstractContextManager[int]]:
    """``with running(engine, corpus_hash, **settings) as port``: served on 127.0.0.1 until the block ends."""
    return _running
