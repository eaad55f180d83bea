"""Documents of the real world, damaged one by one: verification must tell every near-duplicate apart."""

import copy

import pytest

from autotools.docs.openapi import read_openapi
from autotools.encapsulate import encapsulate, library_source
from autotools.program import ProgramRunner
from autotools.verify import verify
from toolworld.cases import verification_cases
from toolworld.documents import openapi_document
from toolworld.server import WorldServer
from toolworld.world import build_world


@pytest.fixture(scope="module")
def world():
    return build_world(3)


@pytest.fixture(scope="module")
def judge(world):
    """Function: documents -> {tool id text: verified function}, against one server."""
    keys = {d.category: d.api_key for d in world.domains if d.api_key}
    cases = verification_cases(world, 3)
    with WorldServer(world) as server:

        def run(specs, api_keys=keys):
            functions = encapsulate(specs)
            with ProgramRunner(library_source(functions), server.base_url, api_keys) as runner:
                return {str(f.tool): f for f in verify(functions, cases, runner, specs)}

        yield run


def test_true_documents_are_all_verified(world, judge):
    verdicts = judge(read_openapi(openapi_document(world)))
    assert len(verdicts) == len(world.tools())
    assert {f.reason for f in verdicts.values()} == {""}
    assert min(f.checks for f in verdicts.values()) >= 2


def test_near_duplicates_with_swapped_routes_are_caught(world, judge):
    specs = {s.id: s for s in read_openapi(openapi_document(world))}
    pairs = world.near_duplicates()
    swapped = {}
    for a, b in pairs:
        for mine, other in ((a, b), (b, a)):
            route = {"path": specs[other].path, "method": specs[other].method}
            swapped[mine] = specs[mine].model_copy(update=route)
    verdicts = judge(list(swapped.values()))
    assert len(verdicts) == 2 * len(pairs) >= 40
    assert [name for name, f in verdicts.items() if f.verified] == []


def test_one_wrong_parameter_name_or_field_is_caught(world, judge):
    document = copy.deepcopy(openapi_document(world))
    for item in document["paths"].values():
        for operation in item.values():
            for parameter in operation["parameters"]:
                if parameter["in"] == "query" and parameter.get("required"):
                    parameter["name"] += "_x"
            schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
            if "items" not in schema["properties"]:
                schema["properties"]["surplus"] = {"type": "string"}
    damaged = [
        f"{s.id}"
        for s in read_openapi(document)
        if any(p.name.endswith("_x") for p in s.parameters) or "surplus" in s.response
    ]
    verdicts = judge(read_openapi(document))
    assert len(damaged) > 50
    assert [name for name in damaged if verdicts[name].verified] == []


def test_protected_tools_need_the_key(world, judge):
    verdicts = judge(read_openapi(openapi_document(world)), api_keys={})
    failed = {f.tool.category for f in verdicts.values() if not f.verified}
    assert failed == {d.category for d in world.domains if d.api_key}
    assert all("401" in f.reason for f in verdicts.values() if not f.verified)
