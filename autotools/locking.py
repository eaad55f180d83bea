"""One process at a time in a run folder."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotools.errors import RunFolderError


@contextmanager
def only_process(folder: Path | str) -> Iterator[None]:
    """Hold ``.NAME.lock`` beside a run folder, which need not exist yet. The file goes when we do.

    It lies beside, so that it outlives an overwrite of the folder. Where no lock can be had (a network file system, a
    parent that cannot be written) the run goes on without. Raises RunFolderError if another process has the folder.
    """
    folder = Path(folder).resolve()
    path = folder.with_name(f".{folder.name}.lock")
    file = _locked(path, folder)
    try:
        yield
    finally:
        if file is not None:
            path.unlink(missing_ok=True)
            fcntl.flock(file, fcntl.LOCK_UN)  # not only closed: a process that was forked meanwhile has it open, too
            os.close(file)


def _locked(path: Path, folder: Path) -> int | None:
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.read(file, 20).decode("ascii", "replace").strip()
            os.close(file)
            holder = f"by the process with pid {pid}" if pid.isdigit() else "by another process"
            raise RunFolderError(
                f"run folder {folder} is in use {holder}; wait for it, end it, or name another"
            ) from None
        except OSError:
            os.close(file)
            return None
        if _is(file, path):
            os.ftruncate(file, 0)
            os.write(file, str(os.getpid()).encode())
            return file
        os.close(file)  # the one who had it has deleted it meanwhile


def _is(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False
