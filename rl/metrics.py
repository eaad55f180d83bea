"""What a training step is judged by: figures of all its rollouts and of their credit, as pure functions.

``step_metrics`` turns the facts of all ranks' rollouts (``rl/facts.py``) and their credit into ``{name: number}``.
Means are over the rollouts that were not dropped; a figure that has nothing to be the mean of is left out, never 0.

    reward_f1 reward_match reward_PART srecall recall precision match_given_complete answered   scores (evaluation/)
    searches useless_searches redundant_searches empty_searches         per rollout: all; no new target; hits, but none
                                                                        that is new to the rollout; no hits
    zero_call turns_used_up truncated dropped_share                     shares of rollouts: no call at all; last turn
                                                                        reached; cut by a token budget; dropped
    searches_at_limit                                                   last turn reached, but not to answer a request
                                                                        with a target for each search before it
    malformed_turns, fault_share, faults/KIND, extra_calls              per rollout; shares of turns
    stop/REASON                                                         shares of rollouts
    turn/T/searches, turn/T/new_find                                    share of rollouts that search in turn T; share
                                                                        of those searches that show a new target
    targets/N/*, phase/P/*                                              by number of targets (5+ together), by phase
    groups/zero_variance, groups/no_gradient                            shares of groups: rewards all equal; no kept
                                                                        event with an advantage other than 0
    credit/hist/A..B, credit/removed                                    numbers of events (a generation batch)
    outside_corpus                                                      share of hits that the corpus does not have

Log-prob drift is TRL's own: ``kl`` (``beta`` > 0), ``clip_ratio/*`` (several updates per generation),
``sampling/sampling_logp_difference/*`` and ``sampling/importance_sampling_ratio/*`` (vLLM). Plain ``generate`` gives no
sampling log-probs to compare with.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from autotools.schema import EventKind, StopReason
from rl.credit import Credit
from rl.facts import CUT_SHORT, FAULTS, RolloutFacts, by_group, no_variance

SPLIT = ("f1", "match", "srecall", "searches", "answered")
"""Scores that are also given by number of targets and by phase."""
MOST_TARGETS = 5
HISTOGRAM = (0.5, 1.0, 1.5)
"""Sizes of advantages that part the bins; 0 is a bin of its own."""


def step_metrics(facts: Sequence[RolloutFacts], credit: Credit, *, group_size: int) -> dict[str, float]:
    """All figures of one generation batch: ``facts`` of its N rollouts, whole groups in order, and their credit [N]."""
    counted = [f for f in facts if not f.dropped]
    out = {"dropped_share": _share(facts, lambda f: f.dropped)}
    if counted:
        out |= _scores(counted)
        out |= _searching(counted)
        out |= _turns(counted)
        for number in sorted({f.phase for f in counted} - {0}):
            out |= _split(f"phase/{number}", [f for f in counted if f.phase == number])
        for number in sorted({min(f.num_targets, MOST_TARGETS) for f in counted}):
            name = f"targets/{number}{'+' if number == MOST_TARGETS else ''}"
            out |= _split(name, [f for f in counted if min(f.num_targets, MOST_TARGETS) == number])
    out |= _groups(facts, credit, group_size)
    return out | _histogram(facts, credit)


def _share(facts: Sequence[RolloutFacts], holds: Callable[[RolloutFacts], bool]) -> float:
    return sum(map(holds, facts)) / len(facts)


def _mean(facts: Sequence[RolloutFacts], name: str) -> float:
    return sum(f.scores[name] for f in facts) / len(facts)


def _scores(facts: Sequence[RolloutFacts]) -> dict[str, float]:
    out = {name: _mean(facts, name) for name in ("srecall", "recall", "precision", "answered")}
    out |= {f"reward_{part}": sum(f.rewards[part] for f in facts) / len(facts) for part in facts[0].rewards}
    out |= {f"reward_{name}": _mean(facts, name) for name in ("f1", "match")}
    complete = [f for f in facts if f.complete]
    return out | ({"match_given_complete": _mean(complete, "match")} if complete else {})


def _searching(facts: Sequence[RolloutFacts]) -> dict[str, float]:
    out = {name: _mean(facts, name) for name in ("searches", "useless_searches")}
    searches = [
        (hits, new)
        for f in facts
        for kind, hits, new in zip(f.kinds, f.num_hits, f.num_new, strict=True)
        if kind == EventKind.SEARCH.value
    ]
    out["redundant_searches"] = sum(hits > 0 and new == 0 for hits, new in searches) / len(facts)
    out["empty_searches"] = sum(hits == 0 for hits, _ in searches) / len(facts)
    if hits := sum(sum(f.num_hits) for f in facts):
        out["outside_corpus"] = sum(f.outside_corpus for f in facts) / hits
    return out


def _turns(facts: Sequence[RolloutFacts]) -> dict[str, float]:
    kinds = Counter(kind for f in facts for kind in f.kinds)
    num_turns = max(kinds.total(), 1)
    out = {
        "zero_call": _share(facts, lambda f: f.zero_call),
        "turns_used_up": _share(facts, lambda f: f.used_up),
        "searches_at_limit": _share(facts, lambda f: f.at_limit),
        "truncated": _share(facts, lambda f: f.stop in CUT_SHORT),
        "malformed_turns": sum(kinds[kind] for kind in FAULTS) / len(facts),
        "fault_share": sum(kinds[kind] for kind in FAULTS) / num_turns,
        "extra_calls": sum(f.extra_calls for f in facts) / num_turns,
    }
    out |= {f"faults/{kind}": kinds[kind] / num_turns for kind in FAULTS}
    stops = Counter(f.stop for f in facts)
    out |= {f"stop/{r.value}": stops[r.value] / len(facts) for r in StopReason if r is not StopReason.SEARCH_FAILED}
    for turn in range(max(f.max_turns for f in facts)):
        played = [f.found[turn] for f in facts if f.kinds[turn : turn + 1] == [EventKind.SEARCH.value]]
        out[f"turn/{turn + 1}/searches"] = len(played) / len(facts)
        if played:
            out[f"turn/{turn + 1}/new_find"] = sum(bool(found) for found in played) / len(played)
    return out


def _split(name: str, facts: Sequence[RolloutFacts]) -> dict[str, float]:
    return {f"{name}/{score}": _mean(facts, score) for score in SPLIT} | {f"{name}/rollouts": float(len(facts))}


def _groups(facts: Sequence[RolloutFacts], credit: Credit, size: int) -> dict[str, float]:
    groups = by_group(facts, size)
    moved = (credit.keep & (credit.advantages != 0)).any(axis=1)
    return {
        "groups/zero_variance": sum(no_variance(facts, group) for group in groups) / len(groups),
        "groups/no_gradient": sum(not moved[group.start : group.stop].any() for group in groups) / len(groups),
    }


def histogram_names() -> list[str]:
    """Names of the bins from the most negative to the most positive; negative bins hold their lower end."""
    edges = [f"{edge:g}" for edge in (0, *HISTOGRAM)]
    ends = [*edges[1:], "inf"]
    positive = [f"{a}..{b}" for a, b in zip(edges, ends, strict=True)]
    negative = [f"-{b}..{'-' if a != '0' else ''}{a}" for a, b in zip(edges, ends, strict=True)]
    return [*reversed(negative), "0", *positive]


def _histogram(facts: Sequence[RolloutFacts], credit: Credit) -> dict[str, float]:
    kept = credit.advantages[credit.keep]
    size = np.digitize(np.abs(kept), HISTOGRAM, right=True) + 1  # 1 for (0, 0.5], ... as a whole number with a sign
    place = np.where(kept == 0, 0, np.sign(kept) * size).astype(int) + len(HISTOGRAM) + 1
    names = histogram_names()
    counts = np.bincount(place, minlength=len(names))
    out = {f"credit/hist/{name}": float(count) for name, count in zip(names, counts, strict=True)}
    return out | {"credit/removed": float(sum(len(f.kinds) for f in facts if not f.dropped) - len(kept))}
