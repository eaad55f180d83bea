"""A training step asks the engine once per turn, with the queries of all rollouts that search then, in their order."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autotools.rundir import read_jsonl
from retriever.bm25 import BM25Engine
from retriever.corpus import load_tools
from rl import run, train
from rl import trainer as rl_trainer


def test_queries_of_a_turn_reach_the_engine_in_one_call(
    small_world: Path, rl_argv: Callable[..., list[str]], scripted: ModuleType, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    asked: list[tuple[str, list[str]]] = []

    class Engine(BM25Engine):
        def prefetch(self, queries: Sequence[str]) -> None:
            asked.append(("prefetch", list(queries)))

        def search_batch(self, queries: Sequence[str], *args: Any) -> Any:
            asked.append(("search", list(queries)))
            return super().search_batch(queries, *args)

    monkeypatch.setattr(run, "open_engine", lambda tools, encoder: Engine(load_tools(tools)))
    monkeypatch.setattr(rl_trainer, "ToolSearchTrainer", scripted.ScriptedTrainer)
    assert train.main(rl_argv(small_world, tmp_path / "run", max_steps=1, record_groups=3)) == 0
    events = [row["trajectory"]["events"] for row in read_jsonl(tmp_path / "run" / "trajectories.jsonl")]
    assert len(events) == 12 and max(map(len, events)) == 4
    turns = [
        [e[turn]["query"] for e in events if e[turn : turn + 1] and e[turn]["kind"] == "search"] for turn in range(4)
    ]
    wanted = [queries for queries in turns if queries]
    assert len(wanted) > 1 and max(map(len, wanted)) > 2
    assert asked == [(name, queries) for queries in wanted for name in ("prefetch", "search")]
