"""Dense search engine: queries to vectors, exact search in the index, hits; and how its index is opened.

Order of hits: cosine in float64 rounded to 2^-18, descending, then tool id. A cosine may be 0 or negative: in a small
category the k nearest documents are returned, however far they are. A blank query has no meaning and no hits.
"""

import hashlib
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autotools.errors import RetrieverError
from autotools.schema import Hit
from retriever.categories import wanted_categories
from retriever.corpus import TEMPLATE_VERSION, load_tools, short_text
from retriever.encoder import Encoder
from retriever.index import Documents, StoredIndex, arrange, load_index, refuse_stale, stale_fields
from retriever.index_writing import build_index
from retriever.vectors import ExactVectors

MIN_AGREEMENT = 0.99  # cosine of a stored vector and the same text encoded now; bf16 on two devices keeps 0.998
PROGRESS_FROM = 200  # texts to embed; fewer take seconds


class DenseEngine:
    """Exact nearest documents by cosine; ``matrix`` holds the unit vectors of ``documents``, float32 [n, dim]."""

    def __init__(self, documents: Documents, encoder: Encoder, matrix: np.ndarray) -> None:
        self._encoder = encoder
        self._vectors = ExactVectors(matrix, documents.ids, documents.offsets, device=encoder.device)
        self._texts_sha256 = documents.texts_sha256
        self._categories = tuple(sorted(documents.offsets))
        self._specs = documents.specs
        self._shown = [short_text(spec) for spec in documents.specs]

    @property
    def categories(self) -> tuple[str, ...]:
        """Categories a search may be restricted to, sorted."""
        return self._categories

    def search_batch(
        self, queries: Sequence[str], categories: Sequence[str | None] | None = None, k: int = 5
    ) -> list[list[Hit]]:
        """The min(k, members) nearest tools per query, best first; none for a blank query.

        Raises UnknownCategoryError, RetrieverError (k < 1, lengths that differ, an encoder that fails).
        """
        wanted = wanted_categories(queries, categories, k, self._categories)
        asked = [number for number, query in enumerate(queries) if query.strip()]
        out: list[list[Hit]] = [[] for _ in queries]
        if not asked:
            return out
        vectors = self._encoder.encode_queries([queries[number] for number in asked])
        found = self._vectors.search(vectors, [wanted[number] for number in asked], k)
        for number, (rows, scores) in zip(asked, found, strict=True):
            out[number] = [self._hit(row, score) for row, score in zip(rows.tolist(), scores.tolist(), strict=True)]
        return out

    def prefetch(self, queries: Sequence[str]) -> None:
        """Encode all queries of a turn at once; later searches find them in the cache."""
        if asked := [query for query in queries if query.strip()]:
            self._encoder.encode_queries(asked)

    def describe(self) -> dict[str, Any]:
        """What decides its results; goes into manifests."""
        return {
            "engine": "dense",
            **self._encoder.describe(),
            "template": TEMPLATE_VERSION,
            "tools": len(self._specs),
            "texts_sha256": self._texts_sha256,
        }

    def counters(self) -> dict[str, int]:
        """Counts of the query path since the engine was opened."""
        return self._encoder.counters()

    def _hit(self, row: int, score: float) -> Hit:
        return Hit(id=self._specs[row].id, score=score, document=self._shown[row])


# --- opening ------------------------------------------------------------------------------------------------------


