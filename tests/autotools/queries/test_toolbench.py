"""ToolBench, StableToolBench, AnyToolBench: hand-made files with every known fault, then the real samples."""

import json
from pathlib import Path
from typing import Any

import pytest

from autotools.docs.corpus import read_api_corpus
from autotools.errors import DataError
from autotools.queries import RequestFile, dangling, normalised, read_anytoolbench, read_toolbench, sort_out
from autotools.schema import ToolId, standardise

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


def test_odd_records_are_rejected_one_by_one(tmp_path: Path) -> None:
    good = {"query": "a train", "query_id": 5, "api_list": [API, 7, None, {"api_name": []}],
            "relevant APIs": [["Rail & Co", "Find Train"]]}  # fmt: skip
    nameless = {"category_name": "Travel", "tool_name": "Rail & Co", "api_name": "///"}
    path = write(tmp_path / "G1_query.json", [
        good,
        good | {"query": "another"},
        good | {"query_id": None, "query": "a \ud800 train"},
        good | {"query_id": True},
        good | {"api_list": 7},
        good | {"relevant APIs": [[["Rail & Co"], {}]]},
        good | {"relevant APIs": [["Rail & Co"]]},
        good | {"api_list": [nameless], "relevant APIs": [["Rail & Co", "///"]]},
    ])  # fmt: skip
    found = read_toolbench(path, suite="toolbench", split="train")
    assert [(line, task.id) for line, task in found.tasks] == [
        (1, "toolbench/G1_query/5"), (3, "toolbench/G1_query/line-3"), (4, "toolbench/G1_query/line-4"),
    ]  # fmt: skip
    assert found.tasks[1][1].query == "a ? train"
    assert found.repaired == {"request without id; its line was taken": 2}
    assert reasons(found) == [
        (2, "id of an earlier request"), (5, "relevant API not in the api_list"),
        (6, "relevant API not in the api_list"), (7, "relevant API not in the api_list"), (8, "target without names"),
    ]  # fmt: skip


def test_dangling_targets_are_listed_by_how_many_want_them(tmp_path: Path) -> None:
    third = {"category_name": "Weather", "tool_name": "Sky", "api_name": "at"}
    path = write(tmp_path / "any.json", [
        {"query": "1", "query_id": 1, "gt_api_list": [third, API]},
        {"query": "2", "query_id": 2, "gt_api_list": [API, OTHER]},
        {"query": "3", "query_id": 3, "gt_api_list": [OTHER, OTHER, third]},
        {"query": "4", "query_id": 4, "gt_api_list": [OTHER]},
    ])  # fmt: skip
    found = read_anytoolbench(path, split="train")
    rows = dangling(found, {RAIL})
    assert [(str(r.target), r.requests, r.example, r.source, r.line) for r in rows] == [
        ("Weather.sky.now", 3, "anytoolbench/2", "anytoolbench/any.json", 2),
        ("Weather.sky.at", 2, "anytoolbench/1", "anytoolbench/any.json", 1),
    ]
    assert dangling([found, found], {RAIL})[0].requests == 6
    assert {name for r in sort_out(found, {RAIL}).rejects for name in r["detail"].split(", ")} == {
        str(r.target) for r in rows
    }
    assert dangling(found, {RAIL, SKY, rows[1].target}) == []


def test_unreadable_files_are_one_error(tmp_path: Path) -> None:
    for content, why in (("{", "not JSON"), ('{"a": 1}', "not a list of requests"), ("[" * 99_999, "not JSON")):
        with pytest.raises(DataError, match=why):
            read_anytoolbench(write(tmp_path / "x.json", content), split="train")
    with pytest.raises(DataError, match="cannot read"):
        read_toolbench(tmp_path / "none.json", suite="s", split="test")


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
@pytest.mark.parametrize(
    ("folder", "number", "kept"), [("test_instruction_not_solvable", 152, 152), ("train_example", 7, 7)]
)
def test_toolbench_queries_against_a_plain_count(
    shared_data: Path, real_ids: set[ToolId], folder: str, number: int, kept: int
) -> None:
    read, held, targets = 0, 0, 0
    for path in sorted((shared_data / "sources/toolbench_queries" / folder).glob("*.json")):
        found = read_toolbench(path, suite="toolbench", split="test")
        records = json.loads(path.read_text(encoding="utf-8"))
        assert found.read == len(records) and found.rejects == []
        for record, (_, task) in zip(records, found.tasks, strict=True):
            pairs = list(dict.fromkeys(map(tuple, record["relevant APIs"])))
            assert [(t.tool, t.api) for t in task.targets] == [tuple(map(standardise, pair)) for pair in pairs]
            targets += len(pairs)
        read += found.read
        held += len(sort_out(found, real_ids).tasks)
    assert (read, held) == (number, kept) and targets >= number
