"""10,000 mutated documents over all forms: nothing but DataError comes out, every record is accounted for."""

import copy
import csv
import gzip
import io
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotools.docs import forms
from autotools.docs.reading import Reading
from autotools.errors import DataError
from autotools.schema import ToolSpec

DOCUMENTS, SEED, SLOWEST_S = 10_000, 7, 10.0

# --- one small document of each form (those of python text are mutated as text) ------------------------------------

SCHEMA = {
    "type": "object", "required": ["id"],
    "properties": {"id": {"type": "integer", "example": 3}, "next": {"$ref": "#/components/schemas/S"}, "t": {
        "type": "array", "items": {"oneOf": [{"type": "string", "enum": ["a", "b"]}, {"type": "null"}]}}},
}  # fmt: skip
OPENAPI = {
    "openapi": "3.0.0", "info": {"title": "T", "description": "# H\n\ntext"}, "servers": [{"url": "https://a.invalid/{v}",
    "variables": {"v": {"default": "1"}}}], "security": [{"k": []}],
    "paths": {"/a/{id}": {
        "parameters": [{"$ref": "#/components/parameters/P"}],
        "get": {"operationId": "one", "tags": ["C"],
                "parameters": [{"name": "q", "in": "query", "schema": {"default": 1}}],
                "responses": {"200": {"content": {"application/json": {
                    "schema": {"$ref": "#/components/schemas/S"}}}}}},
        "post": {"requestBody": {"content": {"application/json": {"schema": {"allOf": [SCHEMA]}}}},
                 "x-tool": {"tool": "t"}},
    }},
    "components": {"schemas": {"S": SCHEMA}, "parameters": {"P": {"name": "id", "in": "path", "required": "true"}},
                   "securitySchemes": {"k": {"type": "apiKey", "in": "header", "name": "K"}}},
}  # fmt: skip
SWAGGER = {
    "swagger": "2.0", "info": {"title": "T"}, "host": "a.invalid", "basePath": "/v1", "schemes": ["http"],
    "definitions": {"D": {"properties": {"a": {"type": "string"}}}},
    "paths": {"/a": {"post": {"parameters": [
        {"name": "b", "in": "body", "schema": {"$ref": "#/definitions/D"}},
        {"name": "f", "in": "formData", "type": "file"}],
        "responses": {"201": {"schema": {"type": "array", "items": {"$ref": "#/definitions/D"}},
                              "examples": {"j": {"a": 1}}}}}}},
}  # fmt: skip
PARAMETERS = {
    "required_parameters": [{"name": "id", "type": "STRING", "description": "d", "default": ""}],
    "optional_parameters": [{"name": "n", "type": "NUMBER", "default": 3, "enum": [1, 2]}],
}  # fmt: skip
RAPIDAPI = {
    "tool_description": "t", "name": "pack", "title": "Pack", "api_list": [
        {"name": "One", "url": "https://p.invalid/a/{id}", "method": "GET", "headers": {"X-RapidAPI-Key": ""},
         "body": {"n": 1}, "schema": {"type": "object", "properties": {"a": {"type": "string"}}}} | PARAMETERS,
        {"name": "two", "description": "d", "schema": {"a": "str", "b": ["list of int with length 2"]}},
    ],
}  # fmt: skip
API = {"category_name": "C", "tool_name": "t", "api_name": "a", "api_description": "d", "method": "GET",
       "template_response": '{"a": "int"}'} | PARAMETERS  # fmt: skip
