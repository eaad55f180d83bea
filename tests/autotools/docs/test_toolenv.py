"""Crawled tools: made-up rows worked out by hand, then the real rows against plain ``ast`` and their own documents."""

import ast
import functools
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from autotools.docs.python_source import source_functions
from autotools.docs.toolenv import CODE_ONLY_NOTE, function_name, matches, read, read_functions
from autotools.errors import DataError
from autotools.schema import ToolParameter

KEY = "needs an API key (header X-RapidAPI-Key)"
ORDER = '''
def order(is_id: str, pagesize: int=None, toolbench_rapidapi_key: str='0123456789abcdef'):
    """
    "One order"
    is_id: Number of the order
        pagesize: Lines of a page,
\t\tat most "50"

    """
    url = f"https://shop.p.rapidapi.com/v1/orders/{is_id}/lines"
    querystring = {}
    if pagesize:
        querystring['pageSize'] = pagesize

    headers = {
            "X-RapidAPI-Key": toolbench_rapidapi_key,
            "X-RapidAPI-Host": "shop.p.rapidapi.com"
        }
    response = requests.get(url, headers=headers, params=querystring)
    return response.json()
'''
STRIPPED = '''def order(is_id: str, pagesize: int=None):
    """
    "One order"
    is_id: Number of the order
        pagesize: Lines of a page,
\t\tat most "50"

    """
    url = f'https://shop.p.rapidapi.com/v1/orders/{is_id}/lines'
    querystring = {}
    if pagesize:
        querystring['pageSize'] = pagesize
    headers = {'X-RapidAPI-Host': 'shop.p.rapidapi.com'}
    response = requests.get(url, headers=headers, params=querystring)
    return response.json()'''


def function(name: str = "stock", parameters: str = "", url: str = "https://a.example/x", text: str = "Stock") -> str:
    return f'''
def {name}({parameters}toolbench_rapidapi_key: str='0123456789abcdef'):
    """
    "{text}"

    """
    url = f"{url}"
    headers = {{"X-RapidAPI-Key": toolbench_rapidapi_key}}
    return requests.get(url, headers=headers).json()
'''


def document(api_name: str = "Order", **changes: Any) -> dict[str, Any]:
    return {
        "category_name": "Shop & Co", "tool_name": "My Shop", "api_name": api_name, "api_description": "One order.",
        "method": "GET", "optional_parameters": [], "template_response": {"price": "float", "_list_length": 2},
        "required_parameters": [{"name": "ID", "type": "STRING", "description": "number", "default": "17"}],
    } | changes  # fmt: skip


def row(source: str, *documents: Any, **changes: Any) -> dict[str, Any]:
    return {"category": "Shop & Co", "tool": "my_shop", "api_docs": list(documents), "api_py": source} | changes


def rows_file(folder: Path, *rows: Any) -> Path:
    path = folder / "tools.jsonl"
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
    return path


def test_a_function_without_document(tmp_path: Path) -> None:
    path = rows_file(tmp_path, row(ORDER))
    reading = read(path)
    (spec,) = reading.specs
    assert str(spec.id) == "Shop & Co.my_shop.order" and spec.description == "One order"
    assert (spec.method, spec.server, spec.path) == ("GET", "https://shop.p.rapidapi.com", "/v1/orders/{id}/lines")
    assert spec.parameters == (
        ToolParameter(name="id", location="path", required=True, description="Number of the order"),
        ToolParameter(name="pageSize", type="integer", description='Lines of a page, at most "50"'),
    )
    assert spec.notes == (CODE_ONLY_NOTE, KEY) and (reading.documents, reading.read) == (1, 1)
    assert [tuple(pair) for pair in read_functions(path)] == [(spec, STRIPPED, "")]


def test_the_document_comes_first_and_the_code_adds_the_address(tmp_path: Path) -> None:
    path = rows_file(tmp_path, row(ORDER, document(), response_example={"api_list": []}))
    ((spec, source, reason),) = read_functions(path)
    assert (spec.tool_name, spec.api_name, spec.description) == ("My Shop", "Order", "One order.")
    assert (spec.path, spec.response) == ("/v1/orders/{ID}/lines", {"price": "number"})
    assert spec.parameters == (
        ToolParameter(name="ID", location="path", required=True, description="number", default="17"),
    )
    assert spec.notes == ("its function has a parameter 'pagesize' that the document lacks", KEY)
    assert (source, reason) == (STRIPPED, "")
    assert "0123456789abcdef" not in read(path).specs[0].model_dump_json() + STRIPPED


