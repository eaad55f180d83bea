"""Import of real tools and requests: a small folder made by hand with every fault, then the real samples."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from autotools.errors import DataError
from autotools.rundir import read_jsonl, read_manifest
from autotools.schema import Task, ToolSpec
from data_synthesis.build import main as build_data
from data_synthesis.hints import MAX_WORDS, hints
from data_synthesis.real import main, split_tasks

WORDS = ("train", "rain", "song", "hotel", "game", "stock", "movie", "recipe", "photo", "mail", "news", "score")
NAMES = [("Cat" + str(n % 3), f"tool {word}", f"Find{word.title()}Now") for n, word in enumerate(WORDS)]


def api(number: int) -> dict[str, str]:
    return dict(zip(("category_name", "tool_name", "api_name"), NAMES[number], strict=True))


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """12 tools (and one row twice); 24 ToolLens requests over 12 target sets; a leak; 2 test files."""
    folder = tmp_path / "sources"
    rows = [api(n) | {"api_description": f"gives the {word}"} for n, word in enumerate(WORDS)]
    write(folder / "corpus.jsonl", "".join(json.dumps(row) + "\n" for row in [*rows, rows[0]]))
    lens = folder / "colt/datasets/ToolLens"
    texts = [
        f"category_name:{c}, tool_name:{t}, api_name:{a}, api_description:x, required_params: []" for c, t, a in NAMES
    ]
    write(lens / "corpus.jsonl", "".join(json.dumps({"_id": str(n), "text": t}) + "\n" for n, t in enumerate(texts)))
    asked = [f"I want the {WORDS[n % 12]} number {n}" for n in range(24)]
    write(lens / "queries.jsonl", "".join(json.dumps({"_id": str(n), "text": t}) + "\n" for n, t in enumerate(asked)))
    pairs = "".join(f"{n}\t{n % 12}\t1\n{n}\t{(n + 1) % 12}\t1\n" for n in range(24))
    write(lens / "qrels/train.tsv", "query-id\tcorpus-id\tscore\n" + pairs)
    write(lens / "qrels/test.tsv", "query-id\tcorpus-id\tscore\n")
    write(folder / "anytoolbench/any.json", [
        {"query": "GIVE me the  mail!", "query_id": "1", "gt_api_list": [api(9)]},  # a test request in other dress
        {"query": "a photo", "query_id": "2", "gt_api_list": [api(8)]},
        {"query": "A photo.", "query_id": "3", "gt_api_list": [api(8)]},
        {"query": "nowhere", "query_id": "4", "gt_api_list": [api(8) | {"tool_name": "gone"}]},
        {"query": "a score", "query_id": "5", "gt_api_list": [api(11)]},
    ])  # fmt: skip
    for group, number in (("G1_tool", 9), ("G3_instruction", 3)):
        record = {"query": f"give me the {WORDS[number]}", "query_id": number, "api_list": [api(number)],
                  "relevant APIs": [list(NAMES[number][1:])]}  # fmt: skip
        write(folder / f"stabletoolbench/solvable_queries/test_instruction/{group}.json", [record])
    return folder


def run(sources: Path, out: Path, *more: str) -> dict[str, Any]:
    corpus = next(p for p in (sources / "corpus.jsonl", sources / "toolbench_corpus/corpus.jsonl.gz") if p.exists())
    assert main(["--corpus", str(corpus), "--queries", str(sources), "--out", str(out), *more]) == 0
    return read_manifest(out)


def tasks(world: Path) -> dict[str, list[Task]]:
    return {split: read_jsonl(world / "tasks" / f"{split}.jsonl", Task) for split in ("train", "dev", "test")}


def test_books_add_up_and_faults_are_named(sources: Path, tmp_path: Path) -> None:
    counts = run(sources, tmp_path / "world", "--dev_share", "0.2")["counts"]
    assert counts["sources"] == {
        "corpus": {"read": 13, "kept": 12, "rejected": 0, "repeated": 1},
        "stabletoolbench/G1_tool.json": {"read": 1, "kept": 1, "rejected": 0},
        "stabletoolbench/G3_instruction.json": {"read": 1, "kept": 1, "rejected": 0},
        "ToolLens/queries.jsonl": {"read": 24, "kept": 24, "rejected": 0},
        "anytoolbench/any.json": {"read": 5, "kept": 2, "rejected": 3},
    }
    assert counts["rejected_reasons"] == {
        "request is also a test request": 1, "same request as an earlier one": 1,
        "target not in the corpus": 1,
    }  # fmt: skip
    rejected = read_jsonl(tmp_path / "world/rejected.jsonl")
    assert [(r["source"], r["line"]) for r in rejected] == [
        ("anytoolbench/any.json", 4), ("anytoolbench/any.json", 1), ("anytoolbench/any.json", 3),
    ]  # fmt: skip
    assert len(read_jsonl(tmp_path / "world/tools.jsonl", ToolSpec)) == counts["tools"] == 12
    assert not (tmp_path / "world/functions.jsonl").exists()
    found = tasks(tmp_path / "world")
    assert {task.level for task in found["test"]} == {"G1_tool", "G3_instruction"}
    assert all(task.meta == {} for task in found["test"])  # hints know the targets
    assert all(task.meta["good_query"] for split in ("train", "dev") for task in found[split])


def test_requests_with_the_same_targets_stay_on_one_side(sources: Path, tmp_path: Path) -> None:
    run(sources, tmp_path / "world", "--dev_share", "0.25")
    found = tasks(tmp_path / "world")
    sets = {split: {frozenset(task.targets) for task in found[split]} for split in ("train", "dev")}
    assert not sets["train"] & sets["dev"]
    dev = [task.suite for task in found["dev"]]
    assert (dev.count("toollens"), dev.count("anytoolbench")) == (6, 1)  # 3 of 12 sets, twice each; at least one
    assert len(found["train"]) + len(found["dev"]) == 26
    assert {task.split for task in found["dev"]} == {"dev"}


def test_split_depends_on_the_seed_alone(sources: Path, tmp_path: Path) -> None:
    for name, seed in (("a", "0"), ("b", "0"), ("c", "1")):
        run(sources, tmp_path / name, "--seed", seed, "--dev_share", "0.2")
    dev = {name: (tmp_path / name / "tasks/dev.jsonl").read_bytes() for name in "abc"}
    assert dev["a"] == dev["b"] != dev["c"]
    kept = [task for rows in tasks(tmp_path / "a").values() for task in rows if task.split != "test"]
    again = split_tasks(kept[::-1], 0.2, 0)  # the order of the files does not matter
    assert {task.id for task in again["dev"]} == {task.id for task in kept if task.split == "dev"}


def test_missing_files_are_said_before_anything_is_made(sources: Path, tmp_path: Path) -> None:
    (sources / "anytoolbench/any.json").unlink()
    (sources / "colt/datasets/ToolLens").rename(sources / "elsewhere")
    with pytest.raises(DataError, match="nothing to train on"):
        run(sources, tmp_path / "world")
    with pytest.raises(DataError, match="no test requests"):
        main(["--corpus", "x", "--queries", str(tmp_path / "none"), "--out", str(tmp_path / "world")])
    (sources / "elsewhere").rename(sources / "colt/datasets/ToolLens")
    with pytest.raises(DataError, match="none.jsonl: cannot read"):
        main(["--corpus", "none.jsonl", "--queries", str(sources), "--out", str(tmp_path / "world")])
    assert not (tmp_path / "world").exists()


def test_data_is_built_without_functions_and_says_so(
    sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(sources, tmp_path / "world", "--dev_share", "0.2")
    argv = ["--world", str(tmp_path / "world"), "--out", str(tmp_path / "data"), "--num_search_demos", "30"]
    assert build_data([*argv, "--max_query_chars", "23", "--search.max_turns", "4"]) == 0
    counts = read_manifest(tmp_path / "data")["counts"]
    assert set(counts["sft"]["train"]) == {"search", "relevance"} and counts["sft"]["train"]["search"] == 30
    assert set(counts["no_records"]) == {"understanding", "function"}
    assert "no record of the task function: the world has no functions.jsonl" in capsys.readouterr().out
    long = [t for s in ("train", "dev") for t in tasks(tmp_path / "world")[s] if len(t.query) > 23]
    assert long and sum(n for why, n in counts["rejected"].items() if "max_query_chars" in why) == len(long)
    assert all(len(row["query"]) <= 23 for row in read_jsonl(tmp_path / "data/rl/train.jsonl"))


def test_hints_take_the_clause_of_the_target_and_the_words_of_its_document(sources: Path, tmp_path: Path) -> None:
    run(sources, tmp_path / "world")
    by_id = {spec.id: spec for spec in read_jsonl(tmp_path / "world/tools.jsonl", ToolSpec)}
    mail, song = (next(i for i in by_id if i.api == f"find{word}now") for word in ("mail", "song"))
    query = "Please send a cheerful Mail to Anna tomorrow, and also play that very nice old slow sad jazz song."
    task = Task(id="x", suite="s", split="train", level="", query=query, targets=(mail, song))
    found = hints(task, by_id)
    assert found["clauses"] == {str(mail): "send cheerful tomorrow", str(song): "play nice old slow sad jazz"}
    assert found["objects"][str(song)] == "tool song"
    assert found["good_query"][str(song)] == "find song now tool gives"
    assert all(len(text.split()) <= MAX_WORDS for part in found.values() for text in part.values())


# --- real samples -------------------------------------------------------------------------------------------------


@pytest.mark.shared
def test_real_world_folder(shared_data: Path, tmp_path: Path) -> None:
    counts = run(shared_data / "sources", tmp_path / "world")["counts"]
    found = tasks(tmp_path / "world")
    assert all(row["read"] == row["kept"] + row["rejected"] for row in counts["sources"].values())
    assert counts["sources"]["corpus"]["read"] == 16_305 and sum(counts["by_level"]["test"].values()) == 405
    assert counts["rejected_reasons"] == {
        "name was a secret": 3, "same request as an earlier one": 1, "target not in the corpus": 2,
    }  # fmt: skip
    tools = {spec.id for spec in read_jsonl(tmp_path / "world/tools.jsonl", ToolSpec)}
    assert all(target in tools for rows in found.values() for task in rows for target in task.targets)
    # no test request in train or dev, on text normalised by a rule of this test's own
    letters = {split: {re.sub(r"[^a-z0-9]", "", t.query.lower()) for t in rows} for split, rows in found.items()}
    assert not letters["test"] & (letters["train"] | letters["dev"])
    assert {task.level for task in found["train"]} == {"ToolLens", "AnyToolBench"}
