"""API-Bank: made-up sources, tables and prompts by hand, then the real files against a plain second reading."""

import ast
import csv
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from autotools.docs.apibank import matches, read
from autotools.docs.files import head_of
from autotools.errors import DataError
from autotools.schema import ToolId, ToolParameter, ToolSpec

CLASS = """
import os
class AddAlarm(API):
    description = 'Adds an ' "alarm."
    input_parameters = {
        'time': {'type': 'str', 'description': 'When. Like \\'%H:%M\\''},
        'days': {'type': 'list(str)', 'description': 'Which days.'},
    }
    output_parameters = {'done': {'type': 'bool', 'description': 'x'}, 'all': {'type': 'list', 'description': ''}}
    database_name = open('never opened')

    def call(self, time: str, days: list = None):
        raise SystemExit('never run')
"""
SPEC = ToolSpec(
    id=ToolId(category="API-Bank", tool="addalarm", api="addalarm"),
    tool_name="AddAlarm",
    api_name="AddAlarm",
    description="Adds an alarm.",
    parameters=(
        ToolParameter(name="time", required=True, description="When. Like '%H:%M'"),
        ToolParameter(name="days", type="array", description="Which days."),
    ),
    response={"done": "boolean", "all": "array"},
)
SEARCH = {"apiCode": "ToolSearcher", "description": "Searches.", "parameters": {"keywords": {"type": "str"}},
          "response": {"best": {"type": "dict"}}}  # fmt: skip


def lines_file(folder: Path, *rows: Any) -> Path:
    path = folder / "apis.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


def json_file(folder: Path, *records: Any) -> Path:
    path = folder / "prompts.json"
    path.write_text(json.dumps(records))
    return path


def description(name: str = "AddAlarm", **changes: Any) -> dict[str, Any]:
    inputs = {"time": {"type": "str", "description": "When."}}
    return {"name": name, "description": "Adds.", "input_parameters": inputs, "output_parameters": {}} | changes


def test_class_sources_are_read_not_run(tmp_path: Path) -> None:
    reading = read(
        lines_file(tmp_path, {"path": "a", "text": CLASS}, {"text": CLASS}, {"text": CLASS.replace("When", "Now")},
                   {"text": "class A:\n  x = 1"}, {"text": "class A(:"}, {"text": 3}, "{cut")
    )  # fmt: skip
    assert reading.specs == [SPEC] and (reading.read, reading.repeated) == (7, 1)
    assert [(r["line"], r["reason"]) for r in reading.rejects] == [
        (3, "another document of an id that was read before"), (4, "no API class in the source"),
        (5, "source does not parse"), (6, "not a source"), (7, "not JSON"),
    ]  # fmt: skip


def test_values_that_are_no_literals_are_missing(tmp_path: Path) -> None:
    source = "class A(API):\n  description = f'{x}'\n  input_parameters = dict(a=1)\n  output_parameters = {}"
    (spec,) = read(lines_file(tmp_path, {"text": source})).specs
    assert (spec.description, spec.parameters, spec.response) == ("", (), None)
    assert spec.notes == ("no description", "no parameters are documented")


def test_the_table(tmp_path: Path) -> None:
    body = "\n".join(line.strip() for line in CLASS.split("\n")[3:9]).replace("'When. Like \\'%H:%M\\''", "'When'")
    path = tmp_path / "all_apis.csv"
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file)
        writer.writerows(
            [["id", "类名", "api_info"], [1, "AddAlarm", body], [2, "Image", "."], [3, "Bad", "x = ("], [4]]
        )
    reading = read(path)
    (spec,) = reading.specs
    assert (str(spec.id), spec.description) == ("API-Bank.addalarm.addalarm", "Adds an alarm.")
    assert [(p.name, p.type, p.required) for p in spec.parameters] == [
        ("time", "string", True),
        ("days", "array", True),
    ]
    assert spec.response == {"done": "boolean", "all": "array"}
    assert [(r["line"], r["reason"]) for r in reading.rejects] == [
        (2, "the table has no document"), (3, "source does not parse"), (4, "the table has no document"),
    ]  # fmt: skip


