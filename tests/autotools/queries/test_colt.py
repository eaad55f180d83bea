"""COLT data sets: a hand-made one, every kind of broken line, then ToolLens against its own graph files."""

import csv
import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from autotools.docs.corpus import read_api_corpus
from autotools.errors import DataError
from autotools.queries import RequestFile, dangling, read_colt, sort_out
from autotools.schema import ToolId

API = {"category_name": "Travel", "tool_name": "Rail & Co", "api_name": "Find Train"}
OTHER = {"category_name": "Weather", "tool_name": "Sky", "api_name": "/now"}
RAIL, SKY = (ToolId.make(*one.values()) for one in (API, OTHER))


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def reasons(found: RequestFile) -> list[tuple[int, str]]:
    return [(r["line"], r["reason"]) for r in found.rejects]


def colt(folder: Path) -> Path:
    text = ("category_name:{category_name}, tool_name:{tool_name}, api_name:{api_name}, api_description:a, b: c, "
            "required_params: [], optional_params: [], return_schema: \"\"")  # fmt: skip
    texts = {"0": text.format(**API), "1": text.format(**OTHER), "2": "no key words"}
    write(folder / "corpus.jsonl", "".join(json.dumps({"_id": n, "text": t}) + "\n" for n, t in texts.items()))
    asked = {"7": "a train", "8": "rain", "9": "odd", "10": "nobody", "11": None}
    write(folder / "queries.jsonl", "".join(json.dumps({"_id": n, "text": t}) + "\n" for n, t in asked.items()))
    head = "query-id\tcorpus-id\tscore\n"
    write(folder / "qrels/train.tsv", head + "7\t0\t1\n7\t1\t0\n9\t2\t1\n11\t0\t1\n12\t0\t1\n")
    write(folder / "qrels/test.tsv", head + "8\t1\t1\n8\t0\t1\n")
    return folder


def test_colt_split_documents_and_relevance(tmp_path: Path) -> None:
    train = sort_out(read_colt(colt(tmp_path / "ToolLens"), split="train"), {RAIL, SKY})
    assert [(line, t.id, t.level, t.targets) for line, t in train.tasks] == [(1, "toollens/7", "ToolLens", (RAIL,))]
    assert reasons(train) == [
        (4, "request without relevant documents"), (5, "request is not text"), (0, "request of the qrels has no text"),
        (3, "target not in the corpus"),
    ]  # fmt: skip
    assert train.rejects[-1]["detail"] == "colt.document.2"
    test = read_colt(tmp_path / "ToolLens", split="test")
    assert [t.targets for _, t in test.tasks] == [(SKY, RAIL)]


def spoil(path: Path, line: int, text: str) -> None:
    """Replace one line (from 1)."""
    lines = path.read_text(encoding="utf-8").split("\n")
    lines[line - 1] = text
    path.write_text("\n".join(lines), encoding="utf-8")


def test_broken_document_leaves_its_requests_dangling(tmp_path: Path) -> None:
    folder = colt(tmp_path / "ToolLens")
    before = read_colt(folder, split="train")
    spoil(folder / "corpus.jsonl", 1, '{"_id": "0", "text": "cut off')
    found = read_colt(folder, split="train")
    (broken,) = [r for r in found.rejects if r["source"] == "ToolLens/corpus.jsonl"]
    assert (broken["line"], broken["reason"]) == (1, "line is not JSON")
    assert found.read == before.read + 1 and len(found.tasks) == len(before.tasks)
    assert [t.targets for _, t in found.tasks][0] == (ToolId(category="colt", tool="document", api="0"),)
    assert [(str(r.target), r.example) for r in dangling(found, {RAIL, SKY})] == [
        ("colt.document.0", "toollens/7"), ("colt.document.2", "toollens/9"),
    ]  # fmt: skip
    assert sort_out(found, {RAIL, SKY}).tasks == []


def test_broken_request_line_shows_at_its_line_and_at_its_judgements(tmp_path: Path) -> None:
    folder = colt(tmp_path / "ToolLens")
    for text, reason in (("{", "line is not JSON"), ("[7]", "line is not an object"), ('{"text": "a"}', "without id")):
        spoil(folder / "queries.jsonl", 1, text)
        found = read_colt(folder, split="train")
        (broken,) = [r for r in found.rejects if r["line"] == 1]
        assert broken["source"] == "ToolLens/queries.jsonl" and reason in broken["reason"]
        assert [r["detail"] for r in found.rejects if r["reason"] == "request of the qrels has no text"] == ["7", "12"]
        assert [t.id for _, t in found.tasks] == ["toollens/9"]


