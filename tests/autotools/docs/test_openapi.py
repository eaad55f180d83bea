"""OpenAPI reader on small hand-written documents with the gaps that documents in the wild have."""

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from autotools.docs import AUTH_NOTE
from autotools.docs.files import head_of
from autotools.docs.openapi import matches, read, read_document, read_openapi
from autotools.errors import DataError, ToolDocError

DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "Zoo Service", "version": "1"},
    "servers": [{"url": "https://zoo.invalid/v2/"}],
    "paths": {
        "/animals/{animal_id}/meals": {
            "parameters": [{"$ref": "#/components/parameters/Limit"}],
            "get": {
                "tags": ["Animals"],
                "operationId": "List Meals",
                "summary": "meals of an animal",
                "parameters": [
                    {"name": "since", "in": "query", "required": "true", "schema": {"type": ["string", "null"]}},
                    {"name": "seen", "in": "cookie", "schema": {"type": "string"}},
                ],
                "responses": {
                    "404": {"description": "no"},
                    "200": {"description": "ok", "content": {"application/json": {"schema": {"$ref": "#/x~1y/Meals"}}}},
                },
            },
            "post": {
                "requestBody": {
                    "content": {
                        "application/json": {
                            "schema": {
                                "type": "object",
                                "required": ["food"],
                                "properties": {
                                    "food": {"type": "string", "enum": ["hay", "fish"]},
                                    "grams": {"$ref": "#/components/schemas/Grams"},
                                },
                            }
                        }
                    }
                }
            },
        }
    },
    "components": {
        "parameters": {"Limit": {"name": "limit", "in": "query", "schema": {"type": "integer", "default": 5}}},
        "schemas": {"Grams": {"type": "integer", "description": "weight", "example": 40}},
    },
    "x/y": {
        "Meals": {
            "type": "object",
            "properties": {
                "items": {"type": "array", "items": {"allOf": [{"$ref": "#/x~1y/Meal"}, {"$ref": "#/x~1y/Stamp"}]}},
                "next": {"$ref": "#/x~1y/Meals"},
            },
        },
        "Meal": {"type": "object", "properties": {"food": {"type": "string"}}},
        "Stamp": {"properties": {"at": {"oneOf": [{"type": "number"}, {"type": "string"}]}}},
    },
}


def test_fields_notes_and_references():
    get, post = read_openapi(DOCUMENT)
    assert str(get.id) == "Animals.zoo_service.list_meals"
    assert (get.method, get.path, get.server) == ("GET", "/animals/{animal_id}/meals", "https://zoo.invalid/v2")
    assert get.description == "meals of an animal"
    parameters = {p.name: p for p in get.parameters}
    assert set(parameters) == {"limit", "since", "animal_id"}
    limit = parameters["limit"]
    assert (limit.type, limit.default, limit.required) == ("integer", 5, False)
    assert (parameters["since"].type, parameters["since"].required) == ("string", True)
    assert (parameters["animal_id"].location, parameters["animal_id"].required) == ("path", True)
    assert any("animal_id" in n for n in get.notes) and any("seen" in n for n in get.notes)
    assert get.response["items"] == [{"food": "string", "at": "number"}]

    assert str(post.id) == "Zoo Service.zoo_service.post_animals_animal_id_meals"
    body = {p.name: p for p in post.parameters if p.location == "body"}
    assert (body["food"].required, body["food"].enum) == (True, ("hay", "fish"))
    assert (body["grams"].type, body["grams"].description, body["grams"].example) == ("integer", "weight", 40)


def test_recursive_response_ends():
    template, depth = read_openapi(DOCUMENT)[0].response, 0
    while isinstance(template, dict):
        template, depth = template["next"], depth + 1
    assert template == "object" and depth < 20


def test_equal_ids_are_renamed_with_a_note():
    document = copy.deepcopy(DOCUMENT)
    document["paths"]["/other"] = {"get": {"tags": ["Animals"], "operationId": "list-meals"}}
    specs = read_openapi(document)
    assert [str(s.id) for s in specs][::2] == ["Animals.zoo_service.list_meals", "Animals.zoo_service.list_meals_v2"]
    assert "renamed" in specs[2].notes[-1]


