"""AppWorld documents: made-up ones by hand. The export is no part of the repository; where it exists it is read."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from autotools.docs import EVALUATION_NOTE
from autotools.docs.appworld import has_canary, matches, read
from autotools.schema import ToolId, ToolParameter, ToolSpec

EXPORT = Path(__file__).resolve().parents[3] / "external/appworld"
CANARY = "madeup:0a1b2c3:01234567-89ab-cdef-0123-456789abcdef"  # the form of the real one
TOKEN = {"name": "access_token", "type": "string", "required": True, "description": "t", "default": None}


def document(**changes: Any) -> dict[str, Any]:
    parameters = [
        {"name": "kite_id", "type": "integer", "required": True, "description": "Kite.", "default": None,
         "constraints": []},
        {"name": "wind", "type": "string", "required": False, "description": "Wind.", "default": "low",
         "constraints": ["value in ['low', 'high']"]},
        {"name": "height", "type": "number", "required": False, "description": "Metres.", "default": 1.5,
         "constraints": ["value >= 0.0"]},
        {"name": "tags", "type": "list[string]", "required": False, "description": "", "default": None,
         "constraints": None},
        TOKEN,
    ]  # fmt: skip
    return {
        "app_name": "kite_box", "api_name": "fly_kite", "path": "/kite_box/kites/{kite_id}", "method": "POST",
        "description": "Let a kite rise.", "parameters": parameters,
        "response_schemas": {"success": {"kite": {"id": 1, "ok": True}, "t": "2019-01-01"}, "failure": {"m": "s"}},
    } | changes  # fmt: skip


def export(folder: Path, *documents: Any) -> Path:
    path = folder / "api_docs.jsonl"
    path.write_text("\n".join(d if isinstance(d, str) else json.dumps(d) for d in documents))
    return path


def test_a_document(tmp_path: Path) -> None:
    reading = read(export(tmp_path, document()))
    assert reading.specs == [
        ToolSpec(
            id=ToolId(category="kite_box", tool="kite_box", api="fly_kite"),
            tool_name="kite_box",
            api_name="fly_kite",
            description="Let a kite rise.",
            method="POST",
            path="/kite_box/kites/{kite_id}",
            parameters=(
                ToolParameter(name="kite_id", location="path", type="integer", required=True, description="Kite."),
                ToolParameter(name="wind", location="body", description="Wind.", enum=("low", "high"), default="low"),
                ToolParameter(
                    name="height", location="body", type="number", description="Metres. (value >= 0.0)", default=1.5
                ),
                ToolParameter(name="tags", location="body", type="array"),
                ToolParameter(name="access_token", location="header", required=True, description="t"),
            ),
            response={"kite": {"id": "integer", "ok": "boolean"}, "t": "string"},
            notes=(EVALUATION_NOTE, "access_token is sent as header 'Authorization: Bearer ...'"),
        )
    ]


def test_what_is_irregular(tmp_path: Path) -> None:
    bad = [{"name": " "}, 7, {"name": "a", "type": None, "constraints": ["value in [open('x')]", "value in [[", 5]}]
    odd = document(method="get", parameters=bad, response_schemas=[], description="")
    reading = read(export(tmp_path, odd, document(api_name=None), document(app_name="?"), 3, "{cut", odd))
    (spec,) = reading.specs
    assert (spec.method, spec.response, reading.repeated, reading.read) == ("GET", None, 1, 6)
    assert spec.parameters == (
        ToolParameter(name="a", description="(value in [open('x')]) (value in [[) (5)"),
        ToolParameter(name="kite_id", location="path", required=True),
    )
    assert spec.notes == (
        EVALUATION_NOTE, "no description", "parameter without name left out", "parameter without type",
        "path variable 'kite_id' is not declared; added as a required string",
    )  # fmt: skip
    assert [(r["line"], r["reason"]) for r in reading.rejects] == [
        (2, "empty name"), (3, "empty name"), (4, "not a document of an API"), (5, "not JSON"),
    ]  # fmt: skip


def test_a_folder_of_files(tmp_path: Path) -> None:
    export(tmp_path, document())
    (tmp_path / "more.json").write_text(json.dumps([document(api_name="land_kite")]))
    (tmp_path / "canary.txt").write_text(CANARY)
    assert [spec.api_name for spec in read(tmp_path).specs] == ["fly_kite", "land_kite"]


@pytest.mark.parametrize(
    "canary", [CANARY, f"Canary String: {CANARY}", "BENCHMARK DATA. canary GUID 26b5", "canary_string"]
)
def test_text_with_a_canary_is_refused_and_not_repeated(tmp_path: Path, canary: str) -> None:
    places = [
        document(description=f"Let it fly. {canary}"), document(api_name=f"a {canary}"),
        document(parameters=[TOKEN | {"default": [canary]}]), document(response_schemas={"failure": {canary: 1}}),
        document(unknown=canary), {"canary_string": canary}, f'{{"description": "{canary}", cut',
    ]  # fmt: skip
    reading = read(export(tmp_path, document(), *places))
    output = "".join(spec.model_dump_json() for spec in reading.specs) + json.dumps(reading.rejects)
    reasons = Counter(r["reason"] for r in reading.rejects)
    assert reasons == {"holds a canary": 6, "not JSON": 1} and len(reading.specs) == 1
    assert canary not in output and not has_canary(output)


def test_common_words_are_no_canary() -> None:
    texts = ("a canary is a bird", "deploy: canary release", "id:1234567", "01234567-89ab-cdef-0123-456789abcdef")
    assert not any(map(has_canary, texts))


def test_matches() -> None:
    assert matches(Path("api_docs.jsonl"), json.dumps(document())) and matches(Path("x.json"), json.dumps([document()]))
    assert not matches(Path("x.md"), json.dumps(document()))


@pytest.mark.skipif(not (EXPORT / "api_docs.jsonl").is_file(), reason="run launch/export_appworld.sh first")
def test_the_real_export() -> None:
    path, canary = EXPORT / "api_docs.jsonl", (EXPORT / "canary.txt").read_text().strip()
    documents = [json.loads(line) for line in path.read_text().splitlines()]
    reading = read(path)
    assert (len(documents), reading.read, len(reading.specs)) == (457, 457, 457)
    assert Counter(spec.id.tool for spec in reading.specs) == Counter(d["app_name"] for d in documents)
    assert len({spec.id.tool for spec in reading.specs}) == 11
    for spec, raw in zip(reading.specs, documents, strict=True):
        assert [p.name for p in spec.parameters] == [p["name"] for p in raw["parameters"]]
        assert [p.required for p in spec.parameters] == [p["required"] for p in raw["parameters"]]
    assert all(EVALUATION_NOTE in spec.notes for spec in reading.specs)
    assert len(canary) > 30 and has_canary(canary)
    assert canary not in "".join(spec.model_dump_json() for spec in reading.specs)
