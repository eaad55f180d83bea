"""RapidAPI reader on a hand-written ToolBench tool file with the oddities of the real ones."""

import pytest

from autotools.docs import AUTH_NOTE
from autotools.docs.rapidapi import read_rapidapi
from autotools.errors import ToolDocError

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
    assert "year" in first.notes[0] and first.notes[1].startswith(AUTH_NOTE)
    assert str(second.id) == "Logistics.pack_send.api_tracking_ref_v2" and "renamed" in second.notes[0]


@pytest.mark.parametrize("document", [{}, {"name": "x"}, {"name": "x", "api_list": [{"url": "/"}]}])
def test_other_json_is_refused_with_its_category(document):
    with pytest.raises(ToolDocError, match="Logistics"):
        read_rapidapi(document, "Logistics")
