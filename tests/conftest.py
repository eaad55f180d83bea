"""Shared by all tests: real data samples beside the checkout, a ten-tool corpus, a tiny tokenizer, one quickstart."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from autotools.schema import ToolId, ToolParameter, ToolSpec
from autotools.search.answer import NameIndex

ROOT = Path(__file__).resolve().parents[1]
TOOLS = (  # category, tool, api, description: every tool has a word of its own, so that a search for it finds it
    ("Travel", "hotel_desk", "find", "find a hotel by its name"),
    ("Travel", "hotel_desk", "price_now", "current price of a room"),
    ("Travel", "flight_board", "delay", "delay of a flight in minutes"),
    ("Travel", "flight_board", "gate", "gate where a plane waits"),
    ("Weather", "station_net", "level_now", "water level at a gauge"),
    ("Weather", "storm_watch", "alert", "storm warnings for a coast"),
    ("Weather", "sky", "sunset", "sunset hour of a town"),
    ("Music", "song_box", "lyrics", "lyrics of a song"),
    ("Music", "song_box", "artist", "artist who recorded an album"),
    ("Music", "radio", "stream", "stream address of a broadcaster"),
)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the real data samples: AUTOTOOLS_SHARED, else ../shared beside the checkout. In CI it must exist."""
    shared = Path(os.environ.get("AUTOTOOLS_SHARED") or ROOT.parent / "shared")
    if not (shared / "data").is_dir():
        reason = f"no data samples at {shared}; set AUTOTOOLS_SHARED to the folder that holds data/"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return shared / "data"


@pytest.fixture(scope="session")
def ten_tools() -> list[ToolSpec]:
    return [
        ToolSpec(
            id=ToolId(category=category, tool=tool, api=api),
            tool_name=tool.replace("_", " "),
            api_name=api,
            description=description,
            parameters=(ToolParameter(name="name", required=True),),
        )
        for category, tool, api, description in TOOLS
    ]


@pytest.fixture(scope="session")
def ten_names(ten_tools: list[ToolSpec]) -> NameIndex:
    return NameIndex(spec.id for spec in ten_tools)


@pytest.fixture(scope="session")
def tiny_tokenizer(ten_tools: list[ToolSpec]) -> Any:
    """Tokenizer with the Qwen2.5 template; do not change it, other tests share it."""
    from training.tiny import TinyConfig, build_tokenizer, tool_id_pieces

    texts = [spec.description for spec in ten_tools]
    return build_tokenizer(texts, tool_id_pieces(str(spec.id) for spec in ten_tools), TinyConfig())


@pytest.fixture(scope="session")
def untrained_model(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Any) -> Callable[..., Path]:
    """(key of TinyConfig=value, ...) -> folder with an untrained model of one layer and its tokenizer."""
    from training.tiny import TinyConfig, build_model

    def save(**keys: Any) -> Path:
        folder = tmp_path_factory.mktemp("models") / "untrained"
        config = TinyConfig(hidden_size=32, intermediate_size=64, num_layers=1, num_heads=2, **keys)
        build_model(tiny_tokenizer, config, 0).save_pretrained(folder)
        tiny_tokenizer.save_pretrained(folder)
        return folder

    return save


@pytest.fixture(scope="session")
def strong_adapter(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """(folder of a model) -> folder with an adapter of it (r 2, alpha 8) that is far from doing nothing."""

    def save(model: Path) -> Path:
        import torch
        from peft import get_peft_model

        from autotools.llm.loading import load_model
        from training.lora import LoraArgs

        torch.manual_seed(1)
        base, tokenizer = load_model(model)
        adapted = get_peft_model(base, LoraArgs(r=2, alpha=8, dropout=0.0).peft_config())
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.5)
        folder = tmp_path_factory.mktemp("adapters") / "adapter"
        adapted.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return save


# --- a chat endpoint that does what a test wants ------------------------------------------------------------------


