"""Credit of the compared methods on one group of four, worked on paper; invariances on random groups."""

import math

import numpy as np
import pytest

from rl.algorithms import ALGORITHMS, get_algorithm, without_effect
from rl.credit import CreditOptions, RolloutArrays, pack_rollouts
from rl.credit_options import PAPER
from rl.rewards import RewardOptions

# Two targets. Rollout 0 finds both one by one and answers right; 1 finds target 0, then nothing; 2 finds nothing and
# answers at once; 3 finds both at once and never answers.
FOUND = [[[0], [1], []], [[0], [], []], [[]], [[0, 1], []]]
ANSWERED = [True, True, True, False]
REWARDS = [1.0, 0.5, 0.5, 0.0]
SD = math.sqrt(0.5 / 3)  # mean 0.5, squares 0.25 + 0 + 0 + 0.25
Z = [0.5 / SD, 0.0, 0.0, -0.5 / SD]
RECALL_SD = math.sqrt((0.375**2 * 2 + 0.125**2 + 0.625**2) / 3)  # recalls 1, 1/2, 0, 1: mean 0.625
RECALL_Z = [0.375 / RECALL_SD, -0.125 / RECALL_SD, -0.625 / RECALL_SD, 0.375 / RECALL_SD]
LEAVE_ONE_OUT = [1 - 1 / 3, 0.5 - 1.5 / 3, 0.5 - 1.5 / 3, 0 - 2 / 3]
ALL = [[True] * 3, [True] * 3, [True], [True] * 2]
FINDS_OR_ANSWERS = [[True, True, True], [True, False, True], [True], [True, False]]
BY_HAND = {
    "grpo": (Z, ALL),
    "gspo": (Z, ALL),
    "gdpo": ([a + b for a, b in zip(Z, RECALL_Z, strict=True)], ALL),
    "rloo": (LEAVE_ONE_OUT, ALL),
    "marag": (LEAVE_ONE_OUT, ALL),
    "event_grpo": (Z, FINDS_OR_ANSWERS),
}


def group(rewards: list[float] = REWARDS) -> RolloutArrays:
    return pack_rollouts(FOUND, [2] * 4, ANSWERED, rewards, [0] * 4)


@pytest.mark.parametrize("name", BY_HAND)
def test_one_group_by_hand(name: str) -> None:
    values, kept = BY_HAND[name]
    credit = get_algorithm(name).credit(group(), CreditOptions())
    for i, events in enumerate(FOUND):
        n = len(events)
        assert credit.keep[i].tolist() == kept[i] + [False] * (3 - n)
        want = [values[i] if k else 0.0 for k in kept[i]]
        np.testing.assert_allclose(credit.advantages[i, :n], want, atol=1e-5)


def test_toolsearcher_on_the_same_group() -> None:
    """Target 0: 3 of 4 find it; target 1: 2 of 4. Only rollouts 0 and 3 see all, and only 0 of them answers."""
    z0, z1 = 0.25 / 0.5, 0.5 / math.sqrt(1 / 3)
    credit = get_algorithm("toolsearcher").credit(group(), PAPER)
    np.testing.assert_allclose(credit.advantages[0], [z0, z1, Z[0]], atol=1e-5)
    np.testing.assert_allclose(credit.advantages[3, 0], z1, atol=1e-5)
    kept = [[True, True, True], [True, False, False], [False] * 3, [True, False, False]]
    assert credit.keep.tolist() == kept


