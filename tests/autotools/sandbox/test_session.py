"""Sessions, the zygote and the command: state, limits, recovery, and nothing left behind."""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from autotools.errors import ConfigError, SandboxError
from autotools.program import ProgramRunner
from autotools.sandbox import SandboxConfig, Session, Zygote, run_many, tiers
from autotools.sandbox.tiers import choose_tier, tier_problem

ROOT = Path(__file__).resolve().parents[3]
QUICK = SandboxConfig(min_tier="plain", soft_s=0.5, hard_s=1.0)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def children(root: int | None = None) -> set[str]:
    """Pids of all live processes below this one or ``root`` (zombies are none)."""
    parents = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            state, parent = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[:2]
        except OSError:
            continue
        if state != "Z":
            parents[pid] = parent
    below, found = {str(root or os.getpid())}, set()
    while below:
        below = {pid for pid, parent in parents.items() if parent in below}
        found |= below
    return found


def folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("autotools-sandbox-*"))


def wait_until(condition: Callable[[], bool], limit_s: float = 5.0) -> bool:
    end = time.monotonic() + limit_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


@pytest.mark.parametrize("tier", ["bwrap", "kernel", "plain"])
def test_variables_survive_errors_exits_and_soft_limits(tier: str) -> None:
    if problem := tier_problem(tier):
        pytest.skip(problem)
    with Session(SandboxConfig(tier=tier, soft_s=0.5, hard_s=2)) as session:
        assert session.run("x = [1]\nx").output == "[1]\n"
        error = session.run("x.append(2)\ndef f():\n    raise ValueError('no')\nf()")
        assert (error.status, error.state) == ("error", "kept")
        assert error.error == (
            'Traceback (most recent call last):\n  File "<program 2>", line 4\n    f()\n'
            "  File \"<program 2>\", line 3, in f\n    raise ValueError('no')\nValueError: no"
        )
        assert session.run("x.append(3)\nwhile True: pass").status == "timeout"
        assert session.run("import sys\nx.append(4)\nsys.exit('bye')").output == "bye\n"
        assert session.run("x").output == "[1, 2, 3, 4]\n"


@pytest.mark.parametrize(
    ("program", "shown"),
    [
        ("1 + 1", "2\n"),
        ("x = 1; (x +\n 1); x + 5  # six", "6\n"),
        ("'ü' + 'é'", "'üé'\n"),
        ("a = 'ü'; a", "'ü'\n"),
        ("None", ""),
        ("x = 3", ""),
        ("for i in range(2):\n    i", ""),
        ("(y := 4)", "4\n"),
        ("[i for i in\n range(3)\n];", "[0, 1, 2]\n"),
        ("from __future__ import annotations\ndef f(a: undefined): pass\nf.__annotations__", "{'a': 'undefined'}\n"),
        ("+".join(["1"] * 2000), "2000\n"),
        ("", ""),
        ("# only a comment", ""),
    ],
)
def test_last_expression_is_shown(program: str, shown: str, quick: Session) -> None:
    result = quick.run(program)
    assert (result.status, result.output) == ("ok", shown), result.error


@pytest.fixture(scope="module")
def quick() -> Session:
    with Session(QUICK) as session:
        yield session


def test_syntax_errors_name_the_line(quick: Session) -> None:
    error = quick.run("x = 1\ny = (\n").error or ""
    assert "line 2" in error and error.endswith("SyntaxError: '(' was never closed")
    assert quick.run("x = '\0'").status == "error"
    assert quick.run("x = '\ud800'").status == "error"


def test_hard_kill_restores_by_replay_or_says_that_it_is_lost() -> None:
    with Session(QUICK) as session:
        session.run("x = 41")
        session.run("x += 1")
        killed = session.run("x = 0\nimport os\nos._exit(3)")
        assert (killed.status, killed.state) == ("died", "restored")
        assert "exit code 3" in (killed.error or "") and killed.note == "state restored by replaying 2 programs"
        assert session.run("x").output == "42\n"
    with Session(QUICK) as session:
        # a program that fails when run again: the state must not be passed off as the old one
        session.run("import time\nstart = 1e18")
        session.run(f"assert time.time() < {time.time() + 0.4}")
        time.sleep(0.5)
        lost = session.run("import os\nos.abort()")
        assert (lost.status, lost.state) == ("died", "lost") and "SIGABRT" in (lost.error or "")
        after = session.run("start")
        assert after.status == "error" and "NameError" in (after.error or "")


