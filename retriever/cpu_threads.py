"""How many CPU threads the commands use that embed and search: one, unless told otherwise.

Beside other busy processes more threads wait for each other: a MiniLM query then cost 450 ms of CPU time instead of 15.
"""

import os

from autotools.errors import ConfigError

HELP = "CPU threads of encoder and search; default: OMP_NUM_THREADS, else 1"


def set_threads(threads: int | None) -> None:
    """Give torch that many threads. Call it before torch is imported. Raises ConfigError for less than one."""
    if threads is not None and threads < 1:
        raise ConfigError(f"threads must be 1 or more, not {threads}")
    if threads or "OMP_NUM_THREADS" not in os.environ:
        os.environ["OMP_NUM_THREADS"] = str(threads or 1)
