"""Run folders and manifests, against hashlib over bytes written by hand and against git itself."""

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from autotools import rundir
from autotools.errors import DataError, RunFolderError, WriteError
from autotools.schema import Hit, ToolId

CONFIG = {"seed": 1, "rl": {"beta": 0.1, "name": "a"}, "overwrite": False}
HIT = Hit(id=ToolId(category="Travel", tool="t", api="a"), score=0.5, document="Straße\u2028x")


def test_new_folder_tells_what_it_is(tmp_path: Path) -> None:
    run = rundir.open_run(tmp_path / "new" / "run", CONFIG, seed=1)
    assert json.loads((run.path / "run_config.json").read_text()) == CONFIG
    record = json.loads((run.path / "run.json").read_text())
    assert record["seed"] == 1
    assert record["versions"]["torch"] and record["versions"]["python"].startswith("3.")
    assert record["command"] and record["commit"]


def test_used_folder_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("mine")
    with pytest.raises(RunFolderError, match=f"{tmp_path} is in use; pass --resume .* --overwrite"):
        rundir.open_run(tmp_path, CONFIG, seed=1, resume=False)
    with pytest.raises(RunFolderError, match=f"{tmp_path} is in use; pass --overwrite"):  # cannot be resumed at all
        rundir.open_run(tmp_path, CONFIG, seed=1)
    with pytest.raises(RunFolderError, match="was not made by this project"):
        rundir.open_run(tmp_path, CONFIG, seed=1, overwrite=True)
    with pytest.raises(RunFolderError, match="has no run_config.json"):
        rundir.open_run(tmp_path, CONFIG, seed=1, resume=True)
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_overwrite_empties_a_folder_of_ours(tmp_path: Path) -> None:
    run = rundir.open_run(tmp_path / "run", CONFIG, seed=1)
    (run.path / "old.txt").write_text("old")
    rundir.open_run(run.path, {"seed": 2}, seed=2, overwrite=True)
    assert not (run.path / "old.txt").exists()
    assert json.loads((run.path / "run_config.json").read_text()) == {"seed": 2}


def test_an_empty_name_is_not_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(RunFolderError, match="empty"):
        rundir.open_run("", {}, seed=0, overwrite=True)
    assert (tmp_path / "run.json").exists()


def test_resume_needs_the_same_config(tmp_path: Path) -> None:
    path = tmp_path / "run"
    rundir.open_run(path, CONFIG, seed=1).log({"step": 1})
    rundir.open_run(path, {**CONFIG, "overwrite": True, "resume": True}, seed=1, resume=True).log({"step": 2})
    assert [row["step"] for row in rundir.read_jsonl(path / "metrics.jsonl")] == [1, 2]
    assert len(json.loads((path / "run.json").read_text())["resumed"]) == 1
    changed = {"seed": 2, "rl": {"beta": 0.2, "name": "a"}, "new": None}
    with pytest.raises(RunFolderError, match=r"differs in \[new, rl\.beta, seed\]; .* --resume --config .*run_config"):
        rundir.open_run(path, changed, seed=2, resume=True)
    with pytest.raises(RunFolderError, match="exclude each other"):
        rundir.open_run(path, CONFIG, seed=1, resume=True, overwrite=True)


def test_other_ranks_neither_claim_nor_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    run = rundir.open_run(tmp_path / "run", CONFIG, seed=1)
    run.log({"step": 1})
    assert not run.main and not run.path.exists()


def test_log_keeps_numbers_that_are_not_finite_readable(tmp_path: Path) -> None:
    rundir.RunDir(tmp_path).log({"loss": float("nan"), "x": float("inf"), "y": 1.5})
    row = json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert row == {"loss": "nan", "x": "inf", "y": 1.5}


