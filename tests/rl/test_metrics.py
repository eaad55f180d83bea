"""Figures of a step: four rollouts worked on paper, and a recount by other code over random ones."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotools.schema import Event, EventKind, StopReason, ToolId, Trajectory
from autotools.search.answer import NameIndex
from rl.credit import Credit, CreditOptions, event_credit, pack_rollouts
from rl.credit_options import PAPER
from rl.facts import rollout_facts, tasks_behind
from rl.metrics import histogram_names, step_metrics

A, B, X, Y = (ToolId(category="c", tool="t", api=api) for api in "abxy")
S, K, R = EventKind.SEARCH, EventKind, StopReason


def search(*hits: ToolId, extra: int = 0) -> Event:
    return Event(kind=S, text="s", query="q", hits=hits, extra_calls=extra)


def rollout(task: str, targets: tuple, events: list, selection: Any, stop: StopReason, phase: int = 0) -> Trajectory:
    return Trajectory(
        task_id=task, query="q", targets=targets, events=tuple(events), selection=selection, stop_reason=stop,
        meta={"phase": phase} if phase else {},
    )  # fmt: skip


ANSWER = Event(kind=K.ANSWER, text="a")
GROUPS = [  # two groups of two; at most 3 turns
    # shows X, then both targets; selects both: f1 1
    rollout("t1", (A, B), [search(X), search(X, A, B, extra=1), ANSWER], (A, B), R.ANSWERED),
    # finds A, searches the same again, then a call on the last turn: no answer
    rollout("t1", (A, B), [search(A, X), search(X, A), Event(kind=K.OVER_LIMIT, text="s")], None, R.TURN_LIMIT),
    # answers at once with a target that no search has shown: f1 0
    rollout("t2", (A,), [ANSWER], (A,), R.ANSWERED),
    # a broken call, a search without hits, and the turn was cut
    rollout(
        "t2", (A,), [Event(kind=K.MALFORMED_CALL, text="<"), search(), Event(kind=K.TRUNCATED, text="s")], None,
        R.TRUNCATED_TURN,
    ),
]  # fmt: skip
F1 = [1.0, 0.0, 0.0, 0.0]


def credit_of(facts: list, size: int, options: CreditOptions | None = None) -> Credit:
    columns = zip(*((f.found, f.num_targets, f.answered, sum(f.rewards.values())) for f in facts), strict=True)
    return event_credit(pack_rollouts(*columns, [i // size for i in range(len(facts))]), options or PAPER)


def facts_of(trajectories: list, rewards: list, corpus: NameIndex | None = None) -> list:
    pairs = zip(trajectories, rewards, strict=True)
    return [rollout_facts(t, {"selection": r, "format": 0.125}, max_turns=3, corpus=corpus) for t, r in pairs]


def test_four_rollouts_on_paper() -> None:
    facts = facts_of(GROUPS, F1)
    found = step_metrics(facts, credit_of(facts, 2), group_size=2)
    on_paper = {
        "reward_f1": 1 / 4, "reward_match": 1 / 4, "reward_selection": 1 / 4, "reward_format": 1 / 8,
        "srecall": (1 + 1 / 2 + 0 + 0) / 4, "recall": 1 / 4, "precision": 1 / 4, "answered": 2 / 4,
        "match_given_complete": 1.0,  # only the first saw all
        "searches": 5 / 4, "useless_searches": (1 + 1 + 0 + 1) / 4, "redundant_searches": 1 / 4,
        "empty_searches": 1 / 4,
        "zero_call": 1 / 4, "turns_used_up": 3 / 4, "truncated": 1 / 4, "dropped_share": 0.0,
        "searches_at_limit": 2 / 4,  # the first rollout had two targets for its two searches, and answered
        "malformed_turns": 3 / 4, "fault_share": 3 / 10, "extra_calls": 1 / 10,  # ten turns in all
        "faults/over_limit": 1 / 10, "faults/malformed_call": 1 / 10, "faults/truncated": 1 / 10,
        "faults/unknown_tool": 0.0, "stop/answered": 2 / 4, "stop/turn_limit": 1 / 4, "stop/truncated_turn": 1 / 4,
        "stop/token_limit": 0.0,
        "turn/1/searches": 2 / 4, "turn/1/new_find": 1 / 2, "turn/2/searches": 3 / 4, "turn/2/new_find": 1 / 3,
        "turn/3/searches": 0.0,
        "targets/1/f1": 0.0, "targets/1/rollouts": 2.0, "targets/2/f1": 1 / 2, "targets/2/srecall": 3 / 4,
        "targets/2/answered": 1 / 2, "targets/1/searches": 1 / 2,
        "groups/zero_variance": 1 / 2, "groups/no_gradient": 1 / 2, "outside_corpus": 0.0,
    }  # fmt: skip
    assert {name: found[name] for name in on_paper} == pytest.approx(on_paper)
    assert "turn/3/new_find" not in found and not [name for name in found if name.startswith("phase")]
    # group 1: both see A (mastered), only the first B: z = 0.5 / sqrt(0.5) for its second search and its answer;
    # the other eight events are removed (A's first search of rollout 2 is mastered)
    assert found["credit/hist/0.5..1"] == 2 and found["credit/removed"] == 8
    assert sum(v for k, v in found.items() if k.startswith("credit/hist/")) == 2
    kept = step_metrics(facts, credit_of(facts, 2, replace(PAPER, incomplete_selection="zero")), group_size=2)
    assert kept["credit/hist/0"] == 1 and kept["groups/no_gradient"] == 1 / 2  # kept, but it moves nothing


def test_dropped_rollouts_are_in_no_mean() -> None:
    lost = rollout("t3", (A,), [search(A), Event(kind=S, text="s", query="q")], None, R.SEARCH_FAILED)
    facts = facts_of([*GROUPS, lost, lost], [*F1, float("nan"), float("nan")])
    with_lost = step_metrics(facts, credit_of(facts, 2), group_size=2)
    alone = step_metrics(facts[:4], credit_of(facts[:4], 2), group_size=2)
    assert with_lost.pop("dropped_share") == pytest.approx(2 / 6) and alone.pop("dropped_share") == 0
    for name in ("groups/zero_variance", "groups/no_gradient"):  # a group of dropped rollouts teaches nothing
        assert with_lost.pop(name) == pytest.approx(2 / 3) and alone.pop(name) == 1 / 2
    assert with_lost == pytest.approx(alone)
    everyone = facts_of([lost, lost], [float("nan")] * 2)
    out = step_metrics(everyone, credit_of(everyone, 2), group_size=2)
    assert out["dropped_share"] == 1 and "srecall" not in out and all(np.isfinite(list(out.values())))


def test_figures_by_phase_and_the_last_class_of_targets() -> None:
    many = tuple(ToolId(category="c", tool="t", api=f"m{i}") for i in range(7))
    batch = [rollout("t", many[:n], [search(*many[:2]), ANSWER], many[:2], R.ANSWERED, phase=2) for n in (5, 7)]
    facts = facts_of(batch, [0.0, 0.0])
    found = step_metrics(facts, credit_of(facts, 2), group_size=2)
    assert found["targets/5+/srecall"] == found["phase/2/srecall"] == pytest.approx((2 / 5 + 2 / 7) / 2)
    assert found["targets/5+/rollouts"] == 2 and "targets/7/f1" not in found and "phase/1/f1" not in found


def test_hits_outside_the_corpus_of_the_run() -> None:
    facts = facts_of(GROUPS, F1, NameIndex([A, X]))
    found = step_metrics(facts, credit_of(facts, 2), group_size=2)
    assert found["outside_corpus"] == pytest.approx(1 / 8)  # B once among eight hits
    assert tasks_behind(facts, credit_of(facts, 2), group_size=2)["outside_corpus"] == ["t1"]


def test_bins_hold_what_their_names_say() -> None:
    assert histogram_names() == [
        "-inf..-1.5", "-1.5..-1", "-1..-0.5", "-0.5..0", "0",
        "0..0.5", "0.5..1", "1..1.5", "1.5..inf",
    ]  # fmt: skip
    values = np.array([[-2.0, -1.5, -1.0, -0.5, -0.1, 0.0, 0.0, 0.1, 0.5, 0.6, 1.5, 1.789, 99.0]])
    keep = np.ones_like(values, dtype=bool)
    keep[0, -1] = False
    facts = facts_of([rollout("t", (A,), [search()] * 13, None, R.TURN_LIMIT)], [0.0])
    out = step_metrics(facts, Credit(advantages=values, keep=keep, z=np.zeros((1, 1))), group_size=1)
    counts = [out[f"credit/hist/{name}"] for name in histogram_names()]
    assert counts == [1, 1, 1, 2, 2, 2, 1, 1, 1] and out["credit/removed"] == 1


def test_who_is_behind_a_figure() -> None:
    facts = facts_of(GROUPS, F1)
    behind = tasks_behind(facts, credit_of(facts, 2), group_size=2)
    assert behind["answered"] == ["t1", "t2"] and behind["zero_call"] == ["t2"] == behind["truncated"]
    assert behind["frac_reward_zero_std"] == ["t2"] and behind["dropped_share"] == []
    assert behind["credit/kept_token_share"] == ["t1", "t2"]  # of t1 only the rollout that found nothing more


# --- a recount by other code ----------------------------------------------------------------------------------------


def random_rollout(rng: random.Random, task: str, targets: tuple[ToolId, ...]) -> Trajectory:
    pool = [A, B, X, Y, *(ToolId(category="d", tool="t", api=f"n{i}") for i in range(2))]
    events = []
    for _ in range(rng.randrange(4)):
        kind = rng.choice([S, S, S, K.MALFORMED_CALL, K.UNKNOWN_TOOL, K.UNKNOWN_CATEGORY])
        hits = tuple(rng.sample(pool, rng.randrange(4))) if kind is S else ()
        events.append(Event(kind=kind, text="e", query="q", hits=hits, extra_calls=rng.randrange(2)))
    stop = rng.choice([R.ANSWERED, R.ANSWERED, R.TURN_LIMIT, R.EMPTY_ANSWER, R.TOKEN_LIMIT])
    last = {R.ANSWERED: K.ANSWER, R.EMPTY_ANSWER: K.EMPTY_ANSWER}.get(stop, K.OVER_LIMIT)
    selection = tuple(rng.sample(pool, rng.randrange(4))) if stop is R.ANSWERED else None
    return rollout(task, targets, [*events, Event(kind=last, text="e")], selection, stop, rng.randrange(1, 3))


def recount(trajectories: list[Trajectory], rewards: list[float], keep: np.ndarray, adv: np.ndarray, size: int) -> dict:
    """Plain loops over all events; shares nothing with rl/facts.py or evaluation/."""
    n, out = len(trajectories), {}
    turns = [e for t in trajectories for e in t.events]
    seen = [{h for e in t.events for h in e.hits} for t in trajectories]
    recalls = [len([x for x in t.targets if x in s]) / len(t.targets) for t, s in zip(trajectories, seen, strict=True)]
    out["srecall"] = np.mean(recalls)
    right = [set(t.selection or ()) & s & set(t.targets) for t, s in zip(trajectories, seen, strict=True)]
    f1 = [
        2 * len(r) / max(len(t.selection or ()) + len(t.targets), 1) for r, t in zip(right, trajectories, strict=True)
    ]
    out["reward_f1"] = np.mean([f if t.selection is not None else 0 for f, t in zip(f1, trajectories, strict=True)])
    out["searches"] = sum(e.kind is S for e in turns) / n
    out["empty_searches"] = sum(e.kind is S and not e.hits for e in turns) / n
    out["fault_share"] = sum(e.kind not in (S, K.ANSWER) for e in turns) / len(turns)
    out["zero_call"] = sum(all(e.kind in (K.ANSWER, K.EMPTY_ANSWER) for e in t.events) for t in trajectories) / n
    useless = redundant = 0
    news: dict[int, list[bool]] = {}
    for t in trajectories:
        for i, e in enumerate(t.events):
            if e.kind is not S:
                continue
            before = {h for x in t.events[:i] for h in x.hits}
            new = [h for h in e.hits if h not in before]
            useless += not [h for h in new if h in t.targets]
            redundant += bool(e.hits) and not new
            news.setdefault(i + 1, []).append(any(h in t.targets for h in new))
    out["useless_searches"], out["redundant_searches"] = useless / n, redundant / n
    out |= {f"turn/{i}/searches": len(flags) / n for i, flags in news.items()}
    out |= {f"turn/{i}/new_find": np.mean(flags) for i, flags in news.items()}
    for phase in (1, 2):
        out[f"phase/{phase}/srecall"] = np.mean([
            r for r, t in zip(recalls, trajectories, strict=True) if t.meta["phase"] == phase
        ])  # fmt: skip
    same = [len({round(r, 9) for r in rewards[i : i + size]}) == 1 for i in range(0, n, size)]
    out["groups/zero_variance"] = np.mean(same)
    kept = [adv[i, e] for i, t in enumerate(trajectories) for e in range(len(t.events)) if keep[i, e]]
    out["credit/removed"] = len(turns) - len(kept)
    out["credit/hist/0"] = sum(a == 0 for a in kept)
    out["credit/hist/1.5..inf"] = sum(a > 1.5 for a in kept)
    out["credit/hist/-1..-0.5"] = sum(-1 <= a < -0.5 for a in kept)
    return out


@pytest.mark.parametrize("seed", range(4))
def test_recount_of_random_rollouts(seed: int) -> None:
    rng, size = random.Random(seed), 5
    trajectories = []
    for group in range(60):
        targets = tuple(rng.sample([A, B, X, Y], rng.randrange(1, 5)))
        trajectories += [random_rollout(rng, f"t{group}", targets) for _ in range(size)]
    rewards = [rng.choice([0.0, 0.5, 1.0]) if i >= 10 else 0.5 for i in range(len(trajectories))]
    facts = [rollout_facts(t, {"selection": r}, max_turns=4) for t, r in zip(trajectories, rewards, strict=True)]
    assert [f.found for f in facts] == [t.first_found_at() for t in trajectories]  # the same from texts and from ids
    credit = credit_of(facts, size, replace(PAPER, incomplete_selection="zero"))
    found = step_metrics(facts, credit, group_size=size)
    counted = recount(trajectories, rewards, credit.keep, credit.advantages, size)
    assert {name: found[name] for name in counted} == pytest.approx(counted)
    assert not [name for name, value in counted.items() if value == 0]  # every figure was really exercised
