"""AutoTools endpoint files: every irregularity by hand, then the real files against plain walks of their JSON."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from autotools.docs import AUTH_NOTE
from autotools.docs.endpoints import matches, read
from autotools.docs.files import head_of
from autotools.errors import DataError

KEY_NOTE = f"{AUTH_NOTE} (header X-RapidAPI-Key)"


def service(folder: Path, *endpoints: Any, name: str = "books_rest.json", **more: Any) -> Path:
    document = {
        "description": "## Title\n\nBooks and\nauthors.", "servers": [{"url": "books.invalid/v3"}],
        "headers": {"X-RapidAPI-Key": "k3y", "X-RapidAPI-Host": "h"}, "endpoints": endpoints,
    }  # fmt: skip
    path = folder / name
    path.write_text(json.dumps(document | more))
    return path


def entry(name: str, place: str, kind: str = "string", **more: Any) -> dict[str, Any]:
    schema = {"type": kind} | {key: more.pop(key) for key in ("default", "enum", "example") if key in more}
    return {"name": name, "in": place, "schema": schema, "description": f"the {name}"} | more


def test_locations_requirements_types_and_addresses(tmp_path: Path) -> None:
    first = {
        "method": "get", "name": "GET_book", "url": "https://books.invalid/v3/book/{isbn}/{part}",
        "description": "a book",
        "params": [
            entry("isbn", "query", "String", default=7), entry("lang", "optional", "", enum=["en", "de"]),
            entry("page", "query", "float"), entry("size", "required", "integer"),
            entry("sort", "query", required="false"), entry("full", "query", "boolean", required=True),
            entry("lang", "optional"), entry("", "query"),
        ],
        "response": [{"title": "Emma", "price": 3.5, "tags": [], "seen": None}, {"other": 1}],
    }  # fmt: skip
    path = service(tmp_path, first)
    assert matches(path, head_of(path)) and not matches(path, '[{"endpoints": 1, "servers": 2}]')
    found = read(path)
    (spec,) = found.specs
    assert (str(spec.id), spec.tool_name, spec.api_name) == ("books.books.get_book", "books", "GET_book")
    assert (spec.method, spec.server, spec.path) == ("GET", "https://books.invalid/v3", "/book/{isbn}/{part}")
    assert spec.tool_description == "Books and authors."
    assert [(p.name, p.location, p.type, p.required, p.default, p.enum) for p in spec.parameters] == [
        ("isbn", "path", "string", True, 7, ()), ("lang", "query", "string", False, None, ("en", "de")),
        ("page", "query", "number", True, None, ()), ("size", "query", "integer", True, None, ()),
        ("sort", "query", "string", False, None, ()), ("full", "query", "boolean", True, None, ()),
        ("part", "path", "string", True, None, ()),
    ]  # fmt: skip
    assert spec.response == [{"title": "string", "price": "number", "tags": [], "seen": "null"}]
    assert spec.notes == (
        "server without scheme; https is taken",
        "query parameters beside optional ones are read as required",
        "parameter without type",
        "parameter 'lang' is listed twice; the first one counts",
        "parameter without name left out",
        "parameter 'isbn' is in the URL; location query became path",
        "path variable 'part' is not declared; added as a required string",
        KEY_NOTE,
    )
    assert "k3y" not in spec.model_dump_json() and "Emma" not in spec.model_dump_json()


def test_without_optional_ones_a_query_parameter_is_not_required(tmp_path: Path) -> None:
    one = {"name": "a", "url": "/a", "description": "d", "parameters": [entry("q", "query")], "response_shape": {}}
    (spec,) = read(service(tmp_path, one, headers={}, servers=[])).specs
    assert (spec.server, spec.path, spec.parameters[0].required, spec.response) == ("", "/a", False, None)
    assert spec.notes == ()


@pytest.mark.parametrize(
    ("fields", "template"),
    [
        ({"response_shape": {"a": "str", "b": [{"c": "bool"}], "d": "null"}},
         {"a": "string", "b": [{"c": "boolean"}], "d": "null"}),
        ({"_responses_json": '[{"id": "int", "f": "float"}]'}, [{"id": "integer", "f": "number"}]),
        ({"_responses_json": {"id": "int"}, "response": None}, {"id": "integer"}),
        ({"responses": {"content": {"application/json": {"schema": {"properties": {"a": {"type": "number"}}}}}}},
         {"a": "number"}),
        ({"responses": {"content": {"application/json": {"examples": {"response": {"value": {"n": 1}}}}}}},
         {"n": "integer"}),
        ({"response_shape": None}, None),
    ],
)  # fmt: skip
def test_the_response_has_many_names(tmp_path: Path, fields: dict[str, Any], template: Any) -> None:
    one = {"name": "a", "url": "https://other.invalid/a", "description": "d"} | fields
    (spec,) = read(service(tmp_path, one)).specs
    assert spec.response == template and spec.server == "https://other.invalid"


def test_body_fields_of_a_json_schema(tmp_path: Path) -> None:
    schema = {"properties": {"ids": {"type": "array", "description": "d"}, "n": {"type": "integer"}}, "required": ["n"]}
    one = {
        "name": "a",
        "method": "PUT",
        "url": "/v3/a",
        "requestBody": {"content": {"application/json": {"schema": schema}}},
    }
    (spec,) = read(service(tmp_path, one)).specs
    told = [(p.name, p.location, p.type, p.required) for p in spec.parameters]
    assert told == [("ids", "body", "array", False), ("n", "body", "integer", True)]
    assert (spec.method, spec.server, spec.path) == ("PUT", "https://books.invalid/v3", "/a")


def test_what_cannot_be_used_is_a_reject(tmp_path: Path) -> None:
    good = {"name": "a", "url": "/v3/a", "description": "d"}
    others = [{"name": "b", "url": "Gets all books."}, 5, {"url": "/v3/c"}, good, good | {"description": "other"}]
    found = read(service(tmp_path, good, *others))
    assert [(r["line"], r["reason"], r["detail"]) for r in found.rejects] == [
        (2, "not an address", "Gets all books."), (3, "endpoint is not an object", "5"),
        (4, "empty name", "books / books / None"),
        (6, "another document of an id that was read before", "books.books.a"),
    ]  # fmt: skip
    assert (found.read, len(found.specs), found.repeated, found.documents) == (6, 1, 1, 1)
    (tmp_path / "x.json").write_text('{"servers": []}')
    with pytest.raises(DataError, match="'endpoints' is missing"):
        read(tmp_path / "x.json")


FILES = {  # read, kept
    "tools/food.json": (22, 22), "tools/game.json": (18, 17), "tools/tmdb.json": (25, 25),
    "tools/weather.json": (11, 11), "tools_doc_only/music.json": (32, 32), "tools_doc_only/spotify.json": (40, 40),
    "tools_doc_only/tmdb_rest.json": (29, 29),
}  # fmt: skip


@pytest.mark.shared
@pytest.mark.parametrize("name", FILES)
def test_real_files_against_their_own_json(shared_data: Path, name: str) -> None:
    path = shared_data / "autotools" / name
    raw, found = json.loads(path.read_text()), read(path)
    assert matches(path, head_of(path))
    assert (found.read, len(found.specs), found.repeated) == (*FILES[name], 0)
    stem = path.stem.removesuffix("_rest")
    specs = {spec.api_name: spec for spec in found.specs}
    for endpoint in raw["endpoints"]:
        if endpoint["name"] == "GET_game_reviewed_today":  # its URL is a sentence
            assert found.rejects[0]["reason"] == "not an address" and endpoint["name"] not in specs
            continue
        spec = specs[endpoint["name"]]
        assert (spec.id.category, spec.id.tool, spec.method) == (stem, stem, endpoint["method"])
        assert spec.server.startswith("https://") and f"{spec.server}{spec.path}" == endpoint["url"]
        listed = {p["name"]: p for p in endpoint.get("params", endpoint.get("parameters"))}
        variables = set(re.findall(r"{(\w+)}", endpoint["url"]))
        body = ((endpoint.get("requestBody") or {}).get("content") or {}).get("application/json", {})
        fields = set(body.get("schema", {}).get("properties", {}))
        assert {p.name for p in spec.parameters if p.location == "path"} == variables
        assert {p.name for p in spec.parameters if p.location == "query"} == set(listed) - variables
        assert {p.name for p in spec.parameters if p.location == "body"} == fields
        assert spec.description and all(p.required for p in spec.parameters if p.location == "path")
        if any(key in endpoint for key in ("response", "responses")) or endpoint.get("response_shape"):
            assert isinstance(spec.response, dict | list)
        leaves = set(re.findall(r'": "(.*?)"', json.dumps(spec.response)))
        assert leaves <= {"string", "integer", "number", "boolean", "array", "object", "null"}
    required = {(s.api_name, p.name) for s in found.specs for p in s.parameters if p.required and p.location == "query"}
    counted = [
        (e["name"], p["name"]) for e in raw["endpoints"] for p in e.get("params", e.get("parameters"))
        if e["name"] in specs and f"{{{p['name']}}}" not in e["url"] and (
            str(p.get("required", "")).lower() == "true" or p["in"] == "required"
            or (p["in"] == "query" and stem in ("weather", "music", "game"))
        )
    ]  # fmt: skip
    assert required == set(counted)


@pytest.mark.shared
def test_tmdb_halves_hold_different_endpoints(shared_data: Path) -> None:
    halves = [read(shared_data / "autotools" / name) for name in ("tools/tmdb.json", "tools_doc_only/tmdb_rest.json")]
    assert len({spec.id for half in halves for spec in half.specs}) == 54  # as many as RestBench's document has
