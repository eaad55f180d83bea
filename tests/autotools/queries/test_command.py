"""The form of a file by its content, and the command: table, lists, files written, errors."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from autotools.errors import ConfigError, DataError
from autotools.queries.__main__ import corpus_specs, main
from autotools.queries.forms import detect, read_any, suite_of, walk
from autotools.rundir import read_jsonl, write_jsonl
from autotools.schema import Task, ToolId, ToolSpec

API = {"category_name": "Travel", "tool_name": "Rail & Co", "api_name": "Find Train"}
SKY = {"category_name": "Weather", "tool_name": "Sky", "api_name": "/now"}
RAIL = ToolId.make(*API.values())


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def folder_of_all(root: Path) -> Path:
    """One small file of each form, one that is none, one that is broken."""
    pairs = {"query": "a", "query_id": 1, "api_list": [API, SKY], "relevant APIs": [["Sky", "/now"]]}
    write(
        root / "solvable_queries/G1.json",
        ["odd", pairs, pairs | {"query_id": 2, "relevant APIs": [["Rail & Co", "Find Train"]]}],
    )
    write(root / "train_example/G1.json", [pairs])
    write(root / "any.json", [{"query": "b", "query_id": "1", "gt_api_list": [API, SKY, SKY]}])
    write(
        root / "eval.json",
        [{"query": "c", "qid": 1, "dataset": "food", "solution": [["GET_a", 2]], "url": ["https://h/a"]}],
    )
    write(
        root / "renamed.json",
        [{"query": "d", "qid": 1, "dataset": "tmdb", "solution": ["GET_a"], "url": ["GET https://h/a"]}],
    )
    write(root / "tmdb.json", [{"query": "e", "solution": ["GET /a"]}])
    task = Task(id="t", suite="world", split="dev", level="I1", query="f", targets=(RAIL,))
    write_jsonl(root / "tasks/dev.jsonl", [task])
    text = "category_name:Travel, tool_name:Rail & Co, api_name:Find Train, api_description:x, required_params: [], "
    text += 'optional_params: [], return_schema: ""'
    write(root / "Lens/corpus.jsonl", json.dumps({"_id": "0", "text": text}))
    write(root / "Lens/queries.jsonl", "".join(json.dumps({"_id": n, "text": "g"}) + "\n" for n in "12"))
    for number, split in enumerate(("train", "test"), 1):
        write(root / f"Lens/qrels/{split}.tsv", f"query-id\tcorpus-id\tscore\n{number}\t0\t1\n")
    write(root / "readme.md", "# nothing")
    write(root / "other.json", [{"query": "h"}])
    write(root / "broken.json", "[{")
    return root


FORMS = {
    "solvable_queries/G1.json": ("toolbench", "stabletoolbench", "test"),
    "train_example/G1.json": ("toolbench", "toolbench", "train"),
    "any.json": ("anytoolbench", "anytoolbench", "train"),
    "eval.json": ("autotools", "autotools_eval", "test"),
    "renamed.json": ("autotools", "restbench", "test"),
    "tmdb.json": ("restbench", "restbench", "test"),
    "tasks/dev.jsonl": ("tasks", "toolworld", "dev"),
    "Lens": ("colt", "lens", "train"),
}


def test_forms_are_known_by_content(tmp_path: Path) -> None:
    root = folder_of_all(tmp_path)
    for name, (form, suite, split) in FORMS.items():
        path = root / name
        assert (detect(path), suite_of(path, form)) == (form, suite), name
        (_, task) = read_any(path, form)[0].tasks[0]
        assert task.split == split and task.suite in (suite, "world")
    assert detect(root / "readme.md") is None and detect(root / "other.json") is None
    with pytest.raises(DataError, match="not JSON"):
        detect(root / "broken.json")
    others = {"readme.md", "other.json", "broken.json"}
    assert {p.relative_to(root).as_posix() for p in walk(root)} == {*FORMS, *others}
    with pytest.raises(DataError, match="does not exist"):
        list(walk(root / "none"))


def rows_of(text: str) -> dict[str, list[str]]:
    """Table rows by first column."""
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    return {row[0]: row[1:] for row in cells}


def test_command_counts_lists_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, out = folder_of_all(tmp_path / "in"), tmp_path / "out"
    tools = [ToolSpec(id=RAIL, tool_name="rail", api_name="find")]
    write_jsonl(tmp_path / "world/tools.jsonl", tools)
    argv = [
        str(root),
        "--corpus",
        str(tmp_path / "world"),
        "--out",
        str(out / "t.jsonl"),
        "--rejects",
        str(out / "r.jsonl"),
    ]
    assert main(argv) == 0
    text = capsys.readouterr().out
    # read, kept, rejected, repaired, targets, dangling: worked out by hand
    expected = {
        "solvable_queries/G1.json": ["stabletoolbench", 3, 1, 2, 0, 2, 1],
        "train_example/G1.json": ["toolbench", 1, 0, 1, 0, 1, 1],
        "any.json": ["anytoolbench", 1, 0, 1, 1, 2, 1],
        "eval.json": ["autotools_eval", 1, 0, 1, 0, 1, 1],
        "renamed.json": ["restbench", 1, 0, 1, 0, 1, 1],
        "tmdb.json": ["restbench", 1, 0, 1, 0, 1, 1],
        "tasks/dev.jsonl": ["world", 1, 1, 0, 0, 1, 0],
        "Lens train": ["lens", 1, 1, 0, 0, 1, 0],
        "Lens test": ["lens", 1, 1, 0, 0, 1, 0],
        "all": ["", 11, 4, 7, 1, 5, 4],
    }
    assert rows_of(text) == {name: [str(cell) for cell in row] for name, row in expected.items()}
    assert "6 x target not in the corpus" in text and "1 x not an object" in text and "1 x target named twice" in text
    assert "Weather.sky.now: wanted 3 times, first by anytoolbench/1 (anytoolbench/any.json:1)" in text
    assert "restbench.tmdb.get_a: wanted 1 times" in text and "tmdb.tmdb.get_a: wanted 1 times" in text
    assert (
        re.search(r"files of no known form \(2\):\n  other.json\n  readme.md", text) and "broken.json: not JSON" in text
    )
    assert [t.id for t in read_jsonl(out / "t.jsonl", Task)] == [
        "lens/1", "lens/2", "stabletoolbench/G1/2", "t",
    ]  # fmt: skip
    rejects = read_jsonl(out / "r.jsonl")
    assert len(rejects) == 7 and sum("Weather.sky.now" in row["detail"] for row in rejects) == 3
    with pytest.raises(ConfigError, match="exists; give another name, or --overwrite"):
        main(argv)
    assert main([*argv, "--overwrite"]) == 0
    for key in ("--out", "--rejects"):
        for used in ("any.json", "Lens/corpus.jsonl"):
            with pytest.raises(ConfigError, match=f"{key} .*{used} is one of the files that are read"):
                main([str(root), key, str(root / "x" / ".." / used), "--overwrite"])


def test_command_without_a_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder_of_all(tmp_path) / "any.json"
    assert main([str(path), "--dry_run"]) == 0
    assert "would look at 1 files" in capsys.readouterr().out
    assert main([str(path), "--suite", "mine"]) == 0
    assert rows_of(capsys.readouterr().out) == {"any.json": ["mine", "1", "1", "0", "1", "2", "-"]}
    with pytest.raises(DataError, match=r"no requests in 1 files \(1 of no known form\)"):
        main([str(tmp_path / "readme.md")])
    with pytest.raises(DataError, match="not JSON"):
        main([str(tmp_path / "broken.json")])
    with pytest.raises(DataError, match="does not exist"):
        main([str(tmp_path / "none")])
    with pytest.raises(SystemExit) as leave:
        main(["--help"])
    assert leave.value.code == 0 and "--corpus" in capsys.readouterr().out


def test_a_request_of_an_earlier_file_is_set_aside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder_of_all(tmp_path / "all") / "any.json"
    (tmp_path / "two").mkdir()
    for name in ("a.json", "b.json"):
        (tmp_path / "two" / name).write_bytes(path.read_bytes())
    (tmp_path / "two" / "loop").symlink_to(tmp_path / "two")
    assert main([str(tmp_path / "two"), "--out", str(tmp_path / "tasks.jsonl")]) == 0
    rows = rows_of(capsys.readouterr().out)
    assert [rows[name][1:4] for name in ("a.json", "b.json")] == [["1", "1", "0"], ["1", "0", "1"]]
    assert len((tmp_path / "tasks.jsonl").read_text().splitlines()) == 1


def test_corpus_may_be_documentation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = {"openapi": "3.0.0", "info": {"title": "Films"}, "paths": {"/a": {"get": {"responses": {}}}}}
    path = write(tmp_path / "docs/films_oas.json", document)
    for where in (path, path.parent):
        specs, unread = corpus_specs(where)
        assert [(s.method, s.path) for s in specs] == [("GET", "/a")] and unread == []
    requests = write(tmp_path / "films.json", [{"query": "e", "solution": ["GET /a", "GET /b"]}])
    (path.parent / "more.json.gz").write_bytes(b"not packed")
    lost = ["--out", str(tmp_path / "t.jsonl"), "--rejects", str(tmp_path / "r.jsonl")]
    with pytest.raises(DataError, match="films.json: none of 1 requests can be used; why stands above"):
        main([str(requests), "--corpus", str(path.parent), *lost])
    assert not (tmp_path / "t.jsonl").exists() and len(read_jsonl(tmp_path / "r.jsonl")) == 1
    text = capsys.readouterr().out
    assert rows_of(text) == {"films.json": ["restbench", "1", "0", "1", "0", "2", "1"]}
    assert "restbench.films.get_b: wanted 1 times" in text
    assert "more.json.gz: cannot read" in text  # a target may dangle only because of it
    with pytest.raises(DataError, match="holds no tool"):
        corpus_specs(write(tmp_path / "x/readme.txt", "").parent)
    with pytest.raises(DataError, match="no known form"):
        corpus_specs(tmp_path / "x/readme.txt")
