"""ToolEyes function lists: made-up ones by hand, then the real ones counted with plain Python."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from autotools.docs.tooleyes import matches, read
from autotools.errors import DataError
from autotools.schema import ToolId, ToolParameter, ToolSpec


def function(name: str = "find_slip", **changes: Any) -> dict[str, Any]:
    properties = {"q": {"type": "string", "description": "words"}, "n": {"type": "int", "enum": [1, 2], "default": 1}}
    parameters = {"type": "object", "properties": properties, "required": ["q"]}
    return {"name": name, "description": "Find a slip.", "parameters": parameters} | changes


MOVES = [function("ask_to_user"), function("finish")]
SPEC = ToolSpec(
    id=ToolId(category="Advice", tool="advice_slip", api="find_slip"),
    tool_name="Advice_slip",
    api_name="find_slip",
    description="Find a slip.",
    parameters=(
        ToolParameter(name="q", required=True, description="words"),
        ToolParameter(name="n", type="integer", enum=(1, 2), default=1),
    ),
)


def test_a_config_in_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "Advice/Advice_slip/config_gpt4.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps([function(), *MOVES]))
    reading = read(path)
    assert reading.specs == [SPEC] and (reading.read, reading.documents) == (3, 1)
    assert Counter(r["reason"] for r in reading.rejects) == {"a move of the agent, not a tool": 2}
    path.write_text("{}")
    with pytest.raises(DataError, match="not a list of functions"):
        read(path)


def test_packed_rows_and_what_is_irregular(tmp_path: Path) -> None:
    bare = {"name": "bare", "parameters": {"properties": {"x": 1}, "required": ["x", "y", 3]}}
    wrapped = {"type": "function", "function": function("wrapped")}
    functions = [function(), function(), function(description="Another."), wrapped, bare, 7, {"name": "?"}]
    rows = [{"path": "Tool_Library/Advice/Advice_slip", "config_gpt4.json": functions}, {"path": "x"}, [1]]
    path = tmp_path / "library.jsonl"
    path.write_text("\n".join([*map(json.dumps, rows), "{cut"]))
    reading = read(path)
    assert reading.specs[0] == SPEC and reading.repeated == 1
    assert [spec.id.api for spec in reading.specs[1:]] == ["find_slip_v2", "wrapped", "bare"]
    assert reading.specs[-1].parameters == (ToolParameter(name="x", required=True),)
    assert reading.specs[-1].notes == (
        "no description", "required parameter 'y' is not declared; left out",
        "required parameter '3' is not declared; left out", "parameter without type",
    )  # fmt: skip
    assert [(r["line"], r["reason"]) for r in reading.rejects] == [
        (1, "not a function"), (1, "empty name"), (2, "not a tool folder"), (3, "not a tool folder"), (4, "not JSON"),
    ]  # fmt: skip
    assert reading.read == 4 + 1 + 5


def test_matches() -> None:
    row = json.dumps({"path": "a/b/c", "config_gpt4.json": [], "tool.py": ""})
    assert matches(Path("lib.jsonl"), row) and matches(Path("config_gpt4.json"), json.dumps([function()]))
    assert not matches(Path("other.json"), json.dumps([function()])) and not matches(Path("lib.json"), row)


@pytest.mark.shared
def test_the_real_library(shared_data: Path) -> None:
    path = shared_data / "sources/tooleyes/tool_library.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    listed = [(row["path"], f["name"]) for row in rows for f in row["config_gpt4.json"]]
    moves = [name for _, name in listed if name in ("ask_to_user", "finish")]
    reading = read(path)
    assert (len(rows), len(listed), len(moves)) == (48, 387, 96) == (reading.documents, reading.read, 96)
    assert (len(reading.specs), reading.repeated, len(reading.rejects)) == (290, 1, 96)
    assert reading.repaired == {"no description": 4, "id … occurs … times; this one was renamed": 2}
    places = {(path.split("/")[1], path.split("/")[2]) for path, _ in listed}
    assert {(spec.id.category, spec.tool_name) for spec in reading.specs} == places
    assert {(spec.tool_name, spec.api_name) for spec in reading.specs} == {
        (path.split("/")[2], name) for path, name in listed if name not in moves
    }
    declared = {
        (row["path"].split("/")[2], f["name"], tuple(f["parameters"]["properties"]), tuple(f["parameters"]["required"]))
        for row in rows for f in row["config_gpt4.json"]
    }  # fmt: skip
    for spec in reading.specs:
        names = tuple(p.name for p in spec.parameters)
        required = {p.name for p in spec.parameters if p.required}
        assert any(d[:3] == (spec.tool_name, spec.api_name, names) and set(d[3]) == required for d in declared)
