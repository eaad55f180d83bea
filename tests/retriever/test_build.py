"""The build command: what it prints, what it makes, that it can be run again, and its refusals."""

from pathlib import Path

import numpy as np
import pytest

from autotools.errors import ConfigError, DataError, RetrieverError
from autotools.rundir import write_jsonl
from autotools.schema import ToolSpec
from retriever.build import main
from retriever.encoder import Encoder
from retriever.index import load_index


@pytest.fixture
def tools(ten_tools: list[ToolSpec], tmp_path: Path) -> Path:
    write_jsonl(tmp_path / "tools.jsonl", ten_tools)
    return tmp_path / "tools.jsonl"


def _count(output: str, label: str) -> int:
    (line,) = (line for line in output.splitlines() if line.startswith(f"│ {label} "))
    return int(line.rstrip("│ ").rpartition("│")[2].replace(",", ""))


def test_builds_then_finds_it_done_then_embeds_the_edit(
    tools: Path, ten_tools: list[ToolSpec], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--tools", str(tools), "--out", str(tools.parent / "x"), "--device", "cpu"]
    assert main(words) == 0
    output = capsys.readouterr().out
    assert "complete" in output and _count(output, "embedded now") == 10
    assert main(words) == 0
    output = capsys.readouterr().out
    assert "up to date" in output and _count(output, "embedded now") == 0
    write_jsonl(tools, [ten_tools[0].model_copy(update={"description": "edited"}), *ten_tools[1:]])
    assert main(words) == 0
    output = capsys.readouterr().out
    assert _count(output, "embedded now") == 1 and _count(output, "reused from the old index") == 9


def test_vectors_are_those_of_the_encoder(tools: Path, ten_tools: list[ToolSpec]) -> None:
    from retriever.corpus import document_text

    main(["--tools", str(tools), "--out", str(tools.parent / "x"), "--device", "cpu", "--batch_tokens", "64"])
    stored = load_index(tools.parent / "x")
    by_id = {str(spec.id): document_text(spec) for spec in ten_tools}
    expected = Encoder("minilm", device="cpu").encode_documents([by_id[tool_id] for tool_id in stored.ids])
    assert np.allclose(stored.matrix, expected, atol=1e-5)


def test_dry_run_says_what_it_would_do_and_writes_nothing(tools: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--tools", str(tools), "--out", str(tools.parent / "x"), "--device", "cpu", "--dry_run"]) == 0
    output = capsys.readouterr().out
    assert _count(output, "documents") == 10 and _count(output, "tokens") > 100
    assert "384 dims" in output and "truncated" in output
    assert [path.name for path in tools.parent.iterdir()] == ["tools.jsonl"]


def test_dry_run_without_weights_estimates(
    tools: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tools.parent / "none"))
    assert main(["--tools", str(tools), "--out", "x", "--encoder", "qwen3-8b", "--dry_run"]) == 0
    output = capsys.readouterr().out
    assert "about" in output and "4096 dims" in output


def test_rejected_records_are_told(tools: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tools.open("a") as file:
        file.write("{broken\n")
    assert main(["--tools", str(tools), "--out", str(tools.parent / "x"), "--device", "cpu"]) == 0
    output, told = capsys.readouterr()
    assert _count(output, "documents") == 10
    assert "1 of 11 records set aside; first: line 11: not JSON" in told


@pytest.mark.parametrize("encoder", ["bm25", "hybrid", "hybrid:minilm"])
def test_encoders_without_an_index_are_refused(tools: Path, encoder: str) -> None:
    with pytest.raises(ConfigError, match=f"encoder {encoder} has no index of its own"):
        main(["--tools", str(tools), "--out", "x", "--encoder", encoder])


def test_bad_input_is_a_typed_error(tools: Path) -> None:
    with pytest.raises(DataError):
        main(["--tools", str(tools.parent / "none.jsonl"), "--out", "x"])
    with pytest.raises(ConfigError, match="max_seq_length must be 8 or more, got 0"):
        main(["--tools", str(tools), "--out", "x", "--max_seq_length", "0"])
    with pytest.raises(RetrieverError, match="holds other files"):
        main(["--tools", str(tools), "--out", str(tools.parent), "--device", "cpu"])
