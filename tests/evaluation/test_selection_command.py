"""``python -m evaluation.selection``: denominators, what stands beside, and agreement with evaluation.run."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from autotools.errors import ConfigError, DataError
from autotools.rundir import read_jsonl, write_json, write_jsonl
from autotools.schema import Event, EventKind, StopReason, Task, ToolId, ToolSpec, Trajectory
from evaluation import selection

NOUNS = ("hotel", "train", "museum", "ferry", "tram", "cinema")


def tool(noun: str, verb: str = "price") -> ToolId:
    return ToolId(category="Travel", tool=f"{noun}_desk", api=verb)


def play(task: Task, hits: tuple[ToolId, ...], answer: tuple[ToolId, ...]) -> Trajectory:
    events = (Event(kind=EventKind.SEARCH, text="c", query="q", hits=hits), Event(kind=EventKind.ANSWER, text="a"))
    return Trajectory(task_id=task.id, query=task.query, targets=task.targets, events=events, selection=answer,
                      stop_reason=StopReason.ANSWERED, level=task.level, meta=task.meta)  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve tools; one request per noun, the last two with two targets; one request has a target that is no tool."""
    folder = tmp_path_factory.mktemp("world")
    specs = [
        ToolSpec(id=tool(n, v), tool_name=f"{n} desk", api_name=v, description=f"{v} of one {n}")
        for n in NOUNS
        for v in ("price", "address")
    ]
    write_jsonl(folder / "tools.jsonl", specs)
    for split in ("dev", "test"):
        tasks = []
        for i, noun in enumerate(NOUNS):
            targets = (tool(noun), tool("hotel", "address")) if i > 3 else (tool(noun),)
            tasks.append(Task(id=f"{split}-{noun}", suite="toolworld", split=split, level="I2" if i > 3 else "I1",
                              query=f"the price of one {noun}", targets=targets))  # fmt: skip
        lost = Task(id="lost", suite="toolworld", split=split, level="I2", query="x", targets=(tool("moon"),))
        write_jsonl(folder / "tasks" / f"{split}.jsonl", [*tasks, lost])
    return folder


@pytest.fixture
def tasks(world: Path) -> list[Task]:
    return [task for task in read_jsonl(world / "tasks" / "test.jsonl", Task) if task.id != "lost"]


def scored(arguments: list[str], out: Path) -> dict[str, Any]:
    assert selection.main([*arguments, "--out", str(out), "--overwrite"]) == 0
    return json.loads(out.read_text())


def test_a_deleted_prediction_counts_as_failed_and_is_named(world, tasks, tmp_path, capsys):
    rows = [play(task, task.targets, task.targets) for task in tasks]
    write_jsonl(tmp_path / "all.jsonl", rows)
    write_jsonl(tmp_path / "five.jsonl", rows[1:])
    write_jsonl(tmp_path / "tasks.jsonl", tasks)
    full = scored([str(tmp_path / "all.jsonl"), "--tasks", str(tmp_path / "tasks.jsonl")], tmp_path / "o.json")
    part = scored([str(tmp_path / "five.jsonl"), "--tasks", str(tmp_path / "tasks.jsonl")], tmp_path / "o.json")
    assert full["groups"]["overall"]["f1"] == 1.0 and full["missing"] == {}
    assert part["groups"]["overall"]["f1"] == pytest.approx(5 / 6) and part["groups"]["overall"]["n"] == 6
    assert part["missing"] == {"test-hotel": "no prediction"} and part["counts"] == {"tasks": 6, "predictions": 5}
    assert part["by_num_targets"]["1 target"]["f1"] == pytest.approx(3 / 4)
    assert list(part["by_num_targets"]) == ["1 target", "2 targets"]
    told = capsys.readouterr().out
    assert "1 without a prediction (they count as failed): test-hotel (no prediction)" in told
    seen = scored([str(tmp_path / "five.jsonl")], tmp_path / "o.json")  # nobody says what was asked: said so
    assert seen["groups"]["overall"]["f1"] == 1.0 and seen["tasks"] is None
    assert "5 predictions, no --tasks: a task without a row cannot be seen" in capsys.readouterr().out


