"""``python benchmarks/estimator_study.py``: is the expected update of each credit the gradient it claims to be?

Exact, by enumeration: a toy search problem (benchmarks/estimator_toy.py), every group of rollouts, and the real
functions of rl/. Objectives: R = expected reward of the answer, S = expected share of targets shown (SRecall). Tables:

1. per credit: cosine of the expected update with the gradient of R, of S, and of P(answered); its noise and length;
2. per denominator of the loss: the cosine with the gradient of R;
3. where the expected updates lead if each search succeeds with probability 1/2, without any sampling noise.

A cosine of 1 means: no bias, but for a factor. Noise: standard deviation of one group's update over the length of its
mean. One action is one token. The tables are markdown.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from autotools.config import load_config, run_main

if TYPE_CHECKING:
    import numpy as np
    from estimator_toy import Groups, Toy

POLICIES = {  # weights of find a, find b, miss, right, wrong: while targets are missing, and when all were seen
    "sparse": ([0.1, 0.1, 0.5, 0.1, 0.2], [0.1, 0.1, 0.3, 0.3, 0.2]),
    "even": ([0.2, 0.2, 0.2, 0.2, 0.2], [0.2, 0.2, 0.2, 0.2, 0.2]),
    "skilled": ([0.35, 0.35, 0.1, 0.15, 0.05], [0.05, 0.05, 0.05, 0.7, 0.15]),
}
DENOMINATORS = [("constant", "constant", 1), ("sequence mean", "sequence", 1)] + [
    (f"token mean, {batch} group{'s' * (batch > 1)}", "tokens", batch) for batch in (1, 4, 12)
]
WITH_DENOMINATORS = ("outcome, centred", "outcome / std (grpo)", "esm + tca (ours, paper)", "zero, zero (reference)")
LUCK = 0.5  # of table 3: complete searches stay rare whatever the policy does


@dataclass(kw_only=True)
class StudyArgs:
    """Keys of the command."""

    group: int = field(default=3, metadata={"help": "rollouts of a group in tables 1 and 2 (table 3: 2)"})
    steps: int = field(default=600, metadata={"help": "steps of table 3; 0 leaves it out"})
    step_length: float = field(default=0.05, metadata={"help": "length of such a step in logits"})


def main(argv: list[str] | None = None) -> int:
    """Print the tables; returns 0."""
    config = load_config(argv, {"": StudyArgs}, prog="benchmarks/estimator_study.py", description=__doc__ or "")
    args = config.top(StudyArgs)
    if config.dry_run:
        print(f"would enumerate groups of {args.group} of the toy's trajectories under two rewards")
        return 0
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from estimator_toy import Groups, Toy

    for reward in ("f1", "match"):
        toy = Toy(reward=reward)
        rows = {name: Groups(toy, args.group, credit) for name, credit in credits().items()}
        print(f"\n### Reward {reward}: {len(toy.paths)} trajectories, groups of {args.group}\n")
        print("\n".join([*bias_table(toy, rows), "", *denominator_table(toy, rows)]), flush=True)
        del rows
    if args.steps:
        print("\n" + "\n".join(ascent_table(args)))
    return 0


def credits() -> dict[str, Callable[[Any], Any]]:
    """Name of a row -> the credit of a batch."""
    from rl.credit import event_credit, outcome_credit
    from rl.credit_options import PAPER, CreditOptions
    from rl.credit_to_go import to_go_credit

    def event(**changes: Any) -> Callable[[Any], Any]:
        return lambda batch: event_credit(batch, replace(PAPER, **changes))

    return {
        "outcome, centred": lambda batch: outcome_credit(batch, CreditOptions(std=False)),
        "outcome / std (grpo)": lambda batch: outcome_credit(batch, CreditOptions()),
        "esm + tca (ours, paper)": event(),
        "same, centred": event(std=False),
        "no tca": event(tca=False),
        "no esm": event(esm=False),
        "finished baseline": event(selection_baseline="finished"),
        "zero, zero (reference)": event(incomplete_selection="zero", mastered="zero"),
        "useless_cost 0.1": event(useless_cost=0.1),
        "unanswered_cost 1": event(unanswered_cost=1.0),
        "signed_search 0.1": event(signed_search=0.1),
        "signed_search 1": event(signed_search=1.0),
        "to go, centred": lambda batch: to_go_credit(batch, CreditOptions(std=False)),
        "to go / std": lambda batch: to_go_credit(batch, CreditOptions()),
    }


def bias_table(toy: "Toy", rows: dict[str, "Groups"]) -> Iterator[str]:
    """Table 1; denominator: constant."""
    import numpy as np
    from estimator_toy import cosine

    policies = [toy.policy(*weights) for weights in POLICIES.values()]
    exact = [{k: toy.objective(v, policy) for k, v in toy.statistics().items()} for policy in policies]
    yield _row("cosine R / S / answered, noise, length", POLICIES)
    yield _row("---", ["---"] * len(POLICIES))
    values = [" / ".join(f"{e[k][0]:.3f}" for k in ("reward", "srecall", "answered")) for e in exact]
    yield _row("(R / S / answered of the policy)", values)
    for name, groups in rows.items():
        cells = []
        for policy, e in zip(policies, exact, strict=True):
            update = groups.expected(policy)
            angles = " / ".join(f"{cosine(update, e[k][1]):.3f}" for k in ("reward", "srecall", "answered"))
            cells.append(f"{angles}, {groups.noise(policy):.1f}, {np.linalg.norm(update):.4f}")
        yield _row(name, cells)


def denominator_table(toy: "Toy", rows: dict[str, "Groups"]) -> Iterator[str]:
    """Table 2."""
    from estimator_toy import cosine

    yield _row("cosine with R: credit, policy", [name for name, _, _ in DENOMINATORS])
    yield _row("---", ["---"] * len(DENOMINATORS))
    for name in WITH_DENOMINATORS:
        for start, weights in POLICIES.items():
            policy = toy.policy(*weights)
            _, wanted = toy.objective(toy.rewards, policy)
            updates = [rows[name].expected(policy, way, batch) for _, way, batch in DENOMINATORS]
            yield _row(f"{name}, {start}", [f"{cosine(update, wanted):.3f}" for update in updates])


def ascent_table(args: StudyArgs) -> Iterator[str]:
    """Table 3: R, SRecall, answered share and searches at the end, and the lowest answered share on the way."""
    from estimator_toy import Groups, Toy

    worlds = {
        f"{'blind' if blind else 'sighted'}, {reward}": Toy(reward=reward, blind=blind, luck=LUCK)
        for blind in (True, False)
        for reward in ("match", "f1")
    }
    yield _row(f"R / S / answered / searches, lowest answered; {args.steps} steps of {args.step_length}", worlds)
    yield _row("---", ["---"] * len(worlds))
    for name, credit in credits().items():
        cells = []
        for toy in worlds.values():
            start = toy.policy(*POLICIES["even"])
            end, lowest = ascend(Groups(toy, 2, credit), start, args.steps, args.step_length)
            values = " / ".join(f"{toy.objective(v, end)[0]:.2f}" for v in toy.statistics().values())
            cells.append(f"{values}, {lowest:.3f}")
        yield _row(name, cells)


def ascend(groups: "Groups", policy: "np.ndarray", steps: int, length: float) -> "tuple[np.ndarray, float]":
    """Follow the expected update (constant denominator); the policy at the end, the lowest P(answered) on the way.

    Steps have one length, so that no credit gets more of them than another; but near its end an update of fixed
    length would only swing, so a step is at most 50 times the update itself.
    """
    import numpy as np

    answered, lowest, logits = groups.toy.answer >= 0, 1.0, np.log(policy)
    for _ in range(steps):
        lowest = min(lowest, float(groups.toy.probabilities(policy) @ answered))
        update = groups.expected(policy)
        norm = float(np.linalg.norm(update))
        if norm < 1e-9:
            break
        logits = logits + update * min(length / norm, 50.0)
        policy = np.exp(logits - logits.max(axis=1, keepdims=True))
        policy /= policy.sum(axis=1, keepdims=True)
    return policy, lowest


def _row(first: str, cells: Any) -> str:
    return f"| {first} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    run_main(main)
