"""What stands beside a policy's scores: hand-worked numbers, a scripted engine, real files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotools.errors import DataError, RetrieverError
from autotools.rundir import write_json
from autotools.schema import Hit, Task, ToolId, ToolSpec
from evaluation import engine_scores
from evaluation.selection import PER_TASK, TaskScore
from retriever.render import document_text


def tool(name: str) -> ToolId:
    return ToolId(category="Cat", tool="box", api=name)


def tools(names: str) -> tuple[ToolId, ...]:
    return tuple(map(tool, names))


def task(name: str, targets: str, query: str = "ask") -> Task:
    return Task(id=name, suite="s", split="test", level="I1", query=query, targets=tools(targets))


class Scripted:
    """Answers from a table, best first; remembers what was asked."""

    def __init__(self, table: dict[str, str]) -> None:
        self.table, self.asked = table, []

    def search_batch(self, queries: Any, categories: Any = None, k: int = 5) -> list[list[Hit]]:
        self.asked.append((list(queries), k))
        return [[Hit(id=tool(c), score=1.0) for c in self.table.get(query, "")[:k]] for query in queries]


def test_the_retriever_gets_as_many_documents_as_the_policy_saw():
    engine = Scripted({"one": "axbyc", "two": "xa"})
    tasks = [task("t1", "abc", "one"), task("t2", "a", "two"), task("t3", "a", "two"), task("t4", "a", "one")]
    # t1 saw 2 + 2 documents, one of them twice: the first four for "one" are a x b y. P 2/4, R 2/3, F1 4/7.
    # t2 saw five, but the engine has two: x a. t3 has no prediction, t4 searched nothing: no document, all scores 0.
    shown = {"t1": [tools("ax"), tools("ac")], "t2": [tools("axyzb")], "t4": []}
    scores = engine_scores.same_budget(engine, tasks, shown)
    assert scores["t1"] == pytest.approx({"same_f1": 4 / 7, "same_recall": 2 / 3, "same_match": 0.0})
    assert scores["t2"] == pytest.approx({"same_f1": 2 / 3, "same_recall": 1.0, "same_match": 0.0})
    assert scores["t3"] == scores["t4"] == dict.fromkeys(engine_scores.SAME, 0.0)
    assert engine.asked == [(["one", "two"], 5)]  # one call for all, as deep as the largest budget
    assert engine_scores.same_budget(engine, tasks[2:3], {}) == {"t3": scores["t3"]}
    exact = engine_scores.same_budget(engine, [task("t", "ax", "one")], {"t": [tools("pq")]})
    assert exact["t"] == dict.fromkeys(engine_scores.SAME, 1.0)


def test_ceilings_by_hand():
    specs = {tool(c): ToolSpec(id=tool(c), tool_name="T", api_name=c, description=f"word {c}") for c in "abc"}
    document = {c: document_text(specs[tool(c)]) for c in "abc"}
    engine = Scripted({document["a"]: "ab", document["b"]: "xyb", document["c"]: "c", "ask": "xyzbc"})
    found = engine_scores.ceilings(engine, [task("t", "abc"), task("u", "b")], specs, turns=2, k=2)
    # t: the search for a shows a and b, the one for c shows c. u: b is third for its own document, 4 hits for "ask".
    assert found == {"t": {"ceiling_document": 1.0, "ceiling_request": 1 / 3},
                     "u": {"ceiling_document": 0.0, "ceiling_request": 1.0}}  # fmt: skip
    with pytest.raises(DataError, match="target Cat.box.z of task 't' is not in the corpus"):
        engine_scores.ceilings(engine, [task("t", "az")], specs, turns=2, k=2)


def test_confusion_of_trajectories_by_hand():
    vectors = {str(tool(c)): np.array(v) for c, v in {"a": (1, 0), "b": (0, 1), "x": (3, 4), "y": (2, 0)}.items()}
    tasks = [task("t", "ab"), task("found", "a"), task("lost", "a"), task("none", "a")]
    shown = {"t": [tools("ax"), tools("axy")], "found": [tools("a")], "lost": [tools("xy")]}
    scores = engine_scores.confusion(tasks, shown, vectors)
    # t: a was shown, its cosines with x and y are 0.6 and 1; b was not, it counts 1.
    assert scores["t"] == pytest.approx({"confusion_max": 1.0, "confusion_top": 0.9, "confusion_mean": 0.9})
    for name in ("found", "lost", "none"):  # no distractor, no target shown, no prediction
        assert scores[name] == dict.fromkeys(engine_scores.CONFUSION, 1.0)
    with pytest.raises(DataError, match="no vector for Cat.box.q: the index was built of another corpus"):
        engine_scores.confusion(tasks[:1], {"t": [tools("aq")]}, vectors)


def test_vectors_come_from_an_index_folder(tmp_path: Path):
    from retriever.index import arrange
    from retriever.index_writing import build_index

    class Encoder:
        device, dim, identity = "cpu", 3, {"weights_sha256": "w"}

        def describe(self):
            return self.identity

        def counters(self):
            return {"truncated": 0}

        def encode_documents(self, texts, progress=None):
            return np.stack([np.eye(3, dtype=np.float32)["abc".index(text[-1])] for text in texts])

    specs = [ToolSpec(id=tool(c), tool_name="T", api_name=c, description=c) for c in "cab"]
    documents = arrange(specs)
    by_text = dict(zip(documents.ids, documents.texts, strict=True))
    build_index(documents, Encoder(), tmp_path / "index")
    vectors = engine_scores.index_vectors(tmp_path / "index")
    assert {name: vector.tolist() for name, vector in vectors.items()} == {
        str(tool(c)): np.eye(3)["abc".index(by_text[str(tool(c))][-1])].tolist() for c in "abc"
    }
    with pytest.raises(RetrieverError, match="does not exist"):
        engine_scores.index_vectors(tmp_path / "other")


def ceiling_file(path: Path, **rows: float) -> dict[str, Any]:
    by_request = {name: {"own_document": 1.0, "own_description": 0.9, "user_query": v} for name, v in rows.items()}
    content = {"ceiling": {"turns": 3, "k": 4, "by_request": by_request}}
    write_json(path, content)
    return content


def test_ceilings_from_a_file_must_be_of_the_same_requests(tmp_path: Path):
    one = ceiling_file(tmp_path / "one.json", t1=0.25, t2=0.5)
    found, limits = engine_scores.read_ceilings(tmp_path / "one.json", "bm25", ["t2"])
    assert found == {"t2": {"ceiling_document": 1.0, "ceiling_request": 0.5}} and limits == {"turns": 3, "k": 4}
    with pytest.raises(DataError, match="no ceiling for 1 of 2 tasks, first 't3'"):
        engine_scores.read_ceilings(tmp_path / "one.json", "bm25", ["t1", "t3"])
    write_json(tmp_path / "two.json", {"encoders": {"minilm": one}})
    assert engine_scores.read_ceilings(tmp_path / "two.json", "minilm", ["t2"])[0] == found
    with pytest.raises(DataError, match="holds minilm, not bm25; name one with --encoder"):
        engine_scores.read_ceilings(tmp_path / "two.json", "bm25", ["t2"])
    for content in ({}, {"ceiling": {"turns": 7, "k": 5, "own_document": {}}}, [], {"ceiling": 3}):
        write_json(tmp_path / "bad.json", content)
        with pytest.raises(DataError, match=r"bad\.json is no result of retriever\.evaluate"):
            engine_scores.read_ceilings(tmp_path / "bad.json", "bm25", ["t1"])
    with pytest.raises(DataError, match="cannot read"):
        engine_scores.read_ceilings(tmp_path / "none.json", "bm25", ["t1"])


def test_further_scores_join_their_own_task():
    scores = [
        TaskScore(task_id=name, level="I1", unseen=False, values=dict.fromkeys(PER_TASK, 0.5), complete=False)
        for name in ("b", "a")
    ]
    more = engine_scores.with_extra(scores, [{"a": {"p": 1.0}, "b": {"p": 2.0}}, {"a": {"q": 3.0}, "b": {"q": 4.0}}])
    assert [(s.task_id, s.values["p"], s.values["q"], s.values["f1"]) for s in more] == [
        ("b", 2, 4, 0.5),
        ("a", 1, 3, 0.5),
    ]
    assert "p" not in scores[0].values
