"""Dense engine over MiniLM's own vectors, and how its index is found, refused and kept in the cache folder."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from autotools.errors import ConfigError, DataError, RetrieverError, UnknownCategoryError
from autotools.rundir import write_jsonl
from autotools.schema import ToolSpec
from retriever.bm25 import BM25Engine
from retriever.build import main as build
from retriever.corpus import document_texts
from retriever.dense import DenseEngine
from retriever.encoder import Encoder
from retriever.engine import SearchEngine, open_engine
from retriever.hybrid import HybridEngine

QUERIES = ["room price in a hotel", "which gate does my plane leave from", "words of a song", "storm at the sea"]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder("minilm", device="cpu")


@pytest.fixture
def tools(ten_tools: list[ToolSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Corpus file with the ten tools; the cache folder is a temporary one."""
    monkeypatch.setenv("AUTOTOOLS_CACHE", str(tmp_path / "cache"))
    write_jsonl(tmp_path / "tools.jsonl", ten_tools)
    return tmp_path / "tools.jsonl"


def _index(tools: Path, *more: str) -> Path:
    folder = tools.parent / "index"
    assert build(["--tools", str(tools), "--out", str(folder), "--device", "cpu", *more]) == 0
    return folder


def _expected(encoder: Encoder, specs: list[ToolSpec], query: str, category: str | None, k: int) -> list[str]:
    """Cosine in float64, rounded to 2^-18, then the id: written here a second time."""
    chosen = [spec for spec in specs if category in (None, spec.id.category)]
    vectors = encoder.encode_documents(document_texts(chosen)).astype(np.float64)
    scores = vectors @ encoder.encode_queries([query])[0].astype(np.float64)
    order = sorted(range(len(chosen)), key=lambda i: (-round(scores[i] * 2**18), str(chosen[i].id)))
    return [str(chosen[i].id) for i in order[:k]]


@pytest.mark.parametrize("k", [1, 3, 100])
def test_equals_cosines_computed_here(tools: Path, ten_tools: list[ToolSpec], encoder: Encoder, k: int) -> None:
    engine = open_engine(tools, "minilm", index=_index(tools), device="cpu")
    assert isinstance(engine, DenseEngine) and isinstance(engine, SearchEngine)
    assert engine.categories == ("Music", "Travel", "Weather")
    categories = [None, "Travel", "Music", "Weather"]
    for query in QUERIES:
        found = engine.search_batch([query] * 4, categories, k)
        for category, hits in zip(categories, found, strict=True):
            assert [str(hit.id) for hit in hits] == _expected(encoder, ten_tools, query, category, k)
            assert all(hit.document for hit in hits)
    assert [str(h[0].id) for h in engine.search_batch(QUERIES)][1:3] == [
        "Travel.flight_board.gate", "Music.song_box.lyrics"
    ]  # fmt: skip


def test_order_and_size_of_a_batch_do_not_matter(tools: Path) -> None:
    engine = open_engine(tools, "minilm", index=_index(tools), device="cpu")
    queries = random.Random(0).choices(QUERIES, k=40)
    straight = engine.search_batch(queries)
    assert [engine.search_batch([query])[0] for query in queries] == straight
    fresh = open_engine(tools, "minilm", index=tools.parent / "index", device="cpu")
    assert fresh.search_batch(queries[::-1])[::-1] == straight


def test_counters_and_prefetch(tools: Path) -> None:
    engine = open_engine(tools, "minilm", index=_index(tools), device="cpu")
    assert set(engine.counters().values()) == {0}  # what was encoded on opening is not counted
    engine.prefetch([*QUERIES, QUERIES[0], " "])
    batches = engine.counters()["encoder_batches"]
    engine.search_batch([*QUERIES, *QUERIES], ["Travel"] * 8)
    counters = engine.counters()
    assert counters["encoder_batches"] == batches > 0
    assert (counters["calls"], counters["queries"], counters["encoded"], counters["cache_hits"]) == (2, 13, 4, 4)


def test_bad_requests_and_blank_queries(tools: Path) -> None:
    engine = open_engine(tools, "minilm", index=_index(tools), device="cpu")
    for k in (0, -3):
        with pytest.raises(RetrieverError, match=f"k must be 1 or more, got {k}"):
            engine.search_batch(["hotel"], k=k)
    with pytest.raises(RetrieverError, match="1 queries but 2 categories"):
        engine.search_batch(["hotel"], [None, None])
    with pytest.raises(UnknownCategoryError, match="unknown category 'travle'; close names: Travel"):
        engine.search_batch(["hotel"], ["travle"])
    assert engine.search_batch([]) == []
    assert [len(hits) for hits in engine.search_batch(["", "hotel", " \n"])] == [0, 5, 0]


def test_describe_is_json_and_names_no_folder(tools: Path) -> None:
    described = open_engine(tools, "minilm", index=_index(tools), device="cpu").describe()
    text = json.dumps(described)
    assert str(tools.parent) not in text and "site-packages" not in text
    assert {"engine": "dense", "encoder": "minilm", "dtype": "float32", "tools": 10}.items() <= described.items()
    assert {"weights_sha256", "template", "texts_sha256", "query_prompt"} <= described.keys()


