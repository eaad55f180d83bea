"""The catalog keeps what issues A and B ask of it; every figure is counted here anew from the plain declarations."""

import copy
import json
import pickle
import re
from pathlib import Path

import pytest

from autotools.categories import TOOLBENCH_CATEGORIES
from toolworld.world import World, build_world


@pytest.fixture(scope="module")
def world() -> World:
    return build_world(0)


def test_size(world: World) -> None:
    assert len(world.domains) >= 12 and len({d.category for d in world.domains}) == len(world.domains)
    assert 96 <= len(world.refs) <= 130
    assert sum(d.test_only for d in world.domains) == 1
    assert sum(d.api_key is not None for d in world.domains) == 1
    assert all(len(table) >= 30 for table in world.tables.values())


@pytest.mark.shared
def test_categories_are_raw_toolbench_names(world: World, shared_data: Path) -> None:
    path = shared_data / "sources" / "toolbench_corpus" / "categories.json"
    raw = {row["category"]: row["apis"] for row in json.loads(path.read_text())}
    assert set(TOOLBENCH_CATEGORIES) == set(raw) and len(TOOLBENCH_CATEGORIES) == 49
    assert [raw[name] for name in TOOLBENCH_CATEGORIES] == sorted(raw.values(), reverse=True)
    assert {d.category for d in world.domains} <= set(TOOLBENCH_CATEGORIES)


def test_near_duplicates_are_mutual_alike_and_different(world: World) -> None:
    pairs = world.near_duplicates()
    assert len(pairs) >= 20
    flat = [tool for pair in pairs for tool in pair]
    assert len(set(flat)) == len(flat)
    for a, b in pairs:
        first, second = world.refs[a], world.refs[b]
        assert first.operation.near_duplicate == b.api and second.operation.near_duplicate == a.api
        assert first.resource is second.resource
        one, two = set(first.operation.description.split()), set(second.operation.description.split())
        assert len(one & two) >= len(one | two) / 3, (one, two)  # alike in wording
        assert (first.operation.method, first.operation.path) != (second.operation.method, second.operation.path)


def test_dependency_share_counted_from_the_records(world: World) -> None:
    """A tool depends on another one if a required parameter takes a value of the form of a record id."""
    ids = {key for table in world.tables.values() for key in table}
    dependent = [
        ref for ref in world.refs.values()
        if any(p.required and p.example in ids for p in ref.operation.parameters)
    ]  # fmt: skip
    assert len(dependent) / len(world.refs) == pytest.approx(world.dependency_share())
    assert world.dependency_share() >= 0.4
    # ... and every kind of id is yielded by some tool that needs none
    for ref in dependent:
        noun = ref.key.removesuffix("_id")
        finder = next(r for r in world.refs.values() if r.resource.noun == noun and r.operation.kind == "find")
        assert finder.key is None


def test_every_parameter_location_and_feature_occurs(world: World) -> None:
    parameters = [p for ref in world.refs.values() for p in ref.operation.parameters]
    assert {p.location for p in parameters} == {"path", "query", "header", "body"}
    assert any(p.enum for p in parameters) and any(not p.required for p in parameters)
    assert any(p.name == "page" for p in parameters)
    assert {ref.operation.method for ref in world.refs.values()} == {"GET", "POST", "PATCH", "DELETE"}


def test_links_lead_to_existing_records(world: World) -> None:
    prefixes = {r.id_prefix: r.tool for d in world.domains for r in d.resources}
    for tool, table in world.tables.items():
        for record in table.values():
            links = {k: v for k, v in record.items() if k.endswith("_id")}
            assert links, tool
            for value in links.values():
                assert value in world.tables[prefixes[value.split("-")[0]]]
    names = [record["name"] for table in world.tables.values() for record in table.values()]
    assert len(set(names)) == len(names)


def test_user_words_stand_in_no_document(world: World) -> None:
    text = json.dumps([spec.model_dump(mode="json") for spec in world.tool_specs()])
    documented = set(re.findall(r"[a-z]+", text.lower()))
    for ref in world.refs.values():
        noun, *user_words = ref.resource.synonyms
        assert noun in documented and len(user_words) == 2
        assert not documented & set(user_words), ref.id


def test_one_word_means_one_tool(world: World) -> None:
    words = [word for d in world.domains for r in d.resources for word in r.synonyms]
    assert len(set(words)) == len(words)


def test_at_most_one_wording_uses_the_words_of_its_document(world: World) -> None:
    for ref in world.refs.values():
        own = {w for w in ref.good_query.split() if w != ref.resource.noun and w != "name"}
        shared = [own <= set(re.findall(r"[a-z]+", wording)) for wording in ref.operation.wordings]
        assert len(ref.operation.wordings) == 3 and sum(shared) <= 1, (ref.id, own)


def test_same_seed_same_records_other_seed_other_records() -> None:
    assert build_world(3).tables == build_world(3).tables
    assert build_world(3).tables != build_world(4).tables


@pytest.mark.parametrize("clone", [lambda s: s.copy(), copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies_of_a_state_do_not_meet(world: World, clone) -> None:
    state = world.initial_state()
    state.changes["a", "b", "c"] = 1
    other = clone(state)
    assert other.changes == state.changes and other.tables is state.tables
    other.changes["a", "b", "c"] = 2
    assert state.changes["a", "b", "c"] == 1
