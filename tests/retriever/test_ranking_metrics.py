"""Ranking scores against ir_measures (trec_eval's code), and worked by hand."""

import math
import random

import ir_measures
import pytest
from ir_measures import RR, R, nDCG

from retriever.ranking_metrics import all_scores, comp, ndcg, recall, reciprocal_rank, summary

KS = (1, 3, 5, 20)


def test_hand_worked():
    ranked, targets = ["x", "a", "y", "b"], {"a", "b", "c"}
    assert recall(ranked, targets, 2) == 1 / 3 and recall(ranked, targets, 9) == 2 / 3
    assert comp(ranked, targets, 9) == 0 and comp(ranked, {"a", "b"}, 4) == 1 and comp(ranked, {"a", "b"}, 3) == 0
    ideal = 1 + 1 / math.log2(3) + 1 / math.log2(4)
    assert ndcg(ranked, targets, 4) == pytest.approx((1 / math.log2(3) + 1 / math.log2(5)) / ideal)
    assert reciprocal_rank(ranked, targets) == 0.5 and reciprocal_rank([], targets) == 0
    assert all_scores(ranked, targets, [1])["mrr"] == 0  # the first target stands behind the deepest cut
    assert all_scores(["a"], ["a"], [1, 5]) == {
        "recall@1": 1, "ndcg@1": 1, "comp@1": 1, "recall@5": 1, "ndcg@5": 1, "comp@5": 1, "mrr": 1,
    }  # fmt: skip


def test_equals_ir_measures_on_random_lists():
    rng = random.Random(0)
    items = [f"d{number}" for number in range(40)]
    lists = {f"q{n}": rng.sample(items, rng.randint(0, 30)) for n in range(200)}
    targets = {name: set(rng.sample(items, rng.randint(1, 7))) for name in lists}
    qrels = {name: dict.fromkeys(wanted, 1) for name, wanted in targets.items()}
    run = {name: {item: 100.0 - rank for rank, item in enumerate(ranked)} for name, ranked in lists.items()}
    measures = [*(R @ k for k in KS), *(nDCG @ k for k in KS), RR @ max(KS)]
    ours = {name: all_scores(ranked, targets[name], KS) for name, ranked in lists.items()}
    compared = 0
    for found in ir_measures.iter_calc(measures, qrels, run):
        name = {"R": "recall", "nDCG": "ndcg", "RR": "mrr"}[found.measure.NAME]
        key = name if name == "mrr" else f"{name}@{found.measure['cutoff']}"
        assert ours[found.query_id][key] == pytest.approx(found.value, abs=1e-9), (key, found.query_id)
        compared += 1
    assert compared == len(lists) * len(measures)
    assert all(row[f"comp@{k}"] == (row[f"recall@{k}"] == 1) for row in ours.values() for k in KS)


@pytest.mark.parametrize("targets, ks", [([], [5]), (["a"], []), (["a"], [0, 5])])
def test_no_score_without_targets_or_cut(targets, ks):
    with pytest.raises(ValueError, match="1 or more"):
        all_scores(["a"], targets, ks)


def test_summary_is_seeded_and_covers_the_mean():
    rng = random.Random(1)
    rows = [{"a": rng.random(), "b": float(rng.random() < 0.3)} for _ in range(400)]
    out = summary(rows, seed=3)
    assert out["n"] == 400 and out["a"] == pytest.approx(sum(row["a"] for row in rows) / 400)
    assert out == summary(rows, seed=3) != summary(rows, seed=4)
    for name in ("a", "b"):  # oracle: the normal interval of a mean; 400 rows are enough for it
        mean = out[name]
        spread = math.sqrt(sum((row[name] - mean) ** 2 for row in rows) / 400 / 400)
        low, high = out["intervals"][name]
        assert low == pytest.approx(mean - 1.96 * spread, abs=0.2 * spread)
        assert high == pytest.approx(mean + 1.96 * spread, abs=0.2 * spread)
    assert summary([]) == {"n": 0}
    assert summary([{"a": 0.25}])["intervals"] == {"a": [0.25, 0.25]}