def test_to_go_on_the_same_group() -> None:
    """Shares still to be found, by turn: 1 1/2 0 | 1/2 0 0 | 0 | 1 0; means 5/8, 1/8, 0. Each part has its scale."""
    to_go = [[0.375, 0.375, 0.0], [-0.125, -0.125, 0.0], [-0.625], [0.375, -0.125]]
    credit = get_algorithm("to_go").credit(group(), CreditOptions())
    for i, values in enumerate(to_go):
        want = [Z[i] + value / RECALL_SD for value in values] + [0.0] * (3 - len(values))
        np.testing.assert_allclose(credit.advantages[i], want, atol=1e-5)
        assert credit.keep[i].tolist() == ALL[i] + [False] * (3 - len(values))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_dropped_rollout_counts_nowhere(name: str) -> None:
    """Group of four with one NaN = the group of the other three; the fourth gets nothing."""
    credit_of = get_algorithm(name).credit
    with_nan = credit_of(group([1.0, 0.5, 0.5, math.nan]), CreditOptions())
    without = credit_of(pack_rollouts(FOUND[:3], [2] * 3, ANSWERED[:3], REWARDS[:3], [0] * 3), CreditOptions())
    np.testing.assert_allclose(with_nan.advantages[:3], without.advantages, atol=1e-9)
    assert (with_nan.keep[:3] == without.keep).all()
    assert not with_nan.keep[3].any() and not with_nan.advantages[3].any()


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("reward", [0.0, 0.1 + 0.2])
def test_equal_rollouts_and_lonely_ones_teach_nothing(name: str, reward: float) -> None:
    for groups in ([0, 0, 0, 0], [0, 1, 2, 3]):
        batch = pack_rollouts([[[0], []]] * 4, [1] * 4, [True] * 4, [reward] * 4, groups)
        credit = get_algorithm(name).credit(batch, CreditOptions())
        assert np.abs(credit.advantages).max() < 1e-9


OTHER = {
    "esm": False, "tca": False, "std": False, "selection_baseline": "finished", "incomplete_selection": "zero",
    "mastered": "zero", "signed_search": 0.5, "useless_cost": 0.2, "unanswered_cost": 0.7,
}  # fmt: skip


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_row_names_the_options_that_it_reads(name: str) -> None:
    """Another value of each option changes the credit of some group, or of none if the row does not name it."""
    assert OTHER.keys() == CreditOptions.__dataclass_fields__.keys()
    row, random = get_algorithm(name), np.random.default_rng(1)
    batches = [group(random.choice([0.0, 0.5, 1.0], 4).tolist()) for _ in range(10)]
    batches += [pack_rollouts([[[0], []], [[0], [], []]], [1] * 2, [True] * 2, [1.0, 0.5], [0] * 2)]  # all find it
    for key, value in OTHER.items():
        changed = False
        for batch in batches:
            one, two = (row.credit(batch, CreditOptions(**options)) for options in ({}, {key: value}))
            changed |= bool((one.advantages != two.advantages).any() or (one.keep != two.keep).any())
        assert changed == (key in row.options), key
        told = without_effect(name, CreditOptions(**{key: value}), RewardOptions())
        assert told == ([] if key in row.options else [f"credit.{key}"])
    told = without_effect(name, CreditOptions(), RewardOptions(selection="match"))
    assert told == (["reward.selection"] if name == "marag" else [])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_order_of_rollouts_and_other_groups_do_not_matter(name: str) -> None:
    rng = np.random.default_rng(0)
    n, e, k = 30, 5, 3
    first = np.zeros((n, e, k), dtype=bool)
    for i in range(n):
        for t in range(k):
            if rng.random() < 0.6:
                first[i, rng.integers(e - 1), t] = True
    batch = RolloutArrays(
        first_found=first, target_mask=np.ones((n, k), dtype=bool), num_events=np.full(n, e),
        answer=np.where(rng.random(n) < 0.8, e - 1, -1), rewards=rng.random(n).round(1), groups=np.arange(n) // 5,
    )  # fmt: skip
    credit_of = get_algorithm(name).credit
    whole = credit_of(batch, CreditOptions())
    assert (whole.advantages != 0).any()
    order = rng.permutation(n)
    one = np.flatnonzero(batch.groups == 2)
    for rows in (order, one):
        part = credit_of(RolloutArrays(**{f: getattr(batch, f)[rows] for f in batch.__slots__}), CreditOptions())
        np.testing.assert_allclose(part.advantages, whole.advantages[rows], atol=1e-9)
        assert (part.keep == whole.keep[rows]).all()
