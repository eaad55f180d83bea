"""Where DeepSpeed's C++ operators are compiled, and why a killed compilation cannot hang the next run.

torch compiles an extension once into a cache folder under a lock that is a plain file: a process killed in between
leaves it there, and every later run waits for it without end. So before anything is loaded, a lock that no process
holds open is removed. The cache lies in the virtual environment, not in the home folder, for two checkouts that share
one cache compile in turn.

``python -m training.compiled_ops`` compiles what runs on several CPU ranks need; ``launch/setup.sh`` calls it once.
"""

import fcntl
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from autotools.config import load_config, run_main


def prepare() -> None:
    """Set the cache folder and remove abandoned locks from it. Call it before DeepSpeed is imported."""
    if sys.prefix != sys.base_prefix:
        os.environ.setdefault("TORCH_EXTENSIONS_DIR", str(Path(sys.prefix) / "torch_extensions"))
    folder = os.environ.get("TORCH_EXTENSIONS_DIR")
    if folder and Path(folder).is_dir() and not _several_nodes():
        drop_abandoned_locks(Path(folder))


def drop_abandoned_locks(folder: Path) -> list[Path]:
    """Remove each file named ``lock`` below ``folder`` that no process of this machine holds open; return those."""
    found = [path for path in folder.rglob("lock") if path.is_file()]
    if not found or not Path("/proc/self/fd").is_dir():
        return []
    dropped = []
    with (folder / "abandoned.flock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)  # two ranks at once: the second must see the first one's new lock
        held = _open_files()
        for path in found:
            if str(path.resolve()) not in held and _is_ours(path):
                path.unlink(missing_ok=True)
                dropped.append(path)
    return dropped


def _open_files() -> set[str]:
    """Paths that any process we may look into holds open (a lock of our own can only be held by our own processes)."""
    held = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            held.add(os.readlink(link))
        except OSError:  # ended meanwhile, or another user's
            continue
    return held


def _is_ours(path: Path) -> bool:
    try:
        return path.stat().st_uid == os.geteuid()
    except OSError:
        return False


def _several_nodes() -> bool:
    """On a shared disk the holder may be a process of another node, which cannot be seen from here."""
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    return ranks > int(os.environ.get("LOCAL_WORLD_SIZE", str(ranks)))


@dataclass(kw_only=True)
class CompileArgs:
    """The command has no keys of its own."""


def main(argv: list[str] | None = None) -> int:
    """Compile DeepSpeed's shared-memory communication for CPU ranks; returns 0, or raises what the compiler said."""
    config = load_config(argv, {"": CompileArgs}, prog="python -m training.compiled_ops", description=__doc__ or "")
    prepare()
    if config.dry_run:
        print(f"would compile into {os.environ.get('TORCH_EXTENSIONS_DIR', 'the cache of torch in the home folder')}")
        return 0
    from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder

    ShareMemCommBuilder().load()
    return 0


if __name__ == "__main__":
    run_main(main)
