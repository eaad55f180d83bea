"""No canary of AppWorld's documents reaches a file of training data; real ones are tried where they are exported."""

import json
from pathlib import Path

import pytest

from autotools.docs.appworld import has_canary, read
from autotools.schema import ToolSpec
from data_synthesis.build import main

EXPORT = Path(__file__).resolve().parents[2] / "external/appworld"
CANARY = "madeup:0a1b2c3:01234567-89ab-cdef-0123-456789abcdef"


def synthesised(world: Path, specs: list[ToolSpec]) -> str:
    """All text that data synthesis writes for the toy world with these tools added."""
    with (world / "tools.jsonl").open("a", encoding="utf-8") as tools:
        tools.writelines(spec.model_dump_json() + "\n" for spec in specs)
    out = world.parent / "data"
    assert main(["--world", str(world), "--out", str(out)]) == 0
    return "".join(path.read_text(encoding="utf-8") for path in sorted(out.rglob("*.jsonl")))


def export(folder: Path, names: tuple[str, ...], canary: str) -> Path:
    """Documents so close to the toy world's tools that searches find them."""
    path = folder / "api_docs.jsonl"
    rows = [
        {"app_name": "hotel_app", "api_name": name, "path": "/x", "method": "GET", "parameters": [],
         "description": f"current price of a hotel {canary}", "response_schemas": {}}
        for name in names
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_canary_is_not_trained_on(world: Path, tmp_path: Path) -> None:
    reading = read(export(tmp_path, ("price_now", "price_past"), f"Canary String: {CANARY}"))
    assert (reading.specs, len(reading.rejects)) == ([], 2)
    text = synthesised(world, reading.specs)
    assert len(text) > 10_000 and CANARY not in text and not has_canary(text)


def test_the_same_tools_without_canary_would_be_seen(world: Path, tmp_path: Path) -> None:
    """So the test above would fail if the reader let the canary through, and did not mark its tools."""
    reading = read(export(tmp_path, ("price_now", "price_past"), ""))
    leak = {"description": f"current price of a hotel {CANARY}", "notes": ()}
    leaky = [spec.model_copy(update=leak) for spec in reading.specs]
    assert CANARY in synthesised(world, leaky)


def test_a_tool_for_evaluation_only_is_set_aside(world: Path, tmp_path: Path) -> None:
    """Even without a canary: no candidate, no search result, no document of training data names it."""
    reading = read(export(tmp_path, ("price_now", "price_past"), ""))
    assert len(reading.specs) == 2
    text = synthesised(world, reading.specs)
    rejects = [json.loads(line) for line in (tmp_path / "data" / "rejected.jsonl").read_text().splitlines()]
    mine = [row["detail"] for row in rejects if row["reason"] == "tool for evaluation only"]
    assert mine == [str(spec.id) for spec in reading.specs]
    assert text.count("hotel_app") == (tmp_path / "data" / "rejected.jsonl").read_text().count("hotel_app") > 0


@pytest.mark.skipif(not (EXPORT / "api_docs.jsonl").is_file(), reason="run launch/export_appworld.sh first")
def test_the_real_canary_is_not_trained_on(world: Path) -> None:
    canary = (EXPORT / "canary.txt").read_text().strip()
    text = synthesised(world, read(EXPORT / "api_docs.jsonl").specs)
    assert len(canary) > 30 and canary not in text and not has_canary(text)
