"""Loading a model: each kind of damage, made by hand on a saved model, is one line that names folder and file."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotools.errors import ModelError
from autotools.llm.loading import check_dtype, check_model, load_model


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Any) -> Path:
    from training.tiny import TinyConfig, build_model

    folder = tmp_path_factory.mktemp("model")
    config = TinyConfig(hidden_size=16, intermediate_size=16, num_layers=1, num_heads=2)
    build_model(tiny_tokenizer, config, 0).save_pretrained(folder)
    tiny_tokenizer.save_pretrained(folder)
    return folder


def cut(name: str) -> Callable[[Path], None]:
    """Half of the file, as a full disk or an interrupted copy leaves it."""
    return lambda folder: (folder / name).write_bytes(
        (folder / name).read_bytes()[: (folder / name).stat().st_size // 2]
    )


def refill(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None


def lose(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (cut("model.safetensors"), "cannot be loaded: model.safetensors is damaged"),
        (refill("model.safetensors", b"not weights"), "cannot be loaded: model.safetensors is damaged"),
        (cut("tokenizer.json"), "cannot be loaded: tokenizer.json is damaged"),
        (refill("tokenizer.json", b"\xff\xfe"), "cannot be loaded: tokenizer.json is damaged"),
        (refill("config.json", b"{"), "cannot be loaded: config.json is damaged"),
        (refill("config.json", b'{"model_type": "qwen9"}'), "cannot be loaded: "),
        (lose("model.safetensors"), "cannot be loaded: no weights are there"),
        (lose("tokenizer.json"), "cannot be loaded: no tokenizer is there"),
        (lose("chat_template.jinja"), "cannot be loaded: no chat template is there"),
        (refill("tokenizer.json", b"{}"), "cannot be loaded: tokenizer.json is damaged"),
        (refill("chat_template.jinja", b"{% for %}"), "cannot be loaded: its chat template is damaged"),
        (
            refill("model.safetensors.index.json", b'{"weight_map": {"a": "model-2.safetensors"}}'),
            "cannot be loaded: model-2.safetensors is not there, which model.safetensors.index.json names",
        ),
        (refill("chat_template.jinja", b"{{ 1 }}"), "cannot be loaded: this chat template does not end"),
        (lambda folder: (folder / "config.json").unlink(), "no model at .*: neither config.json"),
        (shutil.rmtree, "no model at .*: there is no such folder"),
        (lambda folder: (shutil.rmtree(folder), folder.write_text("")) and None, "no model at .*: this is a file"),
    ],
)
def test_a_damaged_model_is_one_line(
    saved: Path, tmp_path: Path, damage: Callable[[Path], None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / "model"
    shutil.copytree(saved, folder)
    damage(folder)
    with pytest.raises(ModelError, match=words) as caught:
        load_model(folder)
    if "damaged" in words or " there" in words:  # that is seen without loading, too
        with pytest.raises(ModelError, match=words):
            check_model(folder)
    assert str(folder) in str(caught.value) and "\n" not in str(caught.value)


def test_a_whole_model_passes(saved: Path) -> None:
    check_model(saved)
    model, tokenizer = load_model(saved, "bfloat16")
    assert str(model.dtype) == "torch.bfloat16" and tokenizer.padding_side == "left"


def test_folders_and_hub_names_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    check_model("Qwen/Qwen2.5-1.5B-Instruct")
    check_model("gpt2")
    for name in ("runs/sft", "a/b/c", "./a", "~/none", f"{tmp_path}/a", ""):
        with pytest.raises(ModelError, match="there is no such folder"):
            check_model(name)


def test_an_unknown_dtype_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown dtype 'float33'; known: auto, float32, bfloat16"):
        check_dtype("float33")
    check_dtype("auto")
