"""Records of RAGSFT: the prompt that is played later, and only targets that stand in it."""

import json
from collections import Counter

import pytest

from autotools.rundir import read_jsonl, write_jsonl
from autotools.schema import Task
from autotools.search.answer import NameIndex, parse_tool_list
from autotools.search.episode import SearchSettings
from autotools.search.rag import RagSettings, rag_episodes
from data_synthesis.build import main
from retriever.bm25 import BM25Engine
from retriever.corpus import load_tools

COMMON = ("--num_search_demos", "6", "--search.top_k", "3", "--search.max_turns", "4")


@pytest.fixture
def half_readable(world):
    """Every second request is put in the documents' own words; the others (synonyms) find nothing with BM25."""
    descriptions = {spec.id: spec.description for spec in load_tools(world)}
    for split in ("train", "dev"):
        file = world / "tasks" / f"{split}.jsonl"
        tasks = read_jsonl(file, Task)
        tasks[::2] = [t.model_copy(update={"query": ", ".join(descriptions[i] for i in t.targets)}) for t in tasks[::2]]
        write_jsonl(file, tasks)
    return world


def built(world, out, *more):
    assert main([*COMMON, "--world", str(world), "--out", str(out), *more]) == 0
    rows = {split: read_jsonl(out / "sft" / f"{split}.jsonl") for split in ("train", "dev")}
    manifest = json.loads((out / "manifest.json").read_text())
    return {split: [row for row in rows[split] if row["task"] == "rag"] for split in rows}, manifest


def test_the_prompt_is_the_played_one_and_the_answer_holds_only_what_is_shown(half_readable, tmp_path):
    rows, manifest = built(half_readable, tmp_path / "data", "--num_rag", "-1", "--rag.documents", "1")
    specs = load_tools(half_readable)
    names, engine, shown_less, absent = NameIndex(s.id for s in specs), BM25Engine(specs), 0, Counter()
    for split in ("train", "dev"):
        tasks = read_jsonl(half_readable / "tasks" / f"{split}.jsonl", Task)
        rag = RagSettings(documents=1)
        made = {row["id"]: row for row in rows[split]}
        for episode in rag_episodes(tasks, names, SearchSettings(), rag, engine.search_batch):
            wanted = [target for target in episode.targets if f"\n{target}: " in episode.messages[1]["content"]]
            row = made.pop(f"rag/{episode.task_id}", None)
            if not wanted:
                absent[split] += 1
                assert row is None
                continue
            assert row["messages"][:2] == episode.messages and row["tools"] is None
            assert parse_tool_list(row["messages"][2]["content"], names) == (tuple(wanted), ())
            shown_less += len(wanted) < len(episode.targets)
        assert not made
    rejected = [r for r in read_jsonl(tmp_path / "data" / "rejected.jsonl") if r["stage"] == "rag"]
    assert len(rejected) == sum(absent.values()) > 0 and shown_less > 0  # both cases are really met here
    counts = manifest["counts"]
    assert counts["read"]["rag"] == counts["kept"]["rag"] + len(rejected)
    assert counts["rejected"] == {"rag: no target among the first 1 documents": len(rejected)}
    assert manifest["rag"] == {"documents": 1, "document_chars": 200}


def test_none_unless_asked_for_and_no_other_record_changes(half_readable, tmp_path):
    rows, manifest = built(half_readable, tmp_path / "without")
    assert rows == {"train": [], "dev": []} and "rag" not in manifest
    few, manifest = built(half_readable, tmp_path / "with", "--num_rag", "5", "--rag.documents", "10")
    assert 0 < len(few["train"]) < 5 and manifest["counts"]["read"]["rag"] == 5 + 6  # 5 drawn of train, all of dev
    for split in ("train", "dev"):
        before, after = (
            [row for row in read_jsonl(tmp_path / name / "sft" / f"{split}.jsonl") if row["task"] != "rag"]
            for name in ("without", "with")
        )
        assert sorted(before, key=lambda row: row["id"]) == sorted(after, key=lambda row: row["id"])