@pytest.mark.parametrize("reference", ["#/x~1y/Nothing", "#/loop/a", "http://elsewhere.invalid/a.json"])
def test_bad_references_are_named(reference):
    document = copy.deepcopy(DOCUMENT)
    document["loop"] = {"a": {"$ref": "#/loop/b"}, "b": {"$ref": "#/loop/a"}}
    document["components"]["parameters"]["Limit"] = {"$ref": reference}
    with pytest.raises(ToolDocError, match="ref"):
        read_openapi(document)


def test_other_json_is_refused():
    with pytest.raises(ToolDocError, match="paths"):
        read_openapi({"endpoints": []})


# --- Swagger 2 ----------------------------------------------------------------------------------------------------

SWAGGER = """
swagger: "2.0"
info: {title: API, description: "# Pets\\n\\nA shop\\n of pets."}
host: pets.invalid
basePath: /v1/
schemes: [http, https]
securityDefinitions:
  key: {type: apiKey, in: header, name: X-Pet-Key}
security: [{key: []}]
parameters:
  Page: {name: page, in: query, type: integer, default: 1}
definitions:
  Pet:
    type: object
    required: [name]
    properties:
      name: {type: string}
      born: {type: string, format: date, example: 2020-01-31}
      mother: {$ref: "#/definitions/Pet"}
  Dog:
    allOf: [{$ref: "#/definitions/Pet"}, {type: object, required: [breed], properties: {breed: {type: string}}}]
responses:
  Pets: {description: ok, schema: {type: array, items: {$ref: "#/definitions/Pet"}}}
paths:
  x-hidden: {get: {}}
  /pets/:
    get:
      operationId: listPets
      parameters: [{$ref: "#/parameters/Page"}, {name: X-Pet-Key, in: header, type: string}]
      responses: {200: {$ref: "#/responses/Pets"}}
    post:
      summary: add a dog
      parameters: [{name: dog, in: body, schema: {$ref: "#/definitions/Dog"}}]
      responses: {"201": {description: ok, examples: {application/json: {id: 7, tags: [a, b]}}}}
    put:
      parameters: [{name: pets, in: body, required: true, schema: {type: array, items: {type: string}}}]
    head: {}
  /pets/{id}/photo:
    post:
      security: []
      parameters:
        - {name: photo, in: formData, type: file, required: true}
        - {name: shelf, in: path, type: string}
"""


def test_swagger_2_in_yaml(tmp_path: Path) -> None:
    path = tmp_path / "pet_shop.yaml"
    path.write_text(SWAGGER)
    assert matches(path, head_of(path)) and not matches(path, "paths: {}")
    found = read(path)
    assert [(r["line"], r["reason"], r["detail"]) for r in found.rejects] == [
        (4, "verb that returns no data", "head /pets/"),
    ]  # fmt: skip
    assert found.read == 5
    listed, added, put, photo = found.specs
    assert str(listed.id) == "pet_shop.pet_shop.listpets"  # a title that is just "API" tells less than the file's name
    assert (listed.server, listed.path) == ("https://pets.invalid/v1", "/pets/")
    assert listed.tool_description == "A shop of pets."
    assert [(p.name, p.location, p.type, p.default) for p in listed.parameters] == [("page", "query", "integer", 1)]
    assert listed.response == [{"name": "string", "born": "string", "mother": "object"}]
    assert set(listed.notes) == {
        "response schema '#/definitions/Pet' contains itself; cut there",
        "no description",
        f"{AUTH_NOTE} (header X-Pet-Key)",
    }
    told = [(p.name, p.location, p.type, p.required, p.example) for p in added.parameters]
    assert told == [
        ("name", "body", "string", True, None), ("born", "body", "string", False, "2020-01-31"),
        ("mother", "body", "object", False, None), ("breed", "body", "string", True, None),
    ]  # fmt: skip
    assert added.response == {"id": "integer", "tags": ["string"]}  # of an example: there is no schema
    assert [(p.name, p.location, p.type, p.required) for p in put.parameters] == [("pets", "body", "array", True)]
    assert any("not an object with properties" in note for note in put.notes)
    assert {(p.name, p.location, p.type, p.required) for p in photo.parameters} == {
        ("shelf", "query", "string", True), ("id", "path", "string", True), ("photo", "body", "string", True),
    }  # fmt: skip
    assert not any(note.startswith(AUTH_NOTE) for note in photo.notes)
    assert "body is sent as a form" in photo.notes
    assert "parameter 'shelf' is not in the URL; location path became query" in photo.notes


