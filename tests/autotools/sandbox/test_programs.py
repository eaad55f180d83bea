"""The attack programs of shared/data/sandbox_programs.jsonl in every tier, with real listeners as canaries."""

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from autotools.sandbox import SandboxConfig, Session
from autotools.sandbox.__main__ import split_turns
from autotools.sandbox.tiers import tier_problem

LIMITS_S = (1.0, 2.0)  # soft, hard: for programs that are to meet them
AMPLE_S = (8.0, 10.0)  # for the others: filling half a GiB takes a busy machine seconds
SECRET = "SBX_CANARY_7d1f"
# Tier plain stops none of this. Pinned, so that nobody takes it for a sandbox.
PLAIN_MUST_FAIL = {
    "net-loopback-socket", "net-unix-sockets", "subprocess-escape", "fork-24", "file-total-160mb",
}  # fmt: skip
PLAIN_MUST_FAIL_AS_ROOT = {
    "read-shadow", "write-outside", "ctypes-open-shadow", "read-proc-parent", "write-site-packages",
}  # fmt: skip
# a race (two workers on one channel), or what the user's own files happen to hold and allow
PLAIN_MAY_FAIL = PLAIN_MUST_FAIL_AS_ROOT | {"fork-second-worker", "read-home", "fds-garbage"}


class Canary:
    """TCP, UDP and unix listeners of this process; ``hits`` names those that anything reached."""

    def __init__(self, folder: Path) -> None:
        self.hits: list[str] = []
        self.unix = str(folder / "canary.sock")
        tcp = socket.create_server(("127.0.0.1", 0))
        self.port = tcp.getsockname()[1]
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind(("127.0.0.1", self.port))
        path, abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        path.bind(self.unix)
        abstract.bind("\0" + self.unix)
        self.sockets = [tcp, udp, path, abstract]
        for name, sock in zip(("tcp", "udp", "unix", "abstract"), self.sockets, strict=True):
            if name != "udp":
                sock.listen()
            threading.Thread(target=self._listen, args=(name, sock), daemon=True).start()

    def _listen(self, name: str, sock: socket.socket) -> None:
        while True:
            try:
                if name == "udp":
                    sock.recv(100)
                else:
                    sock.accept()[0].close()
            except OSError:
                return
            self.hits.append(name)


@pytest.fixture(scope="module")
def canary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Canary]:
    canary = Canary(tmp_path_factory.mktemp("c"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SBX_CANARY_SECRET", SECRET)
        yield canary
    for sock in canary.sockets:
        sock.close()


def need_tier(tier: str) -> None:
    if problem := tier_problem(tier):
        if os.environ.get("CI") == "true":
            pytest.fail(f"tier {tier} must exist in CI: {problem}")
        pytest.skip(f"tier {tier}: {problem}")


def met(expect: str, result: Any, states: set[str]) -> bool:
    """Section 5 of the sandbox design, about the last turn."""
    if expect.startswith("ok_value:"):
        return result.status == "ok" and expect.partition(":")[2] in result.output
    return {
        "error_returned": result.status == "error" and bool(result.error) and states == {"kept"},
        "timeout_returned": result.status == "timeout",
        "killed_returned": result.status in ("died", "protocol") and bool(result.error),
        "blocked": True,
        "truncated": result.status == "ok" and result.truncated and len(result.output) < 50_000
        and "HEAD-MARK" in result.output and "TAIL-MARK" in result.output,
        "state_kept": result.status == "ok" and "KEPT" in result.output and "lost" not in states,
    }[expect]  # fmt: skip


def problems_of(row: dict[str, str], tier: str, canary: Canary) -> list[str]:
    """What of the expectation and of the common conditions did not hold for one program."""
    text = row["program"].replace("CANARY_PORT", str(canary.port)).replace("CANARY_UNIX", canary.unix)
    found, outputs, states = [], [], set()
    endless = row["expect"] == "timeout_returned" or row["kind"] == "infinite_loop"
    soft_s, hard_s = LIMITS_S if endless else AMPLE_S
    with Session(SandboxConfig(tier=tier, soft_s=soft_s, hard_s=hard_s)) as session:
        for turn in split_turns(text):
            start = time.monotonic()
            result = session.run(turn)
            if (took := time.monotonic() - start) > hard_s + 1:
                found.append(f"answered after {took:.1f} s")
            outputs.append(result.output + (result.error or ""))
            states.add(result.state)
        after = session.run("print(6*7)")
    if not met(row["expect"], result, states):
        found.append(f"expected {row['expect']}, got {result.status} {sorted(states)}: {result.error}")
    if any("BREACH" in output or SECRET in output for output in outputs):
        found.append("BREACH")
    if after.status != "ok" or not after.output.endswith("42\n"):
        found.append(f"the next program: {after.status} {after.output[-80:]!r} {after.error}")
    return found


@pytest.mark.shared
@pytest.mark.parametrize("tier", ["bwrap", "kernel", "plain"])
def test_attack_programs(tier: str, shared_data: Path, canary: Canary) -> None:
    need_tier(tier)
    lines = (shared_data / "sandbox_programs.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) == 66
    canary.hits.clear()
    with ThreadPoolExecutor(3) as pool:  # most programs only wait for their time limit
        found = dict(zip((r["id"] for r in rows), pool.map(lambda r: problems_of(r, tier, canary), rows), strict=True))
    failed = {name: problems for name, problems in found.items() if problems}
    if tier == "plain":
        must = PLAIN_MUST_FAIL | (PLAIN_MUST_FAIL_AS_ROOT if os.getuid() == 0 else set())
        assert must <= set(failed), sorted(must - set(failed))
        assert set(failed) <= must | PLAIN_MAY_FAIL, failed
        assert {"tcp", "unix", "abstract"} <= set(canary.hits)
        return
    if tier == "kernel":
        assert failed.pop("file-total-160mb", None) == ["BREACH"]  # no total quota within a turn
    assert failed == {}
    assert canary.hits == []
