"""``python benchmarks/rl_credit.py [--rollouts 1280]``: what the credit of one training step costs.

CPU time of one thread, best of several. The direct loop computes the same numbers rollout by rollout in plain Python
from lists (no numpy scalars in it) and is checked to agree. "From ids" begins with what the searches showed, as text.
The last row but one is all that a step does with finished rollouts: their rewards, facts (which make those texts from
the trajectories), credit and figures; with several ranks each makes facts of its own rollouts only.

Must hold: the arrays at least 10 times the loop, and all from ids under 1 % even of a step of --step_s. A step of so
many rollouts really takes rollouts x --rollout_ms: what one costs the tiny model of the ablation on one core
(benchmarks/rl_step.py), a far smaller model than any that is worth training.
"""

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from autotools.config import load_config, run_main

MUST_HOLD, SHARE_OF_STEP = 10, 0.01
ARRAYS, FROM_IDS, LOOP = "credit from first-found arrays", "credit from ids", "direct Python loop"
EVERYTHING = "rewards, facts, credit, figures"


@dataclass(kw_only=True)
class BenchArgs:
    """Keys of the command."""

    rollouts: int = field(default=1280, metadata={"help": "rollouts of a step"})
    group: int = field(default=5, metadata={"help": "rollouts of a group"})
    events: int = field(default=8, metadata={"help": "searches of a rollout"})
    targets: int = field(default=5, metadata={"help": "targets of a request"})
    hits: int = field(default=5, metadata={"help": "hits of a search"})
    repeats: int = field(default=20, metadata={"help": "measurements; the best counts"})
    step_s: float = field(default=1.0, metadata={"help": "length of a very small training step, seconds"})
    rollout_ms: float = field(default=29.0, metadata={"help": "cost of a rollout in a tiny model, milliseconds"})
    seed: int = field(default=0, metadata={"help": "seed of the rollouts"})


def main(argv: list[str] | None = None) -> int:
    """Print the table; returns 0, or 1 if what must hold does not."""
    config = load_config(argv, {"": BenchArgs}, prog="benchmarks/rl_credit.py", description=__doc__ or "")
    args = config.top(BenchArgs)
    if config.dry_run:
        print(f"would compute the credit of {args.rollouts} rollouts {args.repeats} times in each way")
        return 0
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from rich.console import Console
    from rich.table import Table

    measured = measure(args)
    loop, real_s = measured[LOOP], args.rollouts * args.rollout_ms / 1000
    table = Table()
    for title in ("way", "ms", "x loop", f"% of {args.step_s:g} s", f"% of {real_s:.0f} s"):
        table.add_column(title, no_wrap=True, justify="left" if title == "way" else "right")
    table.title = f"{args.rollouts} rollouts x {args.events} searches x {args.targets} targets"
    for way, seconds in measured.items():
        table.add_row(
            way,
            f"{1000 * seconds:.2f}",
            f"{loop / seconds:.1f}" if way in (ARRAYS, LOOP) else "-",
            *(f"{100 * seconds / step:.3f}" for step in (args.step_s, real_s)),
        )
    Console().print(table)
    ratio, share = loop / measured[ARRAYS], measured[FROM_IDS] / args.step_s
    holds = ratio >= MUST_HOLD and share < SHARE_OF_STEP
    print(f"at least {MUST_HOLD} x the loop and under 1 % of a step: {'yes' if holds else 'NO'}")
    return 0 if holds else 1


