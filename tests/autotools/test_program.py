"""The program child against a stub HTTP server in this process (the oracle records what really arrived)."""

import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from autotools.errors import SandboxError
from autotools.program import ProgramRunner

LIBRARY = '''
def double(x: int) -> int:
    """twice x"""
    return 2 * x

def item(item_id, page=None, unit=None):
    """an item"""
    return _request("GET", "/items/{item_id}", path={"item_id": item_id}, query={"page": page}, header={"X-Unit": unit})

def protected(flag):
    """needs a key"""
    return _request("POST", "/protected", body={"flag": flag, "none": None}, auth="Money")
'''


class Stub(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: list[dict] = []

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        Stub.seen.append({"verb": self.command, "path": self.path, "headers": dict(self.headers), "body": body})
        status = {"/items/missing": 404, "/items/broken": 500}.get(self.path, 200)
        if self.path == "/items/slow":
            time.sleep(1.0)
        content = {"error": {"code": "x", "message": "nothing here"}} if status >= 400 else {"ok": True}
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        if self.path == "/items/close":
            self.close_connection = True
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = answer

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def stub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def runner(stub):
    with ProgramRunner(LIBRARY, stub, {"Money": "k-123"}) as child:
        yield child


def test_value_output_and_fresh_namespace(runner):
    first = runner.run("x = double(4)\nprint('got', x)\nfinish({'x': x})\nprint('never')", "s")
    assert (first.status, first.answer, first.output, first.finished) == ("ok", {"x": 8}, "got 8\n", True)
    second = runner.run("finish(x)", "s")
    assert second.status == "error" and "NameError" in second.error and "line 1" in second.error
    runner.run("double = None\nglobals().clear()", "s")
    assert runner.run("finish(double(1))", "s").answer == 2


def test_finish_inside_try_ends_the_program(runner):
    program = "try:\n    finish(1)\nexcept Exception:\n    pass\nfinish(2)"
    assert runner.run(program, "s").answer == 1
    none = runner.run("pass", "s")
    assert (none.status, none.answer, none.finished) == ("ok", None, False)


def test_request_travels_as_told(runner):
    Stub.seen.clear()
    result = runner.run("finish(item('a/b ü', page=2, unit='m'))", "task-5")
    assert result.answer == {"ok": True}
    (seen,) = Stub.seen
    assert (seen["verb"], seen["path"]) == ("GET", "/items/a%2Fb%20%C3%BC?page=2")
    assert (seen["headers"]["X-Session"], seen["headers"]["X-Unit"]) == ("task-5", "m")
    assert "X-Api-Key" not in seen["headers"]
    (call,) = result.calls
    assert call == {
        "method": "GET", "path": "/items/{item_id}", "status": 200, "arguments": {"item_id": "a/b ü", "page": "2"},
    }  # fmt: skip
    runner.run("protected(flag=True)", "task-6")
    assert Stub.seen[1]["headers"]["X-Api-Key"] == "k-123"
    assert json.loads(Stub.seen[1]["body"]) == {"flag": True}


def test_service_errors_are_for_the_program(runner):
    caught = runner.run("try:\n    item('missing')\nexcept ToolError as e:\n    finish([e.status, e.message])", "s")
    assert caught.answer == [404, "nothing here"]
    uncaught = runner.run("a = 1\nitem('missing')", "s")
    assert (uncaught.status, uncaught.error) == ("error", "ToolError: 404 nothing here (line 2 of the program)")


SWALLOWS = "try:\n    item('broken')\nexcept BaseException:\n    finish(0)"


@pytest.mark.parametrize("program", ["item('broken')", SWALLOWS])
def test_a_broken_service_is_never_the_programs_fault(runner, program):
    with pytest.raises(SandboxError, match=r"session 's-9'.*500"):
        runner.run(program, "s-9")
    assert runner.run("finish(double(2))", "s").answer == 4


def test_hanging_and_absent_services_are_ours(stub):
    with ProgramRunner(LIBRARY, stub) as child, pytest.raises(SandboxError, match="did not answer"):
        child.run("item('slow')", "s", timeout_s=0.5)
    with ProgramRunner(LIBRARY, "http://127.0.0.1:9") as child, pytest.raises(SandboxError, match="did not answer"):
        child.run("item('a')", "s")


def test_closed_keep_alive_connection_is_renewed(runner):
    assert runner.run("item('close')\nitem('a')\nfinish(item('b'))", "s").answer == {"ok": True}


@pytest.mark.parametrize("path", ["http://elsewhere.invalid/x", "//elsewhere.invalid/x", "x"])
def test_no_other_host(runner, path):
    Stub.seen.clear()
    result = runner.run(f"_request('GET', {path!r})", "s")
    assert "PermissionError" in result.error and not Stub.seen
    assert "must not be empty" in runner.run("item('')", "s").error


@pytest.mark.parametrize(
    ("program", "status", "said"),
    [
        ("1/0", "error", "ZeroDivisionError"),
        ("x = (", "error", "SyntaxError"),
        ("raise KeyboardInterrupt", "error", "KeyboardInterrupt"),
        ("x = 'x' * 10**10", "error", "MemoryError"),
        ("f = lambda: f()\nf()", "error", "RecursionError"),
        ("finish({1})", "error", "not JSON serializable"),
        ("finish(float('nan'))", "error", "not JSON compliant"),
        ("class E(Exception):\n    def __str__(self): 1/0\nraise E", "error", "no message"),
        ("import os\nos._exit(3)", "died", "exit code 3"),
        ("import os\nos.kill(os.getpid(), 11)", "died", "SIGSEGV"),
        ("while True: pass", "timeout", "0.5 s"),
        ("try:\n    while True: pass\nexcept BaseException: pass", "timeout", "0.5 s"),
        ("finish('x' * 9_000_000)", "died", "larger than"),
    ],
)
def test_every_end_is_typed_and_the_next_program_runs(runner, program, status, said):
    result = runner.run(program, "s", timeout_s=0.5 if status == "timeout" else 10)
    assert (result.status, result.answer) == (status, None)
    assert said in result.error
    assert runner.run("finish(double(21))", "s").answer == 42


def test_output_flood_is_capped(runner):
    result = runner.run("for _ in range(1000): print('y' * 999)", "s")
    assert result.output.startswith("y" * 999) and len(result.output) < 20_100
    assert result.output.endswith("[980000 characters cut]")


def test_stray_bytes_on_the_standard_streams_do_no_harm(runner):
    assert runner.run("import os\nos.write(1, b'{}\\n')\nos.write(2, b'x')\nfinish(7)", "s").answer == 7


def test_same_program_same_answer_in_a_new_child(stub):
    program = "import random\nfinish([random.random(), list({'a', 'b', 'c', 'd', 'e'})])"
    answers = []
    for _ in range(2):
        with ProgramRunner("", stub) as child:
            answers += [child.run(program, "s").answer, child.run(program, "s").answer]
    assert all(a == answers[0] for a in answers)


def test_child_sees_no_environment_and_no_project(runner, monkeypatch):
    monkeypatch.setenv("HIDDEN_VALUE", "1")
    with ProgramRunner("", "http://127.0.0.1:9") as child:
        result = child.run("import os, sys\nfinish([dict(os.environ), os.getcwd(), sys.path])", "s")
        environment, folder, path = result.answer
        assert "HIDDEN_VALUE" not in environment and "HOME" not in environment
        assert "autotools-program-" in folder
        assert not any("site-packages" in p for p in path)
        assert child.run("import numpy", "s").status == "error"
    assert not Path(folder).exists()


def test_broken_library_is_named():
    with pytest.raises(SandboxError, match="library does not load: SyntaxError"):
        ProgramRunner("def f(:\n", "http://127.0.0.1:9")


def test_call_passes_json_arguments(runner):
    assert runner.call("double", {"x": 1.5}, "s").answer == 3.0
    assert "NameError" in runner.call("absent", {}, "s").error


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="needs /proc to look at processes")
def test_child_dies_with_a_killed_parent_even_in_a_loop():
    code = (
        "import threading, time; from autotools.program import ProgramRunner\n"
        "runner = ProgramRunner('', 'http://127.0.0.1:9'); print(runner._process.pid, flush=True)\n"
        "runner.run('while True: pass', 's', 60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    pid = int(parent.stdout.readline())
    time.sleep(0.3)
    assert Path(f"/proc/{pid}").exists()
    parent.kill()
    parent.wait(10)
    parent.stdout.close()
    end = time.monotonic() + 5
    while time.monotonic() < end and _running(pid):
        time.sleep(0.05)
    assert not _running(pid)


def _running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_closing_leaves_no_process():
    child = ProgramRunner("", "http://127.0.0.1:9")
    pid = child._process.pid
    child.close()
    child.close()
    assert not _running(pid)