def test_uninterruptible_code_is_killed_in_time() -> None:
    with Session(QUICK) as session:
        start = time.monotonic()
        result = session.run("sum(range(10**12))")
        assert result.status == "timeout" and QUICK.hard_s <= time.monotonic() - start < QUICK.hard_s + 1


def test_library_functions_are_preloaded_and_may_be_redefined() -> None:
    with Session(QUICK, library="def area(r):\n    return 3 * r * r\n") as session:
        assert session.run("area(2)").output == "12\n"
        assert session.run("def area(r):\n    return 0\narea(2)").output == "0\n"
        assert session.run("import os; os._exit(1)").state == "restored"
        assert session.run("area(2)").output == "0\n"
    with pytest.raises(SandboxError, match=r"(?s)library does not load: error: .*NameError"):
        Session(QUICK, library="undefined_name")
    with pytest.raises(SandboxError, match="library does not load: SyntaxError"):
        Zygote(QUICK, library="def f(:", preload=())


def test_programs_of_a_zygote_share_nothing() -> None:
    with Zygote(QUICK, library="def twice(x):\n    return 2 * x", preload=()) as zygote:
        spoil = (
            "import builtins, os, json\nopen('left', 'w').write('x')\nos.mkdir('d')\nbuiltins.print = None\nkept = 1"
        )
        assert zygote.run(spoil + "\njson.loads = None\nglobals()['twice'] = None").status == "ok"
        look = "import json, os\nprint(json.loads('3'), os.listdir(), 'kept' in globals(), twice(4))"
        assert zygote.run(look).output == "3 [] False 8\n"
        died = zygote.run("import os\nos.kill(os.getpid(), 11)")
        assert died.status == "died" and "SIGSEGV" in (died.error or "")
        assert zygote.run("while True: pass").status == "timeout"
        assert (
            zygote.run("while True:\n    try:\n        while True: pass\n    except BaseException: pass").status
            == "timeout"
        )
        assert zygote.run("twice(21)").output == "42\n"


def test_many_programs_come_back_in_order_and_isolated() -> None:
    programs = [f"import math\nprint({n}, hasattr(math, 'mark'))\nmath.mark = 1" for n in range(12)] + ["1/0"]
    results = run_many(programs, QUICK, workers=2, preload=())
    assert [r.output for r in results] == [f"{n} False\n" for n in range(12)] + [""]
    assert results[-1].status == "error" and run_many([], QUICK, preload=()) == []
    with pytest.raises(SandboxError, match="library does not load"):
        run_many(programs, QUICK, preload=(), library="1/0")


@pytest.mark.parametrize(("isolated", "left"), [(True, 0), (False, 1)])
def test_programs_share_modules_only_if_they_may(isolated: bool, left: int) -> None:
    with ProgramRunner("", "http://127.0.0.1:9", isolated=isolated) as runner:
        assert runner.run("import math, random\nmath.mark = 1\nx = 1\nrandom.random()", "s").status == "ok"
        look = "import math, os, random\nfinish([int(hasattr(math, 'mark')), 'x' in globals(), random.random()])"
        assert runner.run(look, "s").answer == [left, False, random.Random(0).random()]


def test_a_program_cannot_signal_its_zygote_or_host() -> None:
    if tier_problem("bwrap") and tier_problem("kernel"):
        pytest.skip("needs seccomp")
    with Zygote(SandboxConfig(soft_s=1), preload=()) as zygote:
        attack = f"import os\nfor pid in (os.getppid(), 1, -1, 0, {os.getpid()}):\n    try:\n        os.kill(pid, 9)\n"
        attack += "        print('sent', pid)\n    except OSError as e:\n        print('refused')"
        pid = zygote.worker.process.pid if zygote.worker else 0
        assert zygote.run(attack).output == "refused\n" * 5
        assert zygote.worker and zygote.worker.process.pid == pid


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="needs /proc")
def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # other processes have folders of theirs in the usual one
    with Session(QUICK) as session:
        session.run("1")  # the starter thread and the probes are there from now on
    count = int(os.environ.get("SANDBOX_SESSIONS", "20"))
    before = descriptors(), children(), folders()
    for number in range(count):
        with Session(QUICK) as session:
            if number % 2:
                session.run("import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()")
            if number % 5 == 0:
                session.run("import os; os._exit(0)")
    with Zygote(QUICK, preload=()) as zygote:
        zygote.run("while True: pass")
    after = wait_until(lambda: (descriptors(), children(), folders()) == before)
    assert after, (before, descriptors(), children(), folders())


