"""Credit against the reference vectors, hand-worked numbers, and a slow loop that follows the paper's formulas."""

import json
import random
import statistics
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl.credit import REFERENCE, Credit, CreditOptions, RolloutArrays, event_credit, outcome_credit, pack_rollouts
from rl.credit_options import PAPER

Rollout = tuple[list[list[int]], int, bool, float, int]  # first found per event, targets, answered, reward, group
PLAIN = PAPER


def pack(rollouts: list[Rollout]) -> RolloutArrays:
    found, targets, answered, rewards, groups = zip(*rollouts, strict=True)
    return pack_rollouts(found, targets, answered, rewards, groups)


# --- the reference code's numbers -----------------------------------------------------------------------------------


def reference_groups(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "credit_vectors.json").read_text(encoding="utf-8"))["groups"]


def as_rollout(rollout: dict[str, Any], targets: list[str], group: int) -> Rollout:
    seen: set[str] = set()
    first = []
    for shown in rollout["events"]:
        new = [i for i, target in enumerate(targets) if target in shown and target not in seen]
        seen.update(shown)
        first.append(new)
    answered = rollout["answered"]
    return first + [[]] * answered, len(targets), answered, rollout["selection_reward"], group


@pytest.mark.shared
def test_all_reference_groups(shared_data: Path) -> None:
    groups = reference_groups(shared_data)
    assert len(groups) == 120
    rollouts = [
        as_rollout(rollout, list(dict.fromkeys(group["targets"])), number)
        for number, group in enumerate(groups)
        for rollout in group["rollouts"]
    ]
    expected = [e for group in groups for e in group["expected"]]
    credit = event_credit(pack(rollouts), REFERENCE)  # all groups in one batch: padding must not matter
    for i, want in enumerate(expected):
        e = len(want["advantages"])
        assert len(rollouts[i][0]) == e
        np.testing.assert_allclose(credit.advantages[i, :e], want["advantages"], atol=1e-4)
        assert credit.keep[i, :e].astype(int).tolist() == want["mask"]
        assert not credit.keep[i, e:].any() and not credit.advantages[i, e:].any()


@pytest.mark.shared
def test_the_reference_vectors_tell_the_presets_apart(shared_data: Path) -> None:
    groups = reference_groups(shared_data)
    batch = pack([as_rollout(r, g["targets"], n) for n, g in enumerate(groups) for r in g["rollouts"]])
    kept = event_credit(batch, REFERENCE).keep
    for change in ({"mastered": "drop"}, {"incomplete_selection": "drop"}, {"tca": False}, {"esm": False}):
        other = event_credit(batch, replace(REFERENCE, **change))
        assert (other.keep != kept).any() or (other.advantages != event_credit(batch, REFERENCE).advantages).any()


# --- hand-worked numbers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("finders", "z"), [(1, 1.789), (2, 1.095), (3, 0.730), (4, 0.447), (5, 0.0)])
def test_worked_numbers_of_a_group_of_five(finders: int, z: float) -> None:
    batch = pack([([[0], []] if i < finders else [[], []], 1, True, 0.0, 0) for i in range(5)])
    credit = event_credit(batch, REFERENCE)
    assert credit.advantages[:finders, 0] == pytest.approx([z] * finders, abs=5e-4)
    assert credit.keep[:, 0].tolist() == [True] * finders + [False] * (5 - finders)
    assert (credit.z[finders:, 0] < 0).all()