def test_yaml_and_json_give_the_same(tmp_path: Path) -> None:
    for name, text in (("zoo.json", json.dumps(DOCUMENT)), ("zoo.yaml", json.dumps(DOCUMENT, indent=2))):
        (tmp_path / name).write_text(text)
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    names = ("zoo.json", "zoo.yaml", "zoo.json.gz", "zoo.yaml.gz")
    first, *others = [read(tmp_path / name) for name in names]
    assert all(matches(tmp_path / name, head_of(tmp_path / name)) for name in names)
    assert len(first.specs) == 2 and all(other.specs == first.specs for other in others)


# --- documents in the wild ----------------------------------------------------------------------------------------


def operation(**more: Any) -> dict[str, Any]:
    return {"operationId": "one", "description": "d", **more}


def document(paths: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"openapi": "3.0.0", "info": {"title": "T"}, "paths": paths, **more}


def test_one_bad_operation_costs_only_itself() -> None:
    good = operation()
    paths = {
        "/a": {"get": good, "post": "text", "delete": {"parameters": [{"$ref": "#/nowhere"}]}},
        "/b": 5,
        "/c": {"$ref": "other.yaml#/c"},
        "/d": {"get": good, "trace": {}},
        "/e": {"GET": operation(operationId="Список", parameters=["x", {"in": "query"}], tags=[None, 7])},
    }
    found = read_document(document(paths), source="s")
    assert [(r["line"], r["reason"]) for r in found.rejects] == [
        (2, "operation is not an object"), (3, "$ref leads nowhere"), (4, "path item is not an object"),
        (5, "path item cannot be followed"), (7, "verb that returns no data"),
    ]  # fmt: skip
    assert [str(spec.id) for spec in found.specs] == ["T.t.one", "T.t.one_v2", "7.t.get_e"]
    assert found.read == 8


def test_what_cannot_be_followed_is_noted_where_the_name_is_known() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "b.json"}, "c": {"type": ["null", "integer"]}}}
    one = operation(
        requestBody={"content": {"application/x-www-form-urlencoded": {"schema": schema}}},
        responses={"2XX": {"content": {"application/hal+json": {"schema": {"properties": {"k": {"$ref": "#/no"}}}}}}},
        parameters=[
            {"name": "q", "in": "query", "content": {"application/json": {"schema": {"type": "array"}}}},
            {"name": "sort", "in": "query", "schema": {"type": "strange", "enum": ["a", None]}},
            {"name": "api_key", "in": "query", "schema": {"type": "string", "default": "s3cr3t"}},
        ],
        servers=[{"url": "https://{zone}.invalid/", "variables": {"zone": {"default": "eu"}}}],
        security=[{"login": []}],
    )
    more = {"components": {"securitySchemes": {"login": {"type": "oauth2", "flows": {}}}}}
    (spec,) = read_openapi(document({"/x": {"get": one}}, **more))
    assert spec.server == "https://eu.invalid" and spec.response == {"k": "object"}
    assert [(p.name, p.location, p.type, p.enum) for p in spec.parameters] == [
        ("q", "query", "array", ()), ("sort", "query", "string", ("a", None)), ("api_key", "query", "string", ()),
        ("a", "body", "string", ()), ("c", "body", "integer", ()),
    ]  # fmt: skip
    assert set(spec.notes) == {
        "type 'strange' is unknown; read as string",
        "value of the key 'api_key' left out",
        "request body is not JSON but 'application/x-www-form-urlencoded'",
        "schema left out: '$ref leaves the document: b.json'",
        "parameter without type",
        "part of the response left out: '$ref leads nowhere: no of #/no is missing'",
        f"{AUTH_NOTE} (header Authorization)",
    }