def test_manifest_names_inputs_by_hash_and_never_by_machine(tmp_path: Path) -> None:
    (tmp_path / "data" / "sft").mkdir(parents=True)
    (tmp_path / "data" / "sft" / "train.jsonl").write_bytes(b"one\n")
    (tmp_path / "data" / "tools.jsonl").write_bytes(b"two\n")
    inputs = [tmp_path / "data" / "tools.jsonl", tmp_path / "data" / "sft" / "train.jsonl"]
    more: dict[str, Any] = {"stage": "s", "counts": {"kept": 2}, "seed": 3, "extra": {"note": "n"}}
    path = rundir.write_manifest(tmp_path / "out", inputs=inputs, **more)
    manifest = rundir.read_manifest(tmp_path / "out")
    assert manifest["inputs"] == {
        "sft/train.jsonl": hashlib.sha256(b"one\n").hexdigest(),
        "tools.jsonl": hashlib.sha256(b"two\n").hexdigest(),
    }
    assert (manifest["stage"], manifest["counts"], manifest["seed"], manifest["note"]) == ("s", {"kept": 2}, 3, "n")
    again = rundir.write_manifest(tmp_path / "other", inputs=reversed(inputs), **more)
    assert again.read_bytes() == path.read_bytes()  # order, folder and time leave no trace
    assert str(tmp_path) not in path.read_text()
    folder = rundir.write_manifest(tmp_path / "next", inputs=[tmp_path / "out"], **more)
    expected = hashlib.sha256(path.read_bytes()).hexdigest()
    assert json.loads(folder.read_text())["inputs"] == {"manifest.json": expected}


def test_a_run_killed_while_claiming_its_folder_can_be_resumed(tmp_path: Path) -> None:
    out = tmp_path / "run"
    rundir.open_run(out, {"a": 1}, seed=0, resume=False)
    (out / "run.json").unlink()  # killed between the two files
    rundir.open_run(out, {"a": 1}, seed=0, resume=True)
    assert [entry["seed"] for entry in json.loads((out / "run.json").read_text())["resumed"]] == [0]
    half = tmp_path / "half"
    half.mkdir()
    (half / ".run_config.json.7.tmp").write_text("{")  # killed inside the first
    rundir.open_run(half, {"a": 1}, seed=0, resume=True)
    assert sorted(path.name for path in half.iterdir()) == ["run.json", "run_config.json"]


def test_an_unfinished_run_is_no_input(tmp_path: Path) -> None:
    from autotools.llm.loading import load_model
    from autotools.llm.local import LocalPolicy
    from retriever.corpus import load_tools

    out = tmp_path / "run"
    rundir.open_run(out, {}, seed=0)
    (out / "tools.jsonl").write_text("{}")
    (out / "config.json").write_text("{}")
    for read in (load_tools, load_model, LocalPolicy, lambda path: load_tools(f"{path}/tools.jsonl")):
        with pytest.raises(DataError, match="run is not complete .no manifest.json."):
            read(str(out))
    rundir.refuse_half("Qwen/Qwen2.5-1.5B-Instruct")
    rundir.refuse_half(tmp_path)
    rundir.write_manifest(out, stage="s", inputs=[], counts={}, seed=0)
    rundir.refuse_half(out)


def test_missing_manifest_and_input_are_data_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not complete"):
        rundir.read_manifest(tmp_path)
    with pytest.raises(DataError, match="does not exist"):
        rundir.read_manifest(tmp_path / "no")
    with pytest.raises(DataError, match="absent.jsonl: cannot read"):
        rundir.write_manifest(tmp_path, stage="s", inputs=[tmp_path / "absent.jsonl"], counts={}, seed=0)
    assert not list(tmp_path.iterdir())


def test_jsonl_round_trip_keeps_odd_text(tmp_path: Path) -> None:
    rows = [{"a": "line\u2028sep\r\n\x85", "b": None}, {"a": "\ud800 lone surrogate"}]
    path = tmp_path / "x" / "rows.jsonl"
    assert rundir.write_jsonl(path, rows) == 2
    assert rundir.read_jsonl(path) == rows
    assert path.read_bytes().count(b"\n") == 2
    rundir.write_jsonl(path, [HIT])
    assert rundir.read_jsonl(path, Hit) == [HIT]
    assert "Straße" in path.read_text(encoding="utf-8")


def test_a_row_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rundir.write_jsonl(path, [{"a": 1}])

    with pytest.raises(DataError, match="rows.jsonl: row 2 cannot be written"):
        rundir.write_jsonl(path, [{"a": 2}, {"a": float("nan")}])
    assert rundir.read_jsonl(path) == [{"a": 1}]
    assert [p.name for p in tmp_path.iterdir()] == ["rows.jsonl"]