def open_dense(
    path: str | Path,
    encoder: str,
    *,
    index: str | Path | None = None,
    device: str = "auto",
    dtype: str = "auto",
    allow_stale: bool = False,
) -> DenseEngine:
    """Engine over the tools in ``path``. ``encoder``: see ``recipe_for``.

    With ``index`` that folder must hold a fresh index. Without it one is kept in the user's cache folder
    (``AUTOTOOLS_CACHE``, else ``~/.cache/autotools``), made on the first call and updated when the tools change.
    ``allow_stale`` searches an index that differs: tools it does not know are left out, and stderr says so.
    Raises ConfigError, DataError, RetrieverError; for a missing or stale index with the command that makes it.
    """
    documents = arrange(load_tools(path))
    if index is None:
        model = Encoder(encoder, device=device, dtype=dtype)
        folder = cache_folder(path, model)
        build_index(documents, model, folder, progress_on_stderr(f"embedding for {folder.name}"))
        stored = load_index(folder)
    else:
        command = build_command(path, encoder, index, dtype)
        stored = _load(index, command)
        described = stored.manifest["encoder"]
        settings = {"dtype": dtype if dtype != "auto" else described["dtype"]}
        model = Encoder(encoder, device=device, max_seq_length=described["max_seq_length"], **settings)
        if not allow_stale:
            refuse_stale(stored, documents, model.identity, command)
    matrix = stored.matrix
    if stale := stale_fields(stored, documents, model.identity):
        print(f"warning: index {stored.folder} is stale and used all the same: {'; '.join(stale)}", file=sys.stderr)
        documents, matrix = _common(documents, stored)
    elif index is not None:
        _check_agreement(documents, matrix, model, stored)
    if matrix.shape[1] != model.dim:
        raise RetrieverError(f"index {stored.folder} has {matrix.shape[1]} dims, the encoder {model.dim}; build again")
    model.counts.clear()
    return DenseEngine(documents, model, matrix)


def build_command(path: str | Path, encoder: str, index: str | Path, dtype: str = "auto") -> str:
    """The shell command that makes an index."""
    words = ["python", "-m", "retriever.build", "--tools", str(path), "--encoder", encoder, "--out", str(index)]
    return shlex.join(words + ([] if dtype == "auto" else ["--dtype", dtype]))


def cache_folder(path: str | Path, encoder: Encoder) -> Path:
    """Where the index of a corpus file is kept when no folder is named: one per file, encoder and dtype."""
    base = os.environ.get("AUTOTOOLS_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "autotools"
    key = "\n".join([str(Path(path).resolve()), encoder.recipe.weights, encoder.dtype])
    name = f"{encoder.recipe.name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    return Path(base).expanduser() / "index" / name


def _load(index: str | Path, command: str) -> StoredIndex:
    try:
        return load_index(index)
    except RetrieverError as error:
        raise RetrieverError(f"{error}. Make it: {command}") from error


def _common(documents: Documents, stored: StoredIndex) -> tuple[Documents, np.ndarray]:
    """The documents that a stale index has a vector for, and those vectors."""
    row_of = {tool_id: row for row, tool_id in enumerate(stored.ids)}
    specs = [spec for spec in documents.specs if str(spec.id) in row_of]
    if not specs:
        raise RetrieverError(f"index {stored.folder} knows none of these tools")
    kept = arrange(specs)
    return kept, np.ascontiguousarray(stored.matrix[[row_of[tool_id] for tool_id in kept.ids]])


def _check_agreement(documents: Documents, matrix: np.ndarray, model: Encoder, stored: StoredIndex) -> None:
    """Encode two documents anew: hashes cannot see that another library version reads the same weights otherwise."""
    rows = sorted({0, len(documents.ids) // 2})
    cosines = (model.encode_documents([documents.texts[row] for row in rows]) * matrix[rows]).sum(axis=1)
    if not cosines.min() >= MIN_AGREEMENT:
        raise RetrieverError(
            f"index {stored.folder} does not agree with the encoder: cosine {cosines.min():.3f} for "
            f"{documents.ids[rows[int(cosines.argmin())]]}; it was built with {stored.manifest['versions']}"
        )


def progress_on_stderr(label: str) -> Any:
    """A progress callback that draws a bar once there is enough to do; it ends when all is done."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True))
    task = bar.add_task(label, total=None)

    def progress(done: int, total: int) -> None:
        if total < PROGRESS_FROM:
            return
        if not bar.live.is_started:
            bar.start()
        bar.update(task, completed=done, total=total)
        if done >= total:
            bar.stop()

    return progress
