"""The process inside the sandbox: confines itself, then runs programs turn by turn. Started by file path.

Standard library only, so that it is up in tens of milliseconds and sees nothing of the project. Frames (4-byte
length, JSON) on inherited sockets: ``control`` carries the job and the turns, ``calls`` the HTTP calls. fd 1 and 2
are one pipe for the program's output. What each tier does NOT stop: `autotools/sandbox/__init__.py`.

As a zygote it runs no program itself: it forks one confined child per program (see ``zygote``).
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # started with -P; removed again below
import gc
import json
import shutil
import signal
import socket
import struct
import tempfile
import time
from typing import Any

import confine
import turns

sys.path.pop(0)

_CHILD_CONTROL, _CHILD_CALLS = 40, 41  # descriptors of a forked child, free in the zygote


def read_frame(fd: int) -> dict[str, Any]:
    (size,) = struct.unpack("!I", turns.read_exactly(fd, 4))
    return json.loads(turns.read_exactly(fd, size))


def write_frame(fd: int, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode()
    turns.write_all(fd, struct.pack("!I", len(data)) + data)


def confine_self(job: dict[str, Any]) -> dict[str, Any]:
    """Apply the job's tier to this process. Returns what is in force. Raises OSError if the tier cannot be."""
    confine.limit(job["limits"])
    report: dict[str, Any] = {"landlock": 0, "seccomp": False}
    if job["tier"] == "plain":
        return report
    confine.drop_capabilities()
    try:
        report["landlock"] = confine.landlock(job["readable"], [job["folder"]], job["devices"])
    except OSError:
        if job["tier"] == "kernel":  # in tier bwrap it is a second wall only
            raise
    confine.seccomp(refuse_metadata=job["tier"] == "kernel")
    return report | {"seccomp": True}


def enter_folder(folder: str) -> None:
    if not os.path.isdir(folder):
        os.mkdir(folder)
    os.chdir(folder)
    os.environ["TMPDIR"] = folder
    tempfile.tempdir = None


def zygote(job: dict[str, Any], control: socket.socket) -> None:
    """Serve messages of a letter and a child's number: ``f`` forks it (with three fds: control, calls, output), ``k``
    kills it, ``w`` asks how it ended. Programs never run here: a child is confined before it reads its program."""
    library = compile(job["library"], "<library>", "exec") if job["library"] else None
    worker = turns.Worker(job, _CHILD_CONTROL, _CHILD_CALLS)  # before the fork: all that children have in common
    turn = worker.turn
    worker.turn = lambda message: turn(message | {"library": library})  # type: ignore[method-assign]
    for name in job["preload"]:
        __import__(name)
    confine.hide_memory()
    if job["tier"] != "plain":
        confine.prepare_seccomp(refuse_metadata=job["tier"] == "kernel")
    gc.collect()
    gc.freeze()
    write_frame(control.fileno(), {"ready": True, "landlock": _landlock_there()})
    base, children, ended = job["folder"], {}, {}
    while True:
        data, fds, _, _ = socket.recv_fds(control, 5, 3)
        if len(data) < 5:
            return
        what, number = struct.unpack("!cI", data)
        if what == b"f":
            folder = os.path.join(base, f"autotools-program-{number}")
            pid = os.fork()
            if pid == 0:
                _child(worker, folder, fds, control)
            for fd in fds:
                os.close(fd)
            children[number] = (pid, folder)
        elif what == b"k":
            pid, folder = children.pop(number)
            os.kill(pid, signal.SIGKILL)
            ended[pid] = folder
        else:
            write_frame(control.fileno(), {"status": _how_it_ended(*children.pop(number))})
        # Never wait for a killed child: on a busy machine it takes longer to die than to run.
        for pid, folder in list(ended.items()):
            if os.waitpid(pid, os.WNOHANG) != (0, 0):
                del ended[pid]
                _remove(folder)


def _landlock_there() -> bool:
    try:
        return confine.landlock_abi() > 0
    except OSError:
        return False


def _child(worker: turns.Worker, folder: str, fds: list[int], control: socket.socket) -> None:
    try:
        confine.die_with_parent()
        control.close()
        for fd, wanted in zip(fds, (_CHILD_CONTROL, _CHILD_CALLS, 1), strict=True):
            os.dup2(fd, wanted)
            os.close(fd)
        os.dup2(1, 2)
        enter_folder(folder)
        worker.job["folder"] = folder
        confine_self(worker.job)
        worker.attach()
        worker.serve()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    except BaseException:
        import traceback

        turns.write_all(2, traceback.format_exc().encode())
        os._exit(70)
    os._exit(0)


def _how_it_ended(pid: int, folder: str) -> int:
    """Wait status of a child that is dying by itself: it gets 20 ms, since its own status says more than SIGKILL's."""
    limit, status = time.monotonic() + 0.02, (0, 0)
    while status == (0, 0) and time.monotonic() < limit:
        status = os.waitpid(pid, os.WNOHANG)
        if status == (0, 0):
            time.sleep(0.0005)
    if status == (0, 0):
        os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)
    _remove(folder)
    return status[1]


def _remove(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
    if os.path.exists(folder):
        os._exit(71)  # a program hid something too deep to be removed: the host makes a new zygote


def main() -> None:
    """``worker.py CONTROL_FD CALLS_FD``: read the job, confine, say ``ready``, then serve until the host ends."""
    control, calls = int(sys.argv[1]), int(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    job = read_frame(control)
    if sys.platform == "linux":
        confine.die_with_parent()
    if job["parent"] is not None and os.getppid() != job["parent"]:
        return  # it was gone before the call above
    sys.path += job["packages"]
    enter_folder(job["folder"])
    try:
        if job["zygote"]:
            zygote(job, socket.socket(fileno=control))
            return
        report = confine_self(job)
        worker = turns.Worker(job, control, calls)
        worker.attach()
    except SyntaxError as error:
        said = turns.describe(error, ("<library",), brief=True)
        write_frame(control, {"ready": False, "error": said, "library": True})
        return
    except OSError as error:
        write_frame(control, {"ready": False, "error": str(error)})
        return
    write_frame(control, {"ready": True} | report)
    try:
        worker.serve()
    except (EOFError, OSError):
        pass  # the host is gone, or has had enough
    os._exit(0)  # no atexit handlers, no waiting for a program's threads


if __name__ == "__main__":
    main()
