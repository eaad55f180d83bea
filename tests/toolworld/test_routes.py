"""Routing and argument reading on a catalog of two hand-made operations per case; expectations are hand-worked."""

import pytest

from autotools.errors import ToolWorldError
from autotools.schema import ToolParameter
from toolworld.app import Sessions
from toolworld.catalog import Domain, Operation, Resource
from toolworld.routes import Problem, RouteTable, read_arguments


def operation(api, method, path, *parameters):
    return Operation(api=api, kind="none", description=api, method=method, path=path, parameters=parameters)


def table(*operations):
    resource = Resource(
        tool="tv", display_name="TV", description="", noun="show", synonyms=(), id_prefix="TV", operations=operations
    )
    return RouteTable([Domain(category="Media", resources=(resource,))])


POPULAR = operation("popular", "GET", "/tv/popular")
SHOW = operation("show", "GET", "/tv/{show_id}")
DROP = operation("drop", "DELETE", "/tv/{show_id}")


@pytest.mark.parametrize("order", [(POPULAR, SHOW, DROP), (DROP, SHOW, POPULAR)])
def test_literal_routes_win_whatever_the_order(order):
    routes = table(*order)
    assert routes.find("GET", "/tv/popular")[0].operation.api == "popular"
    route, variables = routes.find("GET", "/tv/TV-1")
    assert (route.operation.api, variables) == ("show", {"show_id": "TV-1"})
    # The literal path has no DELETE, the templated one does.
    assert routes.find("DELETE", "/tv/popular")[1] == {"show_id": "popular"}


def test_wrong_verb_and_unknown_path_are_told_apart():
    routes = table(POPULAR, SHOW, DROP)
    problem = routes.find("POST", "/tv/TV-1")
    assert (problem.status, "DELETE, GET" in problem.message) == (405, True)
    assert routes.find("GET", "/tv").status == 404
    assert routes.find("GET", "/tv/a/b").status == 404
    assert routes.find("GET", "/tv//").status == 404


def test_encoded_slash_stays_inside_its_segment():
    assert table(SHOW).find("GET", "/tv/a%2Fb%20c")[1] == {"show_id": "a/b c"}


def test_two_operations_on_one_route_are_refused():
    with pytest.raises(ToolWorldError, match=r"/tv/\{other\}"):
        table(operation("a", "GET", "/tv/{show_id}"), operation("b", "GET", "/tv/{other}"))


TYPED = operation(
    "typed",
    "POST",
    "/t/{key}",
    ToolParameter(name="key", location="path", type="integer", required=True),
    ToolParameter(name="page", type="integer"),
    ToolParameter(name="ratio", type="number"),
    ToolParameter(name="deep", type="boolean"),
    ToolParameter(name="X-Unit", location="header", enum=("m", "ft")),
    ToolParameter(name="count", location="body", type="integer", required=True),
    ToolParameter(name="note", location="body", type="string"),
)


def read(key="7", query="", headers=None, body=b'{"count": 2}'):
    return read_arguments(TYPED, {"key": key}, query, headers or {}, body)


def test_every_location_arrives_in_its_declared_type():
    got = read(query="page=3&ratio=0.5&deep=true", headers={"x-unit": "ft"})
    assert got == {"key": 7, "page": 3, "ratio": 0.5, "deep": True, "X-Unit": "ft", "count": 2}
    assert got["deep"] is True and isinstance(got["page"], int)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"key": "seven"}, "'key' must be integer"),
        ({"query": "page=1.5"}, "'page' must be integer"),
        ({"query": "ratio=nan"}, "'ratio' must be number"),
        ({"query": "deep=yes"}, "'deep' must be boolean"),
        ({"query": "pages=1"}, "unknown query parameter 'pages'"),
        ({"headers": {"x-unit": "cm"}}, "must be one of m, ft"),
        ({"body": b""}, "'count' is required"),
        ({"body": b'{"count": null}'}, "'count' is required"),
        ({"body": b'{"count": "2"}'}, "'count' must be integer"),
        ({"body": b'{"count": true}'}, "'count' must be integer"),
        ({"body": b'{"count": 2, "note": 5}'}, "'note' must be string"),
        ({"body": b'{"count": 2, "extra": 5}'}, "unknown body parameter 'extra'"),
        ({"body": b'{"count": NaN}'}, "not JSON"),
        ({"body": b"{"}, "not JSON"),
        ({"body": b"\xff"}, "not JSON"),
        ({"body": b"[" * 100_000}, "not JSON"),
        ({"body": b"[1]"}, "must be a JSON object"),
    ],
)
def test_bad_arguments_are_422_and_named(change, named):
    problem = read(**change)
    assert isinstance(problem, Problem) and problem.status == 422
    assert named in problem.message


def test_sessions_copy_on_write_and_forget_the_least_recent():
    import pickle

    sessions = Sessions(pickle.dumps({"n": 0}), limit=2)
    shared = sessions.state("a", writes=False)
    sessions.state("a", writes=True)["n"] = 1
    assert shared == {"n": 0} and sessions.state("a", writes=False) == {"n": 1}
    sessions.state("b", writes=True)["n"] = 2
    sessions.state("a", writes=False)  # now b is the least recently used one
    sessions.state("c", writes=True)
    assert sessions.state("a", writes=False) == {"n": 1}
    assert sessions.state("b", writes=False) == {"n": 0}
