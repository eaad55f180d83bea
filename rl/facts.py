"""A rollout boiled down to what the figures of a step need: a small record that travels between ranks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autotools.schema import EventKind, StopReason, Trajectory
from autotools.search.answer import NameIndex
from evaluation.selection import score_trajectory
from rl.credit import EPS, Credit, first_found

FAULTS = tuple(kind.value for kind in EventKind if kind not in (EventKind.SEARCH, EventKind.ANSWER))
_NO_CALL = {EventKind.ANSWER.value, EventKind.EMPTY_ANSWER.value}
CUT_SHORT = {StopReason.TRUNCATED_TURN.value, StopReason.TOKEN_LIMIT.value}


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutFacts:
    """One rollout. Per event: ``kinds``, ``found`` (positions of the targets it is the first to show), ``num_hits``
    and ``num_new`` (hits that no earlier event had shown). ``rewards``: named parts, NaN if dropped."""

    task_id: str
    num_targets: int
    kinds: list[str]
    found: list[list[int]]
    num_hits: list[int]
    num_new: list[int]
    extra_calls: int
    outside_corpus: int
    scores: dict[str, float]
    rewards: dict[str, float]
    stop: str
    max_turns: int
    phase: int = 0

    @property
    def dropped(self) -> bool:
        """Whether a failure of ours ended it: it has no reward and counts in no mean."""
        return self.stop == StopReason.SEARCH_FAILED.value

    @property
    def answered(self) -> bool:
        return bool(self.scores["answered"])

    @property
    def complete(self) -> bool:
        """Whether its searches showed every target."""
        return self.scores["srecall"] == 1.0

    @property
    def zero_call(self) -> bool:
        return not set(self.kinds) - _NO_CALL

    @property
    def used_up(self) -> bool:
        """Whether it needed the last turn that it had, be it to answer."""
        return len(self.kinds) >= self.max_turns

    @property
    def at_limit(self) -> bool:
        """``used_up``, unless it answered then and its request has a target for every search that fits before."""
        return self.used_up and not (self.answered and self.num_targets >= self.max_turns - 1)

    def num_faults(self) -> int:
        return sum(kind in FAULTS for kind in self.kinds)


def rollout_facts(
    trajectory: Trajectory, rewards: Mapping[str, float], *, max_turns: int, corpus: NameIndex | None = None
) -> RolloutFacts:
    """The facts of a finished rollout with unique targets; without ``corpus`` no hit counts as outside of it."""
    shown: set[str] = set()
    texts, num_new, outside = [], [], 0
    for event in trajectory.events:
        hits = [str(hit) for hit in event.hits]  # texts: the hash of an id is slow, and this sees every hit of a step
        num_new.append(len(set(hits) - shown))
        shown.update(hits)
        texts.append(hits)
        if corpus is not None:
            outside += sum(corpus.find(hit) is None for hit in hits)
    return RolloutFacts(
        task_id=trajectory.task_id,
        num_targets=len(trajectory.targets),
        kinds=[event.kind.value for event in trajectory.events],
        found=first_found(texts, [str(target) for target in trajectory.targets]),
        num_hits=[len(event.hits) for event in trajectory.events],
        num_new=num_new,
        extra_calls=sum(event.extra_calls > 0 for event in trajectory.events),
        outside_corpus=outside,
        scores=score_trajectory(trajectory),
        rewards=dict(rewards),
        stop=trajectory.stop_reason.value,
        max_turns=max_turns,
        phase=int(trajectory.meta.get("phase", 0)),
    )


def by_group(facts: Sequence[RolloutFacts], size: int) -> list[range]:
    """The groups of a batch as ranges of its rollouts."""
    return [range(start, min(start + size, len(facts))) for start in range(0, len(facts), size)]


def no_variance(facts: Sequence[RolloutFacts], group: range) -> bool:
    """Whether the rewards of the group's rollouts are all equal, or there are fewer than two."""
    rewards = [sum(facts[i].rewards.values()) for i in group if not facts[i].dropped]
    return len(rewards) < 2 or max(rewards) - min(rewards) < EPS


_BEHIND: dict[str, Callable[[RolloutFacts], bool]] = {
    "answered": lambda f: not f.answered,
    "searches_at_limit": lambda f: f.at_limit,
    "srecall": lambda f: not any(f.found),
    "zero_call": lambda f: f.zero_call,
    "truncated": lambda f: f.stop in CUT_SHORT,
    "fault_share": lambda f: f.num_faults() > 0,
    "outside_corpus": lambda f: f.outside_corpus > 0,
}


def tasks_behind(facts: Sequence[RolloutFacts], credit: Credit, *, group_size: int) -> dict[str, list[str]]:
    """Per figure that an alarm watches, the tasks that make it bad, each once, in the order of the batch."""
    counted = [f for f in facts if not f.dropped]
    out = {name: [f.task_id for f in counted if holds(f)] for name, holds in _BEHIND.items()}
    out["dropped_share"] = [f.task_id for f in facts if f.dropped]
    flat = [facts[group.start] for group in by_group(facts, group_size) if no_variance(facts, group)]
    out["frac_reward_zero_std"] = [f.task_id for f in flat]
    kept = credit.keep.any(axis=1)
    out["credit/kept_token_share"] = [f.task_id for i, f in enumerate(facts) if not kept[i]]
    return {name: list(dict.fromkeys(tasks)) for name, tasks in out.items()}