def test_a_group_worked_by_hand() -> None:
    # target 0: found by rollouts 0, 1 (z = +-0.5 / 0.5774 = 0.8660); target 1: by 0 only (0.75 / 0.5 = 1.5)
    # rewards 1, 0, 0.5, 0.5: mean 0.5, unbiased deviation 0.4082; z = 1.2247, -1.2247, 0, 0
    batch = pack(
        [
            ([[0], [], [1], []], 2, True, 1.0, 7),  # complete, one useless search
            ([[], [0], []], 2, True, 0.0, 7),  # incomplete
            ([[]], 2, True, 0.5, 7),  # answered at once
            ([[], []], 2, False, 0.5, 7),  # never answered
        ]
    )
    credit = event_credit(batch, PLAIN)
    want = [[0.8660, 0.0, 1.5, 1.2247], [0.0, 0.8660, 0.0, 0.0], [0.0] * 4, [0.0] * 4]
    np.testing.assert_allclose(credit.advantages, want, atol=1e-4)
    assert credit.keep.astype(int).tolist() == [[1, 0, 1, 1], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    np.testing.assert_allclose(credit.z, [[0.8660, 1.5], [0.8660, -0.5], [-0.8660, -0.5], [-0.8660, -0.5]], atol=1e-4)

    zero = event_credit(batch, REFERENCE)
    np.testing.assert_allclose(zero.advantages, want, atol=1e-4)
    assert zero.keep.astype(int).tolist() == [[1, 0, 1, 1], [0, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]]

    costs = event_credit(batch, replace(PLAIN, useless_cost=0.25, unanswered_cost=2.0))
    np.testing.assert_allclose(costs.advantages[0], [0.8660, -0.25, 1.5, 1.2247], atol=1e-4)
    np.testing.assert_allclose(costs.advantages[3], [-0.25, -2.0, 0.0, 0.0])
    assert costs.keep.astype(int).tolist() == [[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0]]

    plain = event_credit(batch, replace(PLAIN, esm=False, tca=False))
    np.testing.assert_allclose(plain.advantages[:2], [[1.2247] * 4, [-1.2247] * 3 + [0.0]], atol=1e-4)
    assert plain.keep.sum(axis=1).tolist() == [4, 3, 1, 2]


def test_signed_search_worked_by_hand() -> None:
    # after turn 0 two of four have seen target 0: a rollout that has not is at -0.5 / 0.5774 = -0.8660
    # after turn 1 three of four: the fourth is at -0.75 / 0.5 = -1.5; target 1 has been seen by rollout 0 alone
    batch = pack(
        [
            ([[0], [1], []], 2, True, 0.0, 0),
            ([[0], []], 2, True, 0.0, 0),
            ([[], [0], []], 2, False, 0.0, 0),
            ([[], []], 2, False, 0.0, 0),
        ]
    )
    signed = event_credit(batch, replace(PLAIN, signed_search=0.1))
    want = [[0.5, 1.5, 0.0], [0.5, 0.0, 0.0], [-0.0866, 0.5, -0.05], [-0.0866, -0.15, 0.0]]  # finders keep their z
    np.testing.assert_allclose(signed.advantages, want, atol=1e-4)
    assert signed.keep.astype(int).tolist() == [[1, 1, 1], [1, 0, 0], [1, 1, 1], [1, 1, 0]]
    plain = event_credit(batch, replace(PLAIN, signed_search=0.1, std=False))
    assert plain.advantages[3, :2] == pytest.approx([-0.05, -0.075])  # 0.1 x (0 - 2/4), 0.1 x (0 - 3/4)
    nobody = pack([([[], []], 1, False, 0.0, 0)] * 3)  # nobody is ahead: nothing was missed, the events stay removed
    assert not event_credit(nobody, replace(PLAIN, signed_search=0.1)).keep.any()


def test_baseline_of_the_answer_does_not_touch_searches() -> None:
    rollouts = [([[0], []], 1, True, 1.0, 0), ([[0], []], 1, True, 0.5, 0), ([[], []], 1, True, 0.0, 0)]
    credit = event_credit(pack(rollouts), replace(PLAIN, esm=False, selection_baseline="finished"))
    np.testing.assert_allclose(credit.advantages, [[1, 2**-0.5], [0, -(2**-0.5)], [-1, 0]], atol=1e-5)


@pytest.mark.parametrize("key", ["signed_search", "useless_cost", "unanswered_cost"])
@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_costs_are_not_negative(key: str, value: float) -> None:
    with pytest.raises(ValueError, match=key):
        CreditOptions(**{key: value})


def test_an_event_with_two_new_targets_gets_the_rarer_ones_credit() -> None:
    batch = pack([([[0, 1]], 2, False, 0.0, 0), ([[0]], 2, False, 0.0, 0), ([[]], 2, False, 0.0, 0)])
    credit = event_credit(batch, PLAIN)
    assert credit.advantages[0, 0] == pytest.approx(2 / 3 / 3**-0.5, abs=1e-4)  # target 1: (1 - 1/3) / 0.5774
    assert credit.advantages[1, 0] == pytest.approx(1 / 3 / 3**-0.5, abs=1e-4)


def test_mastered_targets() -> None:
    both = [([[0], [1]], 2, False, 0.0, 0), ([[0], []], 2, False, 0.0, 0)]
    assert event_credit(pack(both), PLAIN).keep.tolist() == [[False, True], [False, False]]
    assert event_credit(pack(both), REFERENCE).keep.tolist() == [[True, True], [True, False]]
    assert event_credit(pack(both), replace(PLAIN, tca=False)).keep.tolist() == [[True, True], [True, False]]
    mixed = [([[0, 1]], 2, False, 0.0, 0), ([[0]], 2, False, 0.0, 0)]  # new targets are not all mastered: stays
    assert event_credit(pack(mixed), PLAIN).keep.tolist() == [[True], [False]]


def test_selection_baseline() -> None:
    batch = pack([([[0], []], 1, True, r, 0) for r in (1.0, 0.4)] + [([[], []], 1, True, 0.0, 0)])
    group = event_credit(batch, PLAIN).advantages[:, 1]
    finished = event_credit(batch, replace(PLAIN, selection_baseline="finished")).advantages[:, 1]
    deviation = statistics.stdev([1.0, 0.4, 0.0])
    assert group[:2] == pytest.approx([(1.0 - 1.4 / 3) / deviation, (0.4 - 1.4 / 3) / deviation], abs=1e-4)
    assert finished == pytest.approx([2**-0.5, -(2**-0.5), 0.0], abs=1e-4)


def test_answers_compared_after_equal_search_only() -> None:
    """Of five, two saw both targets, two only target 0 (their order of turns does not matter), one nothing."""
    batch = pack([
        ([[0], [1], []], 2, True, 1.0, 0),
        ([[1], [0], []], 2, True, 0.5, 0),
        ([[0], []], 2, True, 0.6, 0),
        ([[0], []], 2, False, 0.0, 0),  # never answers: its last turn is a search
        ([[], []], 2, True, 0.0, 0),
    ])  # fmt: skip
    credit = event_credit(batch, replace(PLAIN, tca=False, selection_baseline="seen"))
    half = 2**-0.5  # z of two values
    assert [credit.advantages[i, e] for i, e in ((0, 2), (1, 2), (2, 1), (4, 1))] == pytest.approx(
        [half, -half, half, 0], abs=1e-4
    )
    gated = event_credit(batch, replace(PLAIN, selection_baseline="seen"))  # with the gate only complete search is left
    finished = event_credit(batch, replace(PLAIN, selection_baseline="finished"))
    np.testing.assert_array_equal(gated.advantages, finished.advantages)


@pytest.mark.parametrize("options", [PLAIN, REFERENCE, replace(PLAIN, tca=False), replace(PLAIN, esm=False)])
@pytest.mark.parametrize(
    "rollouts",
    [
        [([[0], []], 1, True, 0.3, 0)],  # group of one
        [([[0], []], 1, True, 0.1 + 0.2, 0), ([[0], []], 1, True, 0.3, 0)],  # equal but for float noise
        [([[0, 1], []], 2, True, 1.0, 0)] * 5,  # all found, all right
        [([[], []], 2, True, 0.0, 0)] * 5,  # nothing found
    ],
)
def test_no_difference_no_advantage(rollouts: list[Rollout], options: CreditOptions) -> None:
    credit = event_credit(pack(rollouts), options)
    assert not credit.advantages.any() and np.isfinite(credit.z).all()


def test_no_targets_no_events() -> None:
    credit = event_credit(pack([([[], []], 0, True, 0.5, 0), ([], 0, False, 0.0, 0)]), PLAIN)
    assert credit.keep.tolist() == [[False, True], [False, False]]  # nothing to find: the answer counts at once
    assert credit.z.shape == (2, 1) and not credit.z.any()
    assert event_credit(pack([([], 1, False, 0.0, 0)]), PLAIN).keep.tolist() == [[False]]


# --- a slow, obvious loop -------------------------------------------------------------------------------------------


def zscore(value: float, values: list[float], std: bool = True) -> float:
    if len(values) < 2 or statistics.stdev(values) < 1e-6:
        return 0.0
    return (value - statistics.mean(values)) / (statistics.stdev(values) + 1e-6 if std else 1.0)


def worst_miss(mine: list[list[int]], e: int, num_targets: int, mates: list[list[list[int]]], std: bool) -> float:
    """Lowest z, over the targets, of a rollout that has not seen it after turn e while others of its group have."""

    def seen(first: list[list[int]], t: int) -> float:
        return float(any(t in new for new in first[: e + 1]))

    unseen = [t for t in range(num_targets) if not seen(mine, t)]
    return min([0.0] + [zscore(0.0, [seen(first, t) for first in mates], std) for t in unseen])


def slow_credit(rollouts: list[Rollout], options: CreditOptions) -> list[list[tuple[float, bool]]]:
    """(advantage, kept) per event, one rollout and one rule at a time."""
    out = []
    for first, num_targets, answered, reward, group in rollouts:
        mates = [r for r in rollouts if r[4] == group and not np.isnan(r[3])]
        saw = [{t for event in r[0] for t in event} for r in mates]
        mine = {t for event in first for t in event}
        complete = len(mine) == num_targets
        counted = {
            "group": [True for s in saw],
            "finished": [len(s) == num_targets for s in saw],
            "seen": [s == mine for s in saw],
        }
        rewards = [r[3] for r, yes in zip(mates, counted[options.selection_baseline], strict=True) if yes]
        in_baseline = options.selection_baseline != "finished" or complete
        selection = zscore(reward, rewards, options.std) if in_baseline and not np.isnan(reward) else 0.0
        outcome = zscore(reward, [r[3] for r in mates], options.std)
        row = []
        for e, new in enumerate(first):
            last = e == len(first) - 1
            if np.isnan(reward):
                value, kept = 0.0, False
            elif answered and last:
                gated = options.tca and not complete
                value = 0.0 if gated else selection
                kept = not gated or options.incomplete_selection == "zero"
            elif not options.esm:
                value, kept = outcome, True
            elif not new:
                behind = options.signed_search * worst_miss(first, e, num_targets, [r[0] for r in mates], options.std)
                value, kept = behind - options.useless_cost, behind < 0 or options.useless_cost > 0
            else:
                value = max(zscore(1.0, [float(t in s) for s in saw], options.std) for t in new)
                mastered = all(t in s for s in saw for t in new)
                kept = not (options.tca and options.mastered == "drop" and mastered)
            if options.unanswered_cost and not answered and last and not np.isnan(reward):
                value, kept = -options.unanswered_cost, True
            row.append((value, kept))
        out.append(row)
    return out


def random_rollouts(rng: random.Random, dropped: float = 0.1) -> list[Rollout]:
    rollouts: list[Rollout] = []
    for group in rng.sample(range(100), rng.randint(1, 4)):
        num_targets = rng.randint(0, 4)
        for _ in range(rng.randint(1, 6)):
            answered = rng.random() < 0.7
            left = list(range(num_targets))
            rng.shuffle(left)
            first: list[list[int]] = []
            for _ in range(rng.randint(1, 6)):
                take = rng.choice([0, 0, 1, 1, 2])
                first.append(sorted(left[:take]))
                left = left[take:]
            if answered:
                first.append([])
            reward = float("nan") if rng.random() < dropped else rng.choice([0.0, 0.5, 2 / 3, 1.0])
            rollouts.append((first, num_targets, answered, reward, group))
    rng.shuffle(rollouts)  # a group's rollouts need not stand together
    return rollouts


def compare(credit: Credit, want: list[list[tuple[float, bool]]]) -> None:
    for i, row in enumerate(want):
        assert credit.keep[i, : len(row)].tolist() == [kept for _, kept in row]
        np.testing.assert_allclose(credit.advantages[i, : len(row)], [value for value, _ in row], atol=1e-9)
        assert not credit.keep[i, len(row) :].any() and not credit.advantages[i, len(row) :].any()


ALL_OPTIONS = [
    CreditOptions(
        esm=esm,
        tca=tca,
        selection_baseline=baseline,
        incomplete_selection=incomplete,
        mastered=mastered,
        useless_cost=cost,
        unanswered_cost=cost * 3,
    )
    for esm, tca, baseline, incomplete, mastered, cost in product(
        (True, False), (True, False), ("group", "finished", "seen"), ("drop", "zero"), ("drop", "zero"), (0.0, 0.2)
    )
] + [
    CreditOptions(esm=esm, std=std, signed_search=0.5, useless_cost=cost)
    for esm, std, cost in product((True, False), (True, False), (0.0, 0.1))
]


@pytest.mark.parametrize("options", ALL_OPTIONS, ids=range(len(ALL_OPTIONS)))
def test_event_credit_equals_the_slow_loop(options: CreditOptions) -> None:
    rng = random.Random(ALL_OPTIONS.index(options))
    for _ in range(20):
        rollouts = random_rollouts(rng)
        compare(event_credit(pack(rollouts), options), slow_credit(rollouts, options))


def test_order_of_rollouts_and_names_of_groups_do_not_matter() -> None:
    rng = random.Random(0)
    for _ in range(50):
        rollouts = random_rollouts(rng)
        order = list(range(len(rollouts)))
        rng.shuffle(order)
        names = {g: n for n, g in enumerate({r[4] for r in rollouts})}
        moved = [(*rollouts[i][:4], names[rollouts[i][4]]) for i in order]
        first, second = event_credit(pack(rollouts), PLAIN), event_credit(pack(moved), PLAIN)
        np.testing.assert_allclose(first.advantages[order], second.advantages, atol=1e-12)
        assert (first.keep[order] == second.keep).all()


def test_order_of_targets_and_other_groups_do_not_matter() -> None:
    rng = random.Random(1)
    for _ in range(50):
        rollouts = random_rollouts(rng)
        flipped = [([[n - 1 - t for t in event] for event in f], n, *rest) for f, n, *rest in rollouts]
        np.testing.assert_allclose(
            event_credit(pack(rollouts), PLAIN).advantages, event_credit(pack(flipped), PLAIN).advantages, atol=1e-12
        )
        group = rollouts[0][4]
        alone = [r for r in rollouts if r[4] == group]
        rows = [i for i, r in enumerate(rollouts) if r[4] == group]
        apart = event_credit(pack(alone), PLAIN)
        together = event_credit(pack(rollouts), PLAIN).advantages[rows, : apart.advantages.shape[1]]
        np.testing.assert_allclose(apart.advantages, together, atol=1e-12)


def test_a_dropped_rollout_counts_for_nobody() -> None:
    rng = random.Random(2)
    for options in ALL_OPTIONS[::5]:
        rollouts = random_rollouts(rng, dropped=0.0)
        lost: Rollout = ([[0], []], rollouts[0][1] or 1, True, float("nan"), rollouts[0][4])
        if rollouts[0][1] == 0:
            continue
        without = event_credit(pack(rollouts), options)
        with_lost = event_credit(pack([*rollouts, lost]), options)
        width = without.advantages.shape[1]
        np.testing.assert_allclose(with_lost.advantages[:-1, :width], without.advantages, atol=1e-12)
        assert (with_lost.keep[:-1, :width] == without.keep).all() and not with_lost.keep[-1].any()


def test_outcome_credit_is_grpo() -> None:
    """Oracle: torch's unbiased deviation over the group, as TRL computes it; every real event gets the same."""
    import torch

    rng = random.Random(3)
    for _ in range(20):
        rewards = torch.tensor([[rng.choice([0.0, 0.5, 1.0]) for _ in range(5)] for _ in range(4)])
        std = rewards.std(dim=1, keepdim=True)
        want = torch.where(std > 0, (rewards - rewards.mean(dim=1, keepdim=True)) / (std + 1e-6), 0.0).flatten()
        lengths = [rng.randint(1, 4) for _ in range(20)]
        rollouts = [([[]] * n, 1, True, float(rewards.flatten()[i]), i // 5) for i, n in enumerate(lengths)]
        credit = outcome_credit(pack(rollouts), PLAIN)
        for i, n in enumerate(lengths):
            np.testing.assert_allclose(credit.advantages[i, :n], float(want[i]), atol=1e-5)
            assert credit.keep[i].tolist() == [e < n for e in range(credit.keep.shape[1])]


def test_duplicate_targets_never_reach_the_arrays() -> None:
    """An episode keeps one of each target, so that no column stays empty for ever and closes the answer's gate."""
    from autotools.schema import ToolId
    from autotools.search.answer import NameIndex
    from autotools.search.episode import Episode, SearchSettings

    a, b = ToolId(category="c", tool="t", api="a"), ToolId(category="c", tool="t", api="b")
    assert Episode("x", NameIndex([a, b]), SearchSettings(), targets=[a, b, a]).targets == (a, b)