def test_schemas_that_double_at_each_level_stay_small() -> None:
    # depth d has 2**(d + 1) - 1 nodes at most: 8 is the deepest of the tried ones below the limit of 3,000
    schemas: dict[str, Any] = {"s40": {"type": "string"}}
    for n in range(40):  # 2**40 leaves without a bound
        schemas[f"s{n}"] = {"properties": {side: {"$ref": f"#/components/schemas/s{n + 1}"} for side in ("a", "b")}}
    ok = {"200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/s0"}}}}}
    (spec,) = read_openapi(document({"/x": {"get": operation(responses=ok)}}, components={"schemas": schemas}))
    node, depth = spec.response, 0
    while isinstance(node, dict):
        assert set(node) == {"a", "b"} and node["a"] == node["b"]
        node, depth = node["b"], depth + 1
    assert (node, depth) == ("object", 9) and "response template cut at depth 8" in spec.notes


@pytest.mark.parametrize("text", ["{", "[]", '{"openapi": "3.0.0"}', "[" * 10_000, ""])
def test_a_file_that_is_no_document_is_one_error(tmp_path: Path, text: str) -> None:
    for name in ("a.json", "a.yaml"):
        (tmp_path / name).write_text(text)
        with pytest.raises(DataError, match=name):
            read(tmp_path / name)


def test_yaml_cannot_blow_up(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]" for n in range(1, 40)]
    for text in ("\n".join(lines), "a: &a [*a]", "a: 2024-13-45", "? [1]\n: 2\n\tx", "a: !!python/object:os.system {}"):
        (tmp_path / "a.yaml").write_text(text)
        with pytest.raises(DataError, match="a.yaml"):
            read(tmp_path / "a.yaml")


# --- real documents -----------------------------------------------------------------------------------------------


@pytest.mark.shared
@pytest.mark.parametrize(("name", "operations"), [("tmdb", 54), ("spotify", 40)])
def test_restbench_documents_against_a_walk_of_the_json(shared_data: Path, name: str, operations: int) -> None:
    path = shared_data / "sources" / "restbench" / "specs" / f"{name}_oas.json.gz"
    raw = json.loads(gzip.decompress(path.read_bytes()))
    wanted: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for route, item in raw["paths"].items():
        for verb in set(item) & {"get", "put", "post", "delete"}:
            names = {("path", part[1:-1]) for part in route.split("/") if part.startswith("{")}
            for entry in [*item.get("parameters", []), *item[verb].get("parameters", [])]:
                if "$ref" in entry:  # all of them are #/components/parameters/NAME
                    entry = raw["components"]["parameters"][entry["$ref"].rsplit("/", 1)[1]]
                names.add((entry["in"], entry["name"]))
            if body := item[verb].get("requestBody"):
                names |= {("body", field) for field in body["content"]["application/json"]["schema"]["properties"]}
            wanted[verb.upper(), route] = names - {("query", "api_key")}
    found = read(path)
    assert (found.read, len(found.specs), found.rejects) == (operations, operations, []) and matches(
        path, head_of(path)
    )
    assert {(s.method, s.path): {(p.location, p.name) for p in s.parameters} for s in found.specs} == wanted
    assert len({s.id for s in found.specs}) == operations and all(s.description for s in found.specs)
    assert all(any(note.startswith(AUTH_NOTE) for note in s.notes) for s in found.specs)
    assert all(p.required for s in found.specs for p in s.parameters if p.location == "path")
    if name == "tmdb":
        assert all(isinstance(s.response, dict) for s in found.specs)
