"""Encoder: mixed batches against one text at a time, the traps of last-token models, the query cache.

The Qwen3 model has random weights and the real end token id; the UniXcoder tokenizer is checked against the id sequence
that its authors' code builds.
"""

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotools.errors import ConfigError, RetrieverError
from retriever.embedding import batches_by_tokens, padded
from retriever.encoder import Encoder
from retriever.model_files import weights_folder
from retriever.recipes import QWEN_END, RECIPES, Recipe

WORDS = "find hotel room price flight gate delay song lyrics weather station storm city user list send".split()


def _texts(count: int, seed: int, longest: int = 60) -> list[str]:
    rng = random.Random(seed)
    lengths = [1, longest, *(rng.randint(1, longest) for _ in range(count - 2))]
    return [" ".join(rng.choice(WORDS) for _ in range(length)) for length in lengths]


def _save_tokenizer(folder: Path, end: bool) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocab = {word: number for number, word in enumerate(["?", *WORDS, "Instruct", "Query", ":"])}
    vocab["<|endoftext|>"] = QWEN_END
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if end:
        name = "<|endoftext|>"
        tokenizer.post_processor = processors.TemplateProcessing(single=f"$A {name}", special_tokens=[(name, QWEN_END)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<|endoftext|>", unk_token="?")
    fast.save_pretrained(folder)


@pytest.fixture(scope="module")
def qwen_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights in the shape of Qwen3-Embedding, small; saved as plain transformers files."""
    import torch
    from transformers import Qwen3Config, Qwen3Model

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("qwen")
    config = Qwen3Config(
        vocab_size=151_936, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=512, initializer_range=0.3,
    )  # fmt: skip
    Qwen3Model(config).save_pretrained(folder)
    _save_tokenizer(folder, end=True)
    return folder


@pytest.fixture(scope="module")
def bare_minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MiniLM's weights and tokenizer without its sentence-transformers files, so that any pooling may be tried."""
    folder = tmp_path_factory.mktemp("minilm")
    source = weights_folder(RECIPES["minilm"])
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", "vocab.txt"):
        (folder / name).symlink_to(source / name)
    return folder


def _qwen(folder: Path, **changes: Any) -> Recipe:
    return dataclasses.replace(RECIPES["qwen3-0.6b"], weights=str(folder), max_seq_length=64, **changes)


def _smallest_cosine(encoder: Encoder, texts: list[str]) -> float:
    together = encoder.encode_documents(texts)
    alone = np.concatenate([encoder.encode_documents([text]) for text in texts])
    return float((together * alone).sum(axis=1).min())


# --- mixed lengths ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("pooling", ["lasttoken", "mean"])
def test_mixed_lengths_equal_one_by_one_qwen(qwen_folder: Path, pooling: str, side: str) -> None:
    encoder = Encoder(_qwen(qwen_folder, pooling=pooling, padding_side=side), device="cpu")
    assert _smallest_cosine(encoder, _texts(24, 1)) > 0.9999
    assert encoder.counters()["encoder_batches"] == 1 + 24  # the mixed batch really was one batch


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("pooling", ["lasttoken", "mean", "cls"])
def test_mixed_lengths_equal_one_by_one_minilm(bare_minilm: Path, pooling: str, side: str) -> None:
    recipe = dataclasses.replace(
        RECIPES["minilm"], weights=str(bare_minilm), package=None, pooling=pooling, padding_side=side
    )
    assert _smallest_cosine(Encoder(recipe, device="cpu"), _texts(12, 2, longest=30)) > 0.9999


def test_minilm_equals_what_sentence_transformers_gives() -> None:
    from sentence_transformers import SentenceTransformer

    texts = _texts(12, 3)
    expected = SentenceTransformer(str(weights_folder(RECIPES["minilm"])), device="cpu").encode(texts)
    assert np.allclose(Encoder("minilm", device="cpu").encode_documents(texts), expected, atol=1e-5)


def test_the_check_sees_pooling_at_the_wrong_position(qwen_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Left padding with the token at ``mask.sum() - 1``: the bug that a batch of one hides."""
    import torch
    from sentence_transformers.sentence_transformer.modules import Pooling

    def wrong(self: Any, tokens: Any, mask: Any, features: Any, prompt_length: Any = None) -> list[Any]:
        return [tokens[torch.arange(len(tokens)), mask.sum(1) - 1]]

    monkeypatch.setattr(Pooling, "_forward_padded", wrong)
    texts = _texts(24, 1)
    left = Encoder(_qwen(qwen_folder), device="cpu")
    assert _smallest_cosine(left, texts) < 0.9
    right = Encoder(_qwen(qwen_folder, padding_side="right"), device="cpu")
    assert _smallest_cosine(right, texts) > 0.9999  # on that side the formula is right


def test_the_check_sees_a_mask_made_from_ids(qwen_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``ids != pad`` masks the pooled token, because the pad id is the end token."""

    def wrong(ids: Any, pad_id: int, left: bool) -> dict[str, np.ndarray]:
        features = padded(ids, pad_id, left)
        return {**features, "attention_mask": (features["input_ids"] != pad_id).astype(np.int64)}

    texts = _texts(8, 4)
    right = Encoder(_qwen(qwen_folder), device="cpu").encode_documents(texts)
    monkeypatch.setattr("retriever.embedding.padded", wrong)
    masked = Encoder(_qwen(qwen_folder), device="cpu").encode_documents(texts)
    assert (right * masked).sum(axis=1).min() < 0.99


# --- tokens -------------------------------------------------------------------------------------------------------


def test_every_text_ends_with_the_end_token_also_a_cut_one(qwen_folder: Path) -> None:
    encoder = Encoder(_qwen(qwen_folder), device="cpu")
    long = " ".join(WORDS * 20)
    ids = encoder.model.token_ids(["hotel", long, "x" * 1_000_000, ""])
    assert [row[-1] for row in ids] == [QWEN_END] * 4
    assert [len(row) for row in ids] == [2, 64, 2, 1]
    assert encoder.counters()["truncated"] == 2  # the long text, and the one whose characters were cut


def test_a_tokenizer_without_end_token_is_refused(qwen_folder: Path, tmp_path: Path) -> None:
    for path in qwen_folder.iterdir():
        if not path.name.startswith("tokenizer"):
            (tmp_path / path.name).symlink_to(path)
    _save_tokenizer(tmp_path, end=False)
    with pytest.raises(RetrieverError, match=r"ends 'hotel' with id 2, but pooling reads the end token 151643"):
        Encoder(_qwen(tmp_path), device="cpu").encode_documents(["hotel"])


def test_the_instruction_is_on_queries_only(qwen_folder: Path) -> None:
    encoder = Encoder(_qwen(qwen_folder), device="cpu")
    query, document = encoder.encode_queries(["find hotel"])[0], encoder.encode_documents(["find hotel"])[0]
    by_hand = encoder.encode_documents([f"{RECIPES['qwen3-0.6b'].query_prompt}find hotel"])[0]
    assert np.allclose(query, by_hand, atol=1e-6) and (query * document).sum() < 0.99


def test_unixcoder_ids_are_those_of_its_authors(tmp_path: Path) -> None:
    """unixcoder.py: [<s>, <encoder-only>, </s>] + tokens[: 512 - 4] + [</s>]."""
    import torch
    from tokenizers import ByteLevelBPETokenizer
    from transformers import RobertaConfig, RobertaModel, RobertaTokenizer

    trained = ByteLevelBPETokenizer()
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained.train_from_iterator(_texts(30, 5), vocab_size=400, special_tokens=specials)
    trained.save_model(str(tmp_path))
    # In the authors' vocabulary the mode is an ordinary entry, which a plain tokenizer would split.
    import json

    vocab = json.loads((tmp_path / "vocab.json").read_text())
    vocab["<encoder-only>"] = len(vocab)
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    plain = RobertaTokenizer.from_pretrained(tmp_path)
    plain.save_pretrained(tmp_path)
    torch.manual_seed(0)
    config = RobertaConfig(
        vocab_size=len(vocab), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=520, pad_token_id=1,
    )  # fmt: skip
    RobertaModel(config).save_pretrained(tmp_path)
    encoder = Encoder(dataclasses.replace(RECIPES["unixcoder"], weights=str(tmp_path)), device="cpu")
    for text in ["find hotel", " ".join(WORDS * 100)]:
        words = plain.tokenize(text)[: 512 - 4]
        expected = plain.convert_tokens_to_ids(["<s>", "<encoder-only>", "</s>", *words, "</s>"])
        assert encoder.model.token_ids([f"{RECIPES['unixcoder'].document_prompt}{text}"]) == [expected]
    assert _smallest_cosine(encoder, _texts(8, 6)) > 0.9999


def test_batches_hold_every_text_once_within_the_budget() -> None:
    rng = random.Random(7)
    for _ in range(50):
        lengths = [rng.randint(1, 90) for _ in range(rng.randint(0, 60))]
        batches = batches_by_tokens(lengths, 200)
        assert sorted(number for batch in batches for number in batch) == list(range(len(lengths)))
        for batch in batches:
            longest = max(lengths[number] for number in batch)
            assert len(batch) * longest <= 200 or len(batch) == 1
        full = [len(batch) * max(lengths[n] for n in batch) for batch in batches[:-1]]
        assert all(tokens > 100 for tokens in full)  # no batch is cut too early


# --- checks of the model ------------------------------------------------------------------------------------------


def test_weights_that_do_not_fit_the_recipe_are_refused() -> None:
    recipe = dataclasses.replace(RECIPES["minilm"], pooling="cls")
    with pytest.raises(RetrieverError, match="pools by cls, but the files .* say mean"):
        Encoder(recipe, device="cpu").encode_documents(["x"])
    with pytest.raises(RetrieverError, match="needs '<none>', which the tokenizer does not know"):
        Encoder(dataclasses.replace(RECIPES["minilm"], special_tokens=("<none>",)), device="cpu").encode_documents(
            ["x"]
        )
    with pytest.raises(ConfigError, match="513 is more than the 512 positions"):
        Encoder("minilm", device="cpu", max_seq_length=513).encode_documents(["x"])
    with pytest.raises(ConfigError, match="unknown dtype 'int8'"):
        Encoder("minilm", dtype="int8")


def test_a_damaged_model_file_is_one_clear_error(qwen_folder: Path, tmp_path: Path) -> None:
    for path in qwen_folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes()[: 1000 if path.suffix == ".safetensors" else None])
    with pytest.raises(RetrieverError, match="cannot load the model in"):
        Encoder(_qwen(tmp_path), device="cpu").encode_documents(["x"])


def test_a_vector_that_is_not_of_length_one_is_refused(qwen_folder: Path) -> None:
    import torch

    encoder = Encoder(_qwen(qwen_folder), device="cpu")
    with torch.no_grad():
        encoder.model.model[0].model.norm.weight.fill_(float("nan"))
    with pytest.raises(RetrieverError, match="length nan instead of 1"):
        encoder.encode_queries(["find hotel"])


def test_bfloat16_vectors_are_of_length_one_and_close(qwen_folder: Path) -> None:
    texts = _texts(8, 8)
    full = Encoder("minilm", device="cpu").encode_documents(texts)
    half = Encoder("minilm", device="cpu", dtype="bfloat16").encode_documents(texts)
    assert np.abs(np.linalg.norm(half, axis=1) - 1).max() < 1e-6
    assert 0.995 < (full * half).sum(axis=1).min() < 0.9999999


# --- the query path -----------------------------------------------------------------------------------------------


@pytest.fixture
def counted(qwen_folder: Path) -> tuple[Encoder, list[int]]:
    """An encoder, and how many texts each call gave to the model."""
    encoder, sizes = Encoder(_qwen(qwen_folder), device="cpu"), []
    inner: Callable[..., np.ndarray] = encoder.model.encode
    encoder.model.encode = lambda texts, *rest: (sizes.append(len(texts)), inner(texts, *rest))[1]  # type: ignore
    return encoder, sizes


def test_repeats_are_encoded_once_and_remembered(counted: tuple[Encoder, list[int]]) -> None:
    encoder, sizes = counted
    distinct = _texts(40, 9)
    queries = random.Random(0).choices(distinct, k=300)
    first = encoder.encode_queries(queries)
    again = encoder.encode_queries(queries[::-1])[::-1]
    assert sizes == [len(set(queries))] and np.array_equal(first, again)
    for query, vector in zip(queries, first, strict=True):
        assert np.array_equal(vector, first[queries.index(query)])
    counters = encoder.counters()
    known = len(set(queries))
    assert (counters["calls"], counters["queries"], counters["distinct"]) == (2, 600, 2 * known)
    assert (counters["encoded"], counters["cache_hits"]) == (known, known)
    assert encoder.encode_queries([]).shape == (0, 32)


def test_a_small_cache_forgets_but_never_answers_wrongly(qwen_folder: Path) -> None:
    queries = _texts(60, 10)
    right = Encoder(_qwen(qwen_folder), device="cpu").encode_queries(queries)
    for limit in (0, 3000):
        encoder = Encoder(_qwen(qwen_folder), device="cpu", cache_bytes=limit)
        assert np.allclose(encoder.encode_queries(queries), right, atol=1e-5)
        assert np.allclose(encoder.encode_queries(queries[::-1]), right[::-1], atol=1e-5)
        assert encoder._cache_size <= limit and len(encoder._cache) <= limit / 128  # 32 float32 each


def test_the_cache_keeps_what_was_used_last(counted: tuple[Encoder, list[int]]) -> None:
    encoder, sizes = counted
    encoder._cache_limit = 2 * (32 * 4 + 2 * 1 + 300)
    for query in "abacb":  # b is forgotten when c comes, because a was used after it
        encoder.encode_queries([query])
    assert sizes == [1, 1, 1, 1] and [key[-1] for key in encoder._cache] == ["c", "b"]


def test_two_threads_get_right_answers(qwen_folder: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    encoder = Encoder(_qwen(qwen_folder), device="cpu", cache_bytes=2000)
    queries = _texts(40, 11)
    right = encoder.encode_queries(queries)
    parts = [random.Random(seed).sample(range(40), 7) for seed in range(24)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda part: encoder.encode_queries([queries[i] for i in part]), parts))
    for part, vectors in zip(parts, found, strict=True):
        assert np.allclose(vectors, right[part], atol=1e-5)


def test_odd_text_never_breaks_the_encoder() -> None:
    encoder = Encoder("minilm", device="cpu")
    vectors = encoder.encode_queries(["\x00", "\ud800 lone", "a" * 100_000, "word " * 25_000, "日本語", " "])
    assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < 1e-3
    assert encoder.counters()["truncated"] == 2
