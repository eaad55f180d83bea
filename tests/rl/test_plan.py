"""The plan of a run: numbers by hand, from DeepSpeed, from a real model's tensors, and from a real run's step count."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotools.config import Config, load_config
from autotools.errors import ConfigError
from autotools.rundir import read_jsonl, read_manifest, write_jsonl, write_manifest
from autotools.schema import ToolId
from autotools.search.answer import NameIndex
from rl import plan, plan_memory, train
from rl.credit_options import PRESETS, CreditOptions
from rl.plan_differences import Setting, difference_table, settings
from rl.plan_memory import ModelShape, model_shape

ROOT = Path(__file__).resolve().parents[2]
Argv = Callable[..., list[str]]


def loaded(argv: list[str]) -> tuple[Config, Any]:
    from rl.run import trainer_config

    config = load_config(argv, train.SECTIONS, prog="x", description="")
    return config, trainer_config(config)


# --- the model ----------------------------------------------------------------------------------------------------


def counted_by_hand(vocab: int, h: int, f: int, layers: int, q: int, kv: int, tied: bool, qwen2: bool) -> int:
    """Weights of a Qwen2 (biases on q, k, v) or Qwen3 (a norm of 128 on each query and key head) model."""
    attention = h * q + 2 * h * kv + q * h + ((q + 2 * kv) if qwen2 else 2 * 128)
    return vocab * h * (1 if tied else 2) + layers * (attention + 3 * h * f + 2 * h) + h


@pytest.mark.parametrize(
    ("model", "params", "by_hand"),
    [  # the first number as the model's own page gives it in billions
        ("Qwen/Qwen2.5-7B-Instruct", 7.61, (152_064, 3584, 18_944, 28, 3584, 512, False, True)),
        ("some/folder/Qwen3-4B-Instruct-2507", 4.0, (151_936, 2560, 9728, 36, 4096, 1024, True, False)),
        ("Qwen/Qwen3-1.7B", 1.7, (151_936, 2048, 6144, 28, 2048, 1024, True, False)),
    ],
)
def test_built_in_shapes_have_the_published_sizes(model: str, params: float, by_hand: tuple[Any, ...]) -> None:
    shape = model_shape(model)
    assert shape.params == counted_by_hand(*by_hand)
    assert shape.params / 1e9 == pytest.approx(params, abs=0.05)
    assert shape.largest == by_hand[0] * by_hand[1]  # the embedding


def test_name_that_nobody_knows_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"no config of model 'Qwen3-14B'.*qwen2\.5-7b, qwen3-4b, qwen3-1\.7b"):
        model_shape("Qwen3-14B")


def test_shape_of_a_folder_is_that_of_its_loaded_model(small_world: Path) -> None:
    from deepspeed.runtime.zero.stage3 import model_to_params
    from transformers import AutoModelForCausalLM

    shape = model_shape(str(small_world / "model"))
    model = AutoModelForCausalLM.from_pretrained(small_world / "model")
    assert (shape.params, shape.largest) == model_to_params(model)
    assert (shape.layers, shape.hidden, shape.heads) == (1, 32, 2)


def test_lora_count_is_that_of_peft(small_world: Path) -> None:
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM

    from training.lora import LoraArgs

    model = AutoModelForCausalLM.from_pretrained(small_world / "model")
    adapted = get_peft_model(model, LoraArgs(r=5).peft_config())
    trained, _ = adapted.get_nb_trainable_parameters()
    assert plan_memory.lora_params(model_shape(str(small_world / "model")), 5) == trained


# --- memory -------------------------------------------------------------------------------------------------------


def test_zero_states_against_hand_numbers_and_deepspeed() -> None:
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

    billion = 10**9
    states = plan_memory.zero_states_bytes(7 * billion, billion // 2, 8, 2)
    # 7 billion weights over 16 GPUs. 1: weights and gradients whole (4 bytes), 16 split. 2: 2 whole, 18 split.
    assert states == {1: 35 * billion, 2: 21_875_000_000, 3: 9_875_000_000}
    assert states[2] == estimate_zero2_model_states_mem_needs(7 * billion, 8, 2, False)[1]
    assert states[3] == estimate_zero3_model_states_mem_needs(7 * billion, billion // 2, 8, 2, False, False)[1]


@pytest.fixture(scope="module")
def measured() -> tuple[Any, ModelShape]:
    """A two-layer Qwen2 in bf16 whose layers outweigh its embedding, and its shape."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        hidden_size=256, intermediate_size=1024, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=64, max_position_embeddings=512,
    )  # fmt: skip
    model = Qwen2ForCausalLM._from_config(config, dtype=torch.bfloat16)
    numbers = {"layers": 2, "hidden": 256, "intermediate": 1024, "heads": 4, "kv_heads": 2, "head_dim": 64, "vocab": 64}
    return model, ModelShape(params=1, largest=1, linear_in_out=(), **numbers)


