"""The estimator study: exact expectations worked by hand, one per option, and the machinery against sampling.

The hand-worked toy has one target and two turns, groups of two, a uniform policy (each of find, miss, right, wrong has
probability 1/4). A rollout finds the target in turn 1 with 1/4, in turn 2 after a miss with 1/16: s = 5/16 in all. It
finds and answers right, or wrong, with 1/16 each. Two rollouts that differ are at z = +-0.5 / sqrt(0.5) = +-0.7071.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
Z = 0.5**0.5
FIND, MISS, RIGHT, WRONG = range(4)


@pytest.fixture(scope="module")
def study() -> Iterator[ModuleType]:
    """``benchmarks/`` is no package; its files import each other as scripts do."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import estimator_study

    yield estimator_study
    sys.path.remove(str(ROOT / "benchmarks"))
    for name in ("estimator_study", "estimator_toy"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def toy_module(study: ModuleType) -> ModuleType:
    return sys.modules["estimator_toy"] if "estimator_toy" in sys.modules else __import__("estimator_toy")


def event(**changes: Any) -> Any:
    from rl.credit import event_credit
    from rl.credit_options import PAPER

    return lambda batch: event_credit(batch, replace(PAPER, **changes))


def outcome(std: bool) -> Any:
    from rl.credit import outcome_credit
    from rl.credit_options import CreditOptions

    return lambda batch: outcome_credit(batch, CreditOptions(std=std))


def hand_toy(module: ModuleType, credit: Any) -> tuple[Any, np.ndarray]:
    """The groups of the hand-worked toy, and its uniform policy."""
    toy = module.Toy(targets=1, turns=2)
    return module.Groups(toy, 2, credit), np.full((len(toy.states), 4), 0.25)


def weight(module: ModuleType, credit: Any, state: tuple[int, bool], action: int) -> float:
    """Expected weight per rollout on one action of one state: what its score function is multiplied with."""
    groups, policy = hand_toy(module, credit)
    total = (groups.probabilities(policy) @ groups.table / 2)[:-1].reshape(policy.shape)
    update = total - total.sum(axis=1, keepdims=True) / 4  # d log pi(a) / d logits = one-hot(a) - 1/4
    np.testing.assert_allclose(groups.expected(policy), update, atol=1e-12)
    return float(total[groups.toy.states[state[0], frozenset({0}) if state[1] else frozenset()], action])


START, FOUND, MISSED = (0, False), (1, True), (1, False)

HAND = {  # option -> (credit, state, action, expected weight per rollout)
    # outcome, centred: (r_i - r_j) / 2; r = 1 with 1/16, always after find: 1/16 x 1/2 - 1/4 x 1/16 x 1/2
    "centred": (outcome(False), START, FIND, 1 / 32 - 1 / 128),
    # outcome / std: only groups that differ count, with Z: P(i right, j not) - P(i finds first, not right, j right)
    "std": (outcome(True), START, FIND, Z * (1 / 16 * 15 / 16 - 3 / 16 * 1 / 16)),
    # ESM: i finds in turn 1, j never finds
    "esm": (event(), START, FIND, Z * 1 / 4 * 11 / 16),
    "esm removes a miss": (event(), START, MISS, 0.0),
    "centred search": (event(std=False), START, FIND, 1 / 2 * 1 / 4 * 11 / 16),
    # TCA: the answer after a complete search; the reward is compared with the whole group
    "tca": (event(), FOUND, RIGHT, Z * 1 / 16 * 15 / 16),
    "tca, wrong answer": (event(), FOUND, WRONG, -Z * 1 / 16 * 1 / 16),
    "tca removes an answer without a find": (event(), MISSED, WRONG, 0.0),
    # without TCA that answer is compared too: i misses and answers (right or wrong: both score 0), j is right
    "no tca": (event(tca=False), MISSED, WRONG, -Z * 1 / 16 * 1 / 16),
    # without ESM the first search has the outcome's weight
    "no esm": (event(esm=False), START, FIND, Z * (1 / 16 * 15 / 16 - 3 / 16 * 1 / 16)),
    # finished: only j that found the target, and was not right, stands against a right answer: 5/16 - 1/16
    "finished": (event(selection_baseline="finished"), FOUND, RIGHT, Z * 1 / 16 * 4 / 16),
    "useless_cost": (event(useless_cost=0.1), START, MISS, -0.1 * 1 / 4),
    # a search in the last turn leaves the rollout without an answer
    "unanswered_cost": (event(unanswered_cost=1.0), FOUND, FIND, -1 / 16),
    # i misses in turn 1 while j finds in turn 1
    "signed_search": (event(signed_search=0.1), START, MISS, -0.1 * Z * 1 / 4 * 1 / 4),
    # mastered and incomplete events at 0 instead of removed: the same numerators
    "zero": (event(incomplete_selection="zero", mastered="zero"), START, FIND, Z * 1 / 4 * 11 / 16),
}


@pytest.mark.parametrize("option", HAND)
def test_expectations_worked_by_hand(option: str, toy_module: ModuleType) -> None:
    credit, state, action, want = HAND[option]
    assert weight(toy_module, credit, state, action) == pytest.approx(want, abs=2e-6)  # eps of the deviation


def test_denominators_worked_by_hand(toy_module: ModuleType) -> None:
    """Update of the logit of "find" at the start, outcome centred: W[find] - 1/4 of all W there.

    sequence: (r_i - r_j) / 2 / n_i. find: (1/16 - 1/4 x 1/16) / 4; miss: -1/4 x 1/16 / 4; right, wrong (n = 1): twice.
    tokens of one group: the sum over two rollouts / (n_i + n_j), where n_j = 1 with 1/2, else 2.
    """
    sequence = {"find": (1 / 16 - 1 / 64) / 4, "miss": -1 / 64 / 4, "answers": 2 * -1 / 64 / 2}
    want = sequence["find"] - sum(sequence.values()) / 4
    groups, policy = hand_toy(toy_module, outcome(False))
    got = groups.expected(policy, "sequence")[groups.toy.states[0, frozenset()], FIND]
    assert got == pytest.approx(want, abs=1e-12)

    inverse = (1 / 3 + 1 / 4) / 2  # E[1 / (2 + n_j)]
    tokens = {
        "find": 1 / 16 * inverse - 1 / 4 * 1 / 16 / 4,  # j right: n_j = 2
        "miss": -1 / 4 * 1 / 16 / 4,
        "answers": -1 / 2 * 1 / 16 / 3,
    }
    got = groups.expected(policy, "tokens")[groups.toy.states[0, frozenset()], FIND]
    assert got == pytest.approx(tokens["find"] - sum(tokens.values()) / 4, abs=1e-12)

    # what is kept at 0 stays in the denominator
    drop, _ = hand_toy(toy_module, event())
    zero, _ = hand_toy(toy_module, event(incomplete_selection="zero", mastered="zero"))
    np.testing.assert_array_equal(drop.weights, zero.weights)
    chance = drop.probabilities(policy)
    # kept per rollout. zero: its find (5/16) and every answer (1/2 + 1/4). drop: a find unless both found
    # (5/16 x 11/16), and an answer only after the find (1/8)
    assert chance @ zero.kept / 2 == pytest.approx(5 / 16 + 3 / 4)
    assert chance @ drop.kept / 2 == pytest.approx(5 / 16 * 11 / 16 + 1 / 8)


def test_token_mean_of_a_large_batch_has_the_direction_of_the_constant(toy_module: ModuleType) -> None:
    toy = toy_module.Toy()
    policy = toy.policy([0.2] * 5, [0.2] * 5)
    groups = toy_module.Groups(toy, 2, event())
    constant = groups.expected(policy)
    angles = [toy_module.cosine(groups.expected(policy, "tokens", batch), constant) for batch in (1, 4, 64)]
    assert angles[0] < angles[1] < angles[2] and angles[2] > 0.99999


# --- the machinery ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("luck", [1.0, 0.5])
@pytest.mark.parametrize("blind", [False, True])
def test_exact_gradients_equal_finite_differences(luck: float, blind: bool, toy_module: ModuleType) -> None:
    toy = toy_module.Toy(luck=luck, blind=blind)
    logits = np.random.default_rng(0).normal(size=(len(toy.states), len(toy.actions)))

    def softmax(x: np.ndarray) -> np.ndarray:
        return np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)

    assert toy.probabilities(softmax(logits)).sum() == pytest.approx(1)
    for values in toy.statistics().values():
        _, exact = toy.objective(values, softmax(logits))
        for cell in ((0, 0), (1, 2), (len(toy.states) - 1, 3)):
            step = np.zeros_like(logits)
            step[cell] = 1e-5
            up, down = (toy.objective(values, softmax(logits + sign * step))[0] for sign in (1, -1))
            assert exact[cell] == pytest.approx((up - down) / 2e-5, abs=1e-8)


