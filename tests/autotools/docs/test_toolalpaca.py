"""ToolAlpaca tools: made-up ones by hand; the real ones read twice, from OpenAPI and from the functions' texts."""

import json
from pathlib import Path
from typing import Any

import pytest

from autotools.docs.toolalpaca import matches, read
from autotools.errors import DataError
from autotools.schema import ToolId, ToolParameter, ToolSpec

OPENAPI = {
    "openapi": "3.0.0", "info": {"title": "Other title"}, "servers": [{"url": "https://p.example/"}],
    "paths": {"/pets/{id}": {"get": {
        "operationId": "op1", "description": "One pet", "parameters": [
            {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}},
            {"name": "key", "in": "query", "required": True, "schema": {"type": "string"}},
        ],
        "responses": {"200": {"content": {"application/json": {"schema": {
            "type": "object", "properties": {"name": {"type": "string"}}}}}}},
    }}},
}  # fmt: skip
GET_PET = 'One pet\nParameters: {"id": "Required. integer. "}\nOutput: A pet.\n - Format: application/json'
ADD_PET = (
    'Add a pet\nParameters: {"kind": "Required. string. One of: [cat, dog]. Which kind. Really.", '
    '"tags": "Array[string]. Any tags.", "owner": "Object{name, age: integer. }. Whose it is.", "odd": "no type"}\n'
    "Output: Done."
)


def tool(**changes: Any) -> dict[str, Any]:
    return {
        "Name": "Pet Shop", "Description": "short", "Introduction": "A shop of pets", "Category": "Animals",
        "Documentation": json.dumps(OPENAPI), "Authentication": {"key": "***"},
        "Function_Description": {"getPet": GET_PET, "components": ""},
        "Function_Projection": {"getPet": ["/pets/{id}", "get"]},
    } | changes  # fmt: skip


def tools_file(folder: Path, *tools: Any) -> Path:
    path = folder / "tools.json"
    path.write_text(json.dumps(list(tools)))
    return path


def test_the_openapi_document_under_the_names_of_the_functions(tmp_path: Path) -> None:
    reading = read(tools_file(tmp_path, tool(), tool()))
    assert reading.specs == [
        ToolSpec(
            id=ToolId(category="Animals", tool="pet_shop", api="getpet"),
            tool_name="Pet Shop",
            api_name="getPet",
            description="One pet",
            tool_description="A shop of pets",
            server="https://p.example",
            path="/pets/{id}",
            parameters=(ToolParameter(name="id", location="path", type="integer", required=True),),
            response={"name": "string"},
            notes=("needs an API key (query key)",),
        )
    ]
    assert (reading.read, reading.repeated, reading.documents) == (2, 1, 2)


def test_what_the_document_lacks_is_read_from_the_texts(tmp_path: Path) -> None:
    texts = {"getPet": GET_PET, "addPet": ADD_PET, "dropPet": "Gone\nParameters: {broken}", "x": 3, "components": "#A"}
    calls = {"getPet": ["/pets/{id}", "get"], "addPet": ["/pets", "post"], "dropPet": ["/pets", "fetch"]}
    reading = read(tools_file(tmp_path, tool(Function_Description=texts, Function_Projection=calls)))
    _, add, drop = reading.specs
    lacks, unread = "its OpenAPI document lacks this function; read from the description", "its response is not read"
    assert (add.method, add.path, add.description) == ("POST", "/pets", "Add a pet")
    assert add.parameters == (
        ToolParameter(
            name="kind", location="body", required=True, description="Which kind. Really.", enum=("cat", "dog")
        ),
        ToolParameter(name="tags", location="body", type="array", description="Any tags."),
        ToolParameter(name="owner", location="body", type="object", description="Whose it is."),
        ToolParameter(name="odd", location="body", description="no type"),
    )
    assert add.notes == (lacks, unread, "parameter without type")
    assert drop.parameters == () and drop.notes == (
        lacks, unread, "the request is not documented", "parameter list is cut JSON and left out",
    )  # fmt: skip
    assert [(r["line"], r["reason"], r["detail"]) for r in reading.rejects] == [
        (1, "function without description", "x")
    ]


