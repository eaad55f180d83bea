"""Run programs that nobody trusts. `Session`: variables live from turn to turn; `Zygote`: thousands of short checks.

A worker process confines itself before it sees a program; it has no network, and the host performs the HTTP calls
of its ``requests`` against an allow-list, counts, records and can replay them. Which tier a host gives is tried, not
guessed (`tiers.choose_tier`). In every tier: memory, file size, open files and time are limited, output is capped,
what the worker sends is checked, a hard kill takes the whole process.

What the tiers do NOT stop:

all     - a program that uses up its own limits, forges its own output, or tells lies about its own result
        - a background thread of an earlier turn printing or calling into a later one
        - reading the interpreter, the installed packages and this folder's sources
        - covert channels: CPU load, timing; flaws of the kernel itself
        - abuse of an allowed service: the allow-list judges URLs, not what is sent there
bwrap   (namespaces + seccomp + rlimits, Landlock too where present)
        - seeing which Python and packages the host has; nothing else of its files is there
        - programs of one `Zygote` share one temporary file system and one pid space, one after the other
kernel  (Landlock + seccomp + rlimits)
        - seeing that a path exists, and its size, mode and times (stat is not covered by Landlock)
        - reading all of /usr and the time zone
        - seeing pids; signals, ptrace and /proc are closed
        - filling the disk within one turn: the size of all files is checked after each turn only
        - chmod, chown, utime and the like are refused even on the program's own files
plain   (rlimits only; for programs of our own making)
        - reading and writing every file the user may, the parent's environment in /proc
        - every network: TCP, UDP, unix sockets; signals to every process of the user
        - starting processes that outlive the session (only the process group is killed)

Not Linux: only ``plain``, and without a memory limit where the system has none.
"""

from autotools.sandbox.gate import HttpGate, ReplayCalls
from autotools.sandbox.outbound import AllowList
from autotools.sandbox.session import Session
from autotools.sandbox.settings import SandboxConfig, TurnResult
from autotools.sandbox.zygote import Zygote, run_many

__all__ = ["AllowList", "HttpGate", "ReplayCalls", "SandboxConfig", "Session", "TurnResult", "Zygote", "run_many"]
