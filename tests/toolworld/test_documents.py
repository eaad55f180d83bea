"""The three documentation forms against the catalog and against openapi-spec-validator."""

import json

import pytest
from openapi_spec_validator import validate

from autotools.docs import AUTH_NOTE
from autotools.docs.markdown import read_markdown
from autotools.docs.openapi import read_openapi
from autotools.docs.rapidapi import read_rapidapi
from toolworld.documents import openapi_document, rapidapi_documents
from toolworld.markdown_pages import markdown_documents
from toolworld.world import build_world


@pytest.fixture(scope="module")
def world():
    return build_world(0)


@pytest.fixture(scope="module")
def openapi(world):
    return json.loads(json.dumps(openapi_document(world, "http://127.0.0.1:9")))


@pytest.fixture(scope="module")
def rapidapi(world):
    return json.loads(json.dumps(rapidapi_documents(world)))


def test_openapi_is_valid(openapi):
    validate(openapi)


def test_openapi_reads_back_to_the_catalog(world, openapi):
    specs = read_openapi(openapi)
    assert len(specs) == len(world.tools()) == len({str(s.id) for s in specs})
    for spec, declared in zip(specs, world.tool_specs(), strict=True):
        left = {"parameters", "server", "notes"}
        assert spec.model_dump(exclude=left) == declared.model_dump(exclude=left)
        assert sorted(map(str, spec.parameters)) == sorted(map(str, declared.parameters))
        assert spec.server == "http://127.0.0.1:9"


def test_both_forms_tell_the_same(openapi, rapidapi):
    def told(spec):
        names = frozenset((p.name, p.location, p.type, p.required, p.enum, p.default) for p in spec.parameters)
        shown = (spec.tool_name, spec.api_name, spec.description, spec.tool_description)
        return (str(spec.id), *shown, spec.method, spec.path, names, json.dumps(spec.response), bool(spec.notes))

    second = [s for path, d in rapidapi.items() for s in read_rapidapi(d, path.split("/")[0])]
    assert {told(s) for s in second} == {told(s) for s in read_openapi(openapi)}


def test_markdown_tells_the_same_as_openapi(world, openapi):
    """Whole specs are equal but for the server and for ``price now`` written as two words in a heading."""

    def told(spec):
        fields = spec.model_dump(exclude={"server", "parameters", "api_name"})
        return {**fields, "parameters": sorted(p.model_dump_json() for p in spec.parameters)}

    expected = {spec.id: told(spec) for spec in read_openapi(openapi)}
    pages = markdown_documents(world)
    read = [s for path, text in pages.items() for s in read_markdown(text, *path.removesuffix(".md").split("/"))]
    assert {spec.id: told(spec) for spec in read} == expected and len(read) == len(expected)
    assert {spec.api_name.replace(" ", "_") for spec in read} == {spec.api_name for spec in read_openapi(openapi)}


def test_markdown_pages_differ_in_form_but_not_from_run_to_run(world):
    pages = markdown_documents(world)
    assert markdown_documents(build_world(0)) == pages != markdown_documents(build_world(1))
    assert set(pages) == {f"{d.category}/{r.tool}.md" for d in world.domains for r in d.resources}
    for mark in ("| Name | In |", "- `name` (", "| Field |", "```bash", "Try `curl", "Endpoint: `", "```http", "===",
                 "### Parameters", "**Parameters**", "Authentication", "No API key"):  # fmt: skip
        assert 0 < sum(mark in page for page in pages.values()) < len(pages), mark


def test_key_is_asked_for_but_never_told(world, openapi, rapidapi):
    keys = {d.category: d.api_key for d in world.domains if d.api_key}
    assert len(keys) == 1
    for spec in read_openapi(openapi):
        assert any(n.startswith(AUTH_NOTE) for n in spec.notes) == (spec.id.category in keys)
    text = json.dumps([openapi, rapidapi, markdown_documents(world)])
    assert not any(key in text for key in keys.values())


def test_rapidapi_file_names_are_category_and_tool(world, rapidapi):
    expected = {f"{d.category}/{r.tool}.json" for d in world.domains for r in d.resources}
    assert set(rapidapi) == expected
    assert sum(len(d["api_list"]) for d in rapidapi.values()) == len(world.tools())
