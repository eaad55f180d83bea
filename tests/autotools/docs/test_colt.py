"""COLT documents: made-up texts cut by hand, then the real files against the corpus that names the same APIs."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from autotools.docs.colt import document_id, matches, read
from autotools.schema import ToolId, ToolParameter, ToolSpec


def text(
    description: str = "Ask, api_name:x, required_params: y, then: wait", schema: str = '{"a": "str"}', **changes: str
) -> str:
    parts = {
        "category_name": "Food",
        "tool_name": "The, Menu: a",
        "api_name": "/v1/{id}",
        "api_description": description,
    }
    head = ", ".join(f"{key}:{value}" for key, value in (parts | changes).items())
    required = json.dumps([{"name": "q, p", "type": "NUMBER", "description": "a, api_name: b"}])
    optional = json.dumps([{"name": "o"}, {}])
    return f"{head}, required_params: {required}, optional_params: {optional}, return_schema: {schema}"


def corpus(folder: Path, *texts: Any) -> Path:
    path = folder / "Set" / "corpus.jsonl"
    path.parent.mkdir()
    rows = [t if isinstance(t, str) and t.startswith("!") else json.dumps({"_id": "7", "text": t}) for t in texts]
    path.write_text("\n".join(row.removeprefix("!") for row in rows))
    return path


def test_a_text_is_cut_by_its_key_words(tmp_path: Path) -> None:
    (spec,) = read(corpus(tmp_path, text())).specs
    assert spec == ToolSpec(
        id=ToolId(category="Food", tool="the_menu_a", api="v1_id"),
        tool_name="The, Menu: a",
        api_name="/v1/{id}",
        description="Ask, api_name:x, required_params: y, then: wait",
        parameters=(
            ToolParameter(name="q, p", type="number", required=True, description="a, api_name: b"),
            ToolParameter(name="o"),
        ),
        response={"a": "string"},
        notes=("parameter without type", "parameter without name left out"),
    )
    assert document_id(text()) == spec.id and document_id("category_name:Food") is None


def test_what_is_missing_is_noted_or_refused(tmp_path: Path) -> None:
    reading = read(
        corpus(
            tmp_path, text("", '""'), text("", '""'), text("other"), text(tool_name="B", schema='{"cut'),
            text(tool_name="?"), "no document", None, "!{broken", "![1]",
        )
    )  # fmt: skip
    assert [spec.notes[0] for spec in reading.specs] == ["no description", "parameter without type"]
    assert reading.specs[1].notes[-1] == "response is cut JSON and left out"
    assert [(r["line"], r["reason"]) for r in reading.rejects] == [
        (3, "another document of an id that was read before"), (5, "empty name"), (6, "no document of an API"),
        (7, "no document of an API"), (8, "not JSON"), (9, "no document of an API"),
    ]  # fmt: skip
    assert (reading.read, reading.repeated, reading.source) == (9, 1, "Set/corpus.jsonl")


def test_matches() -> None:
    row = json.dumps({"_id": "0", "title": "", "text": text()})
    assert matches(Path("corpus.jsonl.gz"), row) and not matches(Path("corpus.json"), row)
    assert not matches(Path("queries.jsonl"), json.dumps({"_id": "q1", "text": "find a hotel", "metadata": {}}))


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "kept", "rejected", "notes"),
    [
        ("ToolLens/corpus.jsonl", 464, 0, {"response is cut JSON and left out": 7}),
        ("ToolBenchG3/corpus.jsonl.gz", 1415, 4, {
            "response is cut JSON and left out": 84, "no description": 62, "description cut to … characters": 1,
        }),
    ],
)  # fmt: skip
def test_real_files(shared_data: Path, name: str, kept: int, rejected: int, notes: dict[str, int]) -> None:
    reading = read(shared_data / "sources/colt/datasets" / name)
    assert (len(reading.specs), reading.repeated, len(reading.rejects)) == (kept, 0, rejected)
    assert reading.read == kept + rejected and reading.repaired == notes
    assert {r["reason"] for r in reading.rejects} <= {"another document of an id that was read before"}


@pytest.mark.shared
def test_real_documents_say_what_the_corpus_says(shared_data: Path) -> None:
    known: dict[tuple[str, str, str], dict[str, Any]] = {}
    with gzip.open(shared_data / "sources/toolbench_corpus/corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            known[row["category_name"], row["tool_name"].strip(), row["api_name"].strip()] = row
    same = Counter()
    for spec in read(shared_data / "sources/colt/datasets/ToolLens/corpus.jsonl").specs:
        if row := known.get((spec.id.category, spec.tool_name, spec.api_name)):
            same["api"] += 1
            same["description"] += spec.description == row["api_description"].strip()
            # COLT left optional parameters out of all its documents; the corpus lost capitals in some names
            assert all(p.required for p in spec.parameters)
            names = sorted(p.name.lower() for p in spec.parameters)
            same["required"] += names == sorted(p["name"].lower() for p in row["required_parameters"])
    assert same == {"api": 458, "description": 446, "required": 458}
