"""Building a dense index: what is known is reused, what is embedded is kept at once, what is finished appears at once.

Beside the index ``DIR`` lie, hidden: ``.DIR.lock`` (held by the one process that builds; a second one waits and finds
the index done), ``.DIR.building/`` (blocks of vectors, kept when a build is interrupted and used by the next one) and
for an instant ``.DIR.new/`` and ``.DIR.old/``. The index itself is put in place by renaming a whole folder.
"""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from autotools.errors import RetrieverError
from autotools.rundir import sha256_file, write_json, write_jsonl
from retriever.corpus import TEMPLATE_VERSION
from retriever.encoder import Encoder
from retriever.index import (
    FORMAT,
    MANIFEST,
    MATRIX,
    ROWS,
    STAGE,
    Documents,
    Progress,
    StoredIndex,
    load_index,
    same_settings,
    stale_fields,
)

BLOCK_TEXTS = {"cpu": 256, "cuda": 4096}  # texts between two saves: a killed build loses one block
_LIBRARIES = ("torch", "transformers", "sentence-transformers", "tokenizers", "numpy")


@dataclass(frozen=True)
class BuildSummary:
    """What a build did: documents = reused (old index) + resumed (an interrupted build) + embedded + repeated texts."""

    documents: int
    embedded: int
    reused: int
    resumed: int
    repeated: int
    truncated: int  # of the embedded ones
    fresh: bool  # nothing had to be done


def build_index(
    documents: Documents, encoder: Encoder, out: str | Path, progress: Progress | None = None
) -> BuildSummary:
    """Make ``out`` the index of these documents under this encoder; safe to call from two processes at once.

    Vectors of unchanged texts are taken from the index that is there, if it has the same settings.
    Raises RetrieverError if ``out`` is some other folder, the disk is full or not writable, or encoding fails; what
    was embedded until then is kept for the next call, and an index that was there stays.
    """
    out = Path(os.path.abspath(out))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with _locked(out):
            return _build(documents, encoder, out, progress)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        again = "free some space and run it again, it continues where it stopped" if full else "nothing was replaced"
        raise RetrieverError(f"cannot write index {out}: {error.strerror or error}; {again}") from error


