"""A ten-tool search world on disk and a tiny model in it, small enough that a training step takes a blink."""

import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autotools.rundir import write_jsonl, write_manifest
from autotools.schema import ToolSpec

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")


@pytest.fixture(scope="session")
def scripted() -> ModuleType:
    """``scripted_run.py`` as a module: the two-rank runs start it as a file, the trainer's tests use its classes."""
    spec = importlib.util.spec_from_file_location("scripted_run", Path(__file__).with_name("scripted_run.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def small_world(tmp_path_factory: pytest.TempPathFactory, ten_tools: list[ToolSpec]) -> Path:
    """Folder with tools.jsonl, rl/train.jsonl (requests for two tools), their manifest, and model/."""
    from training.tiny import TinyConfig, build_model, build_tokenizer, tool_id_pieces

    folder = tmp_path_factory.mktemp("world")
    write_jsonl(folder / "tools.jsonl", ten_tools)
    pairs = [(i, (i + 3) % len(ten_tools)) for i in range(len(ten_tools))]
    rows = [
        {
            "id": f"p{a}",
            "query": " and ".join(ten_tools[i].description for i in (a, b)),
            "targets": [str(ten_tools[i].id) for i in (a, b)],
            "level": "I3",
        }
        for a, b in pairs
    ]
    write_jsonl(folder / "rl" / "train.jsonl", rows)
    write_manifest(folder, stage="data", inputs=[folder / "tools.jsonl"], counts={"prompts": len(rows)}, seed=0)
    config = TinyConfig(
        hidden_size=32, intermediate_size=64, num_layers=1, num_heads=2, max_position_embeddings=1024,
        curriculum_prompts=True,
    )  # fmt: skip
    texts = [spec.description for spec in ten_tools]
    tokenizer = build_tokenizer(texts, tool_id_pieces(str(spec.id) for spec in ten_tools), config)
    build_model(tokenizer, config, 0).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    return folder


def _argv(world: Path, out: Path, **keys: Any) -> list[str]:
    values = {
        "data": world,
        "tools": world,
        "model": world / "model",
        "output_dir": out,
        "max_steps": 2,
        "per_device_train_batch_size": 12,
        "num_generations": 4,
        "learning_rate": 1e-3,
        "beta": 0.0,
        "save_strategy": "no",
        "seed": 1,
        "record_every": 1,
        "search.top_k": 3,
        "search.max_turns": 4,
        "search.turn_tokens": 12,
        "search.total_tokens": 300,
        "search.document_chars": 40,
        **{key.replace("__", "."): value for key, value in keys.items()},
    }
    return [word for key, value in values.items() for word in (f"--{key}", str(value))]


@pytest.fixture(scope="session")
def rl_argv() -> Callable[..., list[str]]:
    """(world, out, key=value, section__key=value) -> command line of rl/train.py.

    By default 3 prompts x 4 rollouts a step, and four turns of at most 12 tokens.
    """
    return _argv


class Killed(BaseException):
    """Stands for SIGKILL: no handler of ours or of TRL's may catch it."""


@pytest.fixture
def killed_at() -> Callable[[int], AbstractContextManager[None]]:
    """(step) -> context in which a training run must be killed while that step is computed."""

    @contextmanager
    def kill(step: int) -> Iterator[None]:
        from rl.trainer import ToolSearchTrainer

        inner = ToolSearchTrainer.training_step

        def stop(self: Any, *args: Any, **kwargs: Any) -> Any:
            if self.state.global_step == step:
                raise Killed
            return inner(self, *args, **kwargs)

        with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
            patch.setattr(ToolSearchTrainer, "training_step", stop)
            yield

    return kill
