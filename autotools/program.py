"""Run programs (Python text that calls library functions and ends with ``finish(value)``) in confined children.

A thin layer over `autotools/sandbox/`: its zygote forks the children, and the host performs the calls of the
library's functions to one tool server, adding session and key. What is not stopped: see there.
"""

import base64
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from autotools.errors import SandboxError
from autotools.sandbox.gate import HttpGate
from autotools.sandbox.outbound import AllowList
from autotools.sandbox.settings import SandboxConfig, TurnResult
from autotools.sandbox.zygote import Zygote

_REUSE = 200  # programs that trust each other share a child: a fork costs ten times what a short program does
_GRACE_S = 0.5  # a program that holds off its time limit (a long C call) is killed this much later


@dataclass(frozen=True)
class ProgramResult:
    """What became of one program.

    ``answer`` is the JSON value given to ``finish`` (``finished`` tells a None answer from none at all). ``calls``
    are {"method", "path" (template), "status", "arguments"}; template and arguments are the child's words, the
    server's log is the ground truth. ``error`` is set unless status is ``ok``.
    """

    status: Literal["ok", "error", "timeout", "died"]
    answer: Any = None
    output: str = ""
    error: str | None = None
    calls: list[dict[str, Any]] = field(default_factory=list)
    finished: bool = False
    wall_s: float = 0.0


class ProgramRunner:
    """Runs many programs, as a context manager, each with fresh variables and library.

    ``api_keys`` maps a tool category to its key; the host adds keys to requests, they never enter the child.
    The defaults are for programs of our own templates. For programs of models, give ``min_tier="kernel"`` (the
    weakest sandbox tier to accept) and ``isolated=True`` (a child for each, so that none can spoil modules for the
    next). Raises SandboxError when the fault is ours: the host lacks the tier, the
    library does not load, the tool server is away or answers 5xx.
    """

    def __init__(
        self,
        library_source: str,
        base_url: str,
        api_keys: Mapping[str, str] | None = None,
        *,
        memory_mb: int = 512,
        max_output: int = 20_000,
        min_tier: str = "plain",
        isolated: bool = False,
    ) -> None:
        self._keys = dict(api_keys or {})
        self._session = ""
        self._gate = HttpGate(AllowList([base_url]), call_limit=10_000, decorate=self._headers)
        self._zygote = Zygote(
            SandboxConfig(min_tier=min_tier, memory_mb=memory_mb, max_output=max_output),
            library=library_source, calls=self._gate, preload=(), tools_url=base_url, packages=False, keep_tail=False,
            reuse=1 if isolated else _REUSE,
        )  # fmt: skip

    def _headers(self, call: dict[str, Any]) -> dict[str, str]:
        category = (call["note"] or {}).get("auth")
        key = self._keys.get(category) if isinstance(category, str) else None
        return {"X-Session": self._session} | ({"X-Api-Key": key} if key else {})

    @property
    def _process(self) -> subprocess.Popen[bytes] | None:
        return self._zygote.worker and self._zygote.worker.process

    def run(self, program: str, session: str, timeout_s: float = 10) -> ProgramResult:
        """Run one program; ``session`` is sent as ``X-Session`` and selects the server's state (seconds, wall time)."""
        self._session = session
        # Shorter than the program's own limit: a hanging server is then reported as ours, not as the program's.
        self._gate.call_timeout_s = 0.8 * timeout_s
        result = self._zygote.run(program, timeout_s, timeout_s + _GRACE_S)
        if failure := _service_failure(result):
            raise SandboxError(f"tool server failed during a program of session {session!r}: {failure}")
        if result.status == "host_failure":
            raise SandboxError(f"a program of session {session!r} could not call its tools: {result.error}")
        status = "died" if result.status == "protocol" else result.status
        return ProgramResult(
            status, result.answer, result.output, result.error, [_shown(call) for call in result.calls],
            result.finished, result.wall_s,
        )  # fmt: skip

    def call(
        self, function_name: str, arguments: Mapping[str, Any], session: str, timeout_s: float = 10
    ) -> ProgramResult:
        """Call one library function with keyword arguments (JSON values); ``answer`` is what it returned."""
        encoded = json.dumps(dict(arguments))
        return self.run(f"finish({function_name}(**json.loads({encoded!r})))", session, timeout_s)

    def close(self) -> None:
        """End all processes and remove their folder; safe to call twice."""
        self._zygote.close()

    def __enter__(self) -> "ProgramRunner":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _service_failure(result: TurnResult) -> str:
    """The first call that the server did not answer as it should; judged by the host's own records."""
    for call in result.calls:
        reply, what = call["reply"] or {}, f"{call['method']} {call['url'][:200]}"
        if reply.get("kind") in ("timeout", "failed"):
            return f"{what}: {reply['error']}"
        if reply.get("status", 0) >= 500:
            text = base64.b64decode(reply["body"])[:300].decode("utf-8", "replace")
            return f"{what} answered {reply['status']}: {text}"
    return ""


def _shown(call: dict[str, Any]) -> dict[str, Any]:
    note = call["note"] or {}
    status = (call["reply"] or {}).get("status")
    return {"method": call["method"], "path": note.get("path"), "status": status, "arguments": note.get("arguments")}
