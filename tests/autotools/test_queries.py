"""Readers of request files: hand-made files with every known fault, then the real samples against other files."""

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from autotools.docs.corpus import read_api_corpus
from autotools.errors import DataError
from autotools.queries import RequestFile, normalised, read_anytoolbench, read_colt, read_toolbench, sort_out
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


def test_normalised_sees_through_case_blanks_and_signs() -> None:
    assert normalised("What's  the  C++ price?\n") == normalised("what s the c price") == "what s the c price"
    assert normalised("price_of A") == "price of a" != normalised("price of b")


def test_toolbench_pairs_get_their_category_from_the_api_list(tmp_path: Path) -> None:
    good = {"query": " a train,\n and rain ", "query_id": 5, "api_list": [API, OTHER],
            "relevant APIs": [["Sky", "/now"], ["Rail & Co", "Find Train"], ["Sky", "/now"]]}  # fmt: skip
    twice = API | {"category_name": "Logistics"}
    path = write(tmp_path / "G3_instruction.json", [
        good,
        "text",
        good | {"query": ["a", "b"]},
        good | {"relevant APIs": []},
        good | {"relevant APIs": [["Sky", "/then"]]},
        good | {"api_list": [API, twice], "relevant APIs": [["Rail & Co", "Find Train"]]},
        good | {"relevant APIs": [7]},
    ])  # fmt: skip
    found = read_toolbench(path, suite="stabletoolbench", split="test")
    ((line, task),) = found.tasks
    assert (line, task.id, task.level) == (1, "stabletoolbench/G3_instruction/5", "G3_instruction")
    assert (task.query, task.targets, task.split) == ("a train, and rain", (SKY, RAIL), "test")
    assert found.repaired == {"target named twice": 1}
    assert reasons(found) == [
        (2, "not an object"), (3, "request is not text"), (4, "request without targets"),
        (5, "relevant API not in the api_list"), (6, "relevant API in two categories"),
        (7, "relevant API not in the api_list"),
    ]  # fmt: skip
    assert found.read == 7 and found.rejects[3]["detail"] == "Sky / /then"


def test_anytoolbench_and_dangling_targets(tmp_path: Path) -> None:
    path = write(tmp_path / "any.json", [
        {"query": "a train", "query_id": "10", "gt_api_list": [API]},
        {"query": "a train and rain", "query_id": "11", "gt_api_list": [API, OTHER]},
        {"query": "half", "query_id": "12", "gt_api_list": [{"tool_name": "Sky"}]},
    ])  # fmt: skip
    found = sort_out(read_anytoolbench(path, split="train"), {RAIL})
    assert [task.id for _, task in found.tasks] == ["anytoolbench/10"]
    assert reasons(found) == [(3, "target without names"), (2, "target not in the corpus")]
    assert found.rejects[1]["detail"] == str(SKY) and found.read == 3


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


def test_unreadable_files_are_one_error(tmp_path: Path) -> None:
    for content, why in (("{", "not JSON"), ('{"a": 1}', "not a list of requests")):
        with pytest.raises(DataError, match=why):
            read_anytoolbench(write(tmp_path / "x.json", content), split="train")
    with pytest.raises(DataError, match="cannot read"):
        read_toolbench(tmp_path / "none.json", suite="s", split="test")
    folder = colt(tmp_path / "ToolLens")
    with pytest.raises(DataError, match="no split 'dev'"):
        read_colt(folder, split="dev")
    write(folder / "qrels/train.tsv", "a\tb\n1\t2\n")
    with pytest.raises(DataError, match=r"train\.tsv:2: not query-id"):
        read_colt(folder, split="train")


# --- real samples -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real_ids(shared_data: Path) -> set[ToolId]:
    return {s.id for s in read_api_corpus(shared_data / "sources/toolbench_corpus/corpus.jsonl.gz").specs}


@pytest.mark.shared
def test_stabletoolbench_against_its_id_lists(shared_data: Path, real_ids: set[ToolId]) -> None:
    folder, texts = shared_data / "sources" / "stabletoolbench", []
    for path in sorted((folder / "solvable_queries/test_instruction").glob("*.json")):
        found = sort_out(read_toolbench(path, suite="stabletoolbench", split="test"), real_ids)
        wanted = json.loads((folder / "solvable_queries/test_query_ids" / path.name).read_text())
        assert {task.id.rpartition("/")[2] for _, task in found.tasks} == set(wanted)
        assert found.rejects == [] and {task.level for _, task in found.tasks} == {path.stem}
        texts += [normalised(task.query) for _, task in found.tasks]
    assert (len(texts), len(set(texts))) == (405, 404)


@pytest.mark.shared
def test_anytoolbench_names_its_two_dangling_requests(shared_data: Path, real_ids: set[ToolId]) -> None:
    paths = sorted((shared_data / "sources/anytoolbench").glob("*.json"))
    found = [sort_out(read_anytoolbench(path, split="train"), real_ids) for path in paths]
    assert [(f.read, len(f.tasks)) for f in found] == [(207, 205), (192, 192)]
    assert {r["detail"] for f in found for r in f.rejects} == {"Customized.hello_world.get_hello_world"}


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
