"""Generated sources are executed with a recording ``_request`` and judged by ``inspect``, not by our own code."""

import ast
import inspect

import pytest

from autotools.docs import AUTH_NOTE
from autotools.encapsulate import encapsulate, function_source, library_source, python_name, signature_problems
from autotools.errors import ToolDocError
from autotools.schema import ToolId, ToolParameter, ToolSpec


def make_spec(**changes):
    fields = {
        "id": ToolId(category="Travel", tool="hotel_desk", api="book"),
        "tool_name": "Hotel Desk",
        "api_name": "book",
        "description": "book a hotel",
        "method": "post",
        "path": "/hotels/{hotel_id}/book",
        "parameters": (
            ToolParameter(name="page", type="integer", description="page number"),
            ToolParameter(name="hotel_id", location="path", required=True),
            ToolParameter(name="X-Units", location="header", enum=("m", "ft")),
            ToolParameter(name="class", location="body", required=True, type="number"),
            ToolParameter(name="note", location="body"),
        ),
        "response": {"order_id": "string"},
    }
    return ToolSpec(**(fields | changes))


def load(spec):
    """The function as Python sees it, and the list of requests it makes."""
    requests = []
    space = {"_request": lambda *args, **kwargs: requests.append((args, kwargs)) or "answer"}
    exec(function_source(spec), space)
    return space[f"{spec.id.tool}_{spec.id.api}"], requests


def test_signature_puts_required_first_and_types_all():
    function, _ = load(make_spec())
    parameters = inspect.signature(function).parameters
    assert list(parameters) == ["hotel_id", "is_class", "page", "x_units", "note"]
    assert [p.default for p in parameters.values()] == [inspect.Parameter.empty] * 2 + [None] * 3
    assert parameters["is_class"].annotation is float
    assert parameters["page"].annotation == (int | None)
    assert "book a hotel" in function.__doc__ and "m, ft" in function.__doc__ and "order_id" in function.__doc__


def test_values_travel_where_the_document_says():
    function, requests = load(make_spec(notes=(f"{AUTH_NOTE} (header X-Api-Key)",)))
    assert function("HTL-1", 2.0, page=3, x_units="m") == "answer"
    assert requests == [
        (
            ("POST", "/hotels/{hotel_id}/book"),
            {
                "path": {"hotel_id": "HTL-1"},
                "query": {"page": 3},
                "header": {"X-Units": "m"},
                "body": {"class": 2.0, "note": None},
                "auth": "Travel",
            },
        )
    ]


NASTY = [
    'x"""\nimport os\nos.system("true")\n"""',
    'ends with a quote"',
    "ends with a backslash\\",
    '\\"""\\',
    '""""""',
    "\x00 null and \u2028 separator",
    "\\N{DIGIT ONE} \\x41",
]


@pytest.mark.parametrize("text", NASTY)
def test_foreign_text_cannot_leave_the_docstring(text):
    parameters = (ToolParameter(name="a", description=text, enum=(text,)),)
    spec = make_spec(description=text, path="/x", parameters=parameters, response={text: text}, api_name=text)
    tree = ast.parse(function_source(spec))
    assert [type(node) for node in tree.body] == [ast.FunctionDef]
    assert [type(node) for node in tree.body[0].body] == [ast.Expr, ast.Return]
    assert " ".join("".join(c if c.isprintable() else " " for c in text).split()) in load(spec)[0].__doc__


def test_names_become_identifiers_without_clashes():
    assert [python_name(n) for n in ("name", "X-Units", "class", "2nd", "json", "a b", "é")] == [
        "name", "x_units", "is_class", "get_2nd", "is_json", "a_b", "value",
    ]  # fmt: skip
    twice = (
        ToolParameter(name="id", location="path", required=True),
        ToolParameter(name="id", location="body", required=True),
        ToolParameter(name="i-d"),
        ToolParameter(name="i_d"),
    )
    function, requests = load(make_spec(path="/x/{id}", parameters=twice))
    assert list(inspect.signature(function).parameters) == ["id", "id_body", "i_d", "i_d_query"]
    function(1, 2, 3, 4)
    assert requests[0][1] == {"path": {"id": 1}, "body": {"id": 2}, "query": {"i-d": 3, "i_d": 4}}


GOOD = function_source(make_spec())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("hotel_id: str", "hotel: str"),
        ("page: int | None = None", "page: int"),
        ("page: int | None", "page: str | None"),
        (", note: str | None = None", ""),
        ("'/hotels/{hotel_id}/book'", "'/hotels/{hotel_id}/look'"),
        ("'POST'", "'GET'"),
        ("query={'page': page}", "query={'pages': page}"),
        ("query={'page': page}", "query={'page': x_units}"),
        ("header={", "body={"),
        (", 'note': note", ""),
        ("    return", "  return"),
        ("def hotel_desk_book", "import os\ndef hotel_desk_book"),
        ("def hotel_desk_book", "def hotel_desk_look"),
        ("note: str | None = None)", "note: str | None = None, *more)"),
    ],
)
def test_any_difference_from_the_document_is_found(old, new):
    assert signature_problems(GOOD, make_spec()) == []
    assert old in GOOD
    assert signature_problems(GOOD.replace(old, new), make_spec())


def test_documents_that_cannot_become_functions_keep_their_reason():
    bad = [
        (make_spec(path="https://elsewhere.invalid/x", parameters=()), "does not start"),
        (make_spec(path="//elsewhere.invalid/x", parameters=()), "does not start"),
        (make_spec(method="BREW"), "unknown verb 'BREW'"),
        (make_spec(path="/hotels/{hotel_id}/{room}"), "'room' is not documented"),
        (make_spec(path="/hotels"), "'hotel_id' is not in '/hotels'"),
    ]
    for spec, reason in bad:
        (function,) = encapsulate([spec])
        assert function.source == "" and reason in function.reason and not function.verified
    assert library_source(encapsulate([bad[0][0]])) == ""


def test_two_tools_of_one_function_name_are_refused():
    other = make_spec(id=ToolId(category="Food", tool="hotel", api="desk_book"))
    with pytest.raises(ToolDocError, match=r"Travel\.hotel_desk\.book and Food\.hotel\.desk_book"):
        encapsulate([make_spec(), other])
