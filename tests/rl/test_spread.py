"""Event values to token values, against an element-by-element loop."""

import random

import numpy as np
import pytest

from rl.spreading import spread_over_tokens


def test_a_batch_by_hand() -> None:
    spans = [[(0, 2), (4, 5)], [(1, 3)], []]
    advantages = np.array([[1.0, -2.0], [0.5, 9.0], [9.0, 9.0]])
    keep = np.array([[True, True], [True, True], [True, True]])
    per_token, kept = spread_over_tokens(spans, advantages, keep, (3, 6))
    assert per_token.tolist() == [[1, 1, 0, 0, -2, 0], [0, 0.5, 0.5, 0, 0, 0], [0] * 6]
    assert kept.tolist() == [[1, 1, 0, 0, 1, 0], [0, 1, 1, 0, 0, 0], [0] * 6]


def test_random_batches_equal_the_loop() -> None:
    rng = random.Random(0)
    for _ in range(50):
        n, e, t = rng.randint(1, 5), rng.randint(1, 4), rng.randint(8, 20)
        spans = []
        for _ in range(n):
            cuts = sorted(rng.sample(range(t + 1), 2 * rng.randint(0, e)))
            spans.append(list(zip(cuts[::2], cuts[1::2], strict=True)))
        advantages = np.random.default_rng(rng.randrange(10**6)).normal(size=(n, e))
        keep = np.array([[rng.random() < 0.5 for _ in range(e)] for _ in range(n)])
        per_token, kept = spread_over_tokens(spans, advantages, keep, (n, t))
        for i in range(n):
            for position in range(t):
                inside = [k for k, (start, end) in enumerate(spans[i]) if start <= position < end]
                value = [advantages[i, k] for k in inside if keep[i, k]]
                assert per_token[i, position] == (value[0] if value else 0.0)
                assert kept[i, position] == len(value)


def test_a_span_beyond_the_batch_is_our_error() -> None:
    with pytest.raises(ValueError, match="event 0 of rollout 1 ends at token 7, but the batch has 6"):
        spread_over_tokens([[], [(3, 7)]], np.zeros((2, 1)), np.ones((2, 1), dtype=bool), (2, 6))
