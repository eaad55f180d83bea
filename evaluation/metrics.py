"""Set-based scores of a tool selection and seeded bootstrap intervals. A pure leaf: imports nothing of ours.

Training rewards and reported numbers both call these functions, so that they cannot drift apart. Names are compared
as they are (no case folding); order and repetition never matter. Definitions follow the ToolSearcher evaluation
(arXiv 2609.30906): per sample P, R, F1 and Match; SRecall is the recall of the union of all searches of a trajectory;
reported values are plain means over samples.
"""

from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache

import numpy as np

SELECTION_METRICS = ("f1", "precision", "recall", "match")


def precision(predicted: Iterable[Hashable], targets: Iterable[Hashable]) -> float:
    """Share of the distinct predicted names that are targets; an empty prediction has precision 0."""
    chosen, wanted = set(predicted), set(targets)
    return len(chosen & wanted) / len(chosen) if chosen else 0.0


def recall(predicted: Iterable[Hashable], targets: Iterable[Hashable]) -> float:
    """Share of the distinct targets that were predicted; without targets it is 0."""
    chosen, wanted = set(predicted), set(targets)
    return len(chosen & wanted) / len(wanted) if wanted else 0.0


def f1(predicted: Iterable[Hashable], targets: Iterable[Hashable]) -> float:
    """Harmonic mean of precision and recall; 0 if both are 0."""
    chosen, wanted = set(predicted), set(targets)
    both = precision(chosen, wanted) + recall(chosen, wanted)
    return 2 * precision(chosen, wanted) * recall(chosen, wanted) / both if both else 0.0


def match(predicted: Iterable[Hashable], targets: Iterable[Hashable]) -> float:
    """1.0 if the two sets are equal, else 0.0 (two empty sets match, with F1 0, as in the reference)."""
    return float(set(predicted) == set(targets))


def srecall(found: Iterable[Hashable], targets: Iterable[Hashable]) -> float:
    """Recall of everything that the searches of one trajectory have shown (``found``: union over its searches)."""
    return recall(found, targets)


def selection_scores(predicted: Iterable[Hashable], targets: Iterable[Hashable]) -> dict[str, float]:
    """All four selection scores of one sample: ``{"f1", "precision", "recall", "match"}``, each in [0, 1]."""
    chosen, wanted = set(predicted), set(targets)
    return {
        "f1": f1(chosen, wanted),
        "precision": precision(chosen, wanted),
        "recall": recall(chosen, wanted),
        "match": match(chosen, wanted),
    }


def useless_searches(searches: Sequence[Iterable[Hashable]], targets: Iterable[Hashable]) -> int:
    """Number of searches (each given by its hits, in order) that show no target which was not shown before."""
    missing = set(targets)
    useless = 0
    for hits in searches:
        new = missing & set(hits)
        missing -= new
        useless += not new
    return useless


def confusion_scores(found: np.ndarray, distractors: np.ndarray, missed: int, *, top: int = 5) -> dict[str, float]:
    """How alike the targets that the searches of one sample have shown are to the other tools shown; 0: not at all.

    ``found``: [f, d], one vector per target shown; ``distractors``: [n, d], one per other tool shown (each tool once);
    ``missed``: number of targets that no search has shown. Lengths of vectors do not matter. Per found target, over
    its cosines with the distractors: the largest, the mean of the ``top`` largest, the mean of all. Each is averaged
    over all targets, a missed one counting 1. Without a found target or without a distractor all three are 1.
    Returns ``{"confusion_max", "confusion_top", "confusion_mean"}``; lower is better. Definition: the ToolSearcher
    repository's evaluation (eval_confus_score), its rule for empty sides included.
    Raises ValueError for a negative ``missed``, or a vector of length 0.
    """
    names = ("confusion_max", "confusion_top", "confusion_mean")
    if missed < 0:
        raise ValueError(f"confusion_scores: {missed} targets missed; it must be 0 or more")
    if not len(found) or not len(distractors):
        return dict.fromkeys(names, 1.0)
    cosines = np.sort(_unit(found) @ _unit(distractors).T, axis=1)[:, ::-1]  # [f, n], each row descending
    per_target = (cosines[:, 0], cosines[:, :top].mean(axis=1), cosines.mean(axis=1))
    targets = len(found) + missed
    return {name: float(values.sum() + missed) / targets for name, values in zip(names, per_target, strict=True)}


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Rows of ``vectors`` [n, d] divided by their lengths, in float64."""
    wide = np.asarray(vectors, dtype=np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    if not lengths.all():
        raise ValueError(f"confusion_scores: vector {int(np.argmin(lengths))} has length 0 and no direction")
    return wide / lengths


def mean(values: Sequence[float]) -> float | None:
    """Plain mean, or None for no values: a score that was not computed is never shown as 0."""
    return float(np.mean(values)) if len(values) else None


@lru_cache(maxsize=16)
def _resample(n: int, num_samples: int, seed: int) -> np.ndarray:
    """Row numbers drawn with replacement: [num_samples, n]. Cached, because a table asks for the same draw often."""
    draw = np.random.default_rng(seed).integers(0, n, size=(num_samples, n), dtype=np.int32)
    draw.setflags(write=False)
    return draw


def bootstrap_interval(
    values: Sequence[float], *, seed: int, level: float = 0.95, num_samples: int = 2000
) -> tuple[float, float] | None:
    """Percentile bootstrap interval of the mean of ``values`` [n] over samples (not over training seeds).

    Returns ``(low, high)``, or None for no values. The same seed gives the same interval. Source: Efron and
    Tibshirani, An Introduction to the Bootstrap (1993), chapter 13.
    """
    if not len(values):
        return None
    data = np.asarray(values, dtype=np.float64)
    means = data[_resample(len(data), num_samples, seed)].mean(axis=1)
    tail = (1 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def paired_bootstrap(
    a: Sequence[float], b: Sequence[float], *, seed: int, level: float = 0.95, num_samples: int = 2000
) -> dict[str, float | list[float] | None]:
    """Mean of ``a - b`` over the same samples, with its bootstrap interval: ``{"diff", "interval": [low, high]}``.

    ``a`` and ``b``: [n], entry i of both belongs to sample i; pairing removes the difficulty of the samples from the
    spread. Raises ValueError if the lengths differ.
    """
    if len(a) != len(b):
        raise ValueError(f"paired_bootstrap: {len(a)} values against {len(b)}; both need one value per sample")
    differences = np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64)
    interval = bootstrap_interval(differences, seed=seed, level=level, num_samples=num_samples)
    return {"diff": mean(differences), "interval": list(interval) if interval else None}
