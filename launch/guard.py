"""Stands between the driver and one stage, so that nothing of the stage outlives the driver, whatever ends that.

The driver holds the only write end of a pipe; the kernel closes it when the driver is gone, by ``kill -9``, too. Then,
on a signal, or once the command has ended, the guard ends every descendant: as "child subreaper" it inherits those
whose parent is gone, also where they have made a session of their own. If the guard itself is killed, the kernel kills
the command, and the driver ends the rest. Linux; standard library only, so that it starts in 20 ms.
"""

import ctypes
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Sequence

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
CANNOT_START = 127
POLL_S = 0.02
_RESTORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)


def command_line(python: str, folder: str, pipe: int, grace_s: float, command: Sequence[str]) -> list[str]:
    """How to start this file as a guard of ``command``; ``pipe`` must be inherited (Popen's ``pass_fds``)."""
    code = f"import sys; sys.path.insert(0, {folder!r}); import guard; guard.main(sys.argv[1:])"
    return [python, "-I", "-S", "-c", code, str(pipe), str(grace_s), *command]


def main(argv: Sequence[str]) -> None:
    """Words: number of the pipe, seconds of grace, command. Exits as the command does (128 + number for a signal)."""
    pipe, grace_s, command = int(argv[0]), float(argv[1]), argv[2:]
    for name in os.listdir("/proc/self/fd"):  # pipe and lock are held here, never by the command
        if int(name) > 2:
            try:
                os.set_inheritable(int(name), False)
            except OSError:  # the listing's own
                continue
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # a folder of its own for temporary files, because a killed command cannot tidy up
    temporary = f"{_temporary_prefix(os.getpid())}{time.time_ns()}"
    os.mkdir(temporary, 0o700)
    os.environ["TMPDIR"] = temporary
    try:
        code = _watch(pipe, grace_s, command)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    sys.exit(code)


def _temporary_prefix(pid: int) -> str:
    return f"{os.environ.get('TMPDIR', '/tmp')}/autotools-{pid}-"


def temporary_folders(pid: int) -> list[str]:
    """Folders for temporary files that the guard ``pid`` has made and, if it was killed, left."""
    parent, _, name = _temporary_prefix(pid).rpartition("/")
    return [f"{parent}/{entry}" for entry in os.listdir(parent) if entry.startswith(name)]


def _watch(pipe: int, grace_s: float, command: Sequence[str]) -> int:
    """Run the command to its end or to that of the driver; nothing below this process is left then."""
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    told: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: told.append(number))
    signal.signal(signal.SIGCHLD, lambda *_: None)  # only to be woken
    child = _start(command)
    code = None
    while code is None and not told and pipe not in select.select([pipe, woken], [], [])[0]:
        try:
            os.read(woken, 4096)
        except BlockingIOError:
            pass
        code = _reap().get(child)
    _end_descendants(grace_s if code is None else 0.0)
    return 128 + (told[0] if told else signal.SIGTERM) if code is None else code


def _start(command: Sequence[str]) -> int:
    guard = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        for number in _RESTORED:
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == guard:  # else it died before the call above
            os.execvp(command[0], list(command))
    except OSError as error:
        os.write(2, f"cannot start {command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(CANNOT_START)


def _reap() -> dict[int, int]:
    """Exit codes of children that have ended: {pid: code}."""
    codes = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return codes
        if not pid:
            return codes
        code = os.waitstatus_to_exitcode(status)
        codes[pid] = 128 - code if code < 0 else code


def _end_descendants(grace_s: float) -> None:
    """SIGTERM, and SIGKILL after the grace, until none is left (new ones may appear meanwhile)."""
    end, asked = time.monotonic() + grace_s, set()
    while alive := descendants(os.getpid()):
        kill = time.monotonic() >= end
        for pid in alive if kill else alive - asked:
            try:
                os.kill(pid, signal.SIGKILL if kill else signal.SIGTERM)
            except ProcessLookupError:
                continue
        asked |= alive
        _reap()
        time.sleep(POLL_S)
    _reap()


def descendants(ancestor: int) -> set[int]:
    """Pids of all living processes below ``ancestor``, from /proc; zombies do not count."""
    children: dict[int, list[int]] = {}
    dead = set()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except OSError:
            continue
        children.setdefault(int(parent), []).append(int(name))
        if state in (b"Z", b"X"):
            dead.add(int(name))
    found, todo = set(), [ancestor]
    while todo:
        below = children.get(todo.pop(), [])
        found.update(below)
        todo += below
    return found - dead


def end_marked(variable: str, prefix: str) -> None:
    """SIGKILL every process whose environment has ``variable`` with a value that begins with ``prefix``."""
    wanted = f"{variable}={prefix}".encode()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if any(value.startswith(wanted) for value in file.read().split(b"\0")):
                    os.kill(int(name), signal.SIGKILL)
        except OSError:  # gone, or another user's
            continue
