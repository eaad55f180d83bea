"""Every row of the table trains; the TRL settings that come with it; dropped rollouts; LoRA, reference, vLLM keys."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autotools.config import load_config
from autotools.errors import ConfigError, RetrieverError
from autotools.rundir import read_jsonl
from autotools.search.prompt import answer_text, call_text
from rl import run, train
from rl.algorithms import ALGORITHMS

Argv = Callable[..., list[str]]
SMALL = {"per_device_train_batch_size": 6, "gradient_accumulation_steps": 2}


def trl_config(argv: list[str]) -> Any:
    return run.trainer_config(load_config(argv, train.SECTIONS, prog="test", description=""))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_algorithm_trains_two_steps(
    name: str,
    small_world: Path,
    rl_argv: Argv,
    tmp_path: Path,
    scripted: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On forced turns, two of which find targets and answer: every method must see a difference, and move."""
    from safetensors.torch import load_file

    from rl import trainer

    monkeypatch.setattr(trainer, "ToolSearchTrainer", scripted.ScriptedTrainer)

    argv = rl_argv(small_world, tmp_path / "run", algorithm=name, num_iterations=2, **SMALL)
    assert train.main(argv) == 0
    rows = [row for row in read_jsonl(tmp_path / "run" / "metrics.jsonl") if "reward" in row]
    assert len(rows) == 1 and rows[0]["dropped_rollouts"] == 0  # one generation for two steps
    start, end = (load_file(folder / "model.safetensors") for folder in (small_world / "model", tmp_path / "run"))
    assert all(value.isfinite().all() for value in end.values())
    assert any((start[key] != end[key]).any() for key in end)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("toolsearcher", ("dapo", "token", 0.2, None)),
        ("grpo", ("grpo", "token", 0.2, None)),
        ("gspo", ("grpo", "sequence", 3e-4, 4e-4)),
        ("gdpo", ("dapo", "token", 0.2, None)),
        ("rloo", ("dapo", "token", 0.2, None)),
        ("marag", ("dapo", "token", 0.2, None)),
        ("event_grpo", ("dapo", "token", 0.2, None)),
        ("to_go", ("dapo", "token", 0.2, None)),
    ],
)
def test_settings_of_each_row(name: str, settings: tuple[Any, ...], small_world: Path, rl_argv: Argv) -> None:
    config = trl_config(rl_argv(small_world, "out", algorithm=name))
    assert (config.loss_type, config.importance_sampling_level, config.epsilon, config.epsilon_high) == settings
    assert config.beta == 0.0
    assert trl_config(rl_argv(small_world, "out", algorithm=name, epsilon=0.3)).epsilon == 0.3  # what is set, wins


@pytest.mark.parametrize("mode", ["colocate", "server"])
def test_vllm_modes_are_trls_own_keys(mode: str, small_world: Path, rl_argv: Argv) -> None:
    """Not run here (no GPU, no vLLM): the configuration objects build, and the turn budget has vLLM's name."""
    keys = {"vllm_mode": mode, "use_vllm": True, "vllm_gpu_memory_utilization": 0.5, "vllm_server_port": 1360}
    config = trl_config(rl_argv(small_world, "out", **keys))
    assert (config.use_vllm, config.vllm_mode, config.vllm_server_port) == (True, mode, 1360)
    assert config.generation_kwargs == {"max_tokens": 12}


