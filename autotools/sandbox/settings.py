"""What a sandbox may be told, and what comes back from it: plain data, shared by all parts of the package."""

import os
from dataclasses import dataclass, field
from typing import Any, Literal

from autotools.errors import ConfigError

TIERS = ("bwrap", "kernel", "plain")  # strongest first
Status = Literal["ok", "error", "timeout", "died", "protocol", "sandbox_error"]
State = Literal["kept", "restored", "lost", "fresh"]


@dataclass(frozen=True)
class SandboxConfig:
    """Section ``sandbox`` of a config. Times in seconds, sizes in MiB (output: bytes).

    Raises ConfigError on values that cannot work together.
    """

    tier: str = field(default="auto", metadata={"help": "auto (strongest there is) | bwrap | kernel | plain"})
    min_tier: str = field(default="kernel", metadata={"help": "with tier auto: refuse a host that offers less"})
    soft_s: float = field(default=1.0, metadata={"help": "limit of a turn; variables survive"})
    hard_s: float = field(default=3.0, metadata={"help": "then the process is killed; variables come from replay"})
    memory_mb: int = field(default=512, metadata={"help": "address space of the process"})
    file_mb: int = field(default=16, metadata={"help": "size of one file"})
    tmp_mb: int = field(default=64, metadata={"help": "size of all files together"})
    max_output: int = field(default=20_000, metadata={"help": "bytes of output kept, half head and half tail"})
    allow: list[str] = field(default_factory=list, metadata={"help": "base URLs that programs may call"})
    call_limit: int = field(default=50, metadata={"help": "HTTP calls of one turn"})
    max_response_mb: int = field(default=4, metadata={"help": "size of one HTTP response"})

    def __post_init__(self) -> None:
        if self.tier not in (*TIERS, "auto"):
            raise ConfigError(f"sandbox tier {self.tier!r} is none of auto, {', '.join(TIERS)}")
        if self.min_tier not in TIERS:
            raise ConfigError(f"sandbox min_tier {self.min_tier!r} is none of {', '.join(TIERS)}")
        if not 0 < self.soft_s <= self.hard_s:
            raise ConfigError(f"sandbox needs 0 < soft_s <= hard_s, not {self.soft_s:g} and {self.hard_s:g}")
        for name in ("memory_mb", "file_mb", "tmp_mb", "max_output", "max_response_mb"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"sandbox {name} must be positive, not {getattr(self, name)}")


@dataclass(frozen=True)
class TurnResult:
    """What became of one program (one turn of a session).

    ``status``: ok, error (the program's own), timeout, died (killed itself or was killed by a limit), protocol (wrote
    into our channels), sandbox_error (our fault, the only one). ``state`` tells what is left of the session's
    variables; ``note`` says it in words for the model. ``calls`` are the host's records of HTTP calls.
    """

    status: Status
    output: str = ""
    truncated: bool = False
    total_bytes: int = 0
    error: str | None = None
    wall_s: float = 0.0
    state: State = "kept"
    note: str = ""
    tier: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    answer: Any = None
    finished: bool = False


# Fixed, so that set order and arithmetic do not vary between runs; nothing of the host's environment goes in.
WORKER_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "PYTHONUTF8": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "LANG": "C.UTF-8",
    "PATH": os.defpath,
    # every thread reserves a stack and an arena of address space, which is what is limited
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",
}