ENDPOINTS = {
    "description": "d", "servers": [{"url": "s.invalid"}], "headers": {"X-RapidAPI-Key": "k"}, "endpoints": [
        {"name": "GET_a", "method": "GET", "url": "https://s.invalid/a/{id}", "description": "d",
         "response": [{"a": 1.5}],
         "parameters": [{"name": "id", "in": "query", "schema": {"type": "String", "default": 1}, "description": "d"},
                        {"name": "q", "in": "optional", "schema": {"type": ""}, "required": "true"}]},
        {"name": "b", "url": "https://s.invalid/b", "params": [], "requestBody": {"content": {"application/json": {
            "schema": SCHEMA}}}, "response_shape": {"a": "str"}},
        {"name": "c", "url": "/c", "responses": {"content": {"application/json": {
            "examples": {"r": {"value": {"a": 1}}}}}}},
    ],
}  # fmt: skip
QUERIES = [
    {"query": "q", "api_list": [API, API | {"api_name": "b"}], "relevant APIs": [["t", "a"]]},
    {"api_list": [API]},
]
CODE = '''import requests

def one(is_id: str, n: int=3, toolbench_rapidapi_key: str='RAPIDAPI_KEY_PLACEHOLDER'):
    """
    "Get one
\t\tof them."
    id: which one
        n: how many
    """
    url = f"https://p.invalid/one/{is_id}"
    querystring = {}
    headers = {"X-RapidAPI-Key": toolbench_rapidapi_key}
    response = requests.get(url, headers=headers, params=querystring)
    return response.json()
'''
TOOLENV = {"path": "toolenv/tools/C/t/api.py", "category": "C", "tool": "t", "api_docs": [API | {"api_name": "One"}],
           "api_py": CODE, "response_example": {"api_list": [{"name": "one", "schema": {"a": "str"}}]}}  # fmt: skip
COLT = {"_id": "1", "title": "", "metadata": {}, "text": (
    "category_name:C, tool_name:t, api_name:a, api_description:what, for: all, required_params: "
    + json.dumps(PARAMETERS["required_parameters"]) + ", optional_params: [], return_schema: {\"a\": \"str\"}"
)}  # fmt: skip
TOOLALPACA = [{
    "Name": "T", "Description": "d", "Category": "C", "Introduction": "i", "Authentication": {"q": ""},
    "Functions": "one: d", "Documentation": json.dumps(OPENAPI),
    "Function_Projection": {"one": ["/a/{id}", "GET"], "x": 1},
    "Function_Description": {
        "one": 'text.\nParameters: {"q": "Required. String. One of: [a, b]. what", "n": "Integer. n."}\nOutput: x.\n',
        "x": "other.\nParameters: {}", "components": "",
    },
}, {"Name": "U", "Category": "C", "Function_Description": {"y": 'y.\nParameters: {"q": "string. d"}'}}]  # fmt: skip
FUNCTIONS = [
    {"name": "ask_to_user", "description": "d"},
    {"name": "f", "description": "d", "parameters": {"type": "object", "required": ["a"], "properties": {
        "a": {"type": "string", "description": "d", "enum": ["x"]}, "b": {"type": "integer", "default": 1}}}},
]  # fmt: skip
CLASS = (
    "class Sum(API):\n    description = 'adds'\n    input_parameters = {'a': {'type': 'int', 'description': 'x'}}\n"
    "    output_parameters = {'r': {'type': 'float'}}\n\n"
    "    def call(self, a: int, b: int = 2) -> dict:\n        pass\n"
)
DESCRIPTION = {"name": "Sum", "description": "d", "input_parameters": {"a": {"type": "int", "description": "d"}},
               "output_parameters": {"r": {"type": "str"}}}  # fmt: skip
PROMPTS = [
    {"instruction": "API descriptions:\n" + json.dumps(DESCRIPTION),
     "input": "User: x\nAPI-Request: [ToolSearcher(k='a')]->" + repr(DESCRIPTION),
     "output": "API-Request: [Sum(a='1')]"},
    {"requirement": "r", "response": "x", "apis": [{"api_name": "ToolSearcher", "output": {"output": DESCRIPTION}}]},
]  # fmt: skip
APPWORLD = {"app_name": "mail", "api_name": "send", "path": "/mail/{id}", "method": "POST", "description": "d",
            "parameters": [{"name": "id", "type": "integer", "required": True, "default": None, "constraints": [
                "value in ['a', 'b']", "value > 0"]}],
            "response_schemas": {"success": {"a": 1}, "failure": {}}}  # fmt: skip
