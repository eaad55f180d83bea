"""RapidAPI reader on a hand-written ToolBench tool file with the oddities of the real ones."""

import copy
import json
from pathlib import Path

import pytest

from autotools.docs import AUTH_NOTE
from autotools.docs.files import head_of
from autotools.docs.rapidapi import matches, read, read_rapidapi
from autotools.errors import DataError, ToolDocError

DOCUMENT = {
    "tool_description": "Parcels.",
    "title": "Pack & Send",
    "api_list": [
        {
            "name": "/api/Tracking/{ref}",
            "url": "https://pack.invalid/api/Tracking/{ref}/{year}",
            "description": "track a parcel",
            "method": "post",
            "required_parameters": [{"name": "ref", "type": "STRING", "description": "number", "default": ""}],
            "optional_parameters": [
                {"name": "Lang", "type": "ENUM", "default": "en"},
                {"name": "size", "type": "NUMBER", "default": 0},
                {"name": "deep", "type": "strange"},
            ],
            "body": {"size": 1},
            "headers": {"Lang": "", "X-RapidAPI-Key": ""},
            "schema": "",
        },
        {"name": "api tracking ref", "url": "", "required_parameters": None},
    ],
}


def test_fields_locations_and_notes():
    first, second = read_rapidapi(DOCUMENT, "Logistics")
    assert str(first.id) == "Logistics.pack_send.api_tracking_ref"
    assert (first.tool_name, first.api_name) == ("Pack & Send", "/api/Tracking/{ref}")
    assert (first.method, first.server, first.path) == ("POST", "https://pack.invalid", "/api/Tracking/{ref}/{year}")
    told = {p.name: (p.location, p.type, p.required, p.default) for p in first.parameters}
    assert told == {
        "ref": ("path", "string", True, None),
        "Lang": ("header", "string", False, "en"),
        "size": ("body", "number", False, 0),
        "deep": ("query", "string", False, None),
        "year": ("path", "string", True, None),
    }
    assert first.response is None
    assert first.notes == (
        "type 'strange' is unknown; read as string",
        "path variable 'year' is not declared; added as a required string",
        f"{AUTH_NOTE} (header X-RapidAPI-Key)",
    )
    assert str(second.id) == "Logistics.pack_send.api_tracking_ref_v2" and "renamed" in second.notes[-1]
    assert second.notes[0] == "no description"


@pytest.mark.parametrize("document", [{}, [], {"name": "x"}, {"name": "x", "api_list": [{"url": "/"}]}])
def test_other_json_is_refused_with_its_category(document):
    with pytest.raises(ToolDocError, match="Logistics"):
        read_rapidapi(document, "Logistics")


def test_one_bad_api_does_not_end_the_file(tmp_path: Path) -> None:
    entry = {
        "name": "By day",
        "url": "http://pack.invalid/v1/:day/x?q=1",
        "method": "GET",
        "required_parameters": [
            {"name": "day", "type": "DATE (YYYY-MM-DD)"},
            {"name": " api_key ", "default": "s3cr3t"},
        ],
        "optional_parameters": [{"name": "day", "type": "string"}, "what", {"type": "NUMBER"}],
        "schema": {"type": "object", "properties": {"price": {"type": "number"}, "tags": {"type": "array"}}},
        "description": "parcels of a day",
    }
    wordy = {"name": "odd", "url": "see the manual", "schema": {"a": "str", "b": ["empty list"]}, "description": "x"}
    apis = [entry, "text", {"name": "!!"}, copy.deepcopy(entry), {**entry, "method": "PUT"}, wordy]
    path = tmp_path / "Logistics" / "pack.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"tool_description": "t", "name": "pack", "api_list": apis}))
    found = read(path)
    assert matches(path, head_of(path))
    assert [(r["line"], r["reason"], r["source"]) for r in found.rejects] == [
        (2, "API is not an object", "pack.json"), (3, "empty name", "pack.json"),
    ]  # fmt: skip
    assert (found.read, len(found.specs), found.repeated) == (6, 3, 1)
    first, put, odd = found.specs
    assert [str(s.id) for s in found.specs] == [
        "Logistics.pack.by_day",
        "Logistics.pack.by_day_v2",
        "Logistics.pack.odd",
    ]
    assert (first.server, first.path, put.method) == ("http://pack.invalid", "/v1/{day}/x", "PUT")
    told = [(p.name, p.location, p.required, p.default) for p in first.parameters]
    assert told == [("day", "path", True, None), ("api_key", "query", True, None)]
    assert "s3cr3t" not in first.model_dump_json()
    assert first.response == {"price": "number", "tags": []}
    assert first.notes == (
        "blanks around the name of parameter 'api_key' removed",
        "parameter without type",
        "value of the key 'api_key' left out",
        "parameter 'day' is listed twice; the first one counts",
        "parameter without name left out",
    )
    assert odd.path == "" and odd.notes == ("url left out: 'not an address: see the manual'",)
    assert odd.response == {"a": "string", "b": []}


def test_answer_files_and_query_files_are_not_tools(tmp_path: Path) -> None:
    for text in ('{"api_list": [{"name": "a", "schema": {}}]}', '[{"name": "a", "api_list": []}]', "", "[]", "text"):
        assert not matches(tmp_path / "a.json", text)
    (tmp_path / "a.json").write_text('{"api_list": []}')
    with pytest.raises(DataError, match="'name' or 'api_list' is missing"):
        read(tmp_path / "a.json")
