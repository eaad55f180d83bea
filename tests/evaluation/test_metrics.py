"""Scores against hand-worked numbers, scikit-learn and a brute-force bootstrap."""

import itertools
import math
import random

import numpy as np
import pytest

from evaluation import metrics


def test_hand_worked_numbers():
    # 4 predicted, 3 wanted, 2 in common: P = 2/4, R = 2/3, F1 = 2 * (1/2 * 2/3) / (1/2 + 2/3) = 4/7
    scores = metrics.selection_scores(["a", "b", "x", "y"], ["a", "b", "c"])
    assert scores == {"precision": 0.5, "recall": pytest.approx(2 / 3), "f1": pytest.approx(4 / 7), "match": 0.0}
    assert metrics.selection_scores(["b", "a", "a"], ["a", "b"]) == dict.fromkeys(metrics.SELECTION_METRICS, 1.0)
    assert metrics.selection_scores([], ["a"]) == dict.fromkeys(metrics.SELECTION_METRICS, 0.0)
    assert metrics.selection_scores(["x"], ["a"]) == dict.fromkeys(metrics.SELECTION_METRICS, 0.0)
    assert metrics.match([], []) == 1.0 and metrics.f1([], []) == 0.0  # the reference's rule for two empty sets
    assert metrics.precision(["A"], ["a"]) == 0.0  # names are compared as they are


def test_against_sklearn_on_every_pair_of_small_sets():
    from sklearn.metrics import precision_recall_fscore_support

    names = "abcd"
    subsets = [s for n in range(5) for s in itertools.combinations(names, n)]
    for predicted, targets in itertools.product(subsets, subsets):
        truth = [n in targets for n in names]
        guess = [n in predicted for n in names]
        p, r, f, _ = precision_recall_fscore_support(truth, guess, average="binary", zero_division=0)
        ours = metrics.selection_scores(predicted, targets)
        assert (ours["precision"], ours["recall"], ours["f1"]) == (pytest.approx(p), pytest.approx(r), pytest.approx(f))
        assert ours["match"] == (truth == guess)


def test_order_and_repetition_never_matter():
    rng = random.Random(3)
    predicted, targets = list("abcxyz"), list("abcde")
    expected = metrics.selection_scores(predicted, targets)
    for _ in range(20):
        shuffled = rng.sample(predicted * 2, 12)
        assert metrics.selection_scores(iter(shuffled), rng.sample(targets, 5)) == expected


def test_srecall_and_useless_searches():
    searches = [["a", "x"], ["a"], [], ["y", "b", "c"], ["c"]]
    targets = ["a", "b", "c", "d"]
    assert metrics.srecall(set().union(*searches), targets) == 0.75
    assert metrics.useless_searches(searches, targets) == 3  # the second and the last re-find, the third is empty
    assert metrics.useless_searches([], targets) == 0


def test_confusion_by_hand():
    # Targets along x and along y, one more not shown. Cosines with the distractors: of x 1, 0.6, 0; of y 0, 0.8, 1.
    found = np.array([[1.0, 0.0], [0.0, 3.0]])
    distractors = np.array([[2.0, 0.0], [0.3, 0.4], [0.0, 1.0]])
    scores = metrics.confusion_scores(found, distractors, missed=1, top=2)
    # max: (1 + 1 + 1) / 3; top 2: (0.8 + 0.9 + 1) / 3; mean: (1.6/3 + 1.8/3 + 1) / 3
    expected = {"confusion_max": 1.0, "confusion_top": 2.7 / 3, "confusion_mean": (1.6 / 3 + 1.8 / 3 + 1) / 3}
    assert scores == pytest.approx(expected)
    one = metrics.confusion_scores(
        found[:1], distractors[1:2], missed=0
    )  # fewer than five: the mean of those there are
    assert one == pytest.approx(dict.fromkeys(expected, 0.6))
    opposite = metrics.confusion_scores(found[:1], -found[:1], missed=1)
    assert opposite == pytest.approx(dict.fromkeys(expected, 0.0))  # (-1 + 1) / 2
    nothing = np.empty((0, 2))
    for empty in ((nothing, distractors, 2), (found, nothing, 0), (nothing, nothing, 1)):
        assert metrics.confusion_scores(*empty) == dict.fromkeys(expected, 1.0)
    with pytest.raises(ValueError, match="-1 targets missed"):
        metrics.confusion_scores(found, distractors, -1)
    with pytest.raises(ValueError, match="vector 1 has length 0"):
        metrics.confusion_scores(found, np.array([[1.0, 0.0], [0.0, 0.0]]), 0)