@pytest.mark.parametrize(
    ("content", "model", "words"),
    [
        (b'{"a": 1}\n{"a": \n', None, "rows.jsonl:2: not JSON"),
        (b'{"id": 1}\n', Hit, "rows.jsonl:1: not a Hit: id"),
        (b"\xff\n", None, "not UTF-8"),
        (None, None, "cannot read (No such file"),
    ],
)
def test_bad_jsonl_names_file_and_line(tmp_path: Path, content: bytes | None, model: Any, words: str) -> None:
    path = tmp_path / "rows.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        rundir.read_jsonl(path, model)
    assert words in str(caught.value)


def test_commit_is_what_git_says() -> None:
    here = Path(rundir.__file__).parent
    head = subprocess.run(["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, text=True)
    if head.returncode:
        assert rundir.commit() == "unknown"
    else:
        assert rundir.commit().removesuffix("-dirty") == head.stdout.strip()


def test_commit_outside_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rundir, "__file__", str(tmp_path / "rundir.py"))
    monkeypatch.setitem(os.environ, "GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    rundir.commit.cache_clear()
    try:
        assert rundir.commit() == "unknown"
    finally:
        rundir.commit.cache_clear()


def test_a_dry_run_is_refused_where_the_run_would_be(tmp_path: Path) -> None:
    assert rundir.check_run(tmp_path / "new", CONFIG) == "start"
    (tmp_path / "file").write_text("mine")
    for flags in ({}, {"overwrite": True}, {"resume": True}):
        with pytest.raises(RunFolderError, match=r"file is a file; a run needs a folder"):
            rundir.check_run(tmp_path / "file", CONFIG, **flags)
    with pytest.raises(RunFolderError, match="was not made by this project"):
        rundir.check_run(tmp_path, CONFIG, overwrite=True)
    path = rundir.open_run(tmp_path / "run", CONFIG, seed=1).path
    assert rundir.check_run(path, CONFIG, overwrite=True) == "overwrite"
    assert rundir.check_run(path, CONFIG, resume=True) == "resume"
    with pytest.raises(RunFolderError, match="is in use"):
        rundir.check_run(path, CONFIG)
    with pytest.raises(RunFolderError, match=r"config differs in \[seed\]"):
        rundir.check_run(path, {**CONFIG, "seed": 2}, resume=True)
    assert sorted(p.name for p in path.iterdir()) == ["run.json", "run_config.json"]  # and nothing was changed


def test_a_failed_write_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match=r"^/proc/r\.html: cannot write \(No such file or directory\)$"):
        rundir.write_text("/proc/r.html", "x")
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match=r"file/x/a\.json: cannot write \(Not a directory\)$"):
        rundir.write_json(tmp_path / "file" / "x" / "a.json", {})
    with pytest.raises(WriteError, match=r"file/r: cannot write"):
        rundir.open_run(tmp_path / "file" / "r", {}, seed=0)
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(WriteError, match=r"metrics\.jsonl: cannot write \(No space left on device\)$"):
        rundir.RunDir(tmp_path).log({"step": 1})


def test_bad_lines_are_sorted_out(tmp_path: Path) -> None:
    path, good = tmp_path / "rows.jsonl", HIT.model_dump_json().encode()
    path.write_bytes(b'{"a": \n\n' + good + b"\n\xff\n{}\n")
    kept, rejects = rundir.sort_jsonl(path, Hit)
    assert kept == [(3, HIT)]
    assert [(r["source"], r["line"], r["reason"].partition(":")[0]) for r in rejects] == [
        ("rows.jsonl", 1, "not JSON"), ("rows.jsonl", 4, "not UTF-8 (invalid start byte)"),
        ("rows.jsonl", 5, "not a Hit"),
    ]  # fmt: skip
    with pytest.raises(DataError, match="cannot read"):
        rundir.sort_jsonl(tmp_path / "none.jsonl", Hit)
    path.write_text("[1]\n{\n")
    with pytest.raises(DataError, match=r"rows\.jsonl:1: not a Hit: Input should be an object$"):
        rundir.read_jsonl(path, Hit)  # a fault of the whole row has no field to name
