"""A search problem small enough to enumerate: every trajectory, every group of them, the exact expected update.

A request has ``targets`` tools. In each turn a tabular softmax policy (one row of logits per state) searches or
answers, so trajectories differ in length:

    find t   shows target t (with probability ``luck``)     miss    shows nothing new
    right    answers what was shown                         wrong   answers one tool that is no target

State: (turn, targets seen), or only the turn for a ``blind`` policy, which cannot tell a complete search from another.
A search in the last turn leaves the rollout unanswered. Reward: F1 or exact match of the answer. One action is one
token. The credit under study is that of ``rl``; nothing of it is written again here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations_with_replacement
from math import factorial
from typing import Literal

import numpy as np

from rl.credit import Credit, RolloutArrays

State = tuple[int, frozenset[int]]
Denominator = Literal["constant", "sequence", "tokens"]
CreditFunction = Callable[[RolloutArrays], Credit]


@dataclass(frozen=True)
class Trajectory:
    """``steps``: (state, action) indices; ``first``: per step, the targets it is the first to show."""

    steps: tuple[tuple[int, int], ...]
    first: tuple[tuple[int, ...], ...]
    answered: bool
    reward: float
    seen: frozenset[int]
    luck: float


@dataclass
class Toy:
    """All trajectories of the problem (``paths``: T of them, of at most ``turns`` events; the answer is one)."""

    targets: int = 2
    turns: int = 3
    reward: Literal["f1", "match"] = "f1"
    blind: bool = False
    luck: float = 1.0
    states: dict[State, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.actions = [*(f"find {t}" for t in range(self.targets)), "miss", "right", "wrong"]
        self.paths = list(self._walk(Trajectory((), (), False, 0.0, frozenset(), 1.0)))
        n, e = len(self.paths), self.turns
        self.cells = np.full((n, e), len(self.states) * len(self.actions))  # padding: one cell behind the table
        self.first = np.zeros((n, e, self.targets), dtype=bool)
        for i, path in enumerate(self.paths):
            for j, ((state, action), new) in enumerate(zip(path.steps, path.first, strict=True)):
                self.cells[i, j] = state * len(self.actions) + action
                self.first[i, j, list(new)] = True
        self.lengths = np.array([len(path.steps) for path in self.paths])
        self.answer = np.array([len(path.steps) - 1 if path.answered else -1 for path in self.paths])
        self.rewards = np.array([path.reward for path in self.paths])
        self.chance = np.array([path.luck for path in self.paths])

    def _walk(self, path: Trajectory) -> Iterator[Trajectory]:
        """All complete trajectories that begin with ``path``."""
        turn, seen = len(path.steps), path.seen
        state = self.states.setdefault((turn, frozenset() if self.blind else seen), len(self.states))
        for action, name in enumerate(self.actions):
            steps = (*path.steps, (state, action))
            if name in ("right", "wrong"):
                reward = self._score(seen) if name == "right" else 0.0
                yield Trajectory(steps, (*path.first, ()), True, reward, seen, path.luck)
                continue
            for new, share in self._shown(name, action, seen):
                longer = Trajectory(steps, (*path.first, tuple(new)), False, 0.0, seen | new, path.luck * share)
                if turn + 1 == self.turns:
                    yield longer
                else:
                    yield from self._walk(longer)

    def _shown(self, name: str, action: int, seen: frozenset[int]) -> list[tuple[frozenset[int], float]]:
        """What a search may show for the first time, and how probable that is."""
        if name == "miss" or action in seen:
            return [(frozenset(), 1.0)]
        return [(new, p) for new, p in ((frozenset({action}), self.luck), (frozenset(), 1 - self.luck)) if p]

    def _score(self, seen: frozenset[int]) -> float:
        """Reward of naming exactly the targets seen."""
        if self.reward == "match":
            return float(len(seen) == self.targets)
        return 2 * len(seen) / (len(seen) + self.targets)

    def policy(self, incomplete: list[float], complete: list[float]) -> np.ndarray:
        """[S, A] probabilities: one row for states in which targets are missing, one for those where all were seen."""
        rows = np.array([complete if len(seen) == self.targets else incomplete for _, seen in self.states])
        return rows / rows.sum(axis=1, keepdims=True)

    def probabilities(self, policy: np.ndarray) -> np.ndarray:
        """[T]: probability of each trajectory."""
        return np.append(policy, 1.0)[self.cells].prod(axis=1) * self.chance

    def objective(self, values: np.ndarray, policy: np.ndarray) -> tuple[float, np.ndarray]:
        """E[values] over trajectories [T], and its exact gradient [S, A]."""
        weights = self.probabilities(policy) * values
        table = np.bincount(self.cells.ravel(), weights=np.repeat(weights, self.turns), minlength=policy.size + 1)
        return float(weights.sum()), gradient(table, policy)

    def statistics(self) -> dict[str, np.ndarray]:
        """Per trajectory [T]: what a policy is judged by; each can be an objective."""
        return {
            "reward": self.rewards,
            "srecall": np.array([len(path.seen) / self.targets for path in self.paths]),
            "answered": (self.answer >= 0).astype(float),
            "searches": self.lengths - (self.answer >= 0.0),
        }


class Groups:
    """All groups of ``size`` rollouts (order does not matter to the credit), with the credit of each. M groups."""

    def __init__(self, toy: Toy, size: int, credit: CreditFunction):
        self.toy, self.size = toy, size
        self.members = np.array(list(combinations_with_replacement(range(len(toy.paths)), size)))
        self.orders = np.array([_orders(row) for row in self.members.tolist()])
        rows = self.members.ravel()
        found = credit(
            RolloutArrays(
                first_found=toy.first[rows],
                target_mask=np.ones((len(rows), toy.targets), dtype=bool),
                num_events=toy.lengths[rows],
                answer=toy.answer[rows],
                rewards=toy.rewards[rows],
                groups=np.repeat(np.arange(len(self.members)), size),
            )
        )
        shape = (*self.members.shape, toy.turns)
        self.keep = found.keep.reshape(shape)
        self.weights = np.where(found.keep, found.advantages, 0.0).reshape(shape)
        self.kept = self.keep.sum(axis=(1, 2))

    def probabilities(self, policy: np.ndarray) -> np.ndarray:
        """[M]: probability of each group."""
        return self.toy.probabilities(policy)[self.members].prod(axis=1) * self.orders

    def expected(self, policy: np.ndarray, denominator: Denominator = "constant", batch: int = 1) -> np.ndarray:
        """[S, A]: exact expectation of the update (ascent direction) of a batch of ``batch`` groups of this request.

        constant: sum over kept tokens / rollouts. sequence: mean over rollouts of (sum / kept tokens of the rollout).
        tokens: sum / kept tokens of the whole batch, whose distribution is that of one group, convolved.
        """
        chance = self.probabilities(policy)
        if denominator == "sequence":
            means = self.weights / np.maximum(self.keep.sum(axis=2, keepdims=True), 1)
            return gradient(chance @ self._table(means) / self.size, policy)
        if denominator == "tokens":
            chance = chance * batch * self._mean_inverse(chance, batch - 1)[self.kept]
            return gradient(chance @ self.table, policy)
        return gradient(chance @ self.table / self.size, policy)

    @cached_property
    def table(self) -> np.ndarray:
        """[M, S * A + 1]: each group's weights by the logit that they act on (the last column is padding)."""
        return self._table(self.weights)

    def _table(self, weights: np.ndarray) -> np.ndarray:
        table = np.zeros((len(self.members), len(self.toy.states) * len(self.toy.actions) + 1))
        np.add.at(table, (np.arange(len(table))[:, None, None], self.toy.cells[self.members]), weights)
        return table

    def _mean_inverse(self, chance: np.ndarray, others: int) -> np.ndarray:
        """[n]: E[1 / max(n + kept tokens of ``others`` further groups, 1)] for n = 0, 1, ..."""
        one = np.bincount(self.kept, weights=chance)
        total = np.ones(1)
        for _ in range(others):
            total = np.convolve(total, one)
        counts = np.arange(len(one))[:, None] + np.arange(len(total))[None, :]
        return (total / np.maximum(counts, 1)).sum(axis=1)

    def noise(self, policy: np.ndarray) -> float:
        """Standard deviation of one group's update (constant denominator) over the length of its expectation."""
        mean = self.expected(policy)
        updates = gradient(self.table / self.size, policy)
        variance = self.probabilities(policy) @ ((updates - mean) ** 2).sum(axis=(1, 2))
        length = np.linalg.norm(mean)
        return float(np.sqrt(variance) / length) if length > 0 else float("nan")


def gradient(table: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """[..., S * A + 1] weights by logit -> [..., S, A]: sum of weight x d log pi(action) / d logits."""
    table = table[..., :-1].reshape(*table.shape[:-1], *policy.shape)
    return table - table.sum(axis=-1, keepdims=True) * policy


def _orders(row: list[int]) -> int:
    """In how many orders the members of a group can be drawn."""
    count = factorial(len(row))
    for member in set(row):
        count //= factorial(row.count(member))
    return count


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Of the angle between two updates; NaN if one is zero."""
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float((a * b).sum()) / lengths if lengths > 1e-12 else float("nan")
