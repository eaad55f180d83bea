"""What must not change the credit: order, unrelated hits, repeated targets, padding, ranks. And the corner cases."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rl.credit import Credit, RolloutArrays, event_credit, first_found, outcome_credit, pack_rollouts
from rl.credit_options import PAPER, PRESETS, CreditOptions

EVERY_COST = CreditOptions(signed_search=0.3, useless_cost=0.1, unanswered_cost=1.0, selection_baseline="finished")
OPTIONS = {**PRESETS, "every_cost": EVERY_COST, "no_std": replace(EVERY_COST, std=False)}
Shown = dict[str, Any]  # targets, events (ids shown by each search), answered, reward, group


@pytest.fixture(params=OPTIONS)
def options(request: pytest.FixtureRequest) -> CreditOptions:
    return OPTIONS[request.param]


def credit_of(rollouts: list[Shown], options: CreditOptions) -> Credit:
    found = [first_found(r["events"], r["targets"]) + [[]] * r["answered"] for r in rollouts]
    counts = [len(set(r["targets"])) for r in rollouts]
    columns = zip(*[(r["answered"], r["reward"], r["group"]) for r in rollouts], strict=True)
    return event_credit(pack_rollouts(found, counts, *columns), options)


def random_groups(rng: random.Random) -> list[Shown]:
    """One to four groups; ids 0 to 9 are targets of some group, 10 to 19 of none."""
    rollouts = []
    for group in range(rng.randint(1, 4)):
        targets = rng.sample(range(10), rng.randint(1, 4))
        for _ in range(rng.randint(1, 5)):
            events = [rng.sample(targets + list(range(10, 16)), rng.randint(0, 3)) for _ in range(rng.randint(0, 4))]
            answered, reward = rng.random() < 0.7, rng.choice([0.0, 0.5, 2 / 3, 1.0])
            rollouts.append(
                {"targets": targets, "events": events, "answered": answered, "reward": reward, "group": group}
            )
    return rollouts


def same(first: Credit, second: Credit) -> None:
    e = min(first.advantages.shape[1], second.advantages.shape[1])
    np.testing.assert_allclose(first.advantages[:, :e], second.advantages[:, :e], atol=1e-12)
    assert (first.keep[:, :e] == second.keep[:, :e]).all()
    for credit in (first, second):
        assert not credit.advantages[:, e:].any() and not credit.keep[:, e:].any()


def test_order_of_rollouts(options: CreditOptions) -> None:
    rng = random.Random(0)
    for _ in range(30):
        rollouts = random_groups(rng)
        order = rng.sample(range(len(rollouts)), len(rollouts))
        whole, moved = credit_of(rollouts, options), credit_of([rollouts[i] for i in order], options)
        whole.advantages, whole.keep = whole.advantages[order], whole.keep[order]
        same(whole, moved)


def add_noise(rollout: Shown, rng: random.Random) -> Shown:
    """Hits of no target come, go and move, and a hit may stand twice."""
    events = []
    for shown in rollout["events"]:
        ids = [i for i in shown if i < 10] + rng.sample(range(10, 20), rng.randint(0, 5))
        events.append(rng.sample(ids + ids[:1], len(ids) + len(ids[:1])))
    return rollout | {"events": events}


def repeat_targets(rollout: Shown, rng: random.Random) -> Shown:
    return rollout | {"targets": rollout["targets"] + rollout["targets"][: rng.randint(1, 3)]}


def order_targets(rollout: Shown, rng: random.Random) -> Shown:
    return rollout | {"targets": sorted(rollout["targets"])}


def repeat_finds(rollout: Shown, rng: random.Random) -> Shown:
    """Later searches show again what was shown before."""
    events: list[list[int]] = []
    for shown in rollout["events"]:
        events.append(shown + [i for earlier in events for i in earlier])
    return rollout | {"events": events}


@pytest.mark.parametrize("change", [add_noise, repeat_targets, order_targets, repeat_finds])
def test_what_events_show_beside_new_targets(
    change: Callable[[Shown, random.Random], Shown], options: CreditOptions
) -> None:
    rng = random.Random(1)
    for _ in range(30):
        rollouts = random_groups(rng)
        same(credit_of(rollouts, options), credit_of([change(r, rng) for r in rollouts], options))


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_together_equal_the_whole(ranks: int, options: CreditOptions) -> None:
    """As the trainer does it: each rank packs its own share into lists, all are gathered, each takes its rows.

    Groups straddle ranks. The oracle is the credit of each group alone, in no batch at all.
    """
    rng = random.Random(ranks)
    for _ in range(10):
        rollouts = [r for _ in range(8) for r in random_groups(rng) if r["group"] == 0][: 4 * ranks]
        rollouts = [r | {"group": i // 3, "targets": rollouts[i - i % 3]["targets"]} for i, r in enumerate(rollouts)]
        share = len(rollouts) // ranks
        shards = [rollouts[i * share : (i + 1) * share] for i in range(ranks)]
        gathered = [r for shard in shards for r in shard]
        for rank, shard in enumerate(shards):
            credit, first = credit_of(gathered, options), rank * share
            for i, rollout in enumerate(shard):
                mates = [r for r in gathered if r["group"] == rollout["group"]]
                alone = credit_of(mates, options)
                e = len(rollout["events"]) + rollout["answered"]
                row = mates.index(rollout)
                np.testing.assert_allclose(credit.advantages[first + i, :e], alone.advantages[row, :e], atol=1e-12)
                assert credit.keep[first + i, :e].tolist() == alone.keep[row, :e].tolist()


def test_padding(options: CreditOptions) -> None:
    """Three more events and two more targets that are not there; groups have other numbers."""
    rng = random.Random(2)
    for _ in range(30):
        rollouts = random_groups(rng)
        found = [first_found(r["events"], r["targets"]) + [[]] * r["answered"] for r in rollouts]
        columns = zip(*[(r["answered"], r["reward"], r["group"]) for r in rollouts], strict=True)
        batch = pack_rollouts(found, [len(r["targets"]) for r in rollouts], *columns)
        n = len(rollouts)
        wide = RolloutArrays(
            first_found=np.pad(batch.first_found, ((0, 0), (0, 3), (0, 2))),
            target_mask=np.pad(batch.target_mask, ((0, 0), (0, 2))),
            num_events=batch.num_events,
            answer=batch.answer,
            rewards=batch.rewards,
            groups=batch.groups * 1000 - 7,
        )
        narrow, padded = event_credit(batch, options), event_credit(wide, options)
        same(narrow, padded)
        assert padded.advantages.shape == (n, batch.first_found.shape[1] + 3)
        assert not padded.z[:, batch.target_mask.shape[1] :].any()


def searches(shown: list[list[int]], reward: float, answered: bool = True, targets: tuple[int, ...] = (0, 1)) -> Shown:
    return {"targets": list(targets), "events": shown, "answered": answered, "reward": reward, "group": 0}


PLAIN = [PAPER, PRESETS["reference"], *(replace(PAPER, **{key: False}) for key in ("esm", "tca", "std"))]


@pytest.mark.parametrize("plain", PLAIN)
@pytest.mark.parametrize(
    "rollouts",
    [
        [searches([[0], [1]], 0.7)],  # group of one
        [searches([[0]], 0.7, answered=False)],
        [searches([[0, 1]], 0.1 + 0.2)] * 5,  # their mean is not exactly 0.1 + 0.2
        [searches([[0, 1]], 0.1 + 0.2 if i % 2 else 0.3) for i in range(5)],
        [searches([[0], [], [1]], 1.0)] * 4,  # all found
        [searches([[7], [8]], 0.0)] * 4,  # nothing found
        [searches([], 0.0)] * 3,  # answered at once
        [searches([], 0.0, answered=False)] * 2,  # no event at all
    ],
)
def test_no_difference_no_credit(rollouts: list[Shown], plain: CreditOptions) -> None:
    credit = credit_of(rollouts, plain)
    assert np.isfinite(credit.advantages).all() and not credit.advantages.any() and not credit.z.any()


def test_float_noise_would_show_without_the_tolerance() -> None:
    """The reference divides by (std + 1e-6) whatever std is: rewards equal but for noise give values that are not 0."""
    noisy = np.array([0.3 + 1e-8 * i for i in range(5)])
    assert np.abs((noisy - noisy.mean()) / (noisy.std(ddof=1) + 1e-6)).max() > 0.01
    assert not credit_of([searches([[0, 1]], r) for r in noisy], PAPER).advantages.any()


def test_all_found_removes_searches_and_keeps_answers_apart() -> None:
    rollouts = [searches([[0], [1]], reward) for reward in (1.0, 0.5, 0.0)]
    credit = credit_of(rollouts, PAPER)
    assert credit.keep.tolist() == [[False, False, True]] * 3
    np.testing.assert_allclose(credit.advantages[:, 2], [1, 0, -1], atol=1e-5)
    signed = credit_of(rollouts, replace(PAPER, signed_search=1.0))
    assert signed.keep.tolist() == credit.keep.tolist()  # nobody was behind at any turn


def test_costs_act_where_no_credit_does() -> None:
    """The counterweights are absolute, so they also push groups whose rollouts are all alike."""
    rollouts = [searches([[7], [8]], 0.0, answered=False)] * 4
    costs = credit_of(rollouts, CreditOptions(useless_cost=0.1, unanswered_cost=1.0))
    assert costs.advantages.tolist() == [[-0.1, -1.0]] * 4 and costs.keep.all()
    outcome = pack_rollouts([[[], []]] * 4, [2] * 4, [False] * 4, [0.0] * 4, [0] * 4)
    assert not outcome_credit(outcome, CreditOptions()).advantages.any()


def test_first_found_by_hand() -> None:
    assert first_found([["b", "x", "b"], ["a", "b"], [], ["a"]], ["a", "b", "a"]) == [[1], [0], [], []]
    assert first_found([["c", "a"], ["b"]], ["a", "b", "c"]) == [[0, 2], [1]]
    assert first_found([["a"]], []) == [[]]


def test_a_find_beyond_the_targets_is_our_fault_and_stops() -> None:
    with pytest.raises(ValueError, match="rollout 1 finds target 2, but it has 2 targets"):
        pack_rollouts([[[0], [2]], [[0], [2]]], [3, 2], [False, False], [0.0, 0.0], [0, 0])