def test_kv_cache_is_as_large_as_a_real_one(measured: tuple[Any, ModelShape]) -> None:
    import torch

    model, shape = measured
    cache = model(torch.ones(3, 40, dtype=torch.long), use_cache=True).past_key_values
    held = sum(t.numel() * t.element_size() for layer in cache.layers for t in (layer.keys, layer.values))
    assert plan_memory.kv_bytes_per_token(shape) * 3 * 40 == held
    assert plan_memory.sequences_that_fit(held, shape, 40) == 3
    assert plan_memory.sequences_that_fit(held - 1, shape, 40) == 2
    assert plan_memory.sequences_that_fit(-1, shape, 40) == 0


def test_activations_are_about_what_a_real_model_keeps(measured: tuple[Any, ModelShape]) -> None:
    """Bytes that autograd saves, each tensor once, weights aside; the norms' fp32 copies are what the formula omits."""
    import torch

    model, shape = measured
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    saved: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
        kept.append(tensor)  # or its memory would be used again
        return tensor

    kept: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        model.model(torch.ones(4, 128, dtype=torch.long), use_cache=False)
    formula = plan_memory.activation_bytes(shape, 4, 128, checkpointing=False)
    assert 0.7 < formula / sum(saved.values()) < 1.1
    h, f, q, kv = 256, 1024, 256, 128
    assert formula == 2 * 4 * 128 * 2 * (4 * h + 2 * q + 2 * kv + 4 * f)
    assert plan_memory.activation_bytes(shape, 4, 128, checkpointing=True) == formula // 2 + 4 * 128 * 2 * h * 2


# --- sizes --------------------------------------------------------------------------------------------------------

SHAPES: list[dict[str, Any]] = [
    {"max_steps": -1, "num_train_epochs": 2},  # 12 rollouts: 3 prompts, 3 generations of 10 prompts a pass
    {"max_steps": -1, "num_train_epochs": 1, "num_iterations": 2, "gradient_accumulation_steps": 2},
    {"max_steps": -1, "num_train_epochs": 1, "steps_per_generation": 2, "per_device_train_batch_size": 4},
]


@pytest.mark.parametrize(("keys", "steps"), list(zip(SHAPES, (6, 2, 10), strict=True)), ids=str)
def test_steps_are_those_of_a_real_run(
    keys: dict[str, Any], steps: int, small_world: Path, rl_argv: Argv, tmp_path: Path
) -> None:
    argv = rl_argv(small_world, tmp_path / "run", search__max_turns=1, **keys)
    config, trl_args = loaded(argv)
    assert plan.run_sizes(config, trl_args, 10).steps == steps
    assert train.main(argv) == 0
    assert read_manifest(tmp_path / "run")["counts"]["steps"] == steps


def test_paper_run_has_the_papers_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """14,418 prompts: 56 steps of 256 x 5 (design notes 1.7); the file must not need the machine it is for."""
    monkeypatch.chdir(ROOT)
    for name, gpus in (("paper_8xa100", 8), ("nodes", 32)):
        given = ["--config", f"configs/rl/{name}.yaml", "--deepspeed", "null", "--data", "d", "--tools", "t"]
        config, trl_args = loaded([*given, "--output_dir", "o"])
        sizes = plan.run_sizes(config, trl_args, 14_418)
        assert (sizes.gpus, sizes.rollouts_per_generation, sizes.prompts_per_generation) == (gpus, 1280, 256)
        assert (sizes.updates_per_generation, sizes.steps) == (1, 56)
        assert trl_args.get_warmup_steps(56) == 16
        rows = {row.name: row for row in settings(config, trl_args, sizes)}
        differing = {name for name, row in rows.items() if row.differs("paper")}
        assert differing - {"GPUs"} == {"text of a search's hits"}


