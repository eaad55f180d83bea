"""Recipes: which one a name means, what their prompts are made of, where weights are found and what they hash to."""

import json
import re
from pathlib import Path

import pytest

from autotools.errors import ConfigError
from retriever.model_files import settled, weights_folder, weights_hash
from retriever.recipes import QWEN_QUERY, RECIPES, recipe_for


def test_names_hub_ids_and_folders(tmp_path: Path) -> None:
    assert recipe_for("minilm").weights == "sentence-transformers/all-MiniLM-L6-v2"
    assert recipe_for("Qwen/Qwen3-Embedding-4B") is RECIPES["qwen3-4b"]
    local = recipe_for(f"qwen3-8b@{tmp_path}")
    assert (local.name, local.weights, local.pooling, local.end_id) == ("qwen3-8b", str(tmp_path), "lasttoken", 151643)
    assert recipe_for(str(tmp_path)).pooling is None  # the folder's own files decide
    assert recipe_for("owner/other-model").weights == "owner/other-model"


@pytest.mark.parametrize("name", ["minilmm", "bm52", "", "qwen3-0.6b@", "nothing@here", "./missing", "a/b/c"])
def test_a_name_that_is_nothing_is_a_clear_error(name: str) -> None:
    with pytest.raises(ConfigError, match=r"unknown encoder .*known: bm25, hybrid, minilm, qwen3-0\.6b"):
        recipe_for(name)


def test_a_misspelt_name_names_the_close_one() -> None:
    with pytest.raises(ConfigError, match="did you mean 'minilm'"):
        recipe_for("minilmm")


def test_what_the_cards_say() -> None:
    """Facts of the model cards, written a second time by hand: a slip in the table would cost quality, not crash."""
    facts = {  # pooling, padding side, query prompt, document prompt, dimensions, positions the model has
        "minilm": ("mean", "right", "", "", 384, 512),
        "qwen3-0.6b": ("lasttoken", "left", QWEN_QUERY, "", 1024, 32768),
        "qwen3-4b": ("lasttoken", "left", QWEN_QUERY, "", 2560, 40960),
        "qwen3-8b": ("lasttoken", "left", QWEN_QUERY, "", 4096, 40960),
        "arctic-l-v2": ("cls", "right", "query: ", "", 1024, 8192),
        "gist-large": ("cls", "right", "", "", 1024, 512),
        "unixcoder": ("mean", "right", "<encoder-only></s>", "<encoder-only></s>", 768, 1024),
    }
    assert set(facts) == set(RECIPES)
    for name, (pooling, side, query, document, dim, positions) in facts.items():
        recipe = RECIPES[name]
        assert (recipe.pooling, recipe.padding_side, recipe.dim) == (pooling, side, dim)
        assert (recipe.query_prompt, recipe.document_prompt) == (query, document)
        assert 256 <= recipe.max_seq_length <= min(positions, 1024)
        assert recipe.end_id == (151643 if name.startswith("qwen3") else None)


def test_the_instruction_of_qwen_has_no_space_after_query() -> None:
    assert re.fullmatch(r"Instruct: [^\n]+\nQuery:", QWEN_QUERY)
    assert "web search" not in QWEN_QUERY and "tool" in QWEN_QUERY


# --- weights ------------------------------------------------------------------------------------------------------


def test_minilm_comes_from_its_package() -> None:
    folder = weights_folder(RECIPES["minilm"])
    settings = json.loads((folder / "1_Pooling" / "config.json").read_text())
    assert settings["pooling_mode_mean_tokens"] is True and settings["word_embedding_dimension"] == 384


def test_missing_weights_say_what_to_do_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match=r"hf download Qwen/Qwen3-Embedding-4B.*qwen3-4b@FOLDER") as caught:
        weights_folder(RECIPES["qwen3-4b"])
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="does not exist"):
        weights_folder(recipe_for(f"minilm@{tmp_path}/none"))
    with pytest.raises(ConfigError, match=r"no config\.json"):
        weights_folder(recipe_for(str(tmp_path)))


def test_hash_follows_what_decides_a_vector(tmp_path: Path) -> None:
    model = tmp_path / "model"
    (model / "1_Pooling").mkdir(parents=True)
    telling = ["config.json", "tokenizer.json", "1_Pooling/config.json", "model.safetensors", "vocab.txt"]
    for name in telling:
        (model / name).write_text("1")
    first = weights_hash(model)
    for name in ["README.md", ".gitattributes", "data_config.json", "pytorch_model.bin"]:  # a second copy of weights
        (model / name).write_text("2")
    (model / "onnx").mkdir()
    (model / "onnx" / "config.json").write_text("2")
    assert weights_hash(model) == first
    for name in telling:
        (model / name).write_text("2")
        assert weights_hash(model) != first, name
        (model / name).write_text("1")
    (model / "vocab.txt").rename(model / "merges.txt")
    assert weights_hash(model) != first


def test_a_link_to_a_blob_counts_by_the_name_of_the_blob(tmp_path: Path) -> None:
    from hashlib import sha256

    plain, cached = tmp_path / "plain", tmp_path / "cached"
    plain.mkdir(), cached.mkdir()
    (plain / "model.safetensors").write_bytes(b"weights")
    blob = tmp_path / sha256(b"weights").hexdigest()
    blob.write_bytes(b"weights")
    (cached / "model.safetensors").symlink_to(blob)
    assert weights_hash(plain) == weights_hash(cached)


def _model_files(folder: Path, **files: object) -> Path:
    (folder / "1_Pooling").mkdir(parents=True)
    for name, content in files.items():
        path = folder / ("1_Pooling/config.json" if name == "pooling" else f"{name}.json")
        path.write_text(json.dumps(content))
    return folder


def test_a_folder_without_recipe_is_used_as_its_files_say(tmp_path: Path) -> None:
    folder = _model_files(
        tmp_path / "m", modules=[], config={}, pooling={"pooling_mode_cls_token": True},
        config_sentence_transformers={"prompts": {"query": "q: ", "passage": "p: "}},
        sentence_bert_config={"max_seq_length": 8192}, tokenizer_config={"padding_side": "left"},
    )  # fmt: skip
    recipe = settled(recipe_for(str(folder)), folder)
    assert (recipe.pooling, recipe.padding_side, recipe.max_seq_length) == ("cls", "left", 1024)
    assert (recipe.query_prompt, recipe.document_prompt) == ("q: ", "p: ")


def test_a_folder_that_does_not_say_how_to_pool_is_refused(tmp_path: Path) -> None:
    folder = _model_files(tmp_path / "m", config={})
    with pytest.raises(ConfigError, match=r"no modules\.json.*minilm@"):
        settled(recipe_for(str(folder)), folder)
    two = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}
    folder = _model_files(tmp_path / "n", modules=[], pooling=two)
    with pytest.raises(ConfigError, match="pooling .* is not supported"):
        settled(recipe_for(str(folder)), folder)
