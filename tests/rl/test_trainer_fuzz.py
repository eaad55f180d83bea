"""Faulty turns through the trainer itself: TRL parses each first turn before ours, and nothing may end the run."""

import importlib.util
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autotools.config import load_config
from autotools.rundir import RunDir
from autotools.schema import EventKind, StopReason
from autotools.search.answer import NameIndex
from autotools.search.parser import parse_turn
from retriever.corpus import load_tools
from rl import run
from rl.train import SECTIONS

TEMPLATES = ["qwen2_5", "qwen3", "qwen3_instruct_2507"]
# What a JSON parser or a template could stumble over, beside the turns of tests/autotools/search/test_fuzz.py
NASTY = [
    "<tool_call>\n3\n</tool_call>", "<tool_call>\n[]\n</tool_call>", '<tool_call>\n[["name"]]\n</tool_call>',
    '<tool_call>\n{"function": 3}\n</tool_call>', "<tool_call>\n" + "[" * 3000 + "\n</tool_call>",
    '<tool_call>\n{"name": "search", "arguments": ' + "[" * 3000 + "\n</tool_call>", "<tool_call></tool_call>",
    "</tool_call>\n</tool_call>", "</think></think>", "<think><think>", '<tool_call>\n"\n</tool_call>',
    '<tool_call>\n{"name": {"a": 1}, "arguments": {}}\n</tool_call>', "<tool_call>\nnull\n</tool_call>",
    '<tool_call>\n{"arguments": null, "name": null}\n</tool_call>', "<tool_call>\n" + "9" * 5000 + "\n</tool_call>",
]  # fmt: skip


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    """The makers of faulty turns of known kind."""
    path = Path(__file__).parents[1] / "autotools" / "search" / "test_fuzz.py"
    spec = importlib.util.spec_from_file_location("search_fuzz", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(world: Path, argv: list[str], folder: Path, template: str) -> Any:
    """A trainer whose tokenizer has TRL's own text of ``template``."""
    from trl import chat_template_utils

    from autotools.llm.loading import load_model

    config = load_config(argv, SECTIONS, prog="test", description="")
    names = NameIndex(spec.id for spec in load_tools(str(world)))
    rows, _ = run.read_prompts(world, names)
    model, tokenizer = load_model(str(world / "model"))
    tokenizer.chat_template = getattr(chat_template_utils, f"{template}_chat_template")
    start = (model, tokenizer, None, run._search_batch(str(world), "bm25"))
    trainer = run._trainer(config, run.trainer_config(config), rows, names, RunDir(folder), start)
    trainer.model.train()
    return trainer


@pytest.mark.parametrize(
    ("template", "turns"),
    [*((template, 300) for template in TEMPLATES), pytest.param("qwen2_5", 10_000, marks=pytest.mark.slow)],
)
def test_no_faulty_turn_ends_the_run(
    template: str,
    turns: int,
    fuzz: ModuleType,
    small_world: Path,
    rl_argv: Callable[..., list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every rollout comes back with its events, each under the kind that it was made as; the loss is a number."""
    from trl import GRPOTrainer

    argv = rl_argv(small_world, tmp_path, record_every=0, search__total_tokens=40_000, search__max_turns=4)
    trainer = build(small_world, argv, tmp_path, template)
    rng, said = random.Random(0), 0
    wanted, seen, stops = Counter[EventKind](), Counter[EventKind](), Counter[StopReason]()

    def turn(self: Any, prompt_ids: list, *args: Any, **kwargs: Any) -> tuple[list, None]:
        out = []
        for episode in [e for e in self._episodes() if not e.done]:
            text, kind = rng.choice(fuzz.MAKERS)(rng) if rng.random() < 0.9 else (rng.choice(NASTY), None)
            if kind in (EventKind.SEARCH, EventKind.UNKNOWN_CATEGORY) and len(episode.events) == 3:
                kind = EventKind.OVER_LIMIT
            wanted[kind or parse_turn(text).kind] += 1
            out.append(self._tokenizer(text + "<|im_end|>", add_special_tokens=False)["input_ids"])
        assert len(out) == len(prompt_ids)
        return out, None

    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", turn)
    while said < turns:
        rows = [trainer.train_dataset[i // 4] for i in range(12)]
        out = trainer._generate_and_score_completions(rows)
        assert len(trainer.trajectories) == 12 and out["advantages"].isfinite().all()
        for trajectory in trainer.trajectories:
            seen.update(event.kind for event in trajectory.events)
            stops[trajectory.stop_reason] += 1
        said = seen.total()
    assert seen == wanted
    assert set(stops) == {StopReason.ANSWERED, StopReason.EMPTY_ANSWER, StopReason.TURN_LIMIT}
    logged = trainer._metrics["train"]
    assert sum(logged["fault_share"]) > 0 and not any(logged["dropped_rollouts"])
