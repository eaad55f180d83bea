"""Runs inside the worker: lowers limits, drops capabilities, and closes the kernel's doors for good (ctypes only).

Imported by `worker.py` from its own folder; standard library only. Every function raises OSError if the kernel
refuses, so that a tier is never claimed that is not in force. Syscall numbers: the kernel's own unistd headers.
"""

import ctypes
import os
import resource
import signal
import struct
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 22, 4, 38


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def _prctl(option: int, *values: object) -> None:
    _check(_libc.prctl(option, *values, *[ctypes.c_ulong(0)] * (4 - len(values))), f"prctl({option})")


def die_with_parent() -> None:
    """Be killed as soon as the thread that started this process ends, even by SIGKILL."""
    _prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))


def hide_memory() -> None:
    """Let no process of the same user read or write this one's memory through /proc or ptrace."""
    _prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(0))


def limit(limits: Mapping[str, int]) -> None:
    """Set rlimits by name without the prefix, e.g. ``{"AS": 512 << 20}``; never above what is already in force."""
    for name, value in limits.items():
        what = getattr(resource, f"RLIMIT_{name}", None)
        if what is None:
            continue
        hard = resource.getrlimit(what)[1]
        wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (wanted, wanted))


def drop_capabilities() -> None:
    """Root without its powers: it can neither raise its limits again nor pass over file permissions."""
    header = struct.pack("=Ii", 0x20080522, 0)
    _check(_libc.capset(header, b"\0" * 24), "capset")


# --- Landlock: which files may be opened ------------------------------------------------------------------------
# Syscalls 444-446 have the same number on every architecture.

_READ_FILE, _READ_DIR, _WRITE_FILE = 1 << 2, 1 << 3, 1 << 1
_EXECUTE, _DEVICES = 1 << 0, (1 << 6) | (1 << 11)  # never given: execute, make character and block devices


def landlock_abi() -> int:
    """Version of Landlock in this kernel. Raises OSError where it is missing or switched off."""
    return _check(_libc.syscall(ctypes.c_long(444), None, ctypes.c_size_t(0), ctypes.c_uint(1)), "Landlock")


def _fs_bits(abi: int) -> int:
    return (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)) - 1


def landlock(readable: Iterable[str], writable: Iterable[str], devices: Iterable[str] = ()) -> int:
    """Allow opening only files below ``readable`` (read) and ``writable`` (all but execute); paths that do not
    exist are skipped. From ABI 4 no TCP, from 6 no signals or abstract sockets out of here. Returns the ABI."""
    abi = landlock_abi()
    handled = _fs_bits(abi)
    attributes = struct.pack("=QQQ", handled, 3, 3)[: 8 if abi < 4 else 16 if abi < 6 else 24]
    size = ctypes.c_size_t(len(attributes))
    ruleset = _check(_libc.syscall(ctypes.c_long(444), attributes, size, ctypes.c_uint(0)), "landlock_create_ruleset")
    try:
        for path in readable:
            _allow(ruleset, path, _READ_FILE | _READ_DIR)
        for path in writable:
            _allow(ruleset, path, handled & ~(_EXECUTE | _DEVICES))
        for path in devices:
            _allow(ruleset, path, _READ_FILE | _WRITE_FILE)
        _prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1))
        _check(_libc.syscall(ctypes.c_long(446), ctypes.c_int(ruleset), ctypes.c_uint(0)), "landlock_restrict_self")
    finally:
        os.close(ruleset)
    return abi


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            rights &= _READ_FILE | _WRITE_FILE | _fs_bits(3) & (1 << 14)  # a file's rule may not hold folder rights
        rule = struct.pack("=Qi", rights, fd)
        call = _libc.syscall(ctypes.c_long(445), ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint(0))
        _check(call, f"landlock_add_rule({path})")
    finally:
        os.close(fd)


# --- seccomp: which system calls exist --------------------------------------------------------------------------

# name -> number on (x86_64, aarch64); None: the machine does not have the call
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    # network (socketpair stays: asyncio needs it) and new programs
    "socket": (41, 198), "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281),
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "kcmp": (312, 272), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "tkill": (200, 130),
    # mounts and namespaces
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "fsopen": (430, 430),
    "fsmount": (432, 432), "fsconfig": (431, 431), "fspick": (433, 433), "move_mount": (429, 429),
    "open_tree": (428, 428), "mount_setattr": (442, 442), "unshare": (272, 97), "setns": (308, 268),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    # large or young kernel surfaces
    "bpf": (321, 280), "perf_event_open": (298, 241), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "userfaultfd": (323, 282), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "fanotify_init": (300, 262), "personality": (135, 92),
    # the machine itself
    "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "sethostname": (170, 161),
    "setdomainname": (171, 162), "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266), "acct": (163, 89), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "iopl": (172, None), "ioperm": (173, None), "syslog": (103, 116), "mknod": (133, None), "mknodat": (259, 33),
    # memory that no rlimit of this process counts, or that outlives it
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "shmat": (30, 196),
    "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
}  # fmt: skip
# Landlock lets the owner change modes, owners, times and attributes of any file it can name (or, before ABI 3, cut
# it off): without a mount namespace these calls must go.
_METADATA: dict[str, tuple[int | None, int | None]] = {
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "chown": (92, None), "fchown": (93, 55),
    "lchown": (94, None), "fchownat": (260, 54), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "utime": (132, None),
    "utimes": (235, None), "utimensat": (280, 88), "futimesat": (261, None), "truncate": (76, 45),
}  # fmt: skip