@pytest.mark.parametrize("size", [2, 3])
def test_unbiased_where_theory_says_so(size: int, toy_module: ModuleType) -> None:
    """Centred outcome: (1 - 1/G) grad R, exactly. Centred finds to go: the same for grad (R + S). Deviation: biased."""
    from rl.credit_options import CreditOptions
    from rl.credit_to_go import to_go_credit

    toy = toy_module.Toy()
    policy = toy.policy([0.1, 0.2, 0.3, 0.2, 0.2], [0.1, 0.1, 0.2, 0.4, 0.2])
    values = toy.statistics()
    _, of_reward = toy.objective(values["reward"], policy)
    _, of_both = toy.objective(values["reward"] + values["srecall"], policy)
    update = toy_module.Groups(toy, size, outcome(False)).expected(policy)
    np.testing.assert_allclose(update, (1 - 1 / size) * of_reward, atol=1e-12)
    to_go = toy_module.Groups(toy, size, lambda batch: to_go_credit(batch, CreditOptions(std=False)))
    np.testing.assert_allclose(to_go.expected(policy), (1 - 1 / size) * of_both, atol=1e-12)
    assert toy_module.cosine(toy_module.Groups(toy, size, outcome(True)).expected(policy), of_reward) < 0.9995
    # two values of the reward: dividing by the deviation is a factor, and no bias
    match = toy_module.Toy(reward="match")
    _, wanted = match.objective(match.rewards, policy)
    binary = toy_module.Groups(match, size, outcome(True)).expected(policy)
    assert toy_module.cosine(binary, wanted) == pytest.approx(1, abs=1e-6)