@dataclass
class ChatServer:
    """Loopback endpoint: ``script(body)`` gives (status, content), with headers as a third part if there are any.

    Content other than bytes is sent as JSON. ``asked``: (path, body, headers) of every request, as they came.
    """

    script: Callable[[Any], tuple[Any, ...]]
    url: str = ""
    asked: list[tuple[str, Any, dict[str, str]]] = field(default_factory=list)
    most_at_once: int = 0
    _now: int = 0
    _lock: Any = field(default_factory=threading.Lock)

    def answer(self, path: str, body: Any, headers: dict[str, str]) -> tuple[Any, ...]:
        with self._lock:
            self.asked.append((path, body, headers))
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        try:
            return self.script(body)
        finally:
            with self._lock:
                self._now -= 1


@pytest.fixture
def chat_server() -> Iterator[Callable[[Callable[[Any], tuple[Any, ...]]], ChatServer]]:
    """``chat_server(script)`` starts a ChatServer; all are closed after the test."""
    started: list[ThreadingHTTPServer] = []

    def start(script: Callable[[Any], tuple[Any, ...]]) -> ChatServer:
        chat = ChatServer(script)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                body = json.loads(self.rfile.read(length)) if length else None
                status, content, *more = chat.answer(self.path, body, dict(self.headers))
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                try:
                    self.send_response(status)
                    for name, value in {"Content-Length": str(len(data)), **(more[0] if more else {})}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    pass  # the client has gone: that is what some tests are about

            do_GET = do_POST

            def log_message(self, *args: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads, server.block_on_close = True, False
        server.handle_error = lambda *_: None  # a client that is killed, or tires of waiting, is no error here
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        started.append(server)
        chat.url = f"http://127.0.0.1:{server.server_port}/v1"
        return chat

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


# --- one real quickstart for all tests that need a finished run ---------------------------------------------------

QUICKSTART_LIMIT_S = 1500  # it takes about 4 min on two free cores; CI's cores may be neither two nor free


@dataclass(frozen=True)
class QuickstartRun:
    """``runs`` stands for the README's ``runs/``; ``shell`` runs text of the README against it."""

    runs: Path
    folder: Path
    stdout: str
    stderr: str
    shell: Callable[..., subprocess.CompletedProcess[str]]


def run_in_shell(script: str, runs: Path, limit_s: float = 300) -> subprocess.CompletedProcess[str]:
    """Run shell text as the README shows it, in the checkout, but with ``runs/...`` in a temporary folder.

    A command over its limit gets SIGTERM (the quickstart then ends its stages) before SIGKILL.
    """
    script = re.sub(r"(?<![\w./-])runs/", f"{runs}/", script)
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "200",
        "OMP_NUM_THREADS": "1",
    }
    command = ["bash", "-euo", "pipefail", "-c", script]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip
    try:
        stdout, stderr = process.communicate(timeout=limit_s)
    except BaseException:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


@pytest.fixture(scope="session")
def quickstart_run(tmp_path_factory: pytest.TempPathFactory) -> QuickstartRun:
    """``bash launch/quickstart.sh`` with its real settings, once per session; only the folder differs.

    While writing tests, AUTOTOOLS_QUICKSTART may name a finished run folder to use instead (never in CI).
    """
    runs = tmp_path_factory.mktemp("runs")
    in_ci, finished = os.environ.get("CI") == "true", os.environ.get("AUTOTOOLS_QUICKSTART")
    if finished and not in_ci:
        (runs / "quickstart").symlink_to(Path(finished).resolve())
        return _quickstart(runs, f"{finished}/report.html", "")
    command = "bash launch/quickstart.sh"
    if not (ROOT / ".venv" / "autotools-stamp").is_file():
        # A test may not install packages; launch/test.sh has made the environment before it starts pytest.
        if in_ci:
            pytest.fail("CI must start the tests with launch/test.sh, so that launch/quickstart.sh itself is tested")
        command = f"{sys.executable} launch/quickstart.py"
    done = run_in_shell(f"{command} --out runs/quickstart", runs, QUICKSTART_LIMIT_S)
    assert done.returncode == 0, done.stderr[-3000:]
    return _quickstart(runs, done.stdout, done.stderr)


def _quickstart(runs: Path, stdout: str, stderr: str) -> QuickstartRun:
    return QuickstartRun(
        runs=runs, folder=runs / "quickstart", stdout=stdout, stderr=stderr,
        shell=lambda script, limit_s=300: run_in_shell(script, runs, limit_s),
    )  # fmt: skip