class _Arch(NamedTuple):
    column: int
    audit: int
    clone: int
    kill: int
    tgkill: int
    prlimit64: int
    fcntl: int
    ioctl: int
    prctl: int


_ARCHES = {
    "x86_64": _Arch(0, 0xC000003E, 56, 62, 234, 302, 72, 16, 157),
    "aarch64": _Arch(1, 0xC00000B7, 220, 129, 131, 261, 25, 29, 167),
}
_CLONE3, _LAST_KNOWN = 435, 450  # calls younger than this table do not exist for the program
_LOAD, _JEQ, _JGE, _JSET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _EPERM, _ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026


def _insn(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value & 0xFFFFFFFF)


def _when(number: int, argument: int, test: int, values: Iterable[int], *, refuse_match: bool) -> list[bytes]:
    """Rule on one argument's low 32 bits: refuse when it matches one of ``values``, or when it matches none."""
    values = list(values)
    match, other = (_EPERM, _ALLOW) if refuse_match else (_ALLOW, _EPERM)
    rule = [_insn(_LOAD, 16 + 8 * argument)]
    rule += [_insn(test, value, len(values) - i, 0) for i, value in enumerate(values)]
    rule += [_insn(_RETURN, other), _insn(_RETURN, match)]
    return [_insn(_JEQ, number, 0, len(rule)), *rule]


def seccomp_supported() -> str:
    """Empty, or why no filter can be made here."""
    machine = os.uname().machine
    return "" if machine in _ARCHES else f"seccomp: no system call table for {machine}"


@cache
def _fixed_rules(refuse_metadata: bool) -> bytes:
    """The part of the filter that is the same for every process; made once, before a zygote forks."""
    arch = _ARCHES[os.uname().machine]
    program = [_insn(_LOAD, 4), _insn(_JEQ, arch.audit, 1, 0), _insn(_RETURN, _KILL), _insn(_LOAD, 0)]
    program += [_insn(_JGE, _LAST_KNOWN + 1, 0, 1), _insn(_RETURN, _ENOSYS)]  # also x32 numbers
    # clone3 keeps its flags in memory, where a filter cannot look: glibc falls back to clone
    program += [_insn(_JEQ, _CLONE3, 0, 1), _insn(_RETURN, _ENOSYS)]
    refused = _REFUSED | (_METADATA if refuse_metadata else {})
    for numbers in refused.values():
        if (number := numbers[arch.column]) is not None:
            program += [_insn(_JEQ, number, 0, 1), _insn(_RETURN, _EPERM)]
    program += _when(arch.clone, 0, _JSET, [0x10000], refuse_match=False)  # CLONE_THREAD: threads only
    # F_SETOWN, F_SETOWN_EX, FIOSETOWN, SIOCSPGRP make the kernel signal others; TIOCSTI types into a terminal
    program += _when(arch.fcntl, 1, _JEQ, [8, 15], refuse_match=True)
    program += _when(arch.ioctl, 1, _JEQ, [0x8901, 0x8902, 0x5412], refuse_match=True)
    program += _when(arch.prctl, 0, _JEQ, [_PR_SET_PDEATHSIG], refuse_match=True)
    return b"".join(program)


def prepare_seccomp(*, refuse_metadata: bool) -> None:
    """Do beforehand what `seccomp` would do in every child."""
    _fixed_rules(refuse_metadata)


def seccomp(*, refuse_metadata: bool) -> None:
    """Filter for the rest of this process's life: no sockets, no new processes, no signals to others.

    ``refuse_metadata`` also refuses chmod, chown, utime and the like (tier ``kernel``).
    """
    if problem := seccomp_supported():
        raise OSError(38, problem)
    arch, me = _ARCHES[os.uname().machine], os.getpid()
    program = _fixed_rules(refuse_metadata) + b"".join(
        [
            *_when(arch.kill, 0, _JEQ, [me], refuse_match=False),
            *_when(arch.tgkill, 0, _JEQ, [me], refuse_match=False),
            *_when(arch.prlimit64, 0, _JEQ, [0, me], refuse_match=False),
            _insn(_RETURN, _ALLOW),
        ]
    )
    code = ctypes.create_string_buffer(program)
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    _prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1))
    _prctl(_PR_SET_SECCOMP, ctypes.c_ulong(2), header)
