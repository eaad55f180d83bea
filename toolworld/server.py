"""Serve the tool world over HTTP on 127.0.0.1: in a child process (`WorldServer`) or in the foreground (`-m`).

The child ends with its parent: it watches its stdin pipe (closed by the kernel even on kill -9) and its parent's
id. The kernel's parent-death signal is not used here: it fires when the *thread* that started the child ends, and
servers are also started from worker threads.
"""

import contextlib
import json
import os
import pickle
import select
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotools.errors import ToolWorldError

HOST = "127.0.0.1"
START_TIMEOUT_S = 20.0


class WorldServer:
    """Context manager around a server process for ``world`` (needs ``.domains`` and ``.initial_state()``).

    ``port`` 0 picks a free port. ``base_url`` is valid as soon as the constructor returns.
    Raises ToolWorldError if the port is taken or the child does not come up.
    """

    def __init__(self, world: Any, log_path: Path | None = None, port: int = 0) -> None:
        start = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from toolworld.server import serve_child; serve_child()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A session of its own keeps a terminal's Ctrl-C away from it: the parent stops it in order.
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[1])},
        )
        job = {"domains": list(world.domains), "state": pickle.dumps(world.initial_state()), "port": port}
        job |= {"log_path": str(Path(log_path).resolve()) if log_path else None, "parent": os.getpid()}
        try:
            self.port = self._hand_over(job)
        except BaseException:
            self.stop()
            raise
        self.base_url = f"http://{HOST}:{self.port}"
        self.startup_s = time.perf_counter() - start

    def _hand_over(self, job: dict[str, Any]) -> int:
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError):  # the reason is then in the (missing) answer
            pickle.dump(job, self._process.stdin)
            self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], START_TIMEOUT_S)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            raise ToolWorldError(f"the tool world server did not start within {START_TIMEOUT_S:.0f} s; see its stderr")
        answer = json.loads(line)
        if "error" in answer:
            raise ToolWorldError(answer["error"])
        return answer["port"]

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._process.pid

    def stop(self) -> None:
        """End the server; safe to call twice."""
        process = self._process
        if process.stdin:
            with contextlib.suppress(OSError):
                process.stdin.close()
        try:
            process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()

    def __enter__(self) -> "WorldServer":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


def open_socket(port: int) -> socket.socket:
    """Listening socket on 127.0.0.1. Raises ToolWorldError if the port is taken or out of range."""
    # asyncio switches Nagle off only if the protocol number is TCP's own; without it each reply waits 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen(128)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise ToolWorldError(
            f"cannot serve on {HOST}:{port}: {reason}; choose another --port (0 picks a free one)"
        ) from error
    return listener


def serve_child() -> None:
    """Body of the child process: read the job from stdin, answer one line on stdout, serve until the parent goes."""
    job = pickle.load(sys.stdin.buffer)  # written by our own parent
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing but the answer may reach the pipe; stray prints go to stderr
    try:
        listener = open_socket(job["port"])
        server = _make_server(job["domains"], job["state"], job["log_path"])
    except Exception as error:
        answer.write(json.dumps({"error": str(error) or repr(error)}) + "\n")
        answer.close()
        return
    threading.Thread(target=_exit_with_parent, args=(job["parent"],), daemon=True).start()
    # The socket already listens: a client that connects before the loop runs simply waits in the backlog.
    answer.write(json.dumps({"port": listener.getsockname()[1]}) + "\n")
    answer.close()
    server.run(sockets=[listener])


def _exit_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        ready, _, _ = select.select([0], [], [], 0.5)
        if ready and not os.read(0, 1024):
            break
    os._exit(0)  # log lines are flushed one by one; there is nothing to tidy up


def _make_server(domains: list[Any], state: bytes, log_path: str | None) -> Any:
    import uvicorn

    from toolworld.app import WorldApp

    app = WorldApp(domains, state, Path(log_path) if log_path else None)
    # h11 and asyncio by name: the same behaviour whether or not faster optional packages are installed.
    config = uvicorn.Config(
        app,
        http="h11",
        loop="asyncio",
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="warning",
        timeout_keep_alive=600,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


@dataclass
class ServeArguments:
    """Serve the embedded tool world in the foreground until Ctrl-C."""

    port: int = field(default=8000, metadata={"help": "port on 127.0.0.1; 0 picks a free one"})
    seed: int = field(default=0, metadata={"help": "seed of the world's records"})
    log: str | None = field(default=None, metadata={"help": "request log (JSONL) to append to"})


def main(argv: list[str] | None = None) -> int:
    """Command line of ``python -m toolworld.server``. Returns the exit code."""
    from autotools.config import load_config

    description = ServeArguments.__doc__ or ""
    config = load_config(argv, {"": ServeArguments}, prog="python -m toolworld.server", description=description)
    arguments = config.top(ServeArguments)
    from toolworld.world import build_world

    world = build_world(arguments.seed)
    server = _make_server(list(world.domains), pickle.dumps(world.initial_state()), arguments.log)
    if config.dry_run:
        print(f"dry run: {sum(len(r.operations) for d in world.domains for r in d.resources)} operations to serve")
        return 0
    with open_socket(arguments.port) as listener:
        address = f"http://{HOST}:{listener.getsockname()[1]}"
        print(f"tool world (seed {arguments.seed}) at {address}; Ctrl-C ends", flush=True)
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn shuts down in order, then re-raises the signal
            server.run(sockets=[listener])
    return 0


if __name__ == "__main__":
    from autotools.config import run_main

    raise SystemExit(run_main(main))