PAGE = """# Parcel desk

Base URL: https://p.invalid

## Find parcel

`GET /parcels/{id}`

| name | in | type | required | description |
|---|---|---|---|---|
| id | path | string | yes | number |

```json
{"a": 1, "b": ["x"]}
```
- `size` (integer, optional): how large
"""


def rows(*records: Any) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def table() -> str:
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    body = "\n".join(line.strip() for line in CLASS.splitlines()[1:4])
    writer.writerows([["类名", "api_info"], ["Sum", body], ["Other", "..."]])
    return out.getvalue()


# (form, file name, value of JSON | list of JSON lines | text)
SAMPLES: list[tuple[str, str, Any]] = [
    ("openapi", "a.json", OPENAPI), ("openapi", "b.json.gz", SWAGGER), ("openapi", "c.yaml", OPENAPI),
    ("rapidapi", "C/a.json", RAPIDAPI), ("endpoints", "s_rest.json", ENDPOINTS),
    ("query_objects", "q.json", QUERIES), ("corpus", "c.jsonl", [API, API | {"api_name": "b"}, API]),
    ("corpus", "d.jsonl.gz", [API | {"api_name": "x"}, API]),
    ("toolenv", "t.jsonl", [TOOLENV, TOOLENV | {"tool": "u"}]),
    ("toolenv", "tools/C/t/api.py", CODE), ("colt", "corpus.jsonl", [COLT, COLT | {"_id": "2"}]),
    ("toolalpaca", "eval.json", TOOLALPACA), ("toolalpaca", "public_apis.json", {"count": 1, "entries": [
        {"API": "a", "Link": "l"}]}), ("tooleyes", "G/T/config_gpt4.json", FUNCTIONS),
    ("tooleyes", "l.jsonl", [{"path": "L/G/T", "config_gpt4.json": FUNCTIONS, "tool.py": CODE}]),
    ("apibank", "p.json", PROMPTS),
    ("apibank", "s.jsonl", [{"path": "apis/sum.py", "text": "from .api import API\n" + CLASS}]),
    ("apibank", "all_apis.csv", table()), ("appworld", "a.jsonl", [APPWORLD, APPWORLD | {"api_name": "b"}]),
    ("appworld", "b.json", [APPWORLD]), ("markdown", "C/page.md", PAGE),
]  # fmt: skip

# --- mutations ----------------------------------------------------------------------------------------------------

DEEP, HUGE = "DEEP-MARKER", "HUGE-MARKER"  # replaced in the text: json.dumps could not write what they stand for
ODD: list[Any] = [
    None, True, False, 0, -1, 3.5, float("nan"), float("inf"), 10**400, "", " ", "x", "\ud800", "a\x00b", "id", "{}",
    "[", "$ref", "#/paths", "https://[", "{a}{a}", "/:id", [], {}, [[]], [None], {"": {}}, ["a", 1, {}], "x" * 9_000,
    {"$ref": "#/components/schemas/S"}, {"$ref": "#"}, {"$ref": 5}, {"type": ["null"]}, {"properties": {"a": 1}},
    {"allOf": [None]}, {"\ud800": "\udfff"}, {str(n): n for n in range(500)}, DEEP, HUGE, "ünïcödé", "Список",
    "list of str with length 3",
]  # fmt: skip
NOISE = ("", '"', "'", "\\", "{", "}", "[", "]", "\n", "\x00", ":", ",", "def ", "((((", "\t", "*" * 50, "é", "#", "|")