def test_irregular_tools(tmp_path: Path) -> None:
    example = {"api_list": [{"name": "Stock?", "schema": {"left": "int"}}]}
    path = rows_file(
        tmp_path,
        row(function(), document(api_name="Other"), response_example=example),  # 1: two APIs, one only documented
        row("def import(a):\n  pass"),  # 2
        row("def import(a):\n  pass", document(), tool="broken_shop"),  # 3
        row("x = 1"),  # 4
        row(function("twice", text="first") + function("twice", text="second"),
            document("Twice", api_description="second", required_parameters=[], tool_name="Twin")),  # 5
        row(function("lost", url="https://a.example/{nowhere}"), tool="lost_shop"),  # 6
        row(function("secret", url="https://a.example/x?api_token=abcdefgh1234"), tool="secret_shop"),  # 7
        row(function("default", parameters="api_key: str='abc', "), tool="default_shop"),  # 8
        row(function("a", text="").replace("'0123", "'\\ud800"), tool="surrogate_shop"),  # 9
        {"category": "Shop", "tool": "-", "api_py": ""}, {"path": "a/Shop/bike/api.py", "api_py": function("b")},
        "{broken", [1],
    )  # fmt: skip
    reading = read(path)
    pairs = {str(pair.spec.id).partition(".")[2]: pair for pair in read_functions(path)}
    assert [(r["line"], r["reason"]) for r in reading.rejects] == [
        (2, "source does not parse"), (4, "no function in the source"), (5, "two functions of one name, one was read"),
        (10, "not a crawled tool"), (12, "not JSON"), (13, "not a crawled tool"),
    ]  # fmt: skip
    assert {name: pair.reason for name, pair in pairs.items() if pair.source is None} == {
        "my_shop.other": "no function of that name",
        "my_shop.order": "source does not parse",
        "lost_shop.lost": "its URL uses 'nowhere', which the function does not have",
        "secret_shop.secret": "a key stands in its code",
        "default_shop.default": "a key stands in its code",
    }
    stock = pairs["my_shop.stock"].spec  # the recorded answer knows the name; the other document the tool's
    assert (stock.tool_name, stock.api_name, stock.response) == ("My Shop", "Stock?", {"left": "integer"})
    assert "second" in str(pairs["twin.twice"].source)
    assert pairs["secret_shop.secret"].spec.path == "/x" and "abcdefgh" not in str(pairs)
    assert pairs["default_shop.default"].spec.parameters[0].default is None
    assert pairs["bike.b"].spec.id.category == "Shop" and pairs["surrogate_shop.a"].source
    assert reading.read == len(reading.specs) + len(reading.rejects) == len(pairs) + 6
    assert reading.documents == 9 + 1


def tool_folder(folder: Path) -> Path:
    path = folder / "toolenv/tools/Shop/my_shop/api.py"
    path.parent.mkdir(parents=True)
    path.write_text(ORDER + function())
    recorded = folder / "toolenv/response_examples/Shop/my_shop.json"
    recorded.parent.mkdir(parents=True)
    recorded.write_text(json.dumps({"api_list": [{"name": "Stock", "schema": {"left": "int"}}]}))
    return path


def test_a_folder_with_its_document_beside(tmp_path: Path) -> None:
    path = tool_folder(tmp_path)
    entry = {"name": "Order", "description": "One order.", "url": "https://shop.p.rapidapi.com/v1/orders/{id}/lines",
             "required_parameters": [{"name": "id", "type": "STRING"}]}  # fmt: skip
    path.parent.with_suffix(".json").write_text(json.dumps({"name": "My Shop", "api_list": [entry]}))
    order, stock = read_functions(path)
    assert (str(order.spec.id), order.spec.tool_name, order.source) == ("Shop.my_shop.order", "My Shop", STRIPPED)
    assert (order.spec.path, order.spec.parameters[0].location) == ("/v1/orders/{id}/lines", "path")
    assert (stock.spec.api_name, stock.spec.response, stock.spec.tool_name) == ("Stock", {"left": "integer"}, "My Shop")