@pytest.mark.slow
def test_nothing_is_left_behind_by_a_hundred_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_SESSIONS", "100")
    test_nothing_is_left_behind(tmp_path, monkeypatch)


@pytest.mark.parametrize("tier", ["bwrap", "kernel"])
def test_worker_dies_with_a_killed_host(tier: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if problem := tier_problem(tier):
        pytest.skip(problem)
    code = (
        "import os, sys\nfrom autotools.sandbox import SandboxConfig, Session\n"
        f"session = Session(SandboxConfig(tier={tier!r}, soft_s=60, hard_s=60))\n"
        "print(session._worker.process.pid, flush=True)\nsession.run('while True: pass')"
    )
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    host = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert host.stdout
    assert int(host.stdout.readline())
    assert wait_until(lambda: bool(children(host.pid)))
    below = children(host.pid)
    time.sleep(0.2)
    host.kill()
    host.wait(10)
    host.stdout.close()
    assert wait_until(lambda: not any(running(pid) for pid in below))
    subprocess.run([sys.executable, "-c", "from autotools.sandbox import process; process._sweep_once()"], cwd=ROOT)
    assert folders() == set()


def running(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_total_size_of_files_is_limited_between_turns_where_there_is_no_file_system() -> None:
    if problem := tier_problem("kernel"):
        pytest.skip(problem)
    with Session(SandboxConfig(tier="kernel", soft_s=2, tmp_mb=2)) as session:
        full = session.run("for i in range(3):\n    open(str(i), 'wb').write(bytes(range(256)) * 4096)")
        assert full.status == "error" and "3 MiB, allowed are 2" in (full.error or "")
        assert session.run("import os; os.listdir()").output == "[]\n"


@pytest.mark.parametrize(
    "call",
    [
        "os.chmod('/usr', 0o777)", "os.chown('/usr', 0, 0)", "os.utime('/usr')", "os.setxattr('/usr', 'user.x', b'')",
        "os.truncate('/usr/bin/env', 0)", "os.execv('/bin/true', ['true'])", "os.link('/usr/bin/env', 'env')",
        "os.mkfifo('/usr/f')", "ctypes.CDLL(None, use_errno=True).unshare(0x10000000) and error()",
        "fcntl.fcntl(1, 8, os.getppid())", "os.memfd_create('m')", "resource.prlimit(os.getppid(), 7)",
        "socket.socket(socket.AF_UNIX)", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        "os.listdir('/proc/self')", "open('/etc/passwd')", "os.rename('/usr/bin/env', '/usr/bin/env2')",
    ],
)  # fmt: skip
@pytest.mark.parametrize("tier", ["bwrap", "kernel"])
def test_kernel_doors_are_closed(tier: str, call: str, confined: Callable[[str], Session]) -> None:
    program = (
        f"import ctypes, fcntl, os, resource, socket\ndef error(): raise OSError(1, 'refused')\ntry:\n    {call}\n"
    )
    program += "except OSError: print('refused')\nelse: print('open')"
    assert confined(tier).run(program).output == "refused\n"


@pytest.fixture(scope="module")
def confined() -> Callable[[str], Session]:
    sessions: dict[str, Session] = {}

    def get(tier: str) -> Session:
        if problem := tier_problem(tier):
            pytest.skip(problem)
        if tier not in sessions:
            sessions[tier] = Session(SandboxConfig(tier=tier, soft_s=2))
        return sessions[tier]

    yield get
    for session in sessions.values():
        session.close()


def test_threads_and_asyncio_work(confined: Callable[[str], Session]) -> None:
    program = "import asyncio, threading\nt = threading.Thread(target=print, args=('thread',)); t.start(); t.join()\n"
    for tier in ("bwrap", "kernel"):
        assert confined(tier).run(program + "asyncio.run(asyncio.sleep(0, 'done'))").output == "thread\n'done'\n"


def test_sessions_outlive_the_thread_that_made_them() -> None:
    import threading

    made: list[Session] = []
    thread = threading.Thread(target=lambda: made.append(Session(QUICK)))
    thread.start()
    thread.join()
    time.sleep(0.1)
    with made[0] as session:
        assert session.run("6 * 7").output == "42\n"


def test_a_weaker_host_is_an_error_that_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "tier_problem", lambda tier: "" if tier == "plain" else f"no {tier} here")
    with pytest.raises(SandboxError, match="bwrap: no bwrap here; kernel: no kernel here"):
        choose_tier("auto", "kernel")
    assert choose_tier("auto", "plain") == "plain"
    with pytest.raises(SandboxError, match="no kernel here"):
        choose_tier("kernel")


def test_other_systems_and_machines_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "needs Linux, this is darwin" in tier_problem.__wrapped__("kernel")
    monkeypatch.undo()
    monkeypatch.setenv("PATH", "")
    assert "bwrap" in tier_problem.__wrapped__("bwrap")


def test_a_tier_that_leaks_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe must be able to fail: a worker of tier plain that claims to be more."""
    start = tiers.start_worker
    monkeypatch.setattr(tiers, "start_worker", lambda config, tier, **more: start(config, "plain", **more))
    problem = tier_problem.__wrapped__("kernel")
    for door in ("network", "new processes", "files of the host", "writing beside its folder"):
        assert door in problem


def test_settings_that_cannot_work_are_refused() -> None:
    for wrong in ({"tier": "jail"}, {"min_tier": "auto"}, {"soft_s": 3.0, "hard_s": 2.0}, {"memory_mb": 0}):
        with pytest.raises(ConfigError, match="sandbox"):
            SandboxConfig(**wrong)


# --- the command ------------------------------------------------------------------------------------------------


def command(*words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "autotools.sandbox", *words]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_command_prints_one_json_line_per_program(tmp_path: Path) -> None:
    one, many = tmp_path / "one.py", tmp_path / "many.jsonl"
    one.write_text("x = 2\n# %% next turn\nprint('y' * 100)\nx * 21\n")
    rows = [{"id": "a", "program": "1/0"}, {"id": "b", "program": "k = 1\n# %% next turn\nimport os; os._exit(1)"}]
    many.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = command("run", str(one), str(many), "--min_tier", "plain", "--max_output", "40")
    assert done.returncode == 0, done.stderr
    first, second, third = (json.loads(line) for line in done.stdout.splitlines())
    assert list(first) == ["id", "status", "output", "truncated", "error", "wall_s", "tier", "state", "turns"]
    assert (first["id"], first["status"], first["truncated"], first["state"]) == ("one", "ok", True, "kept")
    assert [turn["status"] for turn in first["turns"]] == ["ok", "ok"] and first["output"].endswith("y\n42\n")
    assert (second["id"], second["status"]) == ("a", "error") and "ZeroDivisionError" in second["error"]
    assert (third["status"], third["state"]) == ("died", "restored")
    assert done.stderr.count("sandbox: tier") == 1


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.jsonl", '{"id": "a", "program": "1"}\n{"id": "b"}\n', "x.jsonl, line 2: not an object with id and program"),
        ("x.jsonl", '{"id": "a", "program": 1}\n', "line 1: program is int"),
        ("x.txt", "1", "neither .py nor .jsonl"),
    ],
)
def test_command_refuses_bad_files_before_it_runs_any(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    done = command("run", str(tmp_path / name), "--tier", "plain")
    assert (done.returncode, done.stdout) == (2, "") and said in done.stderr


def test_command_needs_run_and_a_file() -> None:
    assert command("run").returncode == 2
    assert "did you mean 'soft_s'" in command("run", "x.py", "--soft", "1").stderr
    assert command("--help").stdout.startswith("usage: python -m autotools.sandbox run")