def _build(documents: Documents, encoder: Encoder, out: Path, progress: Progress | None) -> BuildSummary:
    _recover(out)
    old = _old_index(out)
    count = len(documents.ids)
    if old is not None and not stale_fields(old, documents, encoder.identity):
        return BuildSummary(count, 0, count, 0, 0, 0, True)
    blocks = _Blocks(_beside(out, "building"), encoder.identity)
    known: dict[str, np.ndarray] = {}
    wanted = set(documents.hashes)
    if old is not None and same_settings(old.manifest, encoder.identity):
        known = {text: old.matrix[row] for row, text in enumerate(old.hashes) if text in wanted}
    reused = sum(text in known for text in documents.hashes)
    found = {text: vector for text, vector in blocks.read() if text in wanted and text not in known}
    known |= found
    text_of = dict(zip(documents.hashes, documents.texts, strict=True))
    missing = sorted((text for text in text_of if text not in known), key=lambda text: (-len(text_of[text]), text))
    before = encoder.counters()["truncated"]
    if missing:
        _refuse_without_room(out, count + len(missing), encoder.dim)
    size = BLOCK_TEXTS["cpu" if encoder.device == "cpu" else "cuda"]
    for start in range(0, len(missing), size):
        part = missing[start : start + size]
        vectors = encoder.encode_documents(
            [text_of[text] for text in part],
            (lambda done, start=start: progress(start + done, len(missing))) if progress else None,
        )
        blocks.write(start // size, part, vectors)
        known |= zip(part, vectors, strict=True)
    truncated = encoder.counters()["truncated"] - before
    _finish(documents, encoder, out, np.stack([known[text] for text in documents.hashes]))
    blocks.remove()
    repeated = count - reused - len(found) - len(missing)
    return BuildSummary(count, len(missing), reused, len(found), repeated, truncated, False)


def _finish(documents: Documents, encoder: Encoder, out: Path, matrix: np.ndarray) -> None:
    """Write the files into a new folder, the manifest last, and put the folder in place."""
    new = _beside(out, "new")
    new.mkdir()
    try:
        np.save(new / MATRIX, matrix)
        write_jsonl(
            new / ROWS,
            ({"id": i, "sha256": h} for i, h in zip(documents.ids, documents.hashes, strict=True)),
        )
        write_json(new / MANIFEST, manifest_of(documents, encoder, matrix, new))
        for name in (MATRIX, ROWS, MANIFEST):
            _sync(new / name)
        _sync(new)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    old = _beside(out, "old")
    if out.exists():
        os.rename(out, old)
    os.rename(new, out)
    _sync(out.parent)
    shutil.rmtree(old, ignore_errors=True)


def manifest_of(documents: Documents, encoder: Encoder, matrix: np.ndarray, folder: Path) -> dict[str, Any]:
    """The manifest of the files in ``folder``; the same inputs give the same bytes."""
    return {
        "stage": STAGE,
        "format": FORMAT,
        "documents": len(documents.ids),
        "dim": int(matrix.shape[1]),
        "dtype": str(matrix.dtype),
        "normalised": True,
        "template": TEMPLATE_VERSION,
        "texts_sha256": documents.texts_sha256,
        "rows_sha256": sha256_file(folder / ROWS),
        "matrix_sha256": sha256_file(folder / MATRIX),
        "encoder": encoder.describe(),
        "categories": {name: list(ends) for name, ends in documents.offsets.items()},
        "versions": {name: metadata.version(name) for name in _LIBRARIES},
    }


# --- folders ------------------------------------------------------------------------------------------------------


def _beside(out: Path, what: str) -> Path:
    return out.with_name(f".{out.name}.{what}")


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Hold ``.DIR.lock``. The file stays: a lock on a file that another process deletes protects nothing."""
    with _beside(out, "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another process is building {out}; waiting for it", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _recover(out: Path) -> None:
    """Undo what a build that was killed in its last instant has left."""
    old = _beside(out, "old")
    shutil.rmtree(_beside(out, "new"), ignore_errors=True)
    if old.is_dir() and not out.exists():
        os.rename(old, out)
    shutil.rmtree(old, ignore_errors=True)


def _old_index(out: Path) -> StoredIndex | None:
    """The index in place; None if there is none or it is broken. Raises RetrieverError for anything else there."""
    if not out.exists() and not out.is_symlink():
        return None
    if out.is_symlink() or not out.is_dir():
        raise RetrieverError(f"{out} is not a folder; name another one for the index")
    names = {path.name for path in out.iterdir()}
    if names - {MATRIX, ROWS, MANIFEST}:
        raise RetrieverError(f"{out} holds other files ({min(names)}), so it will not be replaced; name another folder")
    try:
        return load_index(out)
    except RetrieverError as error:
        if "is not an index" in str(error):
            raise
        return None


def _refuse_without_room(out: Path, vectors: int, dim: int) -> None:
    need, free = vectors * dim * 4, shutil.disk_usage(out.parent).free
    if need > free:
        raise OSError(errno.ENOSPC, f"{need / 1e6:,.0f} MB are needed, {free / 1e6:,.0f} MB are free")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class _Blocks:
    """Vectors of an unfinished build, in files that appear whole. Blocks of other settings are thrown away."""

    def __init__(self, folder: Path, identity: dict[str, Any]) -> None:
        settings = json.dumps([TEMPLATE_VERSION, identity], sort_keys=True)
        self._folder, self._prefix = folder, hashlib.sha256(settings.encode()).hexdigest()[:16]
        self._number = 0
        for path in folder.glob("*"):
            if path.name.startswith(f"{self._prefix}-") and path.suffix == ".npz":
                self._number = max(self._number, int(path.stem.rpartition("-")[2]) + 1)
            else:
                path.unlink()

    def read(self) -> Iterator[tuple[str, np.ndarray]]:
        """(text hash, vector) of what an earlier build has embedded; a damaged block counts as not there."""
        for path in sorted(self._folder.glob("*.npz")):
            try:
                with np.load(path, allow_pickle=False) as block:
                    hashes, vectors = block["hashes"], block["vectors"]
            except Exception:
                path.unlink()
                continue
            yield from zip(hashes.tolist(), vectors, strict=True)

    def write(self, number: int, hashes: list[str], vectors: np.ndarray) -> None:
        """Save one block. Raises OSError; then no part of it is left."""
        self._folder.mkdir(exist_ok=True)
        path = self._folder / f"{self._prefix}-{self._number + number:06d}.npz"
        half = path.with_suffix(".half")
        try:
            with half.open("wb") as file:
                np.savez(file, hashes=np.array(hashes), vectors=vectors)
            os.replace(half, path)
        finally:
            half.unlink(missing_ok=True)

    def remove(self) -> None:
        """Forget the blocks; they are in the index now."""
        shutil.rmtree(self._folder, ignore_errors=True)
