"""Task files: what is written is read, everything else is a reject with its line."""

import json
from pathlib import Path

import pytest

from autotools.errors import DataError
from autotools.queries import read_tasks
from autotools.rundir import write_jsonl
from autotools.schema import Task, ToolId

RAIL = ToolId(category="Travel", tool="rail", api="find")


def task(name: str, **changes: object) -> Task:
    values = {"id": name, "suite": "world", "split": "dev", "level": "I1", "query": "a train", "targets": (RAIL,)}
    return Task(**(values | changes))


def test_written_tasks_come_back(tmp_path: Path) -> None:
    rows = [
        task("a", answer=3.5, program="finish(1)", meta={"clauses": [["x", 1]]}),
        task("b", query="Überfahrt\u2028"),
    ]
    write_jsonl(tmp_path / "tasks/dev.jsonl", rows)
    found = read_tasks(tmp_path / "tasks/dev.jsonl")
    assert [t for _, t in found.tasks] == rows and found.rejects == [] and found.source == "tasks/dev.jsonl"


def test_every_other_line_is_a_reject(tmp_path: Path) -> None:
    good = task("a").model_dump(mode="json")
    deep: object = 1
    for _ in range(600):
        deep = [deep]
    lines = [
        json.dumps(good), "", "{", "[]", json.dumps(good), json.dumps(good | {"id": "b", "extra": 1}),
        json.dumps(good | {"id": "c", "targets": [{"category": "Travel"}]}),
        json.dumps(good | {"id": "d", "query": " "}),
        json.dumps(good | {"id": "e", "targets": []}), json.dumps(good | {"id": "f", "answer": float("nan")}),
        json.dumps(good | {"id": "g", "query": "\ud800"}), json.dumps(good | {"id": "h", "meta": {"deep": deep}}),
        json.dumps(good | {"id": "i", "targets": [RAIL.model_dump()] * 2}),
    ]  # fmt: skip
    path = tmp_path / "dev.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    found = read_tasks(path)
    assert [(line, t.id, t.targets) for line, t in found.tasks] == [(1, "a", (RAIL,)), (13, "i", (RAIL,))]
    assert [(r["line"], r["reason"]) for r in found.rejects] == [
        (3, "line is not JSON"), (4, "line is not an object"), (5, "id of an earlier request"), (6, "not a task"),
        (7, "not a task"), (8, "request is not text"), (9, "request without targets"), (10, "not a task"),
        (11, "not a task"), (12, "not a task"),
    ]  # fmt: skip
    assert found.rejects[3]["detail"].startswith("extra: ") and found.read == len([line for line in lines if line])
    with pytest.raises(DataError, match="no usable line"):
        read_tasks(tmp_path / "x.jsonl") if (tmp_path / "x.jsonl").write_text("{\n") else None
    with pytest.raises(DataError, match="cannot read"):
        read_tasks(tmp_path / "none.jsonl")