# --- the index ----------------------------------------------------------------------------------------------------


def test_a_missing_index_names_the_command(tools: Path) -> None:
    with pytest.raises(RetrieverError, match=r"does not exist.*python -m retriever\.build --tools .* --encoder minilm"):
        open_engine(tools, "minilm", index=tools.parent / "none", device="cpu")


def test_a_stale_index_is_refused_unless_allowed(
    tools: Path, ten_tools: list[ToolSpec], capsys: pytest.CaptureFixture[str]
) -> None:
    index = _index(tools)
    changed = [ten_tools[0].model_copy(update={"description": "edited"}), *ten_tools[2:]]
    write_jsonl(tools, changed)
    command = rf"Rebuild it: python -m retriever\.build --tools {tools} --encoder minilm --out {index}"
    with pytest.raises(RetrieverError, match=f"documents: 1 changed, 0 added, 1 removed.*{command}"):
        open_engine(tools, "minilm", index=index, device="cpu")
    engine = open_engine(tools, "minilm", index=index, device="cpu", allow_stale=True)
    assert "is stale and used all the same" in capsys.readouterr().err
    ids = {str(hit.id) for hit in engine.search_batch(["hotel"], k=50)[0]}
    assert ids == {str(spec.id) for spec in changed}
    _index(tools)
    open_engine(tools, "minilm", index=index, device="cpu")


@pytest.mark.parametrize("field", ["weights_sha256", "pooling", "padding_side", "document_prompt", "end_id"])
def test_a_changed_setting_is_refused_by_name(tools: Path, field: str) -> None:
    path = _index(tools) / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["encoder"][field] = "other"
    path.write_text(json.dumps(manifest))
    with pytest.raises(RetrieverError, match=rf"stale: encoder\.{field}: 'other' in the index"):
        open_engine(tools, "minilm", index=path.parent, device="cpu")


def test_the_query_prompt_may_change_without_a_rebuild(tools: Path) -> None:
    path = _index(tools) / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["encoder"]["query_prompt"] = "an older instruction: "
    path.write_text(json.dumps(manifest))
    open_engine(tools, "minilm", index=path.parent, device="cpu")


def test_dtype_and_length_of_the_index_are_those_of_its_queries(tools: Path) -> None:
    index = _index(tools, "--dtype", "bfloat16", "--max_seq_length", "128")
    described = open_engine(tools, "minilm", index=index, device="cpu").describe()
    assert (described["dtype"], described["max_seq_length"]) == ("bfloat16", 128)
    with pytest.raises(RetrieverError, match=r"encoder\.dtype: 'bfloat16' in the index, 'float32' now"):
        open_engine(tools, "minilm", index=index, device="cpu", dtype="float32")


def test_vectors_that_the_encoder_does_not_reproduce_are_refused(tools: Path) -> None:
    """Hashes fit, but the matrix is another encoder's: what a library that reads weights differently looks like."""
    import hashlib

    index = _index(tools)
    matrix = np.load(index / "embeddings.npy")[:, ::-1].copy()
    np.save(index / "embeddings.npy", matrix)
    manifest = json.loads((index / "manifest.json").read_text())
    manifest["matrix_sha256"] = hashlib.sha256((index / "embeddings.npy").read_bytes()).hexdigest()
    (index / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(RetrieverError, match=r"does not agree with the encoder: cosine .*built with"):
        open_engine(tools, "minilm", index=index, device="cpu")


def test_without_a_folder_the_index_is_kept_in_the_cache_and_updated(tools: Path, ten_tools: list[ToolSpec]) -> None:
    first = open_engine(tools, "minilm", device="cpu").search_batch(QUERIES)
    (kept,) = (path for path in (tools.parent / "cache" / "index").iterdir() if path.is_dir())
    stamp = (kept / "manifest.json").stat().st_mtime_ns
    assert open_engine(tools, "minilm", device="cpu").search_batch(QUERIES) == first
    assert (kept / "manifest.json").stat().st_mtime_ns == stamp
    write_jsonl(tools, ten_tools[1:])
    assert len(open_engine(tools, "minilm", device="cpu").search_batch(["hotel"], k=50)[0]) == 9
    assert (kept / "manifest.json").stat().st_mtime_ns != stamp


# --- open_engine --------------------------------------------------------------------------------------------------


def test_open_engine_by_name(tools: Path) -> None:
    assert isinstance(open_engine(tools), BM25Engine)
    assert isinstance(open_engine(tools, "hybrid", device="cpu"), HybridEngine)
    assert isinstance(open_engine(tools, "hybrid:minilm", device="cpu"), HybridEngine)
    for name in ("bm52", "hybrid:", "hybrid:minilmm", "hybridd"):
        with pytest.raises(ConfigError, match="unknown encoder .* known: bm25, hybrid, minilm"):
            open_engine(tools, name)
    with pytest.raises(ConfigError, match="bm25 has no index"):
        open_engine(tools, "bm25", index=tools.parent)
    with pytest.raises(DataError):
        open_engine(tools.parent / "none.jsonl", "minilm", device="cpu")


def test_cuda_without_a_device_is_one_clear_line(tools: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(ConfigError, match="no CUDA device; use --device cpu"):
        open_engine(tools, "minilm", device="cuda")