def test_descriptions_in_prompts(tmp_path: Path) -> None:
    found = "{'name': 'Find', 'description': 'The user's thing.', 'input_parameters': {'a': {'type': str}}}"
    asked = (
        f"{json.dumps(SEARCH)}\nUser: find\nAPI-Request: [ToolSearcher(keywords='x')]->{found}\n"
        "API-Request: [Find(a='b')]->{'name': 'a result, not a tool'}\nGenerate API Request: "
    )
    cut = '{"name": "Cut", "description": '
    told = "Use one:\nAPI descriptions:\n" + "\n".join([json.dumps(description()) + json.dumps(description("B")), cut])
    reading = read(json_file(tmp_path, {"instruction": "", "input": asked}, {"instruction": told}, {"input": "none"}))
    search, find, alarm, other = reading.specs
    assert search.parameters == (ToolParameter(name="keywords", required=True),)
    assert search.response == {"best": "object"} and search.tool_name == "ToolSearcher"
    assert (find.description, find.notes) == ("The user's thing.", ("quotes of the description were mended",))
    assert find.parameters == (ToolParameter(name="a", required=True),)
    assert (alarm.tool_name, other.tool_name) == ("AddAlarm", "B")
    assert [(r["line"], r["reason"]) for r in reading.rejects] == [
        (2, "not a description of an API"), (3, "no API description in the record"),
    ]  # fmt: skip


def test_descriptions_found_in_level_3_dialogues(tmp_path: Path) -> None:
    calls = [
        {"api_name": "ToolSearcher", "output": {"output": description()}},
        {"api_name": "AddAlarm", "output": {"output": {"name": "x", "description": "a result"}}},
        {"api_name": "ToolSearcher", "output": {"output": [description(), description("B"), 3]}},
        {"api_name": "ToolSearcher", "output": None},
    ]
    reading = read(json_file(tmp_path, {"requirement": "x", "apis": calls}))
    assert [spec.tool_name for spec in reading.specs] == ["AddAlarm", "B"] and reading.repeated == 1
    assert Counter(r["reason"] for r in reading.rejects) == {"not a description of an API": 2}
    (tmp_path / "prompts.json").write_text("{}")
    with pytest.raises(DataError, match="not a list of API-Bank records"):
        read(tmp_path / "prompts.json")


@pytest.mark.shared
def test_which_real_files_match(shared_data: Path) -> None:
    folder = shared_data / "sources/apibank"
    found = {p.name for p in folder.rglob("*") if p.is_file() and matches(p, head_of(p))}
    assert found == {"apis_py.jsonl", "all_apis.csv", "level-1-api.json", "level-3.json", "lv3-train.json"}


REAL = {  # read, kept, repeated, rejected
    "apis_py.jsonl": (34, 32, 1, 1),
    "data/all_apis.csv": (101, 100, 0, 1),
    "test-data/level-1-api.json": (87, 24, 63, 0),
    "test-data/level-3.json": (63, 18, 45, 0),
    "training-data/lv3-train.json": (271, 87, 177, 7),
}


@pytest.mark.shared
@pytest.mark.parametrize("name", REAL)
def test_real_files(shared_data: Path, name: str) -> None:
    path = shared_data / "sources/apibank" / name
    reading = read(path)
    counts = (reading.read, len(reading.specs), reading.repeated, len(reading.rejects))
    assert counts == REAL[name], Counter(r["reason"] for r in reading.rejects)
    assert reading.read == _counted(path)
    assert all(spec.description for spec in reading.specs)


def _counted(path: Path) -> int:
    """Documents of a file by other means than the reader's."""
    if path.suffix == ".jsonl":
        sources = [json.loads(line)["text"] for line in path.read_text().splitlines()]
        return sum(isinstance(node, ast.ClassDef) for source in sources for node in ast.parse(source).body)
    if path.suffix == ".csv":
        return len(re.findall(r"^\d+,", path.read_text(), re.M))
    text = path.read_text()
    if "level-3.json" in path.name:
        return len(re.findall(r'"input_parameters"', text))
    in_lines = re.findall(r'(?:\\n|")\{\\"(?:name|apiCode)\\"', text)
    return len(in_lines) + len(re.findall(r"ToolSearcher\([^\n]*?\)\]->\{", text))