def test_without_vllm_it_is_said_in_one_line(
    small_world: Path, rl_argv: Argv, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if importlib.util.find_spec("vllm"):
        pytest.skip("vLLM is installed here")
    argv = rl_argv(small_world, tmp_path / "run", use_vllm=True)
    with pytest.raises(ConfigError, match="key 'use_vllm' is true, but vLLM is not installed"):
        train.main(argv)
    assert train.main([*argv, "--dry_run"]) == 0  # the machine that is planned for may have it
    assert "vLLM beside the trainer" in capsys.readouterr().out
    assert not (tmp_path / "run").exists()


NO_THOUGHT = "<think>\n\n</think>\n\n"


@pytest.mark.parametrize(
    ("template", "options"),
    [("qwen2_5", None), ("qwen3", None), ("qwen3", {"enable_thinking": False}), ("qwen3_instruct_2507", None)],
)
def test_templates_with_and_without_thinking(
    template: str,
    options: dict[str, bool] | None,
    small_world: Path,
    rl_argv: Argv,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A policy that thinks, searches twice and answers, under each template: what it reads, and what is trained."""
    import json
    import shutil

    from transformers import AutoTokenizer
    from trl import chat_template_utils

    model = tmp_path / "model"
    shutil.copytree(small_world / "model", model)
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = getattr(chat_template_utils, f"{template}_chat_template")
    tokenizer.save_pretrained(model)
    think = "" if template != "qwen3" or options else "<think>\nI call " + call_text("not this") + "\n</think>\n\n"
    contexts: list[str] = []
    monkeypatch.setattr(rl_trainer(), "_generate_single_turn", all_search(2, think=think, contexts=contexts))
    argv = rl_argv(small_world, tmp_path / "run", model=model, max_steps=1, credit__esm=False, credit__tca=False)
    words = ["--chat_template_kwargs", json.dumps(options)] if options else []
    assert train.main([*argv, *words]) == 0
    start = "<|im_start|>assistant\n" + (NO_THOUGHT if options else "")
    shown = "\n<|im_start|>user\n<tool_response>\n"
    last = contexts[-1]
    assert last.endswith("</tool_response><|im_end|>\n" + start) and last.count(start) == 3
    assert last.count(start + think + "<tool_call>") == 2 and last.count("<|im_end|>" + shown) == 2
    for row in read_jsonl(tmp_path / "run" / "trajectories.jsonl"):
        events = row["trajectory"]["events"]
        assert [event["kind"] for event in events] == ["search", "search", "answer"]
        assert "not this" not in str([event["query"] for event in events])
        assert ["".join(c["tokens"]) for c in row["credit"]] == [event["text"] + "<|im_end|>" for event in events]
        assert all(event["text"].startswith(think) for event in events)


@pytest.mark.parametrize("lora", [0, 2], ids=["full", "lora"])
def test_with_a_reference_model(lora: int, small_world: Path, rl_argv: Argv, tmp_path: Path) -> None:
    argv = rl_argv(small_world, tmp_path / "run", beta=0.1, learning_rate=1e-2, lora__r=lora, **SMALL)
    assert train.main([*argv, "--credit.useless_cost", "0.1"]) == 0
    kl = [row["kl"] for row in read_jsonl(tmp_path / "run" / "metrics.jsonl") if "kl" in row]
    assert kl[0] == pytest.approx(0, abs=1e-6) and kl[1] > 1e-6
    assert (tmp_path / "run" / "adapter_config.json").exists() == bool(lora)


def test_searches_of_a_turn_are_one_prefetch_and_one_search(
    small_world: Path, rl_argv: Argv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never more calls than turns, and every query of a rollout was in one of them."""
    from retriever.bm25 import BM25Engine

    calls: list[tuple[str, list[str]]] = []
    inner = BM25Engine.search_batch

    def search_batch(self: Any, queries: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(("search", list(queries)))
        return inner(self, queries, *args, **kwargs)

    monkeypatch.setattr(BM25Engine, "search_batch", search_batch)
    monkeypatch.setattr(BM25Engine, "prefetch", lambda self, queries: calls.append(("prefetch", list(queries))))
    monkeypatch.setattr(rl_trainer(), "_generate_single_turn", all_search(2))
    train.main(rl_argv(small_world, tmp_path / "run", max_steps=1))
    first, second = calls[:2], calls[2:]
    for (kind, asked), (other, queries) in (first, second):
        assert (kind, other) == ("prefetch", "search") and asked == queries and len(asked) == 12


def rl_trainer() -> Any:
    from rl.trainer import ToolSearchTrainer

    return ToolSearchTrainer


def all_search(rounds: int, think: str = "", contexts: list[str] | None = None) -> Callable[..., Any]:
    """A policy that searches ``rounds`` times and then answers; it keeps what it reads in ``contexts``."""

    def turns(self: Any, prompt_ids: list, *args: Any, **kwargs: Any) -> tuple[list, None]:
        if contexts is not None:
            contexts.extend(self._tokenizer.decode(ids) for ids in prompt_ids)
        live = [episode for episode in self._episodes() if not episode.done]
        end = self._renderer.end_of_turn
        texts = [
            call_text(f"lyrics of a song {i}") if len(e.events) < rounds else answer_text(["Music.song_box.lyrics"])
            for i, e in enumerate(live)
        ]
        return [self._tokenizer(think + text + end, add_special_tokens=False)["input_ids"] for text in texts], None

    return turns


@pytest.mark.parametrize("algorithm", ["toolsearcher", "grpo"])
def test_a_failed_search_drops_its_rollout(
    algorithm: str, small_world: Path, rl_argv: Argv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from retriever.bm25 import BM25Engine

    inner = BM25Engine.search_batch

    def breaking(self: Any, queries: Any, *args: Any, **kwargs: Any) -> Any:
        if any(q.endswith(" 7") for q in queries):
            raise RetrieverError("no vector for this query")
        return inner(self, queries, *args, **kwargs)

    monkeypatch.setattr(BM25Engine, "search_batch", breaking)
    monkeypatch.setattr(rl_trainer(), "_generate_single_turn", all_search(1))
    argv = rl_argv(small_world, tmp_path / "run", max_steps=1, algorithm=algorithm, beta=0.01)
    train.main(argv)
    (row,) = [row for row in read_jsonl(tmp_path / "run" / "metrics.jsonl") if "reward" in row]
    assert row["dropped_rollouts"] == 1 and row["answered"] == 1.0 and row["loss"] == row["loss"]
    said = capsys.readouterr().err
    assert "a failed search drops 1 rollouts of p" in said and "no vector for this query" in said
    with pytest.raises(RetrieverError, match="dropped 1 of 12 rollouts, more than max_dropped_share 0.05"):
        train.main([*argv, "--overwrite", "true", "--max_dropped_share", "0.05"])


def test_help_lists_the_algorithms(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        train.main(["--help"])
    said = capsys.readouterr().out.partition("--algorithm")[2].splitlines()[1]
    assert [word.split()[0] for word in said.split("|")] == list(ALGORITHMS)