@pytest.mark.parametrize(
    ("document", "start"),
    [
        ("{cut", "OpenAPI document is broken ('not JSON: "), ("{}", "OpenAPI document is broken ('not an OpenAPI"),
        (None, "no OpenAPI document"), ('{"paths": {}}', "its OpenAPI document lacks this function"),
    ],
)  # fmt: skip
def test_without_usable_document_all_is_read_from_the_texts(tmp_path: Path, document: Any, start: str) -> None:
    (spec,) = read(tools_file(tmp_path, tool(Documentation=document))).specs
    assert (str(spec.id), spec.method, spec.path) == ("Animals.pet_shop.getpet", "GET", "/pets/{id}")
    assert spec.parameters == (ToolParameter(name="id", location="path", type="integer", required=True),)
    assert spec.notes[0].startswith(start) and spec.notes[0].endswith("read from the description")


def test_refused(tmp_path: Path) -> None:
    broken = json.dumps(OPENAPI | {"paths": {"/a": {"get": 7}}})
    service = {"API": "Cats", "Link": "https://cats.example", "Category": "Animals"}
    reading = read(tools_file(tmp_path, service, 3, tool(Category=None), tool(Documentation=broken)))
    assert [(r["line"], r["reason"]) for r in reading.rejects] == [
        (1, "names a service, documents no API"), (2, "not a tool"), (3, "empty name"),
        (4, "operation is not an object"),
    ]  # fmt: skip
    assert len(reading.specs) == 1 and reading.read == 5
    (tmp_path / "entries.json").write_text(json.dumps({"count": 1, "entries": [service]}))
    assert len(read(tmp_path / "entries.json").rejects) == 1
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(DataError, match=r"other\.json: not a list of tools"):
        read(tmp_path / "other.json")


def test_matches() -> None:
    listed = '{"count": 2, "entries": [{"API": "Cats", "Link": "x"}]}'
    assert matches(Path("a.json"), json.dumps([tool()])) and matches(Path("public_apis.json"), listed)
    assert not matches(Path("a.json"), json.dumps(OPENAPI)) and not matches(Path("a.jsonl"), json.dumps([tool()]))


REAL = {  # tools, functions
    "eval_real.json": (6, 26), "eval_simulated.json": (5, 30), "validation_data_2023-07.json": (5, 30),
}  # fmt: skip


@pytest.mark.shared
@pytest.mark.parametrize("name", REAL)
def test_real_files_say_the_same_in_both_ways(shared_data: Path, tmp_path: Path, name: str) -> None:
    path = shared_data / "sources/toolalpaca" / name
    tools = json.loads(path.read_text())
    functions = {
        (t["Name"], f) for t in tools for f in t.get("Function_Description", t.get("Functions")) if f != "components"
    }
    first = read(path)
    assert (len(tools), len(functions)) == REAL[name] == (first.documents, first.read)
    assert {(s.tool_name, s.api_name) for s in first.specs} == functions and first.rejects == []
    assert not any("read from the description" in note for note in first.repaired)
    second = read(tools_file(tmp_path, *(t | {"Documentation": "{broken"} for t in tools)))
    by_id = {spec.id: spec for spec in second.specs}
    assert len(by_id) == len(functions)
    for spec in first.specs:
        other = by_id[spec.id]
        assert {(p.name, p.required) for p in spec.parameters} == {(p.name, p.required) for p in other.parameters}
        if name != "validation_data_2023-07.json":  # it has no Function_Projection
            assert (spec.method, spec.path) == (other.method, other.path)


@pytest.mark.shared
def test_public_apis_are_refused_one_by_one(shared_data: Path) -> None:
    reading = read(shared_data / "sources/toolalpaca/public_apis.json")
    assert (reading.read, reading.specs) == (150, [])
    assert {r["reason"] for r in reading.rejects} == {"names a service, documents no API"}
