"""HTTP calls of programs: what the host lets through, against a real and hostile service on loopback.

The service counts what arrives; that count, not the sandbox's own word, says whether a refusal was one.
"""

import gzip
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from autotools.errors import ConfigError
from autotools.sandbox import AllowList, HttpGate, ReplayCalls, SandboxConfig, Session
from autotools.sandbox.outbound import Refusal


class Service(BaseHTTPRequestHandler):
    """Answers by path; every path below /hostile misbehaves."""

    protocol_version = "HTTP/1.1"
    timeout = 20
    seen: list[tuple[str, str, dict[str, str], bytes]] = []
    elsewhere = ""

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        Service.seen.append((self.command, self.path, dict(self.headers), body))
        name = self.path.partition("?")[0].rpartition("/")[2]
        getattr(self, name.replace("-", "_"), self.echo)()

    do_GET = do_POST = do_HEAD = answer

    def reply(self, data: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for header, value in ({"Content-Type": "application/json"} | headers).items():
            self.send_header(header.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def echo(self) -> None:
        self.reply(json.dumps({"path": self.path, "count": len(Service.seen)}).encode())

    def first(self) -> None:
        self.reply(b'"first"')

    def slow(self) -> None:
        time.sleep(1.0)
        self.reply(b'"slow"')

    def endless(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            while True:
                self.wfile.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        except OSError:
            self.close_connection = True

    def big_json(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(100 << 20))
        self.end_headers()
        try:
            for _ in range(100):
                self.wfile.write(b"[" + b" " * ((1 << 20) - 1))
        except OSError:
            self.close_connection = True

    def drip(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self._drip(b"x")

    def drip_headers(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        self._drip(b"y")

    def _drip(self, data: bytes) -> None:
        try:
            for _ in range(100):
                self.wfile.write(data)
                time.sleep(0.1)
        except OSError:
            self.close_connection = True

    def continues(self) -> None:
        try:
            while True:
                self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        except OSError:
            self.close_connection = True

    def many_headers(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\n" + b"X-A: 1\r\n" * 5000 + b"\r\n")
        self.close_connection = True

    def garbage(self) -> None:
        self.wfile.write(b"\x00\xff not http at all\r\n\r\n")
        self.close_connection = True

    def html(self) -> None:
        self.reply(b"<html>no json</html>", Content_Type="application/json")

    def json_as_text(self) -> None:
        self.reply(b'{"ok": 1}', Content_Type="image/png; charset=\xff".encode("latin-1").decode("latin-1"))

    def bomb(self) -> None:
        self.reply(gzip.compress(bytes(700 << 20), 1), Content_Encoding="gzip")

    def away(self) -> None:
        self.reply(b"", 302, Location=Service.elsewhere + "/stolen")

    def near(self) -> None:
        self.reply(b"", 302, Location="/api/first")

    def above(self) -> None:
        self.reply(b"", 302, Location="/admin")

    def loop(self) -> None:
        self.reply(b"", 302, Location=self.path)

    def cookie(self) -> None:
        self.reply(b'"set"', Set_Cookie="k=v; Path=/")

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[str, str]]:
    """Base URLs of two origins: the first is allowed (below /api), the second never."""
    made = [ThreadingHTTPServer(("127.0.0.1", 0), Service) for _ in range(2)]
    for server in made:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
    urls = [f"http://127.0.0.1:{server.server_port}" for server in made]
    Service.elsewhere = urls[1]
    yield urls[0], urls[1]
    for server in made:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def session(servers: tuple[str, str]) -> Iterator[Session]:
    pytest.importorskip("requests", reason="programs need the package requests")
    config = SandboxConfig(min_tier="plain", soft_s=1.5, hard_s=3, allow=[servers[0] + "/api"], call_limit=5)
    with Session(config) as session:
        # loading requests takes a busy machine a second: not what these tests are about
        assert session.run(f"import requests\nbase = {servers[0]!r}\ns = requests.Session()", 20, 20).status == "ok"
        yield session


def test_requests_works_as_ever(session: Session, servers: tuple[str, str]) -> None:
    Service.seen.clear()
    program = (
        "r = s.post(base + '/api/x', params={'q': 'a b'}, json={'k': 'ü'}, headers={'X-A': '1', 'Host': 'evil'})\n"
    )
    program += "r.status_code, r.ok, r.json()['path'], r.headers['content-type'], r.url == base + '/api/x?q=a+b'"
    assert session.run(program).output == "(200, True, '/api/x?q=a+b', 'application/json', True)\n"
    (seen,) = Service.seen
    assert seen[:2] == ("POST", "/api/x?q=a+b") and json.loads(seen[3]) == {"k": "ü"}
    assert seen[2]["X-A"] == "1" and seen[2]["Host"] == servers[0].removeprefix("http://")
    session.run("s.get(base + '/api/cookie'); s.get(base + '/api/y')")
    assert Service.seen[-1][2]["Cookie"] == "k=v"
    assert session.run("s.head(base + '/api/x').status_code").output == "200\n"
    assert session.run("[h.status_code for h in s.get(base + '/api/near').history]").output == "[302]\n"


REFUSED = [
    "base + '/admin'", "base + '/apix'", "base + '/api/../admin'", "base + '/api/%2e%2e/admin'",
    "base + '/api/%252e%252e/admin'", "base.replace('127.0.0.1', 'localhost') + '/api'",
    "base.replace('http', 'https') + '/api'",
    "base.replace('//', '//user@') + '/api'", "'http://127.0.0.1:1/api'",
]  # fmt: skip


@pytest.mark.parametrize("url", REFUSED)
def test_what_is_not_listed_is_refused_and_never_arrives(session: Session, url: str) -> None:
    Service.seen.clear()
    # sent as it is: requests itself would take '..' out of the path
    program = f"q = requests.Request('GET', 'http://x').prepare(); q.url = {url}\ns.send(q, allow_redirects=False)"
    result = session.run(program)
    assert result.status == "error" and "ConnectionError" in (result.error or ""), result.error
    assert Service.seen == []


def test_redirects_are_judged_hop_by_hop(session: Session) -> None:
    Service.seen.clear()
    for path in ("away", "above"):
        result = session.run(f"s.get(base + '/api/{path}')")
        assert "not in the list of allowed URLs" in (result.error or "")
    assert [path for _, path, _, _ in Service.seen] == ["/api/away", "/api/above"]
    loop = session.run("s.get(base + '/api/loop')")
    assert loop.status == "error" and "tool call limit of this turn (5) reached" in (loop.error or "")
    assert len(Service.seen) == 2 + 5


def test_calls_of_a_turn_are_counted_by_the_host(session: Session) -> None:
    Service.seen.clear()
    program = "said = []\nfor n in range(8):\n    try:\n        said.append(s.get(base + '/api/n').status_code)\n"
    program += "    except requests.ConnectionError as e:\n        said.append(str(e))\nsaid"
    result = session.run(program)
    assert result.output.count("200") == 5 and result.output.count("tool call limit of this turn (5) reached") == 3
    assert len(Service.seen) == 5
    assert session.run("s.get(base + '/api/n').status_code").output == "200\n"  # the next turn counts anew


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("endless", "error", "larger than 4194304 bytes"),
        ("big-json", "error", "larger than 4194304 bytes"),
        ("drip", "timeout", "no end after"),
        ("drip-headers", "timeout", "no end after"),
        ("continues", "timeout", "no end after"),
        ("many-headers", "error", "did not answer"),
        ("garbage", "error", "did not answer"),
        ("html", "error", "JSONDecodeError"),
        ("json-as-text", "ok", ""),
        ("bomb", "error", ""),
    ],
)
def test_a_hostile_service_can_neither_hang_nor_fool_a_session(
    session: Session, path: str, status: str, said: str
) -> None:
    start = time.monotonic()
    result = session.run(f"s.get(base + '/api/{path}').json()")
    assert time.monotonic() - start < 3 + 1
    if path == "bomb":  # 700 MiB out of 3: whatever limit it meets, it meets one
        assert result.status in ("error", "timeout", "died"), result
    else:
        assert result.status == status and said in (result.error or ""), result
    after = session.run("s.get(base + '/api/first').json()" if result.state != "lost" else "'first'")
    assert after.output == "'first'\n", after


def test_a_slow_service_meets_the_programs_own_timeout(session: Session) -> None:
    program = "try:\n    s.get(base + '/api/drip', timeout=0.3)\nexcept requests.Timeout as e:\n    print('late', e)"
    result = session.run(program)
    assert result.output.startswith("late") and result.wall_s < 1.2


def test_the_answer_to_an_interrupted_call_is_not_given_to_the_next(session: Session) -> None:
    assert session.run("s.get(base + '/api/slow')", 0.3, 2).status == "timeout"
    time.sleep(1.0)  # now the late answer has arrived, and must have been thrown away
    assert session.run("s.get(base + '/api/first').json()").output == "'first'\n"


def test_garbage_on_the_call_channel_is_a_protocol_fault(servers: tuple[str, str]) -> None:
    with Session(SandboxConfig(min_tier="plain", soft_s=1, hard_s=2)) as session:
        for frame in (b"\0\0\0\2[]", b"\0\0\0\x02{}", b"\xff\xff\xff\xff", b"\0\0\0\x0a" + b'{"n": "x"}'):
            program = f"import os\nfor n in range(3, 40):\n    try: os.write(n, {frame!r})\n    except OSError: pass\n"
            result = session.run(program + "import time; time.sleep(0.5)")
            assert (result.status, result.state) == ("protocol", "restored")
            assert session.run("6 * 7", 5, 5).output == "42\n"
            session._history.clear()


def test_session_repeats_offline_from_its_records(servers: tuple[str, str]) -> None:
    pytest.importorskip("requests")
    config = SandboxConfig(min_tier="plain", soft_s=20, hard_s=20, allow=[servers[0] + "/api"])
    programs = [
        "import requests",
        f"r = requests.get('{servers[0]}/api/x').json()",
        "r['count']",
        f"requests.get('{servers[0]}/no')",
    ]
    with Session(config) as live:
        first = [live.run(program) for program in programs]
    records = json.loads(json.dumps(live.records))
    Service.seen.clear()
    with Session(config, calls=ReplayCalls(records)) as offline:
        again = [offline.run(program) for program in programs]
        other = offline.run(f"requests.get('{servers[0]}/api/other')")
    assert [(r.status, r.output, r.error) for r in again] == [(r.status, r.output, r.error) for r in first]
    assert "not in the recording" in (other.error or "") and Service.seen == []


def test_restoring_uses_recorded_responses_and_notices_divergence(servers: tuple[str, str]) -> None:
    pytest.importorskip("requests")
    config = SandboxConfig(min_tier="plain", soft_s=10, hard_s=10, allow=[servers[0] + "/api"])
    with Session(config) as session:
        session.run(f"import requests\ncount = requests.get('{servers[0]}/api/x').json()['count']\ncount")
        Service.seen.clear()
        assert session.run("import os; os._exit(1)").state == "restored"
        assert session.run("print(count)").status == "ok" and Service.seen == []
        session.run(f"import time\nrequests.get('{servers[0]}/api/' + str(time.time()))")
        lost = session.run("import os; os._exit(1)")
        assert (lost.state, lost.note) == ("lost", "state lost: define your variables again")
        assert len(Service.seen) == 1


def test_secrets_are_added_by_the_host_for_their_service_only(servers: tuple[str, str]) -> None:
    pytest.importorskip("requests")
    one, two = servers[0] + "/api", servers[1] + "/api"
    gate = HttpGate(AllowList([one, two], {one: {"X-Api-Key": "k-1"}}))
    with Session(SandboxConfig(min_tier="plain", soft_s=10, hard_s=10), calls=gate) as session:
        Service.seen.clear()
        session.run(f"import requests\nfor u in ({one!r}, {two!r}): requests.get(u + '/x')")
        assert [seen[2].get("X-Api-Key") for seen in Service.seen] == ["k-1", None]
        assert "k-1" not in json.dumps(session.records)


def test_allow_list_judges_the_parsed_url(monkeypatch: pytest.MonkeyPatch) -> None:
    allow = AllowList(["https://api.example.com/v1/", "http://[::1]:8080", "http://tools.example.com"])
    assert allow.check("https://API.example.com:443/v1/x?q=1")[1] == "/v1/x?q=1"
    assert allow.check("https://api.example.com/v1")[1] == "/v1"
    assert allow.check("http://[::1]:8080")[1] == "/"
    for url in (
        "https://api.example.com/v10", "http://api.example.com/v1/x", "https://api.example.com:444/v1/x",
        "https://api.example.com.evil.com/v1/x", "https://evil.com/https://api.example.com/v1/x",
        "//api.example.com/v1/x",
        "https://api.example.com\\@evil.com/v1/x", "https://api.example.com/v1/\r\nX: y", "https://api.example.com:x/v1",
        "https://u:p@api.example.com/v1/x", "https://evil.com#@api.example.com/v1/x", "ftp://api.example.com/v1/x",
        "https://[::1/v1", "", "https:///v1",
    ):  # fmt: skip
        with pytest.raises(Refusal):
            allow.check(url)
    for bad in ("api.example.com", "ftp://x.org", "http://u@x.org", "http://x.org/?q=1"):
        with pytest.raises(ConfigError, match="allowed URL"):
            AllowList([bad])


def test_a_listed_name_may_not_lead_to_a_private_address(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("requests")
    import socket

    real = socket.getaddrinfo

    def resolve(host: str, port: int, **more: Any) -> Any:
        return real("127.0.0.1" if host == "tools.example.com" else host, port, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    config = SandboxConfig(min_tier="plain", soft_s=10, hard_s=10, allow=["http://tools.example.com"])
    with Session(config) as session:
        result = session.run("import requests\nrequests.get('http://tools.example.com/x')")
    assert "resolves to the private address 127.0.0.1" in (result.error or "")


def test_a_program_cannot_get_around_the_patched_transport(session: Session, servers: tuple[str, str]) -> None:
    if session.tier == "plain":
        pytest.skip("tier plain stops no network")
    Service.seen.clear()
    host, port = servers[0].removeprefix("http://").split(":")
    for program in (
        f"import http.client; c = http.client.HTTPConnection({host!r}, {port}); c.request('GET', '/api/x')",
        f"import urllib.request; urllib.request.urlopen('{servers[0]}/api/x')",
        f"import urllib3; urllib3.PoolManager().request('GET', '{servers[0]}/api/x', retries=False)",
    ):
        assert session.run(program).status == "error"
    fresh = "import sys\nkept = {k: sys.modules.pop(k) for k in list(sys.modules) if k.startswith('requests')}\n"
    fresh += "import requests as new\ntry:\n    print(new.get(base + '/admin'))\nfinally:\n    sys.modules.update(kept)"
    assert "not in the list" in (session.run(fresh, 20, 20).error or "")
    assert Service.seen == []