def test_the_tasks_that_a_run_left_are_the_default(tasks, tmp_path, capsys):
    run = tmp_path / "eval"
    write_jsonl(run / "tasks.jsonl", tasks)
    write_jsonl(run / "a" / "predictions.jsonl", [play(tasks[0], tasks[0].targets, tasks[0].targets)])
    write_jsonl(run / "a" / "failed.jsonl", [{"task": "test-train", "reason": "HTTP 500"}])
    write_jsonl(run / "b" / "predictions.jsonl", [])
    result = scored([str(run / "a" / "predictions.jsonl"), "--compare", str(run / "b" / "predictions.jsonl")],
                    tmp_path / "o.json")  # fmt: skip
    assert result["groups"]["overall"]["match"] == pytest.approx(1 / 6) and len(result["missing"]) == 5
    assert result["missing"]["test-train"] == "HTTP 500" and result["missing"]["test-tram"] == "no prediction"
    (pair,) = result["paired"].values()  # the other run answered nothing at all: every task counts as failed
    assert pair["overall"]["match"]["diff"] == pytest.approx(1 / 6)
    (missing,) = result["paired_missing"].values()
    assert set(missing) == {task.id for task in tasks}
    told = capsys.readouterr().out
    assert "6 tasks without a prediction there (they count as failed): test-hotel (no prediction), " in told


def test_request_files_in_their_own_form_fix_the_denominators(world, tmp_path, capsys):
    from autotools.queries.toolbench import read_toolbench

    def record(number: int, noun: str) -> dict[str, Any]:
        api = {"category_name": "Travel", "tool_name": f"{noun} desk", "api_name": "price"}
        return {"query": f"price {noun}", "query_id": number, "api_list": [api],
                "relevant APIs": [[f"{noun} desk", "price"]]}  # fmt: skip

    file = tmp_path / "solvable_queries" / "test_instruction" / "G1_tool.json"
    write_json(file, [record(1, "hotel"), record(2, "tram"), record(3, "moon")])  # the last wants no tool of the corpus
    first = read_toolbench(file, suite="stabletoolbench", split="test").tasks[0][1]
    write_jsonl(tmp_path / "p.jsonl", [play(first, first.targets, first.targets)])
    arguments = [str(tmp_path / "p.jsonl"), "--tasks", str(tmp_path / "solvable_queries"), "--corpus", str(world)]
    result = scored(arguments, tmp_path / "o.json")
    assert result["groups"]["overall"]["f1"] == result["groups"]["G1_tool"]["f1"] == 0.5
    assert len(result["missing"]) == 1 and result["counts"] == {"tasks": 2, "predictions": 1}
    assert "1 requests set aside" in capsys.readouterr().err


@pytest.mark.parametrize("paired", [False, True])
def test_evaluation_run_and_this_command_agree(world, tmp_path, paired):
    from evaluation import run

    out = tmp_path / "eval"
    assert run.main(["--world", str(world), "--out", str(out), "--policies", "first=bm25"]) == 0
    metrics = json.loads((out / "metrics.json").read_text())
    file = out / "first" / "predictions.jsonl"
    arguments = [str(file), "--tasks", str(world / "tasks" / "test.jsonl"), "--corpus", str(world)]
    result = scored(arguments, tmp_path / "o.json")
    assert result["groups"] == metrics["policies"]["first"] and result["groups"]["overall"]["n"] == 6
    if paired:
        rows = read_jsonl(file, Trajectory)
        worse = [row.model_copy(update={"selection": ()}) if i % 2 else row for i, row in enumerate(rows)]
        random.Random(0).shuffle(worse)
        write_jsonl(tmp_path / "worse.jsonl", worse)
        tasks = selection.read_tasks(world / "tasks" / "test.jsonl")[:-1]
        runs = {"worse": selection.score_tasks(worse, tasks), "first": selection.score_tasks(rows, tasks)}
        both = scored([*arguments, "--baseline", str(tmp_path / "worse.jsonl")], tmp_path / "o.json")
        expected = selection.compare(runs, seed=0)["paired"]["first-worse"]
        assert both["paired"][str(tmp_path / "worse.jsonl")] == json.loads(json.dumps(expected))


