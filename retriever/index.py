"""A dense index on disk: ``embeddings.npy``, ``rows.jsonl`` and ``manifest.json``, and the refusal of a stale one.

Row order is (category, tool id), whatever the order of the corpus file, so that a category is a slice of the matrix.
``rows.jsonl`` holds each row's id and the hash of its text: an edit of one document is seen as one changed document.
The manifest is written last (``retriever/index_writing.py``), holds no time and no path, and names everything that
decided a vector. The query prompt is in it for the record only: changing it needs no rebuild.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autotools.errors import DataError, RetrieverError
from autotools.rundir import read_jsonl, sha256_file
from autotools.schema import ToolSpec
from retriever.corpus import TEMPLATE_VERSION, document_texts

STAGE, FORMAT = "retriever.index", 1
MATRIX, ROWS, MANIFEST = "embeddings.npy", "rows.jsonl", "manifest.json"
_SWAP_WAIT_S, _SWAP_TRIES = 0.01, 100  # between the two renames of a rebuild there is no folder for an instant


@dataclass(frozen=True)
class Documents:
    """A corpus in row order: one entry per row in every field; ``offsets``: category -> (start, stop)."""

    specs: tuple[ToolSpec, ...]
    ids: tuple[str, ...]
    texts: tuple[str, ...]
    hashes: tuple[str, ...]
    offsets: dict[str, tuple[int, int]]

    @property
    def texts_sha256(self) -> str:
        """Hash of the ordered (id, text hash) pairs."""
        return _pairs_hash(self.ids, self.hashes)


@dataclass(frozen=True)
class StoredIndex:
    """An index as it lies on disk, complete and unbroken. ``matrix``: float32 [n, dim], mapped, not read."""

    folder: Path
    manifest: dict[str, Any]
    ids: tuple[str, ...]
    hashes: tuple[str, ...]
    matrix: np.ndarray


def arrange(specs: Sequence[ToolSpec]) -> Documents:
    """Texts and hashes of a corpus in row order. Raises RetrieverError for an empty corpus or an id that is twice."""
    if not specs:
        raise RetrieverError("cannot index an empty corpus")
    ordered = sorted(specs, key=lambda spec: (spec.id.category, str(spec.id)))
    ids = tuple(str(spec.id) for spec in ordered)
    twice = next((a for a, b in zip(sorted(ids), sorted(ids)[1:], strict=False) if a == b), None)
    if twice:
        raise RetrieverError(f"tool id {twice} occurs twice in the corpus; drop one (load_tools does)")
    offsets: dict[str, tuple[int, int]] = {}
    for row, spec in enumerate(ordered):
        start, _ = offsets.get(spec.id.category, (row, row))
        offsets[spec.id.category] = (start, row + 1)
    texts = tuple(document_texts(ordered))
    hashes = tuple(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() for text in texts)
    return Documents(tuple(ordered), ids, texts, hashes, offsets)


def _pairs_hash(ids: Sequence[str], hashes: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for tool_id, text_hash in zip(ids, hashes, strict=True):
        digest.update(f"{tool_id}\t{text_hash}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


# --- reading ------------------------------------------------------------------------------------------------------


def load_index(folder: str | Path) -> StoredIndex:
    """Read an index and check that its files are the ones that were written.

    Raises RetrieverError if there is none, or a file is missing, truncated or changed. (Whether it fits a corpus and
    a model is ``stale_fields``'s question.)
    """
    folder = Path(os.path.abspath(folder))
    for attempt in range(_SWAP_TRIES):
        before = _stamp(folder)
        try:
            stored = _load(folder)
            if before == _stamp(folder):  # else its files may be of two indexes: hashed in one, mapped from the next
                return stored
            if attempt == _SWAP_TRIES - 1:
                raise RetrieverError(f"{folder} was replaced {_SWAP_TRIES} times while it was read; try again later")
        except RetrieverError:
            # Another process may have put a new index in place of this one while it was read.
            if before == _stamp(folder) and (before or not folder.with_name(f".{folder.name}.old").exists()):
                raise
            if attempt == _SWAP_TRIES - 1:
                raise
        time.sleep(_SWAP_WAIT_S)
    raise AssertionError("unreachable")


def _stamp(folder: Path) -> tuple[int, int] | None:
    try:
        stat = os.stat(folder / MANIFEST)
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns


def _load(folder: Path) -> StoredIndex:
    manifest = _read_manifest(folder)
    try:
        if manifest["rows_sha256"] != sha256_file(folder / ROWS):
            raise RetrieverError(f"index {folder}: {ROWS} is not the file that was written; build it again")
        rows = read_jsonl(folder / ROWS)
        matrix = np.load(folder / MATRIX, mmap_mode="c", allow_pickle=False)  # c: pages are shared while nobody writes
        ids, hashes = tuple(row["id"] for row in rows), tuple(row["sha256"] for row in rows)
        expected = (manifest["documents"], manifest["dim"])
        manifest["encoder"], manifest["texts_sha256"]
        matrix_sha256 = sha256_file(folder / MATRIX)
    except (DataError, OSError, ValueError, EOFError, KeyError, TypeError) as error:
        raise RetrieverError(f"index {folder} is broken ({error}); build it again") from error
    if matrix.shape != expected or matrix.dtype != np.float32 or len(ids) != len(matrix):
        raise RetrieverError(f"index {folder}: {MATRIX} is {matrix.dtype} {matrix.shape}, expected float32 {expected}")
    if manifest.get("matrix_sha256") != matrix_sha256:
        raise RetrieverError(f"index {folder}: {MATRIX} is not the file that was written (changed or damaged)")
    return StoredIndex(folder, manifest, ids, hashes, matrix)


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        what = "is not complete (no manifest.json)" if folder.is_dir() else "does not exist"
        raise RetrieverError(f"index {folder} {what}") from error
    except (OSError, ValueError) as error:
        raise RetrieverError(f"index {folder}: {MANIFEST} cannot be read ({error})") from error
    if not isinstance(manifest, dict) or manifest.get("stage") != STAGE:
        raise RetrieverError(f"{folder} is not an index (its {MANIFEST} is another stage's)")
    if manifest.get("format") != FORMAT:
        raise RetrieverError(f"index {folder}: format is {manifest.get('format')}, this version reads {FORMAT}")
    return manifest


# --- staleness ----------------------------------------------------------------------------------------------------


def expected_settings(identity: dict[str, Any]) -> dict[str, Any]:
    """Manifest fields (beside the documents) that decide a vector, as flat names."""
    return {"template": TEMPLATE_VERSION, **{f"encoder.{name}": value for name, value in identity.items()}}


def stored_settings(manifest: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The same fields as an index's manifest has them."""
    encoder = manifest.get("encoder", {})
    return {name: encoder.get(name[8:]) if name.startswith("encoder.") else manifest.get(name) for name in names}


def same_settings(manifest: dict[str, Any], identity: dict[str, Any]) -> bool:
    """Whether vectors of that index can be taken for documents whose text has not changed."""
    expected = expected_settings(identity)
    return stored_settings(manifest, list(expected)) == expected


def stale_fields(index: StoredIndex, documents: Documents, identity: dict[str, Any]) -> list[str]:
    """What differs between an index and what is to be searched, as ``field: how``; empty if it is fresh."""
    expected = expected_settings(identity)
    stored = stored_settings(index.manifest, list(expected))
    out = [f"{name}: {_short(stored[name])} in the index, {_short(expected[name])} now" for name in expected
           if stored[name] != expected[name]]  # fmt: skip
    if index.manifest["texts_sha256"] != documents.texts_sha256:
        old, new = (
            dict(zip(index.ids, index.hashes, strict=True)),
            dict(zip(documents.ids, documents.hashes, strict=True)),
        )
        changed = sorted(tool_id for tool_id in new if tool_id in old and old[tool_id] != new[tool_id])
        added, removed = sorted(new.keys() - old.keys()), sorted(old.keys() - new.keys())
        first = (changed or added or removed or [""])[0]
        out.append(f"documents: {len(changed)} changed, {len(added)} added, {len(removed)} removed, first {first}")
    return out


def refuse_stale(index: StoredIndex, documents: Documents, identity: dict[str, Any], command: str) -> None:
    """Raise RetrieverError with the fields that differ and ``command``, which makes the index anew."""
    if fields := stale_fields(index, documents, identity):
        raise RetrieverError(f"index {index.folder} is stale: {'; '.join(fields)}. Rebuild it: {command}")


def _short(value: Any) -> str:
    text = str(value)
    return repr(text if len(text) <= 40 else f"{text[:12]}...")


Progress = Callable[[int, int], None]  # (documents done, documents in all)