def test_ranks_that_do_not_divide_are_refused(small_world: Path, rl_argv: Argv, tmp_path: Path) -> None:
    argv = rl_argv(small_world, tmp_path, per_device_train_batch_size=4, plan__gpus_per_node=3)
    config, trl_args = loaded([*argv, "--generation_batch_size", "8"])
    with pytest.raises(ConfigError, match="8 rollouts per generation do not divide .* batches of 12"):
        plan.run_sizes(config, trl_args, 10)
    config, trl_args = loaded(argv)
    assert plan.run_sizes(config, trl_args, 10).prompts_per_generation == 3


# --- what differs -------------------------------------------------------------------------------------------------


def test_one_changed_key_changes_one_row(small_world: Path, rl_argv: Argv, tmp_path: Path) -> None:
    def rows(**keys: Any) -> dict[str, Any]:
        config, trl_args = loaded(rl_argv(small_world, tmp_path, **keys))
        return {row.name: row.ours for row in settings(config, trl_args, plan.run_sizes(config, trl_args, 10))}

    base = rows()
    changes = {
        "learning rate": {"learning_rate": 1e-6},
        "KL weight (k3)": {"beta": 0.001},
        "turns": {"search__max_turns": 8},
        "mask_kl": {"mask_kl": True},
        "credit.mastered": {"credit__mastered": "zero"},
        "selection reward": {"reward__selection": "match"},
        "GPUs": {},
    }
    for name, keys in changes.items():
        changed = {key for key, value in rows(**keys).items() if value != base[key]}
        assert changed == ({name} if keys else set())


def test_table_shows_what_differs_and_counts_what_is_said() -> None:
    rows = [
        Setting(name="same", ours=1e-6, paper=0.000001, reference=1e-6),
        Setting(name="mode", ours="offer", paper=("offer", "enforce"), reference="off"),
        Setting(name="unsaid", ours=3, reference=3.0),
        Setting(name="flag", ours=True, paper=False),
    ]
    assert [row.differs("paper") for row in rows] == [False, False, None, True]
    lines = difference_table(rows).splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["mode", "flag"]
    assert lines[1].split(maxsplit=2)[2] == "offer or enforce (same)  off"
    assert lines[3:] == ["2 of 3 settings as in the paper", "2 of 3 settings as in the official code"]


@pytest.mark.parametrize("name", ["paper", "reference"])
def test_preset_files_hold_the_presets(name: str, small_world: Path, rl_argv: Argv, tmp_path: Path) -> None:
    preset = ["--config", str(ROOT / "configs" / "rl" / f"credit_{name}.yaml")]
    config, _ = loaded([*preset, *rl_argv(small_world, tmp_path)])
    assert config.section("credit") == PRESETS[name]
    assert len(config.explicit["credit"]) == len(CreditOptions.__dataclass_fields__)  # no default can move it
    assert config.explicit.get("mask_kl", False) == (name == "reference")


@pytest.mark.parametrize(
    ("keys", "said"),
    [({}, []), ({"search__total_tokens": 5000}, ["positions of the model"]),
     ({"vllm_max_model_length": 310}, ["vllm_max_model_length"])],
    ids=["fits", "model", "vllm"],
)  # fmt: skip
def test_rollouts_that_the_model_has_no_room_for(
    keys: dict[str, Any], said: list[str], small_world: Path, rl_argv: Argv, tmp_path: Path
) -> None:
    """The model of the test world has 1,024 positions, and prompts of 20 to 30 tokens."""
    found = plan.warnings(*loaded(rl_argv(small_world, tmp_path, **keys)), longest_prompt=25)
    limits = ("positions of the model", "vllm_max_model_length")
    assert [next(name for name in limits if name in line) for line in found] == said
    assert all(f"may have {25 + keys.get('search__total_tokens', 300)} tokens" in line for line in found)


