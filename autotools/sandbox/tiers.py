"""Which tier this host offers: found by really starting a worker in it and trying the doors, once per process."""

import contextlib
import importlib.util
import os
import shutil
import sys
import sysconfig
import tempfile
import time
import uuid
from functools import cache
from pathlib import Path
from typing import Any

from autotools.errors import SandboxError
from autotools.sandbox.conversation import OutputKeeper, converse
from autotools.sandbox.gate import ReplayCalls
from autotools.sandbox.process import START_TIMEOUT_S, WorkerProcess, WorkFolder
from autotools.sandbox.settings import TIERS, WORKER_ENVIRONMENT, SandboxConfig

_HERE = Path(__file__).resolve().parent
_INSIDE = "/sandbox"  # where bwrap shows this folder
_TEMP = "/tmp"  # the only writable folder inside bwrap
_ETC = ("/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives")
_PROBE = """
import os, socket
doors = []
def attempt(name, action):
    try:
        action()
    except OSError:
        return
    doors.append(name)
def fork():
    if os.fork() == 0:
        os._exit(0)
attempt("network", socket.socket)
attempt("new processes", fork)
attempt("signals to the host", lambda: os.kill(HOST, 0))
attempt("files of the host", lambda: open(CANARY))
print(doors)
try:
    open(CANARY + "x", "w").close()  # inside bwrap this is a file of the sandbox: only the host can tell
except OSError:
    pass
"""


def start_worker(
    config: SandboxConfig,
    tier: str,
    *,
    zygote: bool = False,
    library: str = "",
    preload: tuple[str, ...] = (),
    tools_url: str | None = None,
    packages: bool = True,
    keep_tail: bool = True,
    timeout_s: float = START_TIMEOUT_S,
) -> WorkerProcess:
    """A confined worker that is ready for turns. Raises SandboxError if this host cannot give the tier."""
    output = output_keeper(config, keep_tail)
    site = site_folders() if packages else []
    folder = None if tier == "bwrap" else WorkFolder()
    inside = folder.path if folder else _TEMP
    readable = [*_python_folders(), *site, "/usr", "/lib", "/lib64", *_ETC, "/dev/zero", "/dev/random", "/dev/urandom"]
    job: dict[str, Any] = {
        "tier": tier, "zygote": zygote, "library": library, "preload": list(preload), "tools_url": tools_url,
        "packages": site, "folder": inside, "readable": ["/"] if tier == "bwrap" else readable,
        "devices": ["/dev/null"], "memory_bytes": config.memory_mb << 20,
        # bwrap's own first process stands between us and the worker, and does the dying for it
        "parent": None if tier == "bwrap" else os.getpid(),
        # CPU is a backstop over the worker's whole life, not the limit of a turn
        "limits": {"CPU": 36_000, "FSIZE": config.file_mb << 20, "NOFILE": 64, "CORE": 0},
    }  # fmt: skip
    # Like -I, but with the fixed hash seed that -I ignores; -S: no site folders, no .pth files, a start in 20 ms.
    python = [_executable(), "-s", "-P", "-S", f"{_INSIDE if tier == 'bwrap' else _HERE}/worker.py"]
    argv = [*_bwrap(config, site), *python] if tier == "bwrap" else python
    try:
        return WorkerProcess(argv, WORKER_ENVIRONMENT | {"TMPDIR": inside}, job, output, folder, timeout_s)
    except BaseException:
        if folder:
            folder.close()
        raise


def output_keeper(config: SandboxConfig, keep_tail: bool = True) -> OutputKeeper:
    tail = config.max_output // 2 if keep_tail else 0
    return OutputKeeper(config.max_output - tail, tail)


