"""However a pipeline ends, its processes end with it: signals to driver, guard or stage; odd descendants."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import psutil
import pytest

from autotools.errors import RunFolderError

ROOT = Path(__file__).resolve().parents[2]

# Stage a has four descendants: one in its group, one in a session of its own, one that ignores SIGTERM, and one that
# is orphaned, in a session of its own and without our environment. "quick" ends and forgets a child.
NURSERY = """
import subprocess, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import stage_runner
from stage_runner import Stage, StageRunner, interrupts_as_exceptions
from autotools.config import run_main
stage_runner.GRACE_S = 1.0
token, work = sys.argv[2], Path(sys.argv[3])
sleeper = [sys.executable, '-c', 'import time; time.sleep(600)', token]
stubborn = [sys.executable, '-c', 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);'
            'time.sleep(600)', token]
orphan = f'import subprocess; subprocess.Popen({sleeper!r}, start_new_session=True, env={{}})'
starts = [f'subprocess.Popen({sleeper!r})', f'subprocess.Popen({sleeper!r}, start_new_session=True)',
          f'subprocess.Popen({stubborn!r})', f'subprocess.run({[sys.executable, "-c", orphan]!r})']
parent = f'import subprocess, sys, time; {"; ".join(starts)}; time.sleep(600)'
quick = [sys.executable, '-c', f'import subprocess; subprocess.Popen({sleeper!r})', token]
def main():
    with interrupts_as_exceptions():
        runner = StageRunner(work / 'logs', work)
        runner.run_step([Stage('quick', tuple(quick))])
        runner.run_step([Stage('a', (sys.executable, '-c', parent, token)), Stage('b', tuple(sleeper))])
run_main(main)
"""
PROCESSES = 9  # driver, guard and command of a, four descendants of a, guard and command of b


def with_token(token: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if token in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def wait_until(met: Callable[[], bool], seconds: float, what: Callable[[], str]) -> None:
    end = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < end, what()
        time.sleep(0.1)


def guard_of_a(driver: psutil.Process) -> psutil.Process:
    return max(driver.children(), key=lambda child: len(child.children(recursive=True)))


VICTIMS: dict[str, Callable[[psutil.Process], psutil.Process]] = {
    "driver": lambda driver: driver,
    "guard": guard_of_a,
    "command": lambda driver: min(guard_of_a(driver).children(), key=lambda child: child.create_time()),
}


@pytest.mark.parametrize(
    ("victim", "number", "ignored", "code"),
    [
        ("driver", signal.SIGINT, False, 130),
        ("driver", signal.SIGINT, True, 130),
        ("driver", signal.SIGTERM, False, 143),
        pytest.param("driver", signal.SIGHUP, False, -signal.SIGHUP, marks=pytest.mark.slow),
        ("driver", signal.SIGKILL, False, -signal.SIGKILL),
        pytest.param("guard", signal.SIGTERM, False, 2, marks=pytest.mark.slow),
        ("guard", signal.SIGKILL, False, 2),
        pytest.param("command", signal.SIGTERM, False, 2, marks=pytest.mark.slow),
        ("command", signal.SIGKILL, False, 2),
    ],
)
def test_nothing_is_left(tmp_path: Path, victim: str, number: int, ignored: bool, code: int) -> None:
    """``ignored``: a shell's ``command &`` starts its children with SIGINT ignored."""
    token = f"nursery-{os.getpid()}-{time.monotonic_ns()}"
    (tmp_path / "nursery.py").write_text(NURSERY)
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if ignored else None
    try:
        command = [sys.executable, str(tmp_path / "nursery.py"), str(ROOT / "launch"), token, str(tmp_path)]
        environment = os.environ | {"TMPDIR": str(tmp_path)}
        driver = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    finally:
        if ignored:
            signal.signal(signal.SIGINT, handler)
    try:
        # the child that "quick" forgot is gone by then
        wait_until(lambda: len(with_token(token)) >= PROCESSES, 30, lambda: f"only {with_token(token)}")
        assert len(with_token(token)) == PROCESSES
        time.sleep(0.6)  # the runner looks at its processes every half second; it needs that if a guard is killed
        VICTIMS[victim](psutil.Process(driver.pid)).send_signal(number)
        _, err = driver.communicate(timeout=30)
        assert driver.returncode == code
        assert "Traceback" not in err
        if victim != "driver":
            assert "stage a failed" in err and str(tmp_path / "logs" / "a.log") in err
        wait_until(lambda: not with_token(token), 5, lambda: f"left behind: {with_token(token)}")
        assert not list((tmp_path / "logs").glob("[ab].done.json"))
        wait_until(lambda: not list(tmp_path.glob("autotools-*")), 2, lambda: "temporary folders")
    finally:
        for process in with_token(token):
            process.kill()


def test_a_failing_stage_ends_its_neighbour(quickstart: ModuleType, tmp_path: Path) -> None:
    from stage_runner import Stage, StageError, StageRunner

    token = f"neighbour-{os.getpid()}-{time.monotonic_ns()}"
    stages = [
        Stage("long", (sys.executable, "-c", "import time; time.sleep(600)", token)),
        Stage("short", (sys.executable, "-c", "import time; time.sleep(0.5); raise SystemExit(1)")),
    ]
    with pytest.raises(StageError, match=r"stage short failed \(exit code 1\)"):
        StageRunner(tmp_path / "logs", tmp_path).run_step(stages)
    assert not with_token(token)


def test_a_command_that_cannot_start_is_named(quickstart: ModuleType, tmp_path: Path) -> None:
    from stage_runner import Stage, StageError, StageRunner

    with pytest.raises(StageError, match=r"stage s failed \(exit code 127\)"):
        StageRunner(tmp_path / "logs", tmp_path).run_step([Stage("s", (str(tmp_path / "absent"), "x"))])
    assert (
        (tmp_path / "logs" / "s.log")
        .read_text()
        .endswith(f"cannot start {tmp_path}/absent: No such file or directory\n")
    )


def test_one_driver_per_folder(quickstart: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is held by a driver, and after its death by a guard that is still at work."""
    import stage_runner

    monkeypatch.setattr(stage_runner, "LOCK_WAIT_S", 0.3)
    token = f"lock-{os.getpid()}-{time.monotonic_ns()}"
    holder = tmp_path / "holder.py"
    holder.write_text(
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); import stage_runner as s\n"
        "s.GRACE_S = 3.0; out = Path(sys.argv[3])\n"
        "code = 'import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(60)'\n"
        "command = (sys.executable, '-c', code, sys.argv[2])\n"
        "with s.only_driver(out) as lock:\n"
        "    s.StageRunner(out / 'logs', out, lock=lock).run_step([s.Stage('a', command)])\n"
    )
    driver = subprocess.Popen([sys.executable, str(holder), str(ROOT / "launch"), token, str(tmp_path)])
    log = tmp_path / "logs" / "a.log"
    try:
        wait_until(lambda: log.exists() and "\n1\n" in log.read_text(), 20, lambda: "not started")
        for _ in ("driver alive", "driver dead, its guard in the time of grace"):
            with pytest.raises(RunFolderError, match="another quickstart works in"):
                with stage_runner.only_driver(tmp_path):
                    pass
            driver.kill()
            driver.wait()
        monkeypatch.setattr(stage_runner, "LOCK_WAIT_S", 8.0)
        with stage_runner.only_driver(tmp_path):
            assert not with_token(token)
    finally:
        for process in with_token(token):
            process.kill()
