"""OpenAPI reader on small hand-written documents with the gaps that documents in the wild have."""

import copy

import pytest

from autotools.docs.openapi import read_openapi
from autotools.errors import ToolDocError

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
