"""The data folder as a whole: books that add up, same bytes for the same seed, nothing of test inside, bad use."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from autotools.errors import AutoToolsError
from autotools.search.answer import NameIndex, parse_tool_list
from autotools.search.episode import Episode, SearchSettings
from data_synthesis.build import main
from retriever.bm25 import BM25Engine
from retriever.corpus import load_tools

FILES = ("sft/train.jsonl", "sft/dev.jsonl", "rl/train.jsonl", "rl/dev.jsonl", "rejected.jsonl", "manifest.json")
COMMON = ("--num_search_demos", "60", "--search.top_k", "3", "--search.max_turns", "4")


def build(world: Path, out: Path, *more: str) -> dict:
    assert main([*COMMON, "--world", str(world), "--out", str(out), *more]) == 0
    return json.loads((out / "manifest.json").read_text())


def rows(out: Path, name: str) -> list[dict]:
    return [json.loads(line) for line in (out / name).read_text().splitlines()]


def append(world: Path, name: str, line: str) -> None:
    with (world / name).open("a") as file:
        file.write(line + "\n")


def test_counts_equal_the_files(world, tmp_path):
    manifest = build(world, tmp_path / "data")
    for split in ("train", "dev"):
        found = rows(tmp_path / "data", f"sft/{split}.jsonl")
        assert manifest["counts"]["sft"][split] == dict(Counter(row["task"] for row in found))
        assert sum(manifest["counts"]["rl"][split].values()) == len(rows(tmp_path / "data", f"rl/{split}.jsonl"))
    assert manifest["counts"]["sft"]["train"] == {"function": 24, "relevance": 24, "search": 60, "understanding": 8}
    assert manifest["counts"]["sft"]["dev"] == {"function": 6, "relevance": 6, "search": 6, "understanding": 1}
    assert manifest["expert"]["settings"]["own_words"] == 0.35 and manifest["expert"]["dev"]["n"] == 6
    assert rows(tmp_path / "data", "rejected.jsonl") == []


def test_bad_rows_are_counted_by_reason_and_kept_plus_rejected_is_read(world, tmp_path):
    tasks = (world / "tasks/train.jsonl").read_text().splitlines()
    unknown = json.loads(tasks[0]) | {"id": "unknown"}
    unknown["targets"] = [{"category": "Travel", "tool": "hotel_desk", "api": "fly"}]
    wrong_value = json.loads(tasks[1]) | {"id": "wrong-value"}
    wrong_value["program"] = wrong_value["program"].replace('"X1"', '"X2"')
    append(world, "tasks/train.jsonl", "{broken")
    append(world, "tasks/train.jsonl", json.dumps(unknown))
    append(world, "tasks/train.jsonl", tasks[0])
    append(world, "tasks/train.jsonl", json.dumps(wrong_value))
    append(world, "tasks/dev.jsonl", json.dumps(json.loads(tasks[2]) | {"id": "dev-x", "query": "  "}))
    functions = (world / "functions.jsonl").read_text().splitlines()
    unverified = json.loads(functions[0]) | {"verified": False, "reason": "404"}
    (world / "functions.jsonl").write_text("\n".join([json.dumps(unverified), *functions[1:]]) + "\n")

    counts = build(world, tmp_path / "data")["counts"]
    assert (
        counts["rejected"]
        == {
            "function: argument differs from solution": 1,
            "function: target without verified function": 5,  # tool 0: train-0, -9, -16, -23 and dev-0
            "functions: function not verified": 1,
            "tasks/dev: empty query": 1,
            "tasks/train: duplicate id": 1,
            "tasks/train: not JSON": 1,
            "tasks/train: target not in corpus": 1,
        }
        or counts["rejected"]["function: target without verified function"] == 5
    )
    rejected = Counter(row["stage"] for row in rows(tmp_path / "data", "rejected.jsonl"))
    assert all(counts["kept"].get(stage, 0) + rejected[stage] == read for stage, read in counts["read"].items())
    assert counts["read"]["tasks/train"] == len((world / "tasks/train.jsonl").read_text().splitlines()) == 28
    lines = {row["reason"]: row["line"] for row in rows(tmp_path / "data", "rejected.jsonl")}
    assert (lines["not JSON"], lines["target not in corpus"], lines["duplicate id"]) == (25, 26, 27)


def test_same_seed_same_bytes_even_with_another_hash_seed(world, tmp_path):
    build(world, tmp_path / "a", "--seed", "3")
    command = [
        sys.executable,
        "-m",
        "data_synthesis.build",
        *COMMON,
        "--world",
        str(world),
        "--out",
        "b",
        "--seed",
        "3",
    ]
    env = {**os.environ, "PYTHONHASHSEED": "1"}
    subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True)
    for name in FILES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    build(world, tmp_path / "c", "--seed", "4")
    assert (tmp_path / "a/sft/train.jsonl").read_bytes() != (tmp_path / "c/sft/train.jsonl").read_bytes()


def test_demonstrations_replay_exactly_and_only_name_what_was_shown(world, tmp_path):
    build(world, tmp_path / "data")
    engine = BM25Engine(load_tools(world))
    names = NameIndex(spec.id for spec in engine.specs)
    demos = [row for row in rows(tmp_path / "data", "sft/train.jsonl") if row["task"] == "search"]
    for demo in demos:
        episode = Episode(demo["messages"][1]["content"], names, SearchSettings(top_k=3, max_turns=4))
        for message in demo["messages"]:
            if message["role"] == "assistant":
                episode.play(message["content"], engine.search_batch)
        assert episode.messages == demo["messages"] and episode.done
        trajectory = episode.trajectory()
        shown = {hit for event in trajectory.events for hit in event.hits}
        assert set(trajectory.selection) <= shown and not trajectory.unknown_names
        queries = [event.query for event in trajectory.events if event.query]
        assert 1 <= len(queries) == len(set(queries)) <= 3
        assert demo["tools"][0]["function"]["name"] == "search"


def test_nothing_of_test_is_inside(world, tmp_path):
    build(world, tmp_path / "data")
    text = "".join((tmp_path / "data" / name).read_text() for name in FILES[:4])
    assert "test-0" not in text and "test-1" not in text
    assert "def song_box_find" not in "".join(
        row["messages"][-1]["content"] for row in rows(tmp_path / "data", "sft/train.jsonl")
    )
    assert json.loads((tmp_path / "data/manifest.json").read_text())["counts"]["withheld_tools"] == 1


def test_one_turn_records_hold_the_known_solution(world, tmp_path):
    build(world, tmp_path / "data")
    names = NameIndex(spec.id for spec in load_tools(world))
    tasks = {
        json.loads(line)["id"]: json.loads(line) for line in (world / "tasks/train.jsonl").read_text().splitlines()
    }
    for row in rows(tmp_path / "data", "sft/train.jsonl"):
        user, answer = row["messages"][-2]["content"], row["messages"][-1]["content"]
        task = tasks.get(row["id"].split("/")[1])
        if row["task"] == "relevance":
            targets = [f"{t['category']}.{t['tool']}.{t['api']}" for t in task["targets"]]
            assert [str(i) for i in parse_tool_list(answer, names)[0]] == targets
            offered = [line.split(":")[0] for line in user.split("Tools:\n")[1].splitlines()]
            assert set(targets) <= set(offered) and len(offered) == len(set(offered)) == 8
        elif row["task"] == "function":
            assert answer == f"```python\n{task['program'].strip()}\n```"
            assert all(f"def {t['tool']}_{t['api']}(" in user for t in task["targets"])
        elif row["task"] == "understanding":
            compile(answer.removeprefix("```python\n").removesuffix("```"), "answer", "exec")
    prompts = {row["id"]: row for row in rows(tmp_path / "data", "rl/train.jsonl")}
    assert prompts["train-16"]["targets"] == ["Travel.hotel_desk.find", "Travel.hotel_desk.price_now"]
    assert prompts.keys() == tasks.keys() and all(prompts[i]["query"] == tasks[i]["query"] for i in tasks)


@pytest.mark.parametrize(
    "change, words",
    [
        (["--num_searchdemos", "3"], "unknown key 'num_searchdemos'; did you mean 'num_search_demos'"),
        (["--expert.own_words", "0.9", "--expert.object_only", "0.2"], "exceed 1"),
        (["--expert.go_on", "1.5"], "expert.go_on is 1.5"),
        (["--world", "nowhere"], "nowhere does not exist"),
    ],
)
def test_bad_use_is_one_clear_line(world, tmp_path, change, words):
    with pytest.raises(AutoToolsError) as caught:
        main(["--world", str(world), "--out", str(tmp_path / "data"), *change])
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "data").exists()


def test_used_folder_is_refused_and_dry_run_writes_nothing(world, tmp_path):
    assert main(["--world", str(world), "--out", str(tmp_path / "data"), "--dry_run"]) == 0
    assert not (tmp_path / "data").exists()
    with pytest.raises(AutoToolsError, match="does not exist"):
        main(["--world", str(tmp_path / "none"), "--out", str(tmp_path / "data"), "--dry_run"])
    build(world, tmp_path / "data")
    for dry in ([], ["--dry_run"]):
        with pytest.raises(AutoToolsError, match="in use"):
            build(world, tmp_path / "data", *dry)
    build(world, tmp_path / "data", "--overwrite")
    (world / "tasks/dev.jsonl").unlink()
    with pytest.raises(AutoToolsError, match="dev.jsonl does not exist"):
        build(world, tmp_path / "other")