def test_beside_the_retriever(world, tasks, tmp_path, capsys, monkeypatch):
    from evaluation import engine_scores

    write_jsonl(tmp_path / "run" / "a" / "predictions.jsonl", [play(t, (t.targets[0],), t.targets) for t in tasks])
    write_json(tmp_path / "run" / "run_config.json", {"search": {"top_k": 2, "max_turns": 3}})
    arguments = [str(tmp_path / "run" / "a" / "predictions.jsonl"), "--corpus", str(world)]
    vectors = {str(tool(n, v)): [1.0, float(v == "price")] for n in NOUNS for v in ("price", "address")}
    monkeypatch.setattr(engine_scores, "index_vectors", lambda folder: vectors)
    result = scored([*arguments, "--index", "folder"], tmp_path / "o.json")
    beside = result["retriever"]
    assert beside["ceiling"] == {"turns": 2, "k": 2, "from": "run_config.json"} and beside["engine"]["engine"] == "bm25"
    row = beside["groups"]["overall"]
    assert row["srecall"] == pytest.approx((4 + 2 / 2) / 6) and row["ceiling_document"] == 1.0
    # Each policy saw one document, so the retriever has its first hit: the price of the noun. R 1 or 1/2.
    assert row["same_recall"] == pytest.approx(5 / 6) and row["same_match"] == pytest.approx(4 / 6)
    assert row["confusion_max"] == 1.0  # only targets were shown
    assert set(beside["by_num_targets"]) == {"1 target", "2 targets"}
    told = capsys.readouterr().out
    assert "beside the retriever: ceiling of 2 searches of 2 hits (run_config.json)" in told
    assert "ceiling_document" in told and "not available" not in told
    keys = scored([*arguments, "--turns", "1", "--hits", "1"], tmp_path / "o.json")["retriever"]
    assert keys["ceiling"] == {"turns": 1, "k": 1, "from": "keys"}
    assert keys["by_num_targets"]["2 targets"]["ceiling_document"] == 0.5
    told = capsys.readouterr().out
    assert "confusion: not available: needs vectors of the tools, and BM25 has none; give --index DIR" in told


def test_a_ceiling_of_the_retriever_command_is_the_same(world, tasks, tmp_path, capsys):
    from retriever import evaluate

    requests = str(world / "tasks" / "test.jsonl")
    words = ["--corpus", str(world), "--queries", requests, "--turns", "2", "--hits", "2", "--k", "1"]
    assert evaluate.main([*words, "--out", str(tmp_path / "ceiling.json")]) == 0
    write_jsonl(tmp_path / "p.jsonl", [play(task, (), ()) for task in tasks])
    computed = scored([str(tmp_path / "p.jsonl"), "--corpus", str(world), "--turns", "2", "--hits", "2"],
                      tmp_path / "o.json")["retriever"]  # fmt: skip
    read = scored([str(tmp_path / "p.jsonl"), "--ceiling", str(tmp_path / "ceiling.json")], tmp_path / "o.json")
    for name in ("groups", "by_num_targets"):
        for group, row in read["retriever"][name].items():
            for key in ("ceiling_document", "ceiling_request"):
                assert row[key] == computed[name][group][key]
    assert read["retriever"]["groups"]["overall"]["ceiling_request"] < 1 and "same_f1" not in row
    assert "ceiling: not available" not in capsys.readouterr().out


def test_bad_use_is_said_before_any_table(world, tasks, tmp_path, capsys):
    write_jsonl(tmp_path / "p.jsonl", [play(task, (), ()) for task in tasks])
    write_jsonl(tmp_path / "other.jsonl", [task.model_copy(update={"targets": (tool("moon"),)}) for task in tasks])
    predictions = str(tmp_path / "p.jsonl")
    with pytest.raises(DataError, match="6 predictions have other targets than the task file, first 'test-hotel'"):
        selection.main([predictions, "--tasks", str(tmp_path / "other.jsonl")])
    with pytest.raises(ConfigError, match="to read other forms give --corpus"):
        selection.main([predictions, "--tasks", str(tmp_path)])
    with pytest.raises(DataError, match="1 predictions of tasks that are not"):
        write_jsonl(tmp_path / "five.jsonl", tasks[1:])
        selection.main([predictions, "--tasks", str(tmp_path / "five.jsonl")])
    aimless = tmp_path / "aimless.jsonl"
    write_jsonl(aimless, [play(tasks[0], (), ()), play(tasks[1].model_copy(update={"targets": ()}), (), ())])
    for words in ([str(aimless)], [predictions, "--baseline", str(aimless)]):
        with pytest.raises(DataError, match="aimless.jsonl: 1 predictions have no targets, first 'test-train'"):
            selection.main(words)
    (tmp_path / "o.json").write_text("{}")
    with pytest.raises(ConfigError, match="exists; give another name"):
        selection.main([predictions, "--out", str(tmp_path / "o.json")])
    with pytest.raises(ConfigError, match="unknown encoder 'bm52'"):
        selection.main([predictions, "--corpus", str(world), "--encoder", "bm52"])
    with pytest.raises(ConfigError, match="turns and hits must be 0 or more"):
        selection.main([predictions, "--turns", "-1"])
    with pytest.raises(DataError, match="nowhere does not exist"):
        selection.main([predictions, "--index", "nowhere", "--dry-run"])
    assert capsys.readouterr().out == ""
    assert selection.main([predictions, "--dry-run"]) == 0