def test_keys_that_the_algorithm_does_not_read_are_warned_of(small_world: Path, rl_argv: Argv, tmp_path: Path) -> None:
    keys = {"credit__useless_cost": 0.2, "credit__std": False}
    for name, said in (
        ("toolsearcher", []),
        ("grpo", ["credit.useless_cost: set, but algorithm grpo does not read it"]),
    ):
        assert plan.warnings(*loaded(rl_argv(small_world, tmp_path, algorithm=name, **keys)), longest_prompt=25) == said


MISSING = "has no demonstrations under the curriculum's two prompts"


@pytest.mark.parametrize(
    ("mode", "share", "categories", "said"),
    [("off", 0.0, "AB", []), ("offer", 0.3, "AB", []), ("enforce", None, "AB", []), ("offer", 0.0, "AB", [MISSING]),
     ("enforce", 0.3, "AA", ["single category"]), ("enforce", 0.0, "AA", ["single category", MISSING])],
)  # fmt: skip
def test_what_a_curriculum_lacks(
    mode: str, share: float | None, categories: str, said: list[str], small_world: Path, rl_argv: Argv, tmp_path: Path
) -> None:
    """``share`` None: the data came from elsewhere, and nothing is known of its demonstrations."""
    extra = {} if share is None else {"expert": {"settings": {"curriculum_prompts": share}}}
    write_manifest(tmp_path, stage="data_synthesis", inputs=[], counts={}, seed=0, extra=extra)
    names = NameIndex(ToolId(category=c, tool="t", api=f"a{i}") for i, c in enumerate(categories))
    config, _ = loaded(rl_argv(small_world, tmp_path / "run", data=tmp_path, curriculum__mode=mode))
    found = plan.curriculum_warnings(config, names)
    assert len(found) == len(said) and all(words in text for words, text in zip(said, found, strict=True))


@pytest.mark.parametrize("dry", ["false", "true"], ids=["run", "dry_run"])
def test_what_a_curriculum_lacks_is_said(
    dry: str, small_world: Path, rl_argv: Argv, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = shutil.copytree(small_world, tmp_path / "data")
    settings = {"curriculum_prompts": 0.0, "retry": 0.0}
    write_manifest(data, stage="data", inputs=[], counts={}, seed=0, extra={"expert": {"settings": settings}})
    keys = {"curriculum__mode": "offer", "max_steps": 1, "search__max_turns": 1, "data": data, "dry_run": dry}
    assert train.main(rl_argv(small_world, tmp_path / "run", **keys)) == 0
    assert capsys.readouterr().out.count(MISSING) == 1


def test_dry_run_of_the_papers_run_needs_neither_its_model_nor_its_gpus(small_world: Path, tmp_path: Path) -> None:
    """As a command of its own: a DeepSpeed config in the arguments must not start process groups."""
    data, rows = tmp_path / "data", read_jsonl(small_world / "rl" / "train.jsonl")
    write_jsonl(data / "rl" / "train.jsonl", [{**row, "id": f"{i}/{row['id']}"} for i in range(26) for row in rows])
    write_manifest(data, stage="data", inputs=[], counts={}, seed=0)
    words = ["--config", "configs/rl/paper_8xa100.yaml", "--data", data, "--tools", small_world]
    command = [sys.executable, "rl/train.py", *map(str, words), "--output_dir", str(tmp_path / "run"), "--dry-run"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    for text in (
        "256 prompts x 5 rollouts = 1280 on 8 GPU(s)",
        "7,615,616,512 parameters, 15.2 GB in 16 bits",
        "ZeRO-3 19.3 GB; this run: ZeRO-3",  # 18 x 7.6156 / 8 + 4 x 0.545
        "reference model      1.9 GB",
        "57,344 bytes a token",  # 2 x 28 layers x 4 heads x 128 x 2 bytes
        "settings as in the paper",
    ):
        assert text in done.stdout
    assert not (tmp_path / "run").exists()