def test_confusion_against_sklearn_and_order():
    from sklearn.metrics.pairwise import cosine_similarity

    rng = np.random.default_rng(4)
    for _ in range(30):
        f, n, missed = rng.integers(1, 5), rng.integers(1, 12), int(rng.integers(0, 3))
        found, distractors = rng.normal(size=(f, 8)).astype(np.float32), rng.normal(size=(n, 8)).astype(np.float32)
        cosines = cosine_similarity(found.astype(float), distractors.astype(float))
        expected = {
            "confusion_max": np.mean([row.max() for row in cosines] + [1] * missed),
            "confusion_top": np.mean([np.mean(sorted(row)[-5:]) for row in cosines] + [1] * missed),
            "confusion_mean": np.mean([row.mean() for row in cosines] + [1] * missed),
        }
        assert metrics.confusion_scores(found, distractors, missed) == pytest.approx(expected)
        turned = metrics.confusion_scores(rng.permutation(found), rng.permutation(distractors) * 7, missed)
        assert turned == pytest.approx(expected)


def test_interval_covers_the_mean_at_its_level():
    # Bernoulli(0.3), n = 100: of 400 repeated draws about 95 % of the intervals contain 0.3.
    rng = np.random.default_rng(1)
    inside = 0
    for i in range(400):
        low, high = metrics.bootstrap_interval(rng.random(100) < 0.3, seed=i, num_samples=500)
        inside += low <= 0.3 <= high
    assert 0.91 <= inside / 400 <= 0.98


def test_interval_agrees_with_normal_theory_and_narrows_with_level():
    values = np.random.default_rng(2).normal(5.0, 2.0, size=900)
    low, high = metrics.bootstrap_interval(values, seed=0, num_samples=4000)
    half = 1.96 * values.std(ddof=1) / math.sqrt(900)
    assert low == pytest.approx(values.mean() - half, abs=0.02)
    assert high == pytest.approx(values.mean() + half, abs=0.02)
    inner = metrics.bootstrap_interval(values, seed=0, level=0.5, num_samples=4000)
    assert low < inner[0] < inner[1] < high


def test_interval_is_exact_on_two_values():
    # Means of resamples of (0, 1) are 0, 1/2, 1 with chance 1/4, 1/2, 1/4: the 2.5 % quantiles are 0 and 1.
    assert metrics.bootstrap_interval([0, 1], seed=0) == (0.0, 1.0)
    assert metrics.bootstrap_interval([2.5] * 7, seed=0) == (2.5, 2.5)


def test_same_seed_same_interval_and_empty_is_none():
    values = [0.1, 0.9, 0.4, 0.4]
    assert metrics.bootstrap_interval(values, seed=4) == metrics.bootstrap_interval(values, seed=4)
    assert metrics.bootstrap_interval([], seed=0) is None and metrics.mean([]) is None
    assert metrics.paired_bootstrap([], [], seed=0) == {"diff": None, "interval": None}


def test_pairing_removes_shared_difficulty():
    rng = np.random.default_rng(5)
    hard = rng.normal(0, 10, size=200)
    result = metrics.paired_bootstrap(hard + 0.5 + rng.normal(0, 0.1, 200), hard, seed=0)
    assert result["diff"] == pytest.approx(0.5, abs=0.03)
    low, high = result["interval"]
    assert 0.4 < low < 0.5 < high < 0.6  # unpaired the interval would be about 4 wide
    back = metrics.paired_bootstrap(hard, hard, seed=0)
    assert back == {"diff": 0.0, "interval": [0.0, 0.0]}
    with pytest.raises(ValueError, match="3 values against 2"):
        metrics.paired_bootstrap([1, 2, 3], [1, 2], seed=0)


def test_the_leaf_imports_nothing_of_ours():
    import ast
    from pathlib import Path

    tree = ast.parse(Path(metrics.__file__).read_text())
    imported = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    }
    assert imported <= {"collections.abc", "functools", "numpy"}
