"""1,000 mutated request files: no exception but DataError, and every record is a task or a reject."""

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotools.errors import DataError
from autotools.queries import (
    RequestFile,
    dangling,
    read_anytoolbench,
    read_autotools,
    read_colt,
    read_restbench,
    read_tasks,
    read_toolbench,
    sort_out,
)
from autotools.queries.forms import detect
from autotools.schema import Task, ToolId, ToolSpec

API = {"category_name": "Travel", "tool_name": "Rail & Co", "api_name": "Find Train"}
RAIL = ToolId.make(*API.values())
SPEC = ToolSpec(id=RAIL, tool_name="rail", api_name="find", method="GET", path="/a/{b}")
TASK = Task(id="t", suite="s", split="dev", level="I1", query="q", targets=(RAIL,), meta={"a": [1]})
TEXT = (
    "category_name:Travel, tool_name:Rail & Co, api_name:Find Train, api_description:x, required_params: [], "
    'optional_params: [], return_schema: ""'
)
RECORDS: dict[str, list[Any]] = {
    "toolbench": [
        {"query": "a", "query_id": n, "api_list": [API], "relevant APIs": [["Rail & Co", "Find Train"]]}
        for n in range(3)
    ],
    "anytoolbench": [{"query": "b", "query_id": str(n), "gt_api_list": [API, API]} for n in range(3)],
    "autotools": [
        {"query": "c", "qid": 0, "dataset": "food", "solution": [["GET_a", 2], ["GET_b", 1]], "api_list": ["GET_a"]},
        {"query": "c", "qid": "1", "dataset": "food", "solution": ["GET_a"], "api_list": {"GET_a": "u"}},
        {"query": "c", "qid": 2, "dataset": "tmdb", "solution": [["GET_a", 1]], "api_list": [{"api_name": "GET_a"}]},
    ],
    "restbench": [{"query": "d", "solution": ["GET /a/{b}", "POST /c"]} for _ in range(3)],
    "tasks": [TASK.model_copy(update={"id": str(n)}).model_dump(mode="json") for n in range(3)],
    "queries.jsonl": [{"_id": str(n), "text": "e"} for n in range(3)],
    "corpus.jsonl": [{"_id": str(n), "text": TEXT} for n in range(3)],
    "qrels": [[str(n), str(n), "1"] for n in range(3)],
}  # fmt: skip
COLT = ("queries.jsonl", "corpus.jsonl", "qrels")
ODD = (
    None, True, False, 0, -1, 2**70, 1e308, float("nan"), float("inf"), "", " ", "\ud800", "\x00", "/", ".", "a.b.c",
    "é漢", "x" * 5000, [],
    {}, [[]], [None], {"": {}}, {"a": [1, {"b": []}]}, [["Rail & Co", "Find Train"]], "GET /a/{b}",
)  # fmt: skip


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) of a document."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


def mutate(records: list[Any], rng: random.Random) -> list[Any]:
    records = copy.deepcopy(records)
    for _ in range(rng.randint(1, 4)):
        if not (spots := list(places(records))):
            break
        container, key = rng.choice(spots)
        action = rng.random()
        if action < 0.2:
            del container[key]
        elif action < 0.3 and isinstance(container, list):
            container.insert(key, copy.deepcopy(container[key]))
        elif action < 0.4:
            container[key] = nested(rng.choice([5, 50, 300]))
        elif action < 0.5:
            container[key] = copy.deepcopy(rng.choice(spots)[0])
        else:
            container[key] = copy.deepcopy(rng.choice(ODD))
    return records


def spoil_text(text: str, rng: random.Random) -> bytes:
    """Now and then a byte, a cut or a swapped piece."""
    data = bytearray(text, "utf-8", "surrogatepass")
    action = rng.random()
    if action < 0.1 and data:
        data[rng.randrange(len(data))] = rng.randrange(256)
    elif action < 0.15:
        del data[rng.randint(0, len(data)) :]
    elif action < 0.2:
        data[rng.randint(0, len(data)) :] = b"\xff\xfe\x00\n"
    return bytes(data)


def lines(rows: Any, rng: random.Random) -> bytes:
    return spoil_text("".join(json.dumps(row, ensure_ascii=rng.random() < 0.9) + "\n" for row in rows), rng)


def case(form: str, folder: Path, rng: random.Random) -> tuple[list[Any] | None, list[RequestFile]]:
    """Write one mutated file and read it; the records are None where the text was spoilt, too."""
    rows = mutate(RECORDS[form], rng)
    if form in COLT:
        for name in COLT:
            part = rows if name == form else RECORDS[name]
            if name != "qrels":
                (folder / name).write_bytes(lines(part, rng))
                continue
            cells = ["\t".join(map(str, row)) if isinstance(row, list) else str(row) for row in part]
            for split in ("train", "test"):
                text = "query-id\tcorpus-id\tscore\n" + "\n".join(cells)
                (folder / f"qrels/{split}.tsv").write_bytes(spoil_text(text, rng))
        return None, [read_colt(folder, split=split) for split in ("train", "test")]
    path = folder / ("dev.jsonl" if form == "tasks" else "tmdb.json")
    if form == "tasks":
        clean = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        data = lines(rows, rng)
    else:
        clean = json.dumps(rows).encode()
        data = spoil_text(json.dumps(rows), rng)
    path.write_bytes(data)
    detect(path)
    readers = {
        "toolbench": lambda: read_toolbench(path, suite="s", split="test"),
        "anytoolbench": lambda: read_anytoolbench(path, split="train"),
        "autotools": lambda: read_autotools(path),
        "restbench": lambda: read_restbench(path, [SPEC]),
        "tasks": lambda: read_tasks(path),
    }
    return rows if data == clean else None, [readers[form]()]


@pytest.mark.parametrize("form", RECORDS)
def test_mutated_files(tmp_path: Path, form: str) -> None:
    rng = random.Random(f"7/{form}")
    (tmp_path / "qrels").mkdir()
    outcomes = {"kept": 0, "rejected": 0, "error": 0}
    for _ in range(125):
        try:
            rows, parts = case(form, tmp_path, rng)
        except DataError:
            outcomes["error"] += 1
            continue
        for found in parts:
            if rows is not None:
                assert len(found.tasks) + len(found.rejects) == found.read == len(rows)
            assert len({task.id for _, task in found.tasks}) == len(found.tasks)
            for _, task in found.tasks:
                assert task.targets and Task.model_validate_json(json.dumps(task.model_dump(mode="json"))) == task
            for row in found.rejects:
                assert row["reason"] and isinstance(row["line"], int) and json.dumps(row).encode("utf-8")
            kept = sort_out(found, {RAIL})
            assert kept.read == found.read
            missing = {str(row.target) for row in dangling(found, {RAIL})}
            assert missing == {str(t) for _, task in found.tasks for t in task.targets} - {str(RAIL)}
            outcomes["kept"] += len(found.tasks)
            outcomes["rejected"] += len(found.rejects)
    assert all(outcomes.values()), outcomes  # each way out was taken