def test_expectation_and_noise_equal_sampling(toy_module: ModuleType) -> None:
    """20,000 sampled groups, credited one batch at a time as a trainer would, mean within 4 standard errors."""
    toy = toy_module.Toy(luck=0.7)
    policy = toy.policy([0.25, 0.15, 0.2, 0.2, 0.2], [0.1, 0.1, 0.2, 0.4, 0.2])
    groups = toy_module.Groups(toy, 2, event(useless_cost=0.1, signed_search=0.2))
    chance = toy.probabilities(policy)
    draws = np.random.default_rng(1).choice(len(toy.paths), size=(20_000, 2), p=chance / chance.sum())
    position = {tuple(row): i for i, row in enumerate(groups.members.tolist())}
    rows = [position[tuple(sorted(pair))] for pair in draws.tolist()]
    updates = toy_module.gradient(groups.table[rows] / 2, policy).reshape(len(rows), -1)
    error = updates.std(axis=0) / len(rows) ** 0.5
    mean = groups.expected(policy).ravel()
    assert (np.abs(updates.mean(axis=0) - mean) <= 4 * error + 1e-9).all()
    sampled = np.sqrt(((updates - mean) ** 2).sum(axis=1).mean()) / np.linalg.norm(mean)
    assert groups.noise(policy) == pytest.approx(sampled, rel=0.02)


def test_the_collapse_is_in_the_expected_update(study: ModuleType, toy_module: ModuleType) -> None:
    """docs/log.md: a policy that cannot tell a complete search from another, and searches that often fail."""
    toy = toy_module.Toy(reward="match", blind=True, luck=study.LUCK)
    start = toy.policy(*study.POLICIES["even"])
    lowest = {}
    for name, credit in (("ours", event()), ("cost", event(useless_cost=0.1)), ("outcome", outcome(True))):
        _, lowest[name] = study.ascend(toy_module.Groups(toy, 2, credit), start, 300, 0.05)
    assert lowest["ours"] < 0.05 and lowest["cost"] > 0.4 and lowest["outcome"] > 0.75


def test_the_command_prints_every_row(study: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert study.main(["--group", "2", "--steps", "3"]) == 0
    text = capsys.readouterr().out
    for name in study.credits():
        assert text.count(f"| {name} |") == 3
    assert " nan" not in text
