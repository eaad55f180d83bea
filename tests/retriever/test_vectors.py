"""Exact vector search against a float64 brute force: categories, ties, duplicates, k > n, lowered precision."""

import numpy as np
import pytest

from autotools.errors import RetrieverError
from retriever.vectors import ROUNDING, ExactVectors


def _unit(rng: np.random.Generator, count: int, dim: int) -> np.ndarray:
    vectors = rng.standard_normal((count, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _offsets(sizes: dict[str, int]) -> dict[str, tuple[int, int]]:
    ends = np.cumsum([0, *sizes.values()]).tolist()
    return {name: (ends[i], ends[i + 1]) for i, name in enumerate(sizes)}


def _ids(count: int, seed: int) -> list[str]:
    """Ids whose order as text is not the row order."""
    return [f"t{number:05d}" for number in np.random.default_rng(seed).permutation(count)]


def _brute_force(matrix, ids, query, rows, k) -> list[tuple[str, float]]:
    scores = matrix[rows].astype(np.float64) @ query.astype(np.float64)
    scores = np.round(scores / ROUNDING) * ROUNDING
    return sorted(((ids[row], score) for row, score in zip(rows, scores, strict=True)), key=lambda p: (-p[1], p[0]))[:k]


def _check(matrix, ids, offsets, queries, categories, k, **kwargs) -> ExactVectors:
    engine = ExactVectors(matrix, ids, offsets, **kwargs)
    found = engine.search(queries, categories, k)
    assert len(found) == len(queries)
    for query, category, (rows, scores) in zip(queries, categories, found, strict=True):
        start, stop = (0, len(matrix)) if category is None else offsets[category]
        expected = _brute_force(matrix, ids, query, range(start, stop), k)
        assert [ids[row] for row in rows] == [tool_id for tool_id, _ in expected]
        assert scores.dtype == np.float64
        assert np.allclose(scores, [score for _, score in expected], rtol=0, atol=1e-12)
    return engine


@pytest.mark.parametrize("k", [1, 5, 40, 5000])
@pytest.mark.parametrize("block_rows", [64, 8192])
def test_every_category_and_the_whole_corpus(k: int, block_rows: int) -> None:
    rng = np.random.default_rng(1)
    sizes = {"A": 300, "A-B": 1, "B": 2, "C": 31, "D": 33, "E": 700}
    offsets = _offsets(sizes)
    matrix = _unit(rng, 1067, 48)
    categories = [*sizes, None, *sizes, None, None]
    queries = _unit(rng, len(categories), 48)
    _check(matrix, _ids(1067, 2), offsets, queries, categories, k, block_rows=block_rows)


@pytest.mark.parametrize("k", [1, 5, 7, 50, 333])
def test_copies_of_a_document_come_in_the_order_of_their_ids(k: int) -> None:
    """100 copies of one row and 60 of another: more than the 32 candidates that are fetched for k = 5."""
    rng = np.random.default_rng(3)
    matrix = _unit(rng, 400, 32)
    matrix[rng.permutation(400)[:100]] = matrix[0]
    matrix[300:360] = matrix[299]
    offsets = _offsets({"A": 150, "B": 250})
    queries = np.concatenate([matrix[[0, 299, 299, 0, 0]], _unit(rng, 6, 32)])
    categories = [None, None, "B", "A", "B", "A", "B", None, "A", "B", None]
    engine = _check(matrix, _ids(400, 4), offsets, queries, categories, k)
    assert (engine.scans > 0) == (k < 50)  # the fetched candidates were all ties, so the rows had to be scanned


def test_near_ties_within_the_rounding_step_are_ties() -> None:
    """Vectors that differ by a tenth of the step: float32 order is noise, the id order must win."""
    rng = np.random.default_rng(5)
    base = _unit(rng, 1, 64)[0]
    matrix = np.repeat(base[None], 64, axis=0) + rng.standard_normal((64, 64)).astype(np.float32) * 3e-8
    ids = _ids(64, 6)
    engine = _check(matrix, ids, {"A": (0, 64)}, base[None], [None], 5)
    rows, scores = engine.search(base[None], [None], 5)[0]
    assert [ids[row] for row in rows] == sorted(ids)[:5] and len(set(scores.tolist())) == 1


def test_the_batch_does_not_change_a_result() -> None:
    rng = np.random.default_rng(7)
    matrix, queries = _unit(rng, 900, 40), _unit(rng, 50, 40)
    offsets = _offsets({"A": 400, "B": 500})
    categories = [[None, "A", "B"][i % 3] for i in range(50)]
    engine = ExactVectors(matrix, _ids(900, 8), offsets)
    together = engine.search(queries, categories, 9)
    for number in range(50):
        rows, scores = engine.search(queries[number : number + 1], [categories[number]], 9)[0]
        assert rows.tolist() == together[number][0].tolist() and scores.tolist() == together[number][1].tolist()


def test_products_in_lower_precision_do_not_change_a_result() -> None:
    """A trainer may have switched TF32 or bf16 products on for the whole process."""
    import torch

    rng = np.random.default_rng(9)
    base = _unit(rng, 40, 256)
    matrix = base[rng.integers(0, 40, 4000)] + 0.01 * _unit(rng, 4000, 256)
    matrix = (matrix / np.linalg.norm(matrix, axis=1, keepdims=True)).astype(np.float32)
    queries = _unit(rng, 64, 256)

    class Coarse(ExactVectors):
        """Candidates from a bf16 product on any machine, with or without hardware for it."""

        def _candidates(self, queries, part, fetch):
            scores = (queries.bfloat16() @ self._matrix[part.start : part.stop].bfloat16().T).float()
            top = torch.topk(scores, fetch, dim=1)
            return top.values, top.indices + part.start

    ids, offsets = _ids(4000, 10), {"A": (0, 4000)}
    found = Coarse(matrix, ids, offsets).search(queries, [None] * 64, 5)
    right = ExactVectors(matrix, ids, offsets).search(queries, [None] * 64, 5)
    assert [rows.tolist() for rows, _ in found] == [rows.tolist() for rows, _ in right]
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        _check(matrix, ids, offsets, queries, [None] * 64, 5)
    finally:
        torch.set_float32_matmul_precision(before)


def test_threads_of_the_process_are_put_back() -> None:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        ExactVectors(np.eye(4, dtype=np.float32), list("abcd"), {"A": (0, 4)}).search(
            np.eye(4, dtype=np.float32), [None] * 4, 2
        )
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_empty_batch_and_bad_input() -> None:
    matrix = np.eye(4, dtype=np.float32)
    engine = ExactVectors(matrix, list("abcd"), {"A": (0, 4)})
    assert engine.search(np.empty((0, 4), dtype=np.float32), [], 3) == []
    with pytest.raises(RetrieverError, match="not finite"):
        engine.search(np.full((1, 4), np.nan, dtype=np.float32), [None], 3)
    with pytest.raises(RetrieverError, match=r"shape \(1, 3\) against documents of 4"):
        engine.search(np.ones((1, 3), dtype=np.float32), [None], 3)
    with pytest.raises(RetrieverError, match="do not fit together"):
        ExactVectors(matrix, list("abc"), {"A": (0, 4)})
    with pytest.raises(RetrieverError, match="non-empty float32"):
        ExactVectors(np.empty((0, 4), dtype=np.float32), [], {})
    with pytest.raises(RetrieverError, match="non-empty float32"):
        ExactVectors(matrix.astype(np.float64), list("abcd"), {"A": (0, 4)})