def _bwrap(config: SandboxConfig, site: list[str]) -> list[str]:
    argv = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    # before the binds, which may lie below it (an environment in a temporary folder)
    argv += ["--size", str(config.tmp_mb << 20), "--tmpfs", _TEMP, "--ro-bind", "/usr", "/usr"]
    for name in ("/bin", "/sbin", "/lib", "/lib64"):
        if os.path.islink(name):
            argv += ["--symlink", os.readlink(name), name]
        elif os.path.isdir(name):
            argv += ["--ro-bind", name, name]
    for path in dict.fromkeys([*_python_folders(), *site]):
        if not path.startswith("/usr/"):
            argv += ["--ro-bind", path, path]
    for path in _ETC:
        argv += ["--ro-bind-try", path, path]
    argv += ["--ro-bind", str(_HERE), _INSIDE]
    # No /proc: nobody's memory or environment. The root and /dev are writable and unbounded unless remounted.
    argv += ["--dev", "/dev", "--remount-ro", "/dev"]
    return [*argv, "--remount-ro", "/", "--chdir", _TEMP, "--"]


def _executable() -> str:
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def _python_folders() -> list[str]:
    prefixes = {sys.base_prefix, sys.base_exec_prefix, os.path.realpath(sys.base_prefix)}
    if sys.base_prefix == "/usr":
        return []
    return sorted(prefixes)


@cache
def site_folders() -> list[str]:
    """Where the host's installed packages lie, ``requests`` among them; programs may import them."""
    folders = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    found = importlib.util.find_spec("requests")
    if found is not None and found.origin:
        folders.append(str(Path(found.origin).parent.parent))
    return [path for path in dict.fromkeys(folders) if os.path.isdir(path)]


# --- probing ----------------------------------------------------------------------------------------------------


@cache
def tier_problem(tier: str) -> str:
    """Empty if this host really gives the tier, else what is missing."""
    if tier != "plain" and sys.platform != "linux":
        return f"needs Linux, this is {sys.platform}"
    if tier == "bwrap" and shutil.which("bwrap") is None:
        return "bubblewrap (program bwrap) is not installed"
    with tempfile.NamedTemporaryFile(prefix="autotools-canary-") as canary:
        program = f"CANARY, HOST = {canary.name!r}, {os.getpid()}\n{_PROBE}"
        try:
            said = _try(tier, program if tier != "plain" else "print([])")
        except SandboxError as error:
            return str(error)
        with contextlib.suppress(FileNotFoundError):
            os.remove(canary.name + "x")
            said = said if tier == "plain" else f"{said} writing beside its folder"
    return "" if said == "[]" else f"a worker started, but could still use: {said}"


def _try(tier: str, program: str) -> str:
    worker = start_worker(SandboxConfig(tier=tier), tier, packages=False)
    try:
        message = {"id": uuid.uuid4().hex, "program": program, "soft_s": 5.0}
        outcome = converse(worker, message, time.monotonic() + 10, ReplayCalls([]))
        return worker.output.text().strip() if outcome.kind == "done" else f"{outcome.kind} {outcome.error}"
    finally:
        worker.kill()


_told: set[str] = set()


def choose_tier(tier: str = "auto", min_tier: str = "kernel") -> str:
    """The tier to use: the one asked for, or the strongest this host gives. Told once on stderr.

    Raises SandboxError, naming what is missing, if the host gives less than ``min_tier``, or not exactly ``tier``.
    """
    wanted = [tier] if tier != "auto" else list(TIERS[: TIERS.index(min_tier) + 1])
    problems = {}
    for name in wanted:
        problems[name] = tier_problem(name)
        if not problems[name]:
            _tell(name, {n: p for n, p in problems.items() if p})
            return name
    reasons = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
    hint = "" if "plain" in wanted else " (tier plain always starts, but stops no attack: sandbox.min_tier plain)"
    raise SandboxError(f"this host does not give sandbox tier {' or '.join(wanted)}: {reasons}{hint}")


def _tell(tier: str, missing: dict[str, str]) -> None:
    if tier in _told:
        return
    _told.add(tier)
    why = "".join(f"; no {name}: {problem}" for name, problem in missing.items())
    warning = "; programs can read files, open sockets and start processes: only for programs you trust"
    print(f"sandbox: tier {tier}{why}{warning if tier == 'plain' else ''}", file=sys.stderr)
