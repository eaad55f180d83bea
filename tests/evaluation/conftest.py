"""A made-up finished run, written through the real writers, for the tests of scores and report; a world to play in."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotools.rundir import write_jsonl
from autotools.schema import Event, EventKind, StopReason, Task, ToolId, ToolSpec, Trajectory
from evaluation.selection import compare, score_tasks

EVIL = '<script>alert("x")</script> & <img src=http://evil.example/x.png>'

WALL_S = {"world": 9.3, "sft": 64.2, "rl": 45.0, "sft_longer": 50.5, "eval": 12.1}
SMALL_METRICS = {  # constant over the run: start and end of a curve are this very number
    "useless_searches": 0.441, "match_given_complete": 0.642, "malformed_turns": 0.043,
    "credit/kept_token_share": 0.544, "frac_reward_zero_std": 0.245, "entropy": 0.146,
}  # fmt: skip


def tool(number: int) -> ToolId:
    return ToolId(category="Travel", tool="hotel_desk", api=f"price_{number}")


def rollout(rng: random.Random, number: int, skill: float) -> Trajectory:
    """A request with one to three targets; each is found, then selected, with chance ``skill``."""
    level = ("I1", "I2", "I3")[number % 3]
    targets = tuple(tool(number * 10 + i) for i in range({"I1": 1, "I2": 2, "I3": 3}[level]))
    events, found = [], []
    for target in targets:
        hits = [tool(9000 + rng.randrange(500)) for _ in range(4)]
        if rng.random() < skill:
            hits.insert(rng.randrange(5), target)
            found.append(target)
        query = EVIL if number == 0 else f"what a room costs tonight {number}"
        shown = f"1. {hits[0]}: {EVIL if number == 0 else 'a price'}"
        events.append(Event(kind=EventKind.SEARCH, text=query, query=query, hits=tuple(hits[:5]), observation=shown))
    selection = [t if rng.random() < skill else events[0].hits[0] for t in found] or [tool(1)]
    answered = rng.random() < 0.95
    kind = EventKind.ANSWER if answered else EventKind.MALFORMED_CALL
    events.append(Event(kind=kind, text="<tool_list>...</tool_list>"))
    return Trajectory(
        task_id=f"task-{number}", query=EVIL if number == 0 else f"Please find what room {number} costs, then book it.",
        targets=targets, events=tuple(events), selection=tuple(dict.fromkeys(selection)) if answered else None,
        unknown_names=(EVIL,) if number == 0 else (), level=level,
        stop_reason=StopReason.ANSWERED if answered else StopReason.TURN_LIMIT,
        meta={"domain": "unseen"} if number % 7 == 6 else {},
    )  # fmt: skip


def write_run(out: Path, tasks: int = 90, steps: int = 45) -> Path:
    """World, SFT, RL and evaluation files of one made-up run."""
    policies = {"bm25_oneshot": 0.4, "before": 0.6, "sft_longer": 0.65, "after": 0.85}
    runs = {
        name: score_tasks([rollout(random.Random(f"{name}{i}"), i, skill) for i in range(tasks)])
        for name, skill in policies.items()
    }
    rows = []
    for step in range(1, steps + 1):
        for number in range(4):
            task = 0 if step == 1 else step * 4 + number
            trajectory = rollout(random.Random(f"rl{step}{number}"), task, 0.4 + step / 90)
            credit = [{"advantage": 0.5 - i, "kept": i != 1, "z": {str(trajectory.targets[0]): 1.095}}
                      for i in range(len(trajectory.events))]  # fmt: skip
            rows.append({"step": step, "group": number, "rollout": 0, "trajectory": trajectory.model_dump(mode="json"),
                         "rewards": {"f1": 0.5, EVIL: 1.0}, "credit": credit})  # fmt: skip
    record = {"command": f"train.py --title {EVIL}", "commit": "0" * 40, "versions": {"torch": "2.13.0"}, "seed": 0,
              "started": "2026-01-01T00:00:00Z"}  # fmt: skip
    search = {"I2": {"one_shot_f1": 0.31, "best_k": 3, "n": 9}, "I3": {"one_shot_f1": 0.22, "best_k": 2, "n": 8}}
    counts = {"tools": 108, "tasks": 3100, "functions": {"total": 108, "verified": 107}, "search": search}
    world = {"stage": "world", "inputs": {"declared.json": "ab" * 32}, "seed": 0, "counts": counts,
             "versions": {"python": "3.11.2"}}  # fmt: skip
    rng = random.Random(0)
    sft = [{"step": 10 * i, "loss": 3 / i + rng.random() / 5} for i in range(1, 46)]
    rl = [
        {
            "step": i,
            "reward": 0.3 + i / 150 + rng.random() / 8,
            "reward_f1": 0.3 + i / 160,
            "srecall": 0.6 + i / 200,
            "searches": 1.5 + rng.random() / 9,
            "answered": "nan" if i == 3 else 0.97,
            **SMALL_METRICS,
        }
        for i in range(1, steps + 1)
    ]
    for folder in ("world", "sft", "rl", "eval"):
        (out / folder).mkdir(parents=True)
    (out / "world" / "manifest.json").write_text(json.dumps(world))
    for folder in ("sft", "rl", "eval"):
        (out / folder / "run.json").write_text(json.dumps(record))
    (out / "eval" / "metrics.json").write_text(json.dumps({"seed": 0, **compare(runs, seed=0)}))
    (out / "summary.json").write_text(json.dumps({"wall_s": WALL_S}))
    memory = {
        "peak_bytes": 3_704_000_000,
        "stages": {"world": 125_800_000, "sft": 1_668_900_000, "rl": 1_792_900_000, "sft_longer": 1_955_200_000},
        "steps": [["world"], ["sft"], ["rl", "sft_longer"], ["eval"]],
    }
    (out / "logs").mkdir()
    (out / "logs" / "memory.json").write_text(json.dumps(memory))
    (out / "run.json").write_text(json.dumps({**record, "command": "python launch/quickstart.py --seed 0"}))
    write_jsonl(out / "world" / "functions.jsonl", [{"name": "a", "verified": True}, {"name": "b", "verified": False}])
    write_jsonl(out / "sft" / "metrics.jsonl", sft)
    write_jsonl(out / "rl" / "metrics.jsonl", rl)
    write_jsonl(out / "rl" / "trajectories.jsonl", rows)
    return out


@pytest.fixture(scope="session")
def made_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "made")


# --- a world whose requests name their nouns ----------------------------------------------------------------------

NOUNS = ("hotel", "train", "museum", "ferry", "tram", "cinema")


def noun_tool(noun: str, verb: str) -> ToolId:
    return ToolId(category="Travel", tool=f"{noun}_desk", api=verb)


@pytest.fixture
def nouns_world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve tools; each request names its noun, so its tool is the first hit; one task has a target too many."""
    folder = tmp_path_factory.mktemp("world")
    specs = [
        ToolSpec(id=noun_tool(n, v), tool_name=f"{n} desk", api_name=v, description=f"{v} of one {n}", method="GET")
        for n in NOUNS
        for v in ("price", "address")
    ]
    write_jsonl(folder / "tools.jsonl", specs)
    for split in ("dev", "test"):
        tasks = [
            Task(id=f"{split}-{noun}", suite="toolworld", split=split, level="I1", query=f"the price of one {noun}",
                 targets=(noun_tool(noun, "price"),), meta={"domain": "unseen"} if noun == "tram" else {})
            for noun in NOUNS
        ]  # fmt: skip
        tasks.append(
            Task(id=f"{split}-lost", suite="toolworld", split=split, level="I2", query="x",
                 targets=(noun_tool("hotel", "price"), noun_tool("moon", "price")))
        )  # fmt: skip
        write_jsonl(folder / "tasks" / f"{split}.jsonl", tasks)
    return folder


@pytest.fixture
def noun_model() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A model behind an endpoint that solves every request of ``nouns_world``: one search, then the answer."""

    def complete(body: dict[str, Any]) -> dict[str, Any]:
        noun = next(noun for noun in NOUNS if noun in body["messages"][1]["content"])
        message: dict[str, Any] = {"role": "assistant", "content": f"<tool_list>{noun_tool(noun, 'price')}</tool_list>"}
        if body["messages"][-1]["role"] == "user":
            function = {"name": "search", "arguments": json.dumps({"query": f"{noun} price"})}
            message = {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": function}]}
        return {"choices": [{"message": message, "finish_reason": "stop"}]}

    return complete
