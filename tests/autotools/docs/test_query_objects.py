"""API objects inside query files: made-up files by hand, then real ones against plain counts of their JSON."""

import json
from pathlib import Path
from typing import Any

import pytest

from autotools.docs.corpus import read as read_corpus
from autotools.docs.files import head_of
from autotools.docs.query_objects import matches, read
from autotools.errors import DataError


def api(name: str, **more: Any) -> dict[str, Any]:
    return {
        "category_name": "Food", "tool_name": "Cook & Book", "api_name": name, "api_description": "d", "method": "GET",
        "required_parameters": [], "optional_parameters": [], "template_response": {"a": "int", "_list_length": 2},
    } | more  # fmt: skip


def test_each_object_once_and_nothing_lost(tmp_path: Path) -> None:
    queries = [
        {"api_list": [api("One"), api("two")], "query": "q"},
        {"api_list": [api("One"), api("One", api_description="else"), "text", api("")]},
        {"query": "no candidates"},
        7,
    ]
    path = tmp_path / "G1_query.json"
    path.write_text(json.dumps(queries))
    assert matches(path, head_of(path))
    found = read(path)
    assert [str(spec.id) for spec in found.specs] == ["Food.cook_book.one", "Food.cook_book.two"]
    assert found.specs[0].response == {"a": "integer"}
    assert [(r["line"], r["reason"]) for r in found.rejects] == [
        (2, "another document of an id that was read before"), (2, "not a tool document"), (2, "empty name"),
        (3, "query without a list of APIs"), (4, "query without a list of APIs"),
    ]  # fmt: skip
    assert (found.documents, found.read, found.repeated) == (4, 8, 1)


def test_other_lists_of_queries_are_not_this_form(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for record in ({"query": "q", "api_list": ["GET_a"]}, {"query": "q", "gt_api_list": [{"category_name": "c"}]}):
        assert not matches(path, json.dumps([record]))
    path.write_text('{"api_list": []}')
    with pytest.raises(DataError, match="not a list of queries"):
        read(path)


FILES = {  # distinct objects
    "stabletoolbench/solvable_queries/test_instruction/G1_category.json": 238,
    "stabletoolbench/solvable_queries/test_instruction/G1_instruction.json": 464,
    "stabletoolbench/solvable_queries/test_instruction/G1_tool.json": 346,
    "stabletoolbench/solvable_queries/test_instruction/G2_category.json": 249,
    "stabletoolbench/solvable_queries/test_instruction/G2_instruction.json": 355,
    "stabletoolbench/solvable_queries/test_instruction/G3_instruction.json": 42,
    "toolbench_queries/test_instruction_not_solvable/G1_category.json": 80,
    "toolbench_queries/test_instruction_not_solvable/G1_instruction.json": 59,
    "toolbench_queries/test_instruction_not_solvable/G1_tool.json": 68,
    "toolbench_queries/test_instruction_not_solvable/G2_category.json": 167,
    "toolbench_queries/test_instruction_not_solvable/G2_instruction.json": 314,
    "toolbench_queries/test_instruction_not_solvable/G3_instruction.json": 37,
    "toolbench_queries/train_example/G1_query.json": 2,
    "toolbench_queries/train_example/G2_query.json": 7,
    "toolbench_queries/train_example/G3_query.json": 11,
}


@pytest.mark.shared
def test_real_files_against_plain_counts(shared_data: Path) -> None:
    total = 0
    for name, distinct in FILES.items():
        path = shared_data / "sources" / name
        objects = [api for query in json.loads(path.read_text()) for api in query["api_list"]]
        found = read(path)
        assert matches(path, head_of(path)) and found.rejects == []
        assert len(found.specs) == distinct == len({json.dumps(api, sort_keys=True) for api in objects})
        assert found.read == len(objects) == distinct + found.repeated
        total += found.read
    assert total == 3_082


@pytest.mark.shared
def test_real_objects_are_those_of_the_corpus(shared_data: Path) -> None:
    corpus = {s.id: s for s in read_corpus(shared_data / "sources/toolbench_corpus/corpus.jsonl.gz").specs}
    found = read(shared_data / "sources/stabletoolbench/solvable_queries/test_instruction/G1_tool.json")
    assert len(found.specs) == 346
    for spec in found.specs:
        other = corpus[spec.id]
        assert (spec.description, spec.parameters) == (other.description, other.parameters)
