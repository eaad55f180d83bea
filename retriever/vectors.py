"""Exact search over unit vectors: one contiguous float32 matrix whose rows are sorted by category.

A category is then a slice of the matrix, which costs its own share of the work and stays exact. The matrix product in
float32 only proposes candidates. They are scored again in float64, rounded to 2^-18 and ordered by (score descending,
tool id ascending), so that neither the batch, nor the number of threads, nor the device decides between near-equal
documents (seven copies of one document would otherwise come back in seven orders).

Why the result is exact: a float32 dot product of two unit vectors of length d is off by at most e = d * 2^-24 (the
standard bound gamma_d * |q||x|). A row can be among the k best only if its float32 score is at least the k-th largest
one minus (2e + 2^-18), the last term for the rounding. All such rows are scored again; where the fetched candidates
do not reach below that line, the whole slice is scanned. If the measured error is larger than e (TF32 or bf16 products
were switched on for the process), e is raised and the group is done again.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotools.errors import RetrieverError

ROUNDING = 2.0**-18  # scores that are equal after rounding to this step are ties
MIN_FETCH = 32  # candidates per query at least: with fewer, a small group of near-duplicates forces a scan
BLOCK_ROWS = 8192  # rows per matrix product: bounds memory to BLOCK_QUERIES * BLOCK_ROWS * 4 bytes (32 MB)
BLOCK_QUERIES = 1024
_PRODUCT_ROWS = 512  # of one product on a CPU: its part of the matrix then stays in a core's cache
_PAIRS = 128  # (query, row) pairs that are rescored at once, for the same reason
_MAX_ERROR = 0.1  # a float32 product that is further off than this is no product of unit vectors


@dataclass(frozen=True)
class _Slice:
    """Rows ``start`` to ``stop`` of the matrix; what one group of queries is searched in."""

    start: int
    stop: int


class ExactVectors:
    """The matrix and its categories; ``search`` is safe to call from several threads.

    ``matrix``: float32 [n, d], rows of length 1, sorted so that each category is one slice of ``offsets``
    ({name: (start, stop)}). ``ids``: n tool ids as text, for the tie order. ``device``: a torch device; the matrix is
    copied there unless it is the CPU, where a memory-mapped array stays mapped. ``threads``: CPU threads of a search;
    one, because beside a trainer a second thread waits for a core longer than it helps.
    Raises RetrieverError if the shapes do not fit or the matrix is empty.
    """

    def __init__(
        self,
        matrix: np.ndarray,
        ids: Sequence[str],
        offsets: Mapping[str, tuple[int, int]],
        *,
        device: str = "cpu",
        threads: int = 1,
        block_rows: int = BLOCK_ROWS,
    ) -> None:
        import torch

        if matrix.ndim != 2 or matrix.dtype != np.float32 or not len(matrix):
            raise RetrieverError(f"need a non-empty float32 matrix, got {matrix.dtype} of shape {matrix.shape}")
        if len(ids) != len(matrix) or sum(stop - start for start, stop in offsets.values()) != len(matrix):
            raise RetrieverError(f"{len(matrix)} vectors, {len(ids)} ids and category slices do not fit together")
        self._matrix = torch.from_numpy(np.ascontiguousarray(matrix)).to(device)
        self._slices = {name: _Slice(*ends) for name, ends in offsets.items()}
        self._all = _Slice(0, len(matrix))
        self._id_rank = np.empty(len(ids), dtype=np.int64)
        self._id_rank[sorted(range(len(ids)), key=ids.__getitem__)] = np.arange(len(ids))
        self._threads, self._block_rows = threads, block_rows
        self.scans = 0  # queries for which the fetched candidates were not enough

    def __len__(self) -> int:
        return len(self._matrix)

    def search(
        self, queries: np.ndarray, categories: Sequence[str | None], k: int
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Per query the rows of its min(k, members) best documents and their float64 scores (dot products), best first.

        ``queries``: float32 [b, d]. ``categories[i]`` names a slice (None: all rows). Raises RetrieverError if the
        dimensions differ or a number is not finite.
        """
        import torch

        if queries.ndim != 2 or queries.shape[1] != self._matrix.shape[1]:
            raise RetrieverError(f"queries of shape {queries.shape} against documents of {self._matrix.shape[1]} dims")
        if not np.isfinite(queries).all():
            raise RetrieverError("a query vector holds a number that is not finite")
        wanted = [self._all if category is None else self._slices[category] for category in categories]
        vectors = torch.from_numpy(np.ascontiguousarray(queries, dtype=np.float32)).to(self._matrix.device)
        out: list[tuple[np.ndarray, np.ndarray]] = []
        with torch.inference_mode(), _cpu_threads(self._threads):
            for start in range(0, len(queries), BLOCK_QUERIES):
                stop = start + BLOCK_QUERIES
                out += self._block(vectors[start:stop], wanted[start:stop], k)
        return out

    def _block(self, queries: Any, parts: Sequence[_Slice], k: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """``search`` for queries [b, d] of at most BLOCK_QUERIES rows; ``parts[i]`` is the slice of query i."""
        import torch

        sizes = torch.tensor([part.stop - part.start for part in parts], device=queries.device)
        values, rows = self._fetch(queries, parts, min(max(MIN_FETCH, 2 * k), int(sizes.max())))
        last = values.gather(1, sizes.clamp(max=k)[:, None] - 1)
        error = queries.shape[1] * 2.0**-24
        while True:
            lowest = last - (2 * error + ROUNDING)  # the line that no result can lie below
            keep = values >= lowest
            short = (keep[:, -1] & (sizes > values.shape[1])).nonzero()[:, 0]
            keep[short] = False
            query_of, column = keep.nonzero(as_tuple=True)
            row_of, value_of = rows[query_of, column], values[query_of, column]
            for number in short.tolist():
                more_rows, more_values = self._scan(queries[number], parts[number], lowest[number])
                query_of = torch.cat([query_of, torch.full_like(more_rows, number)])
                row_of, value_of = torch.cat([row_of, more_rows]), torch.cat([value_of, more_values])
            exact = self._rescore(queries, query_of, row_of)
            seen = float((exact - value_of).abs().max())
            if not seen < _MAX_ERROR:
                raise RetrieverError(f"float32 scores are off by {seen:.3g}; the vectors are not of length 1")
            if seen <= error:
                break
            error = 8 * seen
        self.scans += len(short)
        return self._ordered(query_of.cpu().numpy(), row_of.cpu().numpy(), exact.cpu().numpy(), len(queries), k)

    def _fetch(self, queries: Any, parts: Sequence[_Slice], fetch: int) -> tuple[Any, Any]:
        """``_candidates`` of every query in its own slice; score -inf where a slice has fewer than ``fetch`` rows."""
        import torch

        if len(set(parts)) == 1:
            return self._candidates(queries, parts[0], fetch)
        order = sorted(range(len(parts)), key=lambda number: (parts[number].start, parts[number].stop))
        values = torch.full((len(parts), fetch), -torch.inf, device=queries.device)
        rows = torch.zeros((len(parts), fetch), dtype=torch.int64, device=queries.device)
        at, grouped = 0, queries[order]
        for part, members in itertools.groupby(order, key=parts.__getitem__):  # copies of neighbours, not of lists
            stop = at + sum(1 for _ in members)
            width = min(fetch, part.stop - part.start)
            values[at:stop, :width], rows[at:stop, :width] = self._candidates(grouped[at:stop], part, width)
            at = stop
        back = torch.empty(len(order), dtype=torch.int64, device=queries.device)
        back[order] = torch.arange(len(order), device=queries.device)
        return values[back], rows[back]

    def _candidates(self, queries: Any, part: _Slice, fetch: int) -> tuple[Any, Any]:
        """The ``fetch`` largest float32 scores per query, descending, and their rows; both [b, fetch]."""
        import torch

        values = rows = None
        product_rows = _PRODUCT_ROWS if self._matrix.device.type == "cpu" else self._block_rows
        room = queries.new_empty(len(queries) * min(self._block_rows, part.stop - part.start))
        for start in range(part.start, part.stop, self._block_rows):
            stop = min(start + self._block_rows, part.stop)
            scores = room[: len(queries) * (stop - start)].view(len(queries), stop - start)
            for at in range(start, stop, product_rows):
                to = min(at + product_rows, stop)
                torch.mm(queries, self._matrix[at:to].T, out=scores[:, at - start : to - start])
            top = torch.topk(scores, min(fetch, stop - start), dim=1, sorted=True)
            if values is None:
                values, rows = top.values, top.indices + start
                continue
            values, rows = torch.cat([values, top.values], 1), torch.cat([rows, top.indices + start], 1)
            values, order = torch.topk(values, min(fetch, values.shape[1]), dim=1, sorted=True)
            rows = rows.gather(1, order)
        return values, rows

    def _scan(self, query: Any, part: _Slice, lowest: Any) -> tuple[Any, Any]:
        """Every row of the slice whose float32 score is at least ``lowest``, and the scores."""
        scores = self._matrix[part.start : part.stop] @ query
        rows = (scores >= lowest).nonzero()[:, 0]
        return rows + part.start, scores[rows]

    def _rescore(self, queries: Any, query_of: Any, row_of: Any) -> Any:
        """Dot products in float64 of the given (query, row) pairs."""
        import torch

        wide = queries.double()
        parts = [
            torch.linalg.vecdot(wide[query_of[at : at + _PAIRS]], self._matrix[row_of[at : at + _PAIRS]].double())
            for at in range(0, len(row_of), _PAIRS)
        ]
        return torch.cat(parts)

    def _ordered(
        self, query_of: np.ndarray, rows: np.ndarray, scores: np.ndarray, count: int, k: int
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        rounded = np.round(scores / ROUNDING) * ROUNDING
        order = np.lexsort((self._id_rank[rows], -rounded, query_of))
        rows, rounded = rows[order], rounded[order]
        ends = np.searchsorted(query_of[order], np.arange(count + 1)).tolist()
        return [
            (rows[start : min(start + k, stop)], rounded[start : min(start + k, stop)])
            for start, stop in itertools.pairwise(ends)
        ]


@contextmanager
def _cpu_threads(count: int) -> Iterator[None]:
    """Torch with ``count`` CPU threads inside the block; what the process had is put back."""
    import torch

    before = torch.get_num_threads()
    if before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
