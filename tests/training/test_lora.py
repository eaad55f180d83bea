"""A run that starts from an adapter trains that adapter on, and nothing else; what cannot be gone on with is said."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotools.errors import ConfigError, ModelError
from autotools.llm import merge
from autotools.llm.loading import adapter_config, load_adapter, load_model
from autotools.rundir import read_manifest
from training.lora import LoraArgs, check_start, load_start

IDS = [[5, 7, 11, 13]]


def logits(model: Any) -> Any:
    import torch

    with torch.no_grad():
        return model.eval()(input_ids=torch.tensor(IDS)).logits


@pytest.fixture(scope="module")
def base(untrained_model: Callable[..., Path]) -> Path:
    return untrained_model()


@pytest.fixture(scope="module")
def adapter(base: Path, strong_adapter: Callable[[Path], Path]) -> Path:
    return strong_adapter(base)


def test_an_adapter_starts_with_its_weights_and_is_what_is_trained(base: Path, adapter: Path) -> None:
    model, _, peft_config = load_start(str(adapter), LoraArgs(r=2, alpha=8))
    assert peft_config is None  # a second adapter would hide the first
    assert {name for name, p in model.named_parameters() if p.requires_grad} == {
        name for name, _ in model.named_parameters() if "lora_" in name
    }
    plain = logits(load_model(base)[0])
    assert (logits(model) - plain).abs().max() > 0.5
    assert logits(load_model(adapter)[0]).equal(logits(model))  # what evaluation plays
    full, _, none = load_start(str(base), LoraArgs())
    assert none is None and all(p.requires_grad for p in full.parameters())
    assert load_start(str(base), LoraArgs(r=2))[2].r == 2


def test_what_cannot_be_gone_on_with_is_said(base: Path, adapter: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is an adapter; train it on with --lora.r 2 --lora.alpha 8, or all weights"):
        check_start(str(adapter), LoraArgs())
    for wrong in (LoraArgs(r=4, alpha=8), LoraArgs(r=2)):
        with pytest.raises(ConfigError, match=r"does not have r . and alpha \d+; .*--lora.r 2 --lora.alpha 8"):
            load_start(str(adapter), wrong)
    check_start(str(base), LoraArgs(r=4))
    check_start("Qwen/Qwen2.5-7B-Instruct", LoraArgs())
    lost = tmp_path / "lost"
    lost.mkdir()
    for file in adapter.iterdir():
        (lost / file.name).write_bytes(file.read_bytes().replace(str(base).encode(), b"/no/such/base/model"))
    with pytest.raises(ModelError, match="adapter '.*lost' cannot be loaded without its base model: no model at '/no"):
        load_start(str(lost), LoraArgs(r=2, alpha=8))
    with pytest.raises(ValueError, match="alpha must be 1 or more, got 0"):
        LoraArgs(r=8, alpha=0)


def test_a_merged_model_says_what_the_adapter_says(base: Path, adapter: Path, tmp_path: Path) -> None:
    import torch

    out = tmp_path / "merged"
    assert merge.main([str(adapter), "--out", str(out), "--dry_run"]) == 0 and not out.exists()
    assert merge.main([str(adapter), "--out", str(out)]) == 0
    merged, tokenizer = load_model(out)
    torch.testing.assert_close(logits(merged), logits(load_adapter(adapter)[0]), rtol=0, atol=1e-4)
    assert read_manifest(out)["stage"] == "merge" and "adapter_model.safetensors" in read_manifest(out)["inputs"]
    assert tokenizer.chat_template
    check_start(str(out), LoraArgs())
    with pytest.raises(ConfigError, match="no adapter at '.*untrained': there is no adapter_config.json"):
        merge.main([str(base), "--out", str(tmp_path / "no")])


def test_the_tiny_model_takes_no_adapter(tmp_path: Path, sft_data: Path) -> None:
    from training import sft

    words = ["--data", str(sft_data), "--output_dir", str(tmp_path / "out"), "--lora.r", "2", "--mixture", "search=1"]
    for dry in ([], ["--dry_run"]):
        with pytest.raises(ConfigError, match="lora.r 2 with model 'tiny': it is made anew"):
            sft.main([*words, *dry])
    assert not (tmp_path / "out").exists()


def test_sft_goes_on_with_an_adapter(tmp_path: Path, sft_data: Path, adapter: Path) -> None:
    """At a learning rate of 0 the adapter stays what it was to the bit; at another it moves, and its base is kept."""
    from safetensors.torch import load_file

    from training import sft

    words = ["--data", str(sft_data), "--model", str(adapter), "--max_steps", "1", "--lora.r", "2", "--lora.alpha", "8"]
    words += [
        "--lr_scheduler_type",
        "constant",
        "--per_device_train_batch_size",
        "2",
        "--seed",
        "1",
        "--mixture",
        "search=1",
    ]
    first = load_file(adapter / "adapter_model.safetensors")
    for rate, same in (("0", True), ("1e-2", False)):
        out = tmp_path / rate
        assert sft.main([*words, "--learning_rate", rate, "--output_dir", str(out)]) == 0
        after = load_file(out / "adapter_model.safetensors")
        assert after.keys() == first.keys() and all(after[n].equal(first[n]) for n in first) == same
        assert adapter_config(out)["base_model_name_or_path"] == adapter_config(adapter)["base_model_name_or_path"]