def nodes(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    out = [path]
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            out += nodes(inner, (*path, key))
    return out


def mutate_value(value: Any, rng: random.Random) -> Any:
    """One change somewhere in a JSON value."""
    path = rng.choice(nodes(value))
    if not path:
        return rng.choice(ODD) if rng.random() < 0.2 else value
    parent = value
    for key in path[:-1]:
        parent = parent[key]
    key, kind = path[-1], rng.randrange(6)
    inner = parent[key]
    if kind == 0:
        del parent[key]
    elif kind == 1:
        copied = copy.deepcopy(inner)
        if isinstance(parent, list):
            parent.insert(rng.randrange(len(parent) + 1), copied)
        else:
            parent[rng.choice(["id", "name", "in", "type", "x", *parent])] = copied
    elif kind == 2 and isinstance(inner, str):
        parent[key] = mutate_text(inner, rng)
    elif kind == 3:
        wraps = ([inner], {"a": inner}, str(inner), json.dumps(inner), dict.fromkeys("abc", inner), list(str(inner)))
        parent[key] = rng.choice(wraps)
    elif kind == 4:
        for _ in range(rng.choice((2, 20, 60))):
            inner = {rng.choice(("properties", "items", "a", "schema")): inner} if rng.random() < 0.7 else [inner]
        parent[key] = inner
    else:
        parent[key] = copy.deepcopy(rng.choice(ODD))
    return value


def mutate_text(text: str, rng: random.Random) -> str:
    """One cut, insertion or swap of a text."""
    a, b = sorted(rng.randrange(len(text) + 1) for _ in range(2))
    kind = rng.randrange(4)
    if kind == 0:
        return text[:a] + text[min(b, a + 20) :]
    if kind == 1:
        return text[:a] + rng.choice(NOISE) + text[a:]
    if kind == 2:
        return text[:a] + text[b:] + text[a:b]
    return text[:a] if rng.random() < 0.3 else text[:b] + text[a:b] + text[b:]


def mutated_bytes(name: str, sample: Any, rng: random.Random) -> bytes:
    """Content of one file: a few changes of the value, sometimes of the text, sometimes of the bytes."""
    lines = ".jsonl" in name
    if isinstance(sample, str):
        text = sample
        for _ in range(rng.randrange(1, 4)):
            text = mutate_text(text, rng)
    else:
        value = copy.deepcopy(sample)
        for _ in range(rng.choice((1, 1, 2, 4))):
            value = mutate_value(value, rng)
        text = rows(*value) if lines and isinstance(value, list) else json.dumps(value)
        text = text.replace(f'"{DEEP}"', "[" * (deep := rng.choice((50, 400, 900, 5_000))) + "]" * deep)
        text = text.replace(f'"{HUGE}"', "9" * 5_000)
        if rng.random() < 0.1:
            text = mutate_text(text, rng)
    content = text.encode("utf-8", "surrogatepass")
    if name.endswith(".gz"):
        content = gzip.compress(content, 1)
    if rng.random() < 0.04:
        content = content[: rng.randrange(len(content) + 1)]
    if rng.random() < 0.04 and content:
        position = rng.randrange(len(content))
        content = content[:position] + bytes([rng.randrange(256)]) + content[position + 1 :]
    return content


# --- what must hold -----------------------------------------------------------------------------------------------

TYPES = {"string", "integer", "number", "boolean", "array", "object", "null", None}


def leaves(template: Any) -> set[Any]:
    if isinstance(template, dict):
        return set().union(*map(leaves, template.values())) if template else set()
    if isinstance(template, list):
        return set().union(*map(leaves, template)) if template else set()
    return {template}


def check(reading: Reading, form: str) -> None:
    assert reading.form == form and reading.source
    assert reading.read == len(reading.specs) + reading.repeated + len(reading.rejects)
    assert len({spec.id for spec in reading.specs}) == len(reading.specs)
    for row in reading.rejects:
        assert set(row) == {"source", "line", "reason", "detail"} and row["reason"] and len(row["detail"]) <= 200
        json.dumps(row, ensure_ascii=False).encode()
    for spec in reading.specs:
        text = spec.model_dump_json()
        assert ToolSpec.model_validate_json(text) == spec
        json.dumps(spec.model_dump(mode="json"), ensure_ascii=False, allow_nan=False).encode()
        assert spec.id.category and spec.id.tool and spec.id.api
        assert leaves(spec.response) <= TYPES and len(text) < 400_000
        assert all(parameter.name and parameter.type in TYPES for parameter in spec.parameters)
        assert all(note and len(note) < 400 for note in spec.notes)


def records(form: str, name: str, content: bytes) -> int | None:
    """How many records a readable file has, counted without the reader; None where only the reader knows."""
    text = (gzip.decompress(content) if name.endswith(".gz") else content).decode("utf-8", "replace")
    if form in ("corpus", "colt") or name == "a.jsonl":
        return sum(bool(line.strip()) for line in text.removeprefix("\ufeff").split("\n"))
    key = {"rapidapi": "api_list", "endpoints": "endpoints"}.get(form)
    return len(json.loads(text)[key]) if key else None


def run(folder: Path, count: int, seed: int, module_of: Callable[[str], Any]) -> Counter[str]:
    """Read ``count`` mutated files; returns what became of them per form."""
    rng, out = random.Random(seed), Counter()
    for number in range(count):
        form, name, sample = SAMPLES[number % len(SAMPLES)]
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = mutated_bytes(name, sample, rng)
        path.write_bytes(content)
        start = time.perf_counter()
        try:
            reading = module_of(form).read(path)
        except DataError as error:
            assert str(error)
            out[f"{form} refused"] += 1
            continue
        except Exception as error:
            raise AssertionError(
                f"document {number} ({name}): {type(error).__name__}: {error}\n{content[:3000]!r}"
            ) from error
        took = time.perf_counter() - start
        assert took < SLOWEST_S, f"document {number} ({name}) took {took:.1f} s\n{content[:3000]!r}"
        try:
            check(reading, form)
            wanted = records(form, name, content)
            assert wanted is None or reading.read == wanted, f"read {reading.read} of {wanted} records"
        except AssertionError as error:
            raise AssertionError(f"document {number} ({name}): {error}\n{content[:3000]!r}") from error
        out[f"{form} read"] += 1
        out[f"{form} kept"] += len(reading.specs)
        out[f"{form} rejected"] += len(reading.rejects)
    return out


def test_the_unchanged_samples_are_read_as_their_form(tmp_path: Path) -> None:
    assert {form for form, _, _ in SAMPLES} == set(forms.forms())
    for form, name, sample in SAMPLES:
        text = sample if isinstance(sample, str) else rows(*sample) if ".jsonl" in name else json.dumps(sample)
        path = tmp_path / form / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        module = forms.detect(path)
        assert module is not None and module.FORM == form, name
        reading = module.read(path)
        check(reading, form)
        assert reading.specs or name == "public_apis.json", name


def test_mutated_documents(tmp_path: Path) -> None:
    found = run(tmp_path, DOCUMENTS, SEED, forms.forms().__getitem__)
    for form in forms.forms():  # the mutations must not be so wild that nothing is left to read
        assert found[f"{form} kept"] > 100 and found[f"{form} refused"] + found[f"{form} rejected"] > 20, (form, found)


def test_a_broken_reader_does_not_pass(tmp_path: Path) -> None:
    """The checks can fail: readers that lose a record, keep a payload, or trust a type are found out."""

    class Losing:
        @staticmethod
        def read(path: Path) -> Reading:
            reading = forms.read_file(path, "corpus" if path.name == "c.jsonl" else None)
            reading.rejects = reading.rejects[1:]
            return reading

    class Trusting:
        @staticmethod
        def read(path: Path) -> Reading:
            reading = forms.read_file(path)
            return [spec.api_name.lower() for spec in reading.specs][0] and reading  # IndexError where none was kept

    class Storing:
        @staticmethod
        def read(path: Path) -> Reading:
            reading = forms.read_file(path)
            reading.specs = [spec.model_copy(update={"response": {"a": "Emma"}}) for spec in reading.specs]
            return reading

    for broken in (Losing, Trusting, Storing):
        with pytest.raises(AssertionError, match="document "):
            run(tmp_path, 400, SEED, lambda form, broken=broken: broken)
