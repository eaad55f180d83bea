"""How fast are short checks? ``python benchmarks/sandbox_speed.py [--programs 1000] [--jupyter_python PATH]``

Rows: the limit (a bare fork and wait in this process); one confined forked child per program (isolated); one session,
whose turns share variables; a fresh ``python -I`` each; and, if ``jupyter_python`` names a Python with ipykernel and
jupyter_client, a fresh Jupyter kernel each and one reused kernel (not isolated). Few are measured where one is slow.
The last two columns say how many times faster a row is than those two.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from autotools.config import load_config, run_main
from autotools.errors import AutoToolsError

FRESH_KERNELS = 5  # a kernel takes about a second: a thousand would take twenty minutes
FRESH_PYTHONS = 50
FRESH = f"a fresh Jupyter kernel each ({FRESH_KERNELS} measured)"
REUSED = "one reused Jupyter kernel, not isolated"
_JUPYTER = """
import json, sys, time
from jupyter_client.manager import start_new_kernel
def run(client, n):
    out = []
    hook = lambda m: out.append(m["content"].get("text"))
    client.execute_interactive(f"print({n} * 2)", timeout=60, output_hook=hook)
    assert "".join(filter(None, out)) == f"{n * 2}\\n", out
fresh, reused = map(int, sys.argv[1:])
start = time.perf_counter()
for n in range(fresh):
    manager, client = start_new_kernel()
    run(client, n)
    client.stop_channels(); manager.shutdown_kernel(now=True)
each = (time.perf_counter() - start) / fresh
manager, client = start_new_kernel()
start = time.perf_counter()
for n in range(reused):
    run(client, n)
again = (time.perf_counter() - start) / reused
client.stop_channels(); manager.shutdown_kernel(now=True)
print(json.dumps([each, again]))
"""


@dataclass
class BenchArgs:
    """Keys of the command."""

    programs: int = field(default=1000, metadata={"help": "tiny programs to run"})
    tier: str = field(default="auto", metadata={"help": "auto | bwrap | kernel | plain"})
    jupyter_python: str = field(default="", metadata={"help": "a Python that has ipykernel and jupyter_client"})


def main(argv: list[str] | None = None) -> int:
    """Print the table; returns 0."""
    config = load_config(argv, {"": BenchArgs}, prog="benchmarks/sandbox_speed.py", description=__doc__ or "")
    args = config.top(BenchArgs)
    if config.dry_run:
        print(f"would run {args.programs} programs in tier {args.tier}")
        return 0
    from rich.console import Console
    from rich.table import Table

    load = os.getloadavg()[0]
    measured = dict(rows(args))
    fresh, reused = measured.get(FRESH), measured.get(REUSED)
    table = Table("way", "ms a program", "x a fresh kernel", "x a reused kernel")
    table.title = f"{args.programs} tiny programs; {os.cpu_count()} cores, load {load:.1f} at the start"
    for what, seconds in measured.items():
        ratios = (f"{other / seconds:.1f}" if other else "-" for other in (fresh, reused))
        table.add_row(what, f"{1000 * seconds:.3f}", *ratios)
    Console().print(table)
    return 0


def rows(args: BenchArgs) -> Iterator[tuple[str, float]]:
    """(way, seconds a program); the overhead of a turn is the median round trip of a program that does nothing."""
    from autotools.sandbox import SandboxConfig, Session, Zygote, run_many

    config, count = SandboxConfig(tier=args.tier, soft_s=5, hard_s=5), args.programs
    programs = [f"print({number} * 2)" for number in range(count)]
    wanted = [f"{number * 2}\n" for number in range(count)]
    yield "limit: bare os.fork and wait", _timed(lambda: _fork_and_wait(count)) / count
    for preload in ((), ("requests",)):
        with Zygote(config, preload=preload) as zygote:
            seconds = _timed(lambda: [zygote.run(p, 5, 5).output for p in programs], wanted)
        yield f"Zygote: a confined fork each ({zygote.tier}, preload {list(preload)})", seconds / count
    seconds = _timed(lambda: [result.output for result in run_many(programs, config)], wanted)
    yield f"run_many: {os.cpu_count()} zygotes with requests, their start included", seconds / count
    with Session(config) as session:
        seconds = _timed(lambda: [session.run(p).output for p in programs], wanted)
        yield "Session: one worker, not isolated", seconds / count
        turns = [_timed(lambda: session.run("pass")) for _ in range(count)]
    yield "Session: a turn that does nothing (p50)", statistics.median(turns)
    bare = [sys.executable, "-I", "-c", "print(2)"]
    seconds = _timed(lambda: [subprocess.run(bare, capture_output=True) for _ in range(FRESH_PYTHONS)])
    yield f"a fresh python -I each, no confinement ({FRESH_PYTHONS} measured)", seconds / FRESH_PYTHONS
    if not args.jupyter_python:
        print("note: no --jupyter_python given, so no row of a Jupyter kernel", file=sys.stderr)
        return
    command = [args.jupyter_python, "-c", _JUPYTER, str(FRESH_KERNELS), str(count)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise AutoToolsError(f"{args.jupyter_python} could not run a Jupyter kernel: {done.stderr.strip()[-300:]}")
    yield from zip((FRESH, REUSED), json.loads(done.stdout.splitlines()[-1]), strict=True)


def _fork_and_wait(count: int) -> None:
    for _ in range(count):
        if (pid := os.fork()) == 0:
            os._exit(0)
        os.waitpid(pid, 0)


def _timed(call: Callable[[], Any], wanted: Any = None) -> float:
    """Seconds of a call; where ``wanted`` is given, its value must be that."""
    start = time.perf_counter()
    value = call()
    seconds = time.perf_counter() - start
    assert wanted is None or value == wanted
    return seconds


if __name__ == "__main__":
    run_main(main)
