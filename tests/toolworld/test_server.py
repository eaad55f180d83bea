"""The server as a client sees it: plain http.client against a real child process; records are the oracle."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from autotools.errors import ToolWorldError
from toolworld.server import WorldServer
from toolworld.world import build_world


@pytest.fixture(scope="module")
def world():
    return build_world(0)


@pytest.fixture(scope="module")
def served(world, tmp_path_factory):
    log = tmp_path_factory.mktemp("log") / "deep" / "requests.jsonl"
    with WorldServer(world, log_path=log) as server:
        yield server, log


def ask(server, verb, path, body=None, headers=None, connection=None):
    client = connection or http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    client.request(verb, path, body=body, headers=headers or {})
    answer = client.getresponse()
    content = json.loads(answer.read())
    if connection is None:
        client.close()
    return answer.status, content


def operation_of(world, kind, protected=False):
    """(domain, resource, operation) of the first tool of a kind, in or outside the key-protected domain."""
    return next(t for t in world.tools() if t[2].kind == kind and bool(t[0].api_key) is protected)


def test_up_in_two_seconds_and_bound_to_loopback(world):
    start = time.perf_counter()
    with WorldServer(world) as server:
        assert ask(server, "GET", "/nowhere")[0] == 404
        assert time.perf_counter() - start < 2
        assert server.base_url == f"http://127.0.0.1:{server.port}"
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", server.port), timeout=1)


def test_answers_from_the_records_and_logs_what_was_asked(world, served):
    server, log = served
    _, resource, find = operation_of(world, "find")
    record = world.records(resource)[3]
    path = f"{find.path}?name={record['name'].replace(' ', '%20')}"
    status, body = ask(server, "GET", path, headers={"X-Session": "task-17"})
    assert (status, body["items"][0]["id"], body["items"][0]["name"]) == (200, record["id"], record["name"])
    _, resource, send = operation_of(world, "send_link")
    name = next(p.name for p in send.parameters if p.location == "path")
    path = send.path.replace("{" + name + "}", "NONE-1")
    status, body = ask(server, "POST", path, body='{"channel": "mail"}', headers={"X-Session": "task-18"})
    assert (status, body["error"]["code"]) == (404, "not_found")
    ask(server, "GET", "/no/such/path", headers={"X-Session": "task-19"})
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    mine = {line["task"]: line for line in lines}
    assert mine["task-17"] == {
        "task": "task-17", "verb": "GET", "route": find.path, "arguments": {"name": record["name"]}, "status": 200,
    }  # fmt: skip
    assert mine["task-18"]["route"] == send.path and mine["task-18"]["status"] == 404
    assert mine["task-18"]["arguments"] == {name: "NONE-1", "channel": "mail"}
    assert (mine["task-19"]["route"], mine["task-19"]["path"]) == (None, "/no/such/path")


def test_key_protected_domain(world, served):
    server, log = served
    domain, resource, find = operation_of(world, "find", protected=True)
    path = f"{find.path}?name={world.records(resource)[0]['name'].replace(' ', '%20')}"
    assert ask(server, "GET", path)[0] == 401
    assert ask(server, "GET", path, headers={"X-Api-Key": domain.api_key + "x"})[0] == 401
    assert ask(server, "GET", path, headers={"X-Api-Key": domain.api_key})[0] == 200
    assert domain.api_key not in log.read_text()


def test_refusals_in_service_style(world, served):
    server, _ = served
    _, _, find = operation_of(world, "find")
    _, _, send = operation_of(world, "send_link")
    cases = [
        ("GET", find.path, None, 422),
        ("GET", find.path + "?nme=x", None, 422),
        ("PUT", find.path, None, 405),
        ("GET", "/", None, 404),
        ("POST", send.path, '{"channel": "pigeon"}', 422),
        ("POST", send.path, "{", 422),
    ]
    for verb, path, body, expected in cases:
        status, content = ask(server, verb, path.replace("{", "").replace("}", ""), body=body)
        assert status == expected, (verb, path, content)
        assert content["error"]["code"] and content["error"]["message"]


def test_large_body_is_refused_and_the_connection_lives_on(world, served):
    server, _ = served
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    send = operation_of(world, "send_link")[2]
    assert ask(server, "POST", send.path.replace("{", "").replace("}", ""), "x" * 1_000_001, None, client)[0] == 413
    assert ask(server, "GET", "/nowhere", connection=client)[0] == 404
    client.close()


def test_a_write_is_seen_in_its_own_session_only(world, served):
    server, _ = served
    _, resource, off = operation_of(world, "alert_off")
    name = next(p.name for p in off.parameters if p.location == "path")
    path = off.path.replace("{" + name + "}", world.records(resource)[0]["id"])
    # Turning off an alert that is already off is a 404: that makes the state visible.
    statuses = [ask(server, "DELETE", path, headers={"X-Session": s})[0] for s in ("s-1", "s-1", "s-2", "s-2")]
    assert statuses == [200, 404, 200, 404]


def test_port_in_use_is_one_clear_error(world, served):
    with pytest.raises(ToolWorldError, match=f"127.0.0.1:{served[0].port}: Address already in use"):
        WorldServer(world, port=served[0].port)
    with pytest.raises(ToolWorldError, match="70000"):
        WorldServer(world, port=70000)


def gone(pid, seconds=5.0):
    """Whether a process ends within the time (a zombie has ended)."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            with open(f"/proc/{pid}/stat") as stat:
                if stat.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="needs /proc to look at processes")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_server_ends_with_its_parent(number):
    code = (
        "import time; from toolworld.server import WorldServer; from toolworld.world import build_world\n"
        "server = WorldServer(build_world(0)); print(server.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    pid = int(parent.stdout.readline())
    assert not gone(pid, 0.2)
    parent.send_signal(number)
    parent.wait(10)
    parent.stdout.close()
    assert gone(pid)


def test_foreground_serves_and_ends_on_ctrl_c():
    command = [sys.executable, "-m", "toolworld.server", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        port = int(line.split("http://127.0.0.1:")[1].split(";")[0])
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        client.request("GET", "/nowhere")
        assert client.getresponse().status == 404
        client.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
        assert "Traceback" not in process.stderr.read()


def test_command_line_errors_are_one_line(served):
    command = [sys.executable, "-m", "toolworld.server", "--port", str(served[0].port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert str(served[0].port) in done.stderr
