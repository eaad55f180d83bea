"""Suites in their original files: what is read, what is set aside, which split it is; on made-up and on real files."""

import contextlib
import json
import shlex
import threading
from pathlib import Path

import pytest

from autotools.config import load_config
from autotools.errors import ConfigError, DataError
from autotools.llm.endpoint import EndpointSettings
from autotools.rundir import read_jsonl, read_manifest, write_jsonl
from autotools.schema import Task, ToolId, ToolSpec, Trajectory
from autotools.search.episode import SearchSettings
from evaluation import run, suites
from evaluation.selection import read_tasks

STABLE = "stabletoolbench/solvable_queries/test_instruction"
TOOLLENS = "colt/datasets/ToolLens"


def spec(tool: str, category: str = "Food") -> ToolSpec:
    tool_id = ToolId(category=category, tool=tool, api="find")
    return ToolSpec(id=tool_id, tool_name=tool, api_name="find", description=f"find a {tool}")


def record(number: int, *tools: str) -> dict:
    apis = [{"category_name": "Food", "tool_name": tool, "api_name": "find"} for tool in tools]
    pairs = [[tool, "find"] for tool in tools]
    return {"query_id": number, "query": f"a {' and a '.join(tools)}", "api_list": apis, "relevant APIs": pairs}


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Three tools; 3 StableToolBench requests in two files, one of which wants a fourth tool; 4 + 3 of ToolLens."""
    write_jsonl(tmp_path / "tools.jsonl", [spec("cake"), spec("soup"), spec("wine", "Drinks")])
    for name, rows in {"G1_tool": [record(1, "cake"), record(2, "cake", "salt")], "G3_x": [record(1, "soup")]}.items():
        (tmp_path / STABLE).mkdir(parents=True, exist_ok=True)
        (tmp_path / STABLE / f"{name}.json").write_text(json.dumps(rows))
    folder = tmp_path / TOOLLENS
    (folder / "qrels").mkdir(parents=True)
    text = "category_name:{}, tool_name:{}, api_name:find, api_description:x, required_params: []"
    documents = [("Food", "cake"), ("Food", "soup"), ("Drinks", "wine"), ("Food", "salt")]
    rows = [{"_id": str(i), "text": text.format(*names)} for i, names in enumerate(documents)]
    write_jsonl(folder / "corpus.jsonl", rows)
    texts = ["cake with soup", "soup?", "wine", "salt", "Soup!", "soup and more cake", "salty"]
    write_jsonl(folder / "queries.jsonl", [{"_id": str(i), "text": text} for i, text in enumerate(texts)])
    wanted = {"train": ["0 0", "0 1", "1 1", "2 2", "3 3"], "test": ["4 1", "5 1", "5 0", "6 3"]}
    for split, pairs in wanted.items():
        lines = ["query-id corpus-id score", *(f"{pair} 1" for pair in pairs)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(line.replace(" ", "\t") for line in lines) + "\n")
    return tmp_path


def words(folder: Path, suite: str, out: str, *more: str) -> list[str]:
    tools = ["--corpus", str(folder / "tools.jsonl"), "--queries", str(folder)]
    return ["--suite", suite, *tools, "--out", str(folder / out), "--policy", "bm25", *more]


def test_stabletoolbench(sources, capsys):
    assert run.main(words(sources, "stabletoolbench", "o")) == 0
    told, out = capsys.readouterr().err, sources / "o"
    assert "note: StableToolBench has no splits" in told
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["counts"] == {
        "read": 3,
        "rejected": 1,
        "played": 2,
        "set_aside": {"stabletoolbench/G1_tool.json": 1},
    }
    (reject,) = read_jsonl(out / "rejected.jsonl")
    assert (reject["line"], reject["reason"], reject["detail"]) == (2, "target not in the corpus", "Food.salt.find")
    assert set(metrics["policies"]["bm25"]) == {"overall", "G1_tool", "G3_x"}
    assert metrics["notes"]["bm25"]["k"] == 5 and metrics["notes"]["bm25"]["k_from"] == "search.top_k (no dev requests)"
    assert "StableToolBench has no splits" in metrics["suite_note"]
    tasks = read_tasks(out / "tasks.jsonl")
    assert [task.id for task in tasks] == ["stabletoolbench/G1_tool/1", "stabletoolbench/G3_x/1"]
    rows = read_jsonl(out / "bm25" / "predictions.jsonl", Trajectory)
    assert [row.level for row in rows] == ["G1_tool", "G3_x"] and all(row.found() == set(row.targets) for row in rows)
    assert set(read_manifest(out)["inputs"]) >= {"tools.jsonl", f"{STABLE}/G1_tool.json", f"{STABLE}/G3_x.json"}
    assert run.main(words(sources, "stabletoolbench", "p", "--one_shot_k", "1")) == 0
    metrics = json.loads((sources / "p" / "metrics.json").read_text())
    assert metrics["policies"]["bm25"]["overall"]["f1"] == 1.0 and metrics["notes"]["bm25"]["k_from"] == "one_shot_k"


def test_toollens_holds_out_its_test_split(sources):
    assert run.main(words(sources, "toollens", "o")) == 0
    metrics = json.loads((sources / "o" / "metrics.json").read_text())
    # "Soup!" has the words of the train request "soup?"; "salty" wants a tool that the corpus has not
    assert (metrics["counts"]["read"], metrics["counts"]["rejected"], metrics["counts"]["played"]) == (3, 2, 1)
    rejects = {row["reason"]: row["detail"] for row in read_jsonl(sources / "o" / "rejected.jsonl")}
    assert rejects == {"request is also a train request": "toollens/4", "target not in the corpus": "Food.salt.find"}
    assert "1 of 1 requests want a set of tools that a train request wants" in metrics["suite_note"]
    # k was chosen on the train requests: "cake with soup" wants 2, "soup?" and "wine" 1 each, "salt" cannot be played
    f1 = metrics["notes"]["bm25"]["dev_f1_by_k"]
    assert f1["1"] == pytest.approx((2 / 3 + 1 + 1) / 3) and metrics["notes"]["bm25"]["k"] == 2
    assert run.main(words(sources, "toollens", "t", "--split", "train")) == 0
    assert read_manifest(sources / "t")["counts"]["played"] == 3


def test_where_the_files_may_lie_and_what_is_missing(sources, tmp_path_factory):
    names = ["G1_tool.json", "G3_x.json"]
    for folder in (sources, sources / "stabletoolbench", sources / STABLE):
        assert [path.name for path in suites.suite_files(str(folder), "stabletoolbench")] == names
    for folder in (sources, sources / "colt", sources / "colt" / "datasets", sources / TOOLLENS):
        assert [path.name for path in suites.suite_files(str(folder), "toollens")] == ["ToolLens"]
    empty = str(tmp_path_factory.mktemp("empty"))
    for suite, error, message in (
        ("toollens", DataError, "no toollens below .*; looked for colt/datasets/ToolLens, datasets/ToolLens"),
        ("toolworld", ConfigError, "--queries is for the suites stabletoolbench, toollens; toolworld needs --world"),
    ):
        with pytest.raises(error, match=message):
            run.main([*words(sources, suite, "o"), "--queries", empty, "--dry_run"])
    for suite, message in (
        ("stabletoolbench", "has no split 'dev', only test: it has no splits"),
        ("toollens", "has no split 'dev', train and test"),
    ):
        with pytest.raises(ConfigError, match=message):
            run.main(words(sources, suite, "o", "--split", "dev"))
    with pytest.raises(
        ConfigError, match="name the tools and requests: --world FOLDER, or --corpus FILE and --queries"
    ):
        run.main(["--suite", "toollens", "--queries", empty, "--out", "o", "--policy", "bm25"])
    (sources / "tools.jsonl").write_text(spec("other").model_dump_json() + "\n")
    with pytest.raises(
        DataError, match=r"no request has its targets in the corpus \(first: stabletoolbench/G1_tool.json:1: target"
    ):
        run.main(words(sources, "stabletoolbench", "o"))
    assert not (sources / "o").exists()


def test_of_a_world_folder_only_the_suites_own_requests_are_played(sources):
    def task(number: int, suite: str, split: str, tool: str) -> Task:
        target = ToolId(category="Food", tool=tool, api="find")
        return Task(id=f"{suite}/{number}", suite=suite, split=split, level="L", query=tool, targets=(target,))

    rows = [task(1, "stabletoolbench", "test", "cake"), task(2, "anytoolbench", "test", "soup")]
    write_jsonl(sources / "tasks" / "test.jsonl", rows)
    write_jsonl(sources / "tasks" / "dev.jsonl", [task(3, "toollens", "dev", "soup")])
    world = ["--world", str(sources), "--policies", "a=bm25", "--out"]
    assert run.main([*world, str(sources / "o"), "--suite", "stabletoolbench"]) == 0
    counts = read_manifest(sources / "o")["counts"]
    assert (counts["read"], counts["rejected"], counts["played"]) == (2, 1, 1)
    assert read_jsonl(sources / "o" / "rejected.jsonl")[0]["reason"] == "request of another suite: anytoolbench"
    with pytest.raises(DataError, match="no request of suite 'toollens', only of anytoolbench, stabletoolbench; name"):
        run.main([*world, str(sources / "p"), "--suite", "toollens"])
    assert run.main([*world, str(sources / "p"), "--suite", "toollens", "--split", "dev"]) == 0
    assert "which data_synthesis.build uses" in json.loads((sources / "p" / "metrics.json").read_text())["suite_note"]
    assert run.main([*world, str(sources / "q")]) == 0  # the tool world's suite takes whatever is there
    assert read_manifest(sources / "q")["counts"]["played"] == 2


@contextlib.contextmanager
def serve_engine(engine):
    from retriever import serve
    from retriever.server_app import SearchApp, Settings

    listener = serve.bind("127.0.0.1", 0)
    listener.listen(16)
    server = serve.make_server(SearchApp(engine, Settings(), ""))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()


def test_any_engine_is_played_on_and_a_server_must_have_the_corpus(sources):
    from retriever.bm25 import BM25Engine

    with serve_engine(BM25Engine([spec("cake"), spec("soup"), spec("wine", "Drinks")])) as url:
        policies = ["--policy", "", "--policies", "a=bm25", "b=one_shot"]
        assert run.main([*words(sources, "stabletoolbench", "o"), *policies, "--encoder", url]) == 0
        rows = [(sources / "o" / name / "predictions.jsonl").read_text() for name in "ab"]
        assert rows[0] == rows[1]
    for others, size in (([spec("soup")], "2 tools, 1"), ([spec("wine", "Drinks")], "2 tools, 2")):
        with serve_engine(BM25Engine([spec("cake"), *others])) as url:
            with pytest.raises(DataError, match=rf"another corpus \({size} categories\) than .* \(3 tools, 2 cat"):
                run.main([*words(sources, "stabletoolbench", "p"), "--encoder", url])


def test_the_documents_commands_have_known_keys():
    root = Path(__file__).parents[2]
    texts = [path.read_text() for path in [root / "README.md", *sorted((root / "docs").glob("*.md"))]]
    lines = [line for text in texts for line in text.splitlines() if line.startswith("python -m evaluation.run --")]
    assert len(lines) > 3
    sections = {"": run.EvalArgs, "search": SearchSettings, "endpoint": EndpointSettings}
    for line in lines:
        words = shlex.split(line)[3:]
        words = [str(root / word) if word.startswith("configs/") else word for word in words]
        args = load_config(words, sections, prog="p", description="d").top(run.EvalArgs)
        assert run.parse_policies(args.policies, args.policy)


# --- real files ---------------------------------------------------------------------------------------------------


@pytest.mark.shared
def test_real_stabletoolbench(shared_data, tmp_path):
    folder, out = shared_data / "sources", tmp_path / "o"
    tools = ["--corpus", str(folder / "toolbench_corpus" / "corpus.jsonl.gz"), "--queries", str(folder)]
    words = ["--suite", "stabletoolbench", *tools, "--policy", "bm25", "--limit", "40", "--out", str(out)]
    assert run.main(words) == 0
    counts = read_manifest(out)["counts"]
    assert (counts["read"], counts["rejected"], counts["played"]) == (405, 0, 40)
    assert counts["set_aside"] == {"corpus.jsonl.gz": 3}
    assert len({task.level for task in read_tasks(out / "tasks.jsonl")}) == 6


@pytest.mark.shared
def test_real_toollens_test_requests_are_no_train_requests(shared_data):
    """Counted here from the raw files: queries, qrels and their words."""
    folder = shared_data / "sources" / TOOLLENS
    every = suites.read_toollens(str(shared_data / "sources"), Everything(), dev=False)
    qrels = {split: (folder / "qrels" / f"{split}.tsv").read_text().splitlines()[1:] for split in ("train", "test")}
    ids = {split: {line.split("\t")[0] for line in lines} for split, lines in qrels.items()}
    assert {task.id.rpartition("/")[2] for task in every.tasks} == ids["test"] and len(every.tasks) == 800
    assert not ids["test"] & ids["train"] and every.rejected == []
    assert "447 of 800 requests want a set of tools that a train request wants in other words" in every.note


class Everything:
    """A corpus that holds all tools."""

    def __contains__(self, tool: object) -> bool:
        return True