def measure(args: BenchArgs) -> dict[str, float]:
    """``{way: seconds}``; the loop is the last row. Raises AssertionError if it gives other numbers."""
    import numpy as np

    from rl.credit import event_credit, first_found, outcome_credit, pack_rollouts
    from rl.credit_options import PAPER, CreditOptions
    from rl.facts import rollout_facts
    from rl.metrics import step_metrics
    from rl.rewards import RewardOptions, reward_parts

    rollouts = make_rollouts(args)
    trajectories = [as_trajectory(r) for r in rollouts]
    names = {i: str(i) for r in rollouts for i in [*r["targets"], *(i for s in r["shown"] for i in s)]}  # one text each
    texts = [([names[i] for i in r["targets"]], [[names[i] for i in s] for s in r["shown"]]) for r in rollouts]
    found = [first_found(r["shown"], r["targets"]) + [[]] * r["answered"] for r in rollouts]
    columns = list(zip(*[(len(r["targets"]), r["answered"], r["reward"], r["group"]) for r in rollouts], strict=True))
    batch, paper = pack_rollouts(found, *columns), PAPER
    rewards = RewardOptions()
    signed = CreditOptions(signed_search=0.1, useless_cost=0.1, unanswered_cost=1.0)

    def from_texts() -> Any:
        found = [first_found(shown, targets) for targets, shown in texts]
        for events, answered in zip(found, columns[1], strict=True):
            if answered:
                events.append([])
        return event_credit(pack_rollouts(found, *columns), paper)

    def everything() -> Any:
        facts = [rollout_facts(t, reward_parts(t, rewards), max_turns=args.events + 1) for t in trajectories]
        shown = [f.found for f in facts], [f.num_targets for f in facts], [f.answered for f in facts]
        credit = event_credit(pack_rollouts(*shown, *columns[2:]), paper)
        return credit, step_metrics(facts, credit, group_size=args.group)

    credit, loop = event_credit(batch, paper), direct_loop(found, *columns)
    for i, row in enumerate(loop):
        np.testing.assert_allclose(credit.advantages[i, : len(row)], [a for a, _ in row], atol=1e-9)
        assert credit.keep[i, : len(row)].tolist() == [kept for _, kept in row]
    assert (everything()[0].advantages == credit.advantages).all()
    assert (from_texts().advantages == credit.advantages).all()
    return {
        ARRAYS: best(lambda: event_credit(batch, paper), args.repeats),
        "with signed search and both costs": best(lambda: event_credit(batch, signed), args.repeats),
        "outcome credit (grpo)": best(lambda: outcome_credit(batch, paper), args.repeats),
        "lists of first found to arrays": best(lambda: pack_rollouts(found, *columns), args.repeats),
        FROM_IDS: best(from_texts, args.repeats),
        EVERYTHING: best(everything, max(args.repeats // 4, 1)),
        LOOP: best(lambda: direct_loop(found, *columns), max(args.repeats // 4, 1)),
    }


def make_rollouts(args: BenchArgs) -> list[dict[str, Any]]:
    """Rollouts whose searches show ``hits`` tools, on average one unseen target in two searches."""
    from autotools.schema import ToolId

    rng = random.Random(args.seed)
    tools = [ToolId(category=f"C{i % 20}", tool=f"tool_{i // 4}", api=f"api_{i}") for i in range(2000)]
    out: list[dict[str, Any]] = []
    for number in range(args.rollouts):
        group = number // args.group
        targets = out[-1]["targets"] if number % args.group else rng.sample(tools, args.targets)
        shown = [
            rng.sample(targets, min(rng.choice((0, 0, 1, 1)), len(targets))) + rng.sample(tools, args.hits)
            for _ in range(args.events)
        ]
        shown = [rng.sample(ids[: args.hits], min(args.hits, len(ids))) for ids in shown]
        row = {"targets": targets, "shown": shown, "group": group, "answered": rng.random() < 0.8}
        out.append(row | {"reward": rng.choice((0.0, 0.5, 2 / 3, 1.0))})
    return out


def as_trajectory(rollout: dict[str, Any]) -> Any:
    """The rollout as the episode records it; hits are objects of their own, as the retriever gives them."""
    from autotools.schema import Event, EventKind, StopReason, Trajectory

    events = [Event(kind=EventKind.SEARCH, text="", query="q", hits=tuple(ids)) for ids in rollout["shown"]]
    if rollout["answered"]:
        events.append(Event(kind=EventKind.ANSWER, text=""))
    return Trajectory(
        task_id="t",
        query="q",
        targets=tuple(rollout["targets"]),
        events=tuple(events),
        selection=() if rollout["answered"] else None,
        stop_reason=next(iter(StopReason)),
    )


def direct_loop(
    found: list[list[list[int]]], num_targets: Any, answered: Any, rewards: Any, groups: Any
) -> list[list[tuple[float, bool]]]:
    """The default credit, rollout by rollout: [(advantage, kept)] per event."""
    members: dict[int, list[int]] = {}
    for i, group in enumerate(groups):
        members.setdefault(group, []).append(i)
    out: list[list[tuple[float, bool]]] = [[] for _ in found]
    for rows in members.values():
        saw = {i: {t for event in found[i] for t in event} for i in rows}
        targets = range(num_targets[rows[0]])
        z = [_zscore(1.0, [float(t in saw[i]) for i in rows]) for t in targets]
        mastered = [all(t in saw[i] for i in rows) for t in targets]
        outcomes = [rewards[i] for i in rows]
        for i in rows:
            complete = len(saw[i]) == num_targets[i]
            for e, new in enumerate(found[i]):
                if answered[i] and e == len(found[i]) - 1:
                    out[i].append((_zscore(rewards[i], outcomes), True) if complete else (0.0, False))
                elif new:
                    out[i].append((max(z[t] for t in new), not all(mastered[t] for t in new)))
                else:
                    out[i].append((0.0, False))
    return out


def _zscore(value: float, values: list[float]) -> float:
    mean = sum(values) / len(values)
    deviation = (sum((v - mean) ** 2 for v in values) / max(len(values) - 1, 1)) ** 0.5
    return (value - mean) / (deviation + 1e-6) if deviation >= 1e-6 else 0.0


def best(call: Callable[[], Any], repeats: int) -> float:
    """Lowest CPU time of a call, seconds: what other processes of the machine add is not ours."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


if __name__ == "__main__":
    run_main(main)
