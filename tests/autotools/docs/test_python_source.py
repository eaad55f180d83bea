"""Reading Python text by ``ast``: small sources with expected parts written out by hand."""

from typing import Any

import pytest

from autotools.docs.python_source import (
    assigned,
    docstring_parts,
    literal_text,
    parse,
    source_functions,
    without_parameter,
)
from autotools.errors import ToolDocError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('\n    "One line"\n    \n    ', ("One line", {})),
        ('\n    "Two\n\t\tlines: a\n\t\t\t- b"\n    a: first\n        is_id: x:\ny\n\n    ', (
            "Two\nlines: a\n\t- b", {"a": "first", "is_id": "x: y"})),
        ('\n    "Says "a: b""\n    a: c\n    ', ('Says "a: b"', {"a": "c"})),
        ('\n    ""\n    id: n\n    ', ("", {"is_id": "n"})),
        ("no quotes", ("no quotes", {})),
        ("", ("", {})),
    ],
)  # fmt: skip
def test_docstring(text: str, expected: tuple[str, dict[str, str]]) -> None:
    assert docstring_parts(text, ["a", "is_id", "silent"]) == expected


def test_a_function() -> None:
    source = (
        "import os\r\n\r\ndef f(a, b: 'int' = 2, *rest, c: Optional[str] = None, d=print(), **more):\r\n"
        "    url = f'https://h.example/{a}/x{b + 1}?q={c}'\r\n    querystring = {'A': a, 'n': 1}\r\n"
        "    querystring['C d'] = c\r\n\r\nclass K:\r\n    def g(): pass\r\n"
    )
    (found,) = source_functions(source)
    assert [(a.name, a.type, a.required, a.default) for a in found.arguments] == [
        ("a", "", True, None), ("b", "int", False, 2), ("c", "str", False, None), ("d", "", False, None),
    ]  # fmt: skip
    assert found.url == "https://h.example/{a}/x?q={c}" and found.query == {"a": "A", "c": "C d"}
    assert found.text.startswith("def f(a,") and found.text.endswith("= c") and found.description == ""


@pytest.mark.parametrize("source", ["def f(:", "a\0b", "'\ud800'", "(" * 500, "-" * 20_000 + "1"])
def test_what_does_not_parse(source: str) -> None:
    with pytest.raises(ToolDocError, match="^source does not parse: "):
        parse(source)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("['a', 1, True]", ["a", 1, True]), ("{'a': ('b',)}", {"a": ["b"]}), (" 'x' 'y'", "xy"), ("1e999", None),
        ("open('x')", None), ("x", None), ("", None), ("def f(): pass", None), ("'\\ud800'", "?"), ("{[]: 1}", None),
        ("b'x'", None), ("-" * 2_000 + "1", None),
    ],
)  # fmt: skip
def test_literals(text: str, value: Any) -> None:
    assert literal_text(text) == value


def test_assignments() -> None:
    found = assigned(parse("a = 1\nb: int = 2\nc: int\na = 3\nx.y = 4\n(d, e) = 5, 6").body)
    assert {name: node.value for name, node in found.items()} == {"a": 3, "b": 2}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def f(a, key='s', b=2):\n    return {'k': key, 'a': a}", "def f(a, b=2):\n    return {'a': a}"),
        ("def f(key, /, a=1):\n    pass", "def f(a=1):\n    pass"),
        ("def f(a=1, *, key='s', b):\n    pass", "def f(a=1, *, b):\n    pass"),
        ("def f(a):  # key\n    'key'", "def f(a):\n    \"\"\"key\"\"\""),
        ("def f(key):\n    print(key)", None), ("x = 1", None), ("", None), ("def f(:", None),
    ],
)  # fmt: skip
def test_a_parameter_taken_out(text: str, expected: str | None) -> None:
    assert without_parameter(text, "key") == expected