@pytest.mark.parametrize("beside", ["", "version https://git-lfs.github.com/spec/v1", "[1]", '{"name": 1}'])
def test_a_broken_document_does_not_cost_the_functions(tmp_path: Path, beside: str) -> None:
    path = tool_folder(tmp_path)
    path.parent.with_suffix(".json").write_text(beside)
    (tmp_path / "toolenv/response_examples/Shop/my_shop.json").write_text("")
    reading = read(path)
    assert [spec.api_name for spec in reading.specs] == ["order", "stock"]
    assert [r["reason"] for r in reading.rejects] == ["document 'my_shop.json' cannot be read"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothere\.jsonl"):
        read(tmp_path / "nothere.jsonl")


def test_matches(tmp_path: Path) -> None:
    assert matches(Path("api.py"), ORDER) and not matches(Path("tool.py"), ORDER) and not matches(Path("api.py"), "x")
    assert matches(Path("a.jsonl.gz"), json.dumps(row(ORDER))) and not matches(Path("a.json"), json.dumps(row(ORDER)))


# --- the real rows -------------------------------------------------------------------------------------------------


cached_read = functools.cache(read)


def raw_rows(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def defined(source: str) -> list[ast.FunctionDef]:
    try:
        return [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    except SyntaxError:
        return []


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "tools", "documented", "functions", "kept", "rejects", "no_source"),
    [
        ("tools_with_docs", 586, 1662, 2406, 2404, {"two functions of one name, one was read": 2}, 14),
        ("api_py_only", 510, 0, 1336, 1335,
         {"source does not parse": 10, "two functions of one name, one was read": 1}, 12),
    ],
)  # fmt: skip
def test_real_rows(
    shared_data: Path, name: str, tools: int, documented: int, functions: int, kept: int, rejects: dict[str, int],
    no_source: int,
) -> None:  # fmt: skip
    path = shared_data / f"sources/toolbench_toolenv/{name}.jsonl.gz"
    reading, raw = cached_read(path), raw_rows(path)
    assert len(raw) == reading.documents == tools
    assert sum(len(r["api_docs"]) for r in raw) == documented
    nodes = [node for r in raw for node in defined(r["api_py"])]
    assert len(nodes) == functions
    reasons = [r["reason"] for r in reading.rejects]
    assert {reason: reasons.count(reason) for reason in reasons} == rejects
    assert (len(reading.specs), reading.repeated) == (kept, 0)
    assert sum(CODE_ONLY_NOTE not in spec.notes for spec in reading.specs) == documented
    # every function without the key: same name, same arguments but one, no trace of the key
    pairs = list(read_functions(path))
    assert [pair.spec for pair in pairs] == reading.specs
    sources = [pair.source for pair in pairs if pair.source]
    assert len(pairs) - len(sources) == no_source
    assert not any("toolbench_rapidapi_key" in s or "'X-RapidAPI-Key'" in s or "PLACEHOLDER" in s for s in sources)
    wanted = {(node.name, tuple(a.arg for a in node.args.args)) for node in nodes}
    for (node,) in map(defined, sources):
        assert (node.name, (*(a.arg for a in node.args.args), "toolbench_rapidapi_key")) in wanted


@pytest.mark.shared
def test_real_code_agrees_with_its_documents(shared_data: Path) -> None:
    """The documents are an outside oracle of what is read from code: description, required, text and key."""
    words = lambda text: " ".join(text.replace("\\", "").split())  # noqa: E731
    same: dict[str, list[bool]] = {"description": [], "required": [], "text": [], "key": []}
    for raw in raw_rows(shared_data / "sources/toolbench_toolenv/tools_with_docs.jsonl.gz"):
        code = {function.name: function for function in source_functions(raw["api_py"])}
        for api in raw["api_docs"]:
            found = code[function_name(api["api_name"])]
            same["description"].append(words(found.description) == words(api["api_description"]))
            arguments = {argument.name: argument for argument in found.arguments}
            for kind in ("required_parameters", "optional_parameters"):
                for parameter in api[kind]:
                    if not (argument := arguments.get(function_name(parameter["name"]))):
                        continue
                    same["required"].append(argument.required == (kind == "required_parameters"))
                    same["text"].append(words(found.texts.get(argument.name, "")) == words(parameter["description"]))
                    key, in_url = found.query.get(argument.name), f"{{{argument.name}}}" in found.url
                    same["key"].append(in_url or key == parameter["name"])
    wrong = {name: values.count(False) for name, values in same.items()}
    assert len(same["description"]) == 1662 and len(same["text"]) == 3226
    assert wrong == {"description": 0, "required": 1, "text": 0, "key": 0}


@pytest.mark.shared
def test_real_ids_are_those_of_the_corpus(shared_data: Path) -> None:
    with gzip.open(shared_data / "sources/toolbench_corpus/corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        known = {json.loads(line)["std_key"] for line in lines}
    specs = cached_read(shared_data / "sources/toolbench_toolenv/tools_with_docs.jsonl.gz").specs
    keys = {f"{spec.id.category}/{spec.id.tool}/{function_name(spec.id.api)}" for spec in specs}
    assert len(keys) == 2404 and keys <= known
