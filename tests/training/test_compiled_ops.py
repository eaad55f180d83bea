"""A lock that a killed compilation left must not hang the next run; one that is held must stay."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from torch.utils.file_baton import FileBaton  # the lock that torch itself takes around a compilation

from training import compiled_ops

HOLD = """
import sys, time
from torch.utils.file_baton import FileBaton
baton = FileBaton(sys.argv[1])
assert baton.try_acquire()
print("held", flush=True)
time.sleep(60)
"""


def _holder(lock: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "held\n"
    return process


def test_a_held_lock_stays_and_a_killed_holders_goes(tmp_path: Path) -> None:
    lock = tmp_path / "an_operator" / "lock"
    lock.parent.mkdir()
    process = _holder(lock)
    try:
        assert compiled_ops.drop_abandoned_locks(tmp_path) == []
        assert lock.exists()
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert lock.exists(), "torch's own lock outlives its holder; without that there is nothing to mend"
    assert compiled_ops.drop_abandoned_locks(tmp_path) == [lock]
    assert FileBaton(str(lock)).try_acquire()


def test_prepare_keeps_a_folder_the_user_chose_and_cleans_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    (tmp_path / "lock").touch()
    compiled_ops.prepare()
    assert os.environ["TORCH_EXTENSIONS_DIR"] == str(tmp_path)
    assert not (tmp_path / "lock").exists()


def test_on_several_nodes_no_lock_is_touched(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    (tmp_path / "lock").touch()
    compiled_ops.prepare()
    assert (tmp_path / "lock").exists()


def test_loading_after_a_killed_compilation_does_not_wait(tmp_path: Path) -> None:
    """The real operator with a lock left in its folder: without prepare() this call never returns."""
    folder = Path(sys.prefix) / "torch_extensions"
    env = {**os.environ, "TORCH_EXTENSIONS_DIR": str(folder)}
    built = [path.parent for path in folder.rglob("deepspeed_shm_comm.so")]
    assert built, "launch/setup.sh compiles it"
    (built[0] / "lock").touch()
    subprocess.run([sys.executable, "-m", "training.compiled_ops"], env=env, check=True, timeout=300)
    assert not (built[0] / "lock").exists()
