"""Records to labels, and the mixture of tasks by counting."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from autotools.chat import ChatRenderer
from autotools.errors import ConfigError, DataError
from autotools.rundir import read_jsonl, write_jsonl
from training.sft_data import encode_records, mix_tasks, read_records


@pytest.fixture(scope="module")
def renderer(tiny_tokenizer: Any) -> ChatRenderer:
    return ChatRenderer(tiny_tokenizer)


def test_labels_are_the_assistants_tokens(sft_data: Path, renderer: ChatRenderer) -> None:
    rows = read_records(sft_data, "train")
    encoded, counts = encode_records(rows, renderer, 10_000)
    assert counts == {"read": 36, "kept": 36}
    for row, out in zip(rows, encoded, strict=True):
        assert out["task"] == row["task"]
        assert all(label in (-100, token) for token, label in zip(out["input_ids"], out["labels"], strict=True))
        said = [m["content"] + "<|im_end|>" for m in row["messages"] if m["role"] == "assistant"]
        assert renderer.tokenizer.decode([label for label in out["labels"] if label != -100]) == "".join(said)


def test_long_conversations_are_dropped_and_counted_not_cut(sft_data: Path, renderer: ChatRenderer) -> None:
    rows = read_records(sft_data, "train")
    lengths = [len(renderer.encode(row["messages"], row["tools"]).token_ids) for row in rows]
    limit = sorted(lengths)[len(lengths) // 2]
    encoded, counts = encode_records(rows, renderer, limit)
    assert [len(out["input_ids"]) for out in encoded] == [n for n in lengths if n <= limit]
    assert counts["kept"] + counts["too_long"] == counts["read"] == 36 and counts["too_long"] > 0
    with pytest.raises(DataError, match="all 36 records are longer than max_length=1"):
        encode_records(rows, renderer, 1)


def test_reading_by_task(sft_data: Path, tmp_path: Path) -> None:
    assert Counter(r["task"] for r in read_records(sft_data, "train", ["search", "function"])) == {
        "search": 24,
        "function": 4,
    }
    with pytest.raises(DataError, match=r"no record of the tasks \['relevance'\]"):
        read_records(sft_data, "train", ["relevance"])
    with pytest.raises(DataError, match="data_synthesis.build"):
        read_records(tmp_path, "train")
    write_jsonl(tmp_path / "sft" / "train.jsonl", [])
    with pytest.raises(DataError, match="holds no record"):
        read_records(tmp_path, "train")


def rows_of(**sizes: int) -> list[dict[str, Any]]:
    """Rows whose one token tells the task (thousands) and the row."""
    return [
        {"task": task, "input_ids": [1000 * number + i], "labels": [1000 * number + i]}
        for number, (task, size) in enumerate(sizes.items())
        for i in range(size)
    ]


def test_two_tasks_in_their_shares_without_repeats() -> None:
    rows = [{"task": t, "input_ids": [k], "labels": [k]} for t, k in [("a", i) for i in range(900)]]
    rows += [{"task": "b", "input_ids": [10_000 + i], "labels": [10_000 + i]} for i in range(900)]
    tokens = [ids[0] for ids in mix_tasks(rows, {"a": 3.0, "b": 1.0}, seed=0)["input_ids"]]
    first = [t for t in tokens if t < 10_000]
    assert len(set(tokens)) == len(tokens)
    assert len(first) == 900  # the task with the larger share runs out first and ends the epoch
    assert len(first) / len(tokens) == pytest.approx(0.75, abs=0.04)


def test_one_task_is_only_shuffled_and_the_seed_decides() -> None:
    rows = rows_of(a=50, b=5)
    tokens = [[i[0] for i in mix_tasks(rows, {"a": 1.0}, seed)["input_ids"]] for seed in (0, 0, 1)]
    assert sorted(tokens[0]) == list(range(50)) and tokens[0] == tokens[1] != tokens[2]
    two = [mix_tasks(rows, {"a": 1.0, "b": 1.0}, seed)["input_ids"] for seed in (0, 0, 1)]
    assert two[0] == two[1] != two[2]


@pytest.mark.parametrize("mixture", [{}, {"a": 0.0}, {"a": 1.0, "b": -1.0}])
def test_bad_shares(mixture: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="one share > 0 per task"):
        mix_tasks(rows_of(a=3, b=3), mixture, 0)


def test_a_task_without_records_is_named() -> None:
    with pytest.raises(ConfigError, match=r"'c', which has no record; there are a \(3\), b \(2\)"):
        mix_tasks(rows_of(a=3, b=2), {"a": 1.0, "c": 1.0}, 0)


def test_the_data_folder_of_these_tests_is_in_the_written_form(sft_data: Path) -> None:
    row = read_jsonl(sft_data / "sft" / "train.jsonl")[0]
    assert set(row) == {"id", "task", "source", "messages", "tools"}


@pytest.mark.parametrize("line", ["[1]", '{"task": "search"}', '{"messages": []}'])
def test_a_record_of_another_form_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "sft").mkdir()
    (tmp_path / "sft" / "train.jsonl").write_text('{"task": "search", "messages": []}\n' + line + "\n")
    with pytest.raises(DataError, match=r"train\.jsonl: record 2 is no object with 'task' and 'messages'"):
        read_records(tmp_path, "train", ["search"])
