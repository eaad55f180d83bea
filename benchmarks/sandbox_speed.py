"""How fast are short checks? ``python benchmarks/sandbox_speed.py [--programs 1000] [--jupyter_python PATH]``

Rows: one forked child per program (Zygote, isolated), one session (not isolated from each other), one turn's
overhead; and, if ``jupyter_python`` names a Python with ipykernel and jupyter_client, a fresh Jupyter kernel per
program (a few, scaled up) and one reused kernel. Writes one JSON line per row to stdout.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from autotools.config import load_config, run_main

FRESH_KERNELS = 3  # a kernel takes about a second: a thousand would take twenty minutes
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
    """Print one JSON line per row: {"what", "ms_per_program", "s_for_all"} or {"what", "skipped"}."""
    config = load_config(argv, {"": BenchArgs}, prog="benchmarks/sandbox_speed.py", description=__doc__ or "")
    args = config.top(BenchArgs)
    if config.dry_run:
        print(f"would run {args.programs} programs in tier {args.tier}")
        return 0
    for row in rows(args):
        print(json.dumps(row), flush=True)
    return 0


def rows(args: BenchArgs) -> Iterator[dict[str, Any]]:
    """The rows of the table; machine load is part of the first."""
    from autotools.sandbox import SandboxConfig, Session, Zygote, run_many

    config = SandboxConfig(tier=args.tier)
    yield {"what": "machine", "cpus": os.cpu_count(), "load": os.getloadavg()[0], "python": sys.version.split()[0]}
    for preload in ((), ("requests",)):
        with Zygote(config, preload=preload) as zygote:
            start = time.perf_counter()
            for number in range(args.programs):
                assert zygote.run(f"print({number} * 2)", 5, 5).output == f"{number * 2}\n"
            wall = time.perf_counter() - start
        yield _row(f"zygote, one fork each, tier {zygote.tier}, preload {list(preload)}", wall, args.programs)
    programs = [f"print({number} * 2)" for number in range(args.programs)]
    start = time.perf_counter()
    results = run_many(programs, SandboxConfig(tier=args.tier, soft_s=5, hard_s=5))
    wall = time.perf_counter() - start
    assert [result.output for result in results] == [f"{number * 2}\n" for number in range(args.programs)]
    yield _row(f"run_many, {os.cpu_count()} zygotes with requests and their start, one fork each", wall, args.programs)
    with Session(config) as session:
        start, own = time.perf_counter(), []
        for number in range(args.programs):
            before = time.perf_counter()
            assert session.run(f"print({number} * 2)").output == f"{number * 2}\n"
            own.append(time.perf_counter() - before)
        wall = time.perf_counter() - start
    yield _row(f"one session, tier {session.tier}", wall, args.programs) | {"p50_ms": _ms(statistics.median(own))}
    if not args.jupyter_python:
        yield {"what": "jupyter kernel", "skipped": "no --jupyter_python given"}
        return
    command = [args.jupyter_python, "-c", _JUPYTER, str(FRESH_KERNELS), str(args.programs)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        yield {"what": "jupyter kernel", "skipped": done.stderr.strip().splitlines()[-1:]}
        return
    fresh, reused = json.loads(done.stdout.splitlines()[-1])
    yield _row(f"a fresh Jupyter kernel each ({FRESH_KERNELS} measured)", fresh * args.programs, args.programs)
    yield _row("one reused Jupyter kernel, no isolation", reused * args.programs, args.programs)


def _row(what: str, wall: float, count: int) -> dict[str, Any]:
    return {"what": what, "ms_per_program": _ms(wall / count), "s_for_all": round(wall, 2)}


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)


if __name__ == "__main__":
    run_main(main)