@pytest.mark.parametrize("text", ["7\t0\tyes", "7\t0", "7\t\t1", "7\t0\t1\t1", "7\t0\tnan"])
def test_broken_judgement_sets_its_request_aside(tmp_path: Path, text: str) -> None:
    folder = colt(tmp_path / "ToolLens")
    spoil(folder / "qrels/train.tsv", 2, text)
    found = read_colt(folder, split="train")
    assert [(r["source"], r["line"]) for r in found.rejects[:1]] == [("ToolLens/qrels/train.tsv", 2)]
    assert (1, "its relevance judgement is broken") in reasons(found)
    assert [t.id for _, t in found.tasks] == ["toollens/9"]
    test = read_colt(folder, split="test")  # the line is told once, by the split that it is of
    assert all(r["source"] == "ToolLens/queries.jsonl" for r in test.rejects) and len(test.tasks) == 1


def test_judgement_without_a_request_is_a_reject_of_its_own(tmp_path: Path) -> None:
    folder = colt(tmp_path / "ToolLens")
    spoil(folder / "qrels/train.tsv", 2, "\t0\t1")
    found = read_colt(folder, split="train")
    assert reasons(found)[0] == (2, "line is not query-id, corpus-id, score")
    assert reasons(found)[1] == (1, "request without relevant documents")  # request 7: line 3 gives it score 0 only
    assert [t.id for _, t in found.tasks] == ["toollens/9"]


def test_repeated_ids_count_once(tmp_path: Path) -> None:
    folder = colt(tmp_path / "ToolLens")
    with (folder / "queries.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"_id": "7", "text": "again"}) + "\n")
    document = json.loads((folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[0])
    with (folder / "corpus.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(document) + "\n" + json.dumps(document | {"text": "another"}) + "\n")
    found = read_colt(folder, split="train")
    assert (6, "id of an earlier request") in reasons(found)
    assert [r["line"] for r in found.rejects if r["source"] == "ToolLens/corpus.jsonl"] == [5]
    assert found.tasks[0][1].targets == (RAIL,)


def test_packed_files_are_read(tmp_path: Path) -> None:
    folder = colt(tmp_path / "ToolLens")
    before = read_colt(folder, split="train")
    for name in ("corpus.jsonl", "queries.jsonl"):
        content = (folder / name).read_bytes()
        (folder / name).unlink()
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    assert read_colt(folder, split="train").tasks == before.tasks
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(content)[:-9])
    with pytest.raises(DataError, match="cannot read"):
        read_colt(folder, split="train")


def test_files_broken_as_a_whole_are_one_error(tmp_path: Path) -> None:
    folder = colt(tmp_path / "ToolLens")
    with pytest.raises(DataError, match="no split 'dev'"):
        read_colt(folder, split="dev")
    write(folder / "qrels/train.tsv", "a\tb\n1\t2\n")
    with pytest.raises(DataError, match=r"train\.tsv:1: not query-id"):
        read_colt(folder, split="train")
    write(folder / "qrels/train.tsv", "query-id\tcorpus-id\tscore\n7\n\n8\n")
    with pytest.raises(DataError, match=r"train\.tsv:2: not query-id"):
        read_colt(folder, split="train")
    colt(folder)
    write(folder / "corpus.jsonl", "{\n[]\n")
    with pytest.raises(DataError, match=r"no usable line \(line 1"):
        read_colt(folder, split="train")
    (folder / "corpus.jsonl").unlink()
    with pytest.raises(DataError, match="cannot read"):
        read_colt(folder, split="train")


# --- real samples -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real_ids(shared_data: Path) -> set[ToolId]:
    return {s.id for s in read_api_corpus(shared_data / "sources/toolbench_corpus/corpus.jsonl.gz").specs}


@pytest.mark.shared
@pytest.mark.parametrize("split", ["train", "test"])
def test_toollens_against_its_graph_files(shared_data: Path, real_ids: set[ToolId], split: str) -> None:
    """query_tool_*.txt holds the same relation as the qrels, written by other code."""
    folder = shared_data / "sources/colt/datasets/ToolLens"
    found = sort_out(read_colt(folder, split=split), real_ids)
    assert (found.read, len(found.tasks)) == ({"train": 4000, "test": 800}[split],) * 2
    with (folder / f"query_tool_{split}.txt").open(encoding="utf-8", newline="") as file:
        sizes = Counter(Counter(pair[0] for pair in csv.reader(file, delimiter="\t")).values())
    doubled = found.repaired["target named twice"]  # two documents of one tool count once for us
    ours = Counter(len(task.targets) for _, task in found.tasks)
    assert sum(n * c for n, c in sizes.items()) - sum(n * c for n, c in ours.items()) == doubled
