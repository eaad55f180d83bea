"""Outcome plus finds to go: hand-worked, against a loop, and the corner cases. Its bias: tests/benchmarks."""

import random
import statistics

import numpy as np
import pytest

from rl.credit import RolloutArrays, event_credit, outcome_credit, pack_rollouts
from rl.credit_options import PAPER, CreditOptions
from rl.credit_to_go import to_go_credit

Row = tuple[list[list[int]], int, bool, float, int]  # first found per event, targets, answered, reward, group
CENTRED = CreditOptions(std=False)


def pack(rows: list[Row]) -> RolloutArrays:
    return pack_rollouts(*zip(*rows, strict=True))


def test_worked_by_hand() -> None:
    # finds to go: 1, 1/2, 0 | 1/2, 0, 0 | 0, 0, 0; their means 1/2, 1/6, 0; rewards 1, 1/2, 0 with mean 1/2
    rows: list[Row] = [
        ([[0], [1], []], 2, True, 1.0, 3),
        ([[1], []], 2, True, 0.5, 3),
        ([[], [], []], 2, False, 0.0, 3),
    ]
    credit = to_go_credit(pack(rows), CENTRED)
    want = [[0.5 + 0.5, 0.5 + 1 / 3, 0.5], [0.0, -1 / 6, 0.0], [-0.5 - 0.5, -0.5 - 1 / 6, -0.5]]
    np.testing.assert_allclose(credit.advantages, want, atol=1e-12)
    assert credit.keep.tolist() == [[True] * 3, [True, True, False], [True] * 3]
    # both deviations are 1/2: of the rewards, and of the finds to go at turn 0
    scaled = to_go_credit(pack(rows), CreditOptions())
    np.testing.assert_allclose(scaled.advantages, 2 * np.array(want), atol=1e-5)


def slow(rows: list[Row]) -> list[list[float]]:
    out = []
    for found, num_targets, _, reward, group in rows:
        mates = [r for r in rows if r[4] == group and not np.isnan(r[3])]
        row = []
        for e in range(len(found)):
            mine = sum(len(new) for new in found[e:]) / max(num_targets, 1)
            theirs = [sum(len(new) for new in r[0][e:]) / max(r[1], 1) for r in mates]
            value = reward - statistics.mean([r[3] for r in mates]) + mine - statistics.mean(theirs) if mates else 0.0
            row.append(0.0 if np.isnan(reward) else value)
        out.append(row)
    return out


def test_equals_the_slow_loop() -> None:
    rng = random.Random(0)
    for _ in range(60):
        rows: list[Row] = []
        for group in range(rng.randint(1, 3)):
            num_targets = rng.randint(0, 3)
            for _ in range(rng.randint(2, 5)):
                left = rng.sample(range(num_targets), num_targets)
                found = [[left.pop()] if left and rng.random() < 0.5 else [] for _ in range(rng.randint(1, 5))]
                answered = rng.random() < 0.6
                reward = float("nan") if rng.random() < 0.1 else rng.choice([0.0, 0.5, 1.0])
                rows.append((found + [[]] * answered, num_targets, answered, reward, group))
        rng.shuffle(rows)
        credit = to_go_credit(pack(rows), CENTRED)
        for i, want in enumerate(slow(rows)):
            np.testing.assert_allclose(credit.advantages[i, : len(want)], want, atol=1e-12)
            assert not credit.advantages[i, len(want) :].any()
            assert credit.keep[i].tolist() == [
                e < len(want) and not np.isnan(rows[i][3]) for e in range(credit.keep.shape[1])
            ]


@pytest.mark.parametrize("std", [True, False])
@pytest.mark.parametrize(
    "rows",
    [[([[0], []], 1, True, 0.5, 0)], [([[0], [1], []], 2, True, 0.1 + 0.2, 0)] * 5, [([[], []], 2, True, 0.0, 0)] * 4],
)
def test_no_difference_no_credit(rows: list[Row], std: bool) -> None:
    np.testing.assert_allclose(to_go_credit(pack(rows), CreditOptions(std=std)).advantages, 0, atol=1e-12)


def test_where_it_differs_from_its_parts() -> None:
    """One group: the event credit has no word for a useless search or a hasty answer, the outcome none for a find."""
    rows: list[Row] = [([[0], [1], []], 2, True, 0.0, 0), ([[]], 2, True, 0.0, 0), ([[], [], []], 2, True, 0.0, 0)]
    credit = to_go_credit(pack(rows), CreditOptions()).advantages
    assert (credit[0, :2] > 0).all() and credit[1, 0] < 0 and (credit[2, :2] < 0).all()
    assert credit[0, 2] == credit[2, 2] == 0  # nothing was found after it: an answer at the end pays nothing
    assert not outcome_credit(pack(rows), CreditOptions()).advantages.any()
    assert not (event_credit(pack(rows), PAPER).advantages < 0).any()
