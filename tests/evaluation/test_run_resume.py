"""An interrupted evaluation: killed where a test wants it, gone on with, and equal to one that nothing interrupted."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from autotools.errors import DataError, RunFolderError
from autotools.rundir import read_jsonl
from autotools.schema import Trajectory
from evaluation import run
from evaluation.playing import Predictions

CHUNK = 2


def command(world, out, url, *more):
    words = ["--world", str(world), "--out", str(out), "--policies", f"a={url}#m", "b=bm25", "--chunk", str(CHUNK)]
    return [*words, "--endpoint.attempts", "1", *more]


def result(folder: Path) -> dict[str, bytes]:
    """All files but those that tell when and where a run was started, and the address of the server."""
    names = {"run.json", "run_config.json", "inputs.json"}
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in names]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_kill_9_loses_one_chunk_at_most(nouns_world, tmp_path, chat_server, noun_model):
    stuck, free, asked = threading.Event(), threading.Event(), []

    def script(body):
        asked.append(body["messages"][1]["content"])
        if not free.is_set() and "ferry" in asked[-1]:  # the fourth task: in the second chunk
            stuck.set()
            free.wait(60)
        return 200, noun_model(body)

    server, out = chat_server(script), tmp_path / "killed"
    words = command(nouns_world, out, server.url)
    process = subprocess.Popen([sys.executable, "-m", "evaluation.run", *words], stderr=subprocess.PIPE, text=True,
                               env=os.environ | {"OMP_NUM_THREADS": "1"})  # fmt: skip
    assert stuck.wait(60), process.communicate(timeout=5)
    for again in ("--resume", "--overwrite"):
        with pytest.raises(RunFolderError, match=f"in use by the process with pid {process.pid};"):
            run.main([*words, again])
    process.send_signal(signal.SIGKILL)
    process.communicate()
    free.set()
    rows = read_jsonl(out / "a" / "predictions.jsonl", Trajectory)
    assert [row.task_id for row in rows] == ["test-hotel", "test-train"]  # the finished chunk
    assert not (out / "manifest.json").exists() and not (out / "metrics.json").exists()
    with (out / "a" / "predictions.jsonl").open("a") as file:
        file.write('{"task_id": "test-museum", "que')  # as if it had been killed while it wrote
    before = len(asked)
    assert run.main([*words, "--resume"]) == 0
    again = [text for text in asked[before:] if "hotel" in text or "train" in text]
    assert len(asked) - before == 2 * 4 and not again
    assert run.main(command(nouns_world, tmp_path / "whole", server.url)) == 0
    assert result(out) == result(tmp_path / "whole")
    assert len(json.loads((out / "run.json").read_text())["resumed"]) == 1
    assert not list(tmp_path.glob(".*.lock"))


def test_a_resumption_with_other_keys_requests_or_tools_is_refused(nouns_world, tmp_path, chat_server, noun_model):
    server, out = chat_server(lambda body: (200, noun_model(body))), tmp_path / "o"
    words = command(nouns_world, out, server.url)
    assert run.main([*words, "--limit", "4"]) == 0
    with pytest.raises(RunFolderError, match=r"config differs in \[limit\]"):
        run.main([*words, "--resume"])
    with pytest.raises(RunFolderError, match=r"config differs in \[search.top_k\]"):
        run.main([*words, "--limit", "4", "--resume", "--search.top_k", "3", "--dry_run"])
    tasks, tools = nouns_world / "tasks" / "test.jsonl", nouns_world / "tools.jsonl"
    old = tasks.read_text(), tools.read_text()
    tasks.write_text(old[0].replace("the price of one", "the price for one"))
    tools.write_text(old[1].replace("address of one", "street of one"))
    with pytest.raises(RunFolderError, match="was begun with other requests, corpus; put them back"):
        run.main([*words, "--limit", "4", "--resume"])
    assert (out / "manifest.json").is_file()  # a refusal changes nothing
    tasks.write_text(old[0]), tools.write_text(old[1])
    rows = (out / "a" / "predictions.jsonl").read_text()
    (out / "a" / "predictions.jsonl").write_text(rows.replace("test-hotel", "test-motel"))
    with pytest.raises(DataError, match="prediction of 'test-motel', which is not played here"):
        run.main([*words, "--limit", "4", "--resume"])
    assert run.main([*words, "--limit", "5", "--overwrite"]) == 0


def test_a_resumption_may_ask_otherwise_and_name_the_folder_otherwise(
    nouns_world, tmp_path, chat_server, noun_model, monkeypatch
):
    server, out = chat_server(lambda body: (200, noun_model(body))), tmp_path / "o"
    assert run.main(command(nouns_world, out, server.url, "--limit", "4")) == 0
    first = result(out)
    monkeypatch.setenv("MY_KEY", "k")
    otherwise = ["--endpoint.concurrency", "3", "--endpoint.key_env", "MY_KEY", "--endpoint.attempts", "2"]
    otherwise += ["--endpoint.backoff_s", "0.5", "--endpoint.total_timeout_s", "60", "--limit", "4", "--resume"]
    monkeypatch.chdir(tmp_path)
    moved = out.rename(tmp_path / "moved")
    for name in (moved, f"{moved}/", "moved", "./moved/"):
        assert run.main(command(nouns_world, name, server.url, *otherwise)) == 0
        assert result(moved) == first
    with pytest.raises(RunFolderError, match=r"config differs in \[endpoint.model\]"):
        run.main(command(nouns_world, moved, server.url, *otherwise, "--endpoint.model", "n"))


def test_a_changed_checkpoint_is_refused(nouns_world, tmp_path, monkeypatch):
    import autotools.llm.local
    from evaluation import policies

    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    first = policies.fingerprint(str(folder))
    assert first == policies.fingerprint(str(folder)) != str(folder)
    (folder / "config.json").write_text("{ }")
    assert policies.fingerprint(str(folder)) != first
    (folder / "manifest.json").write_text("1")
    second = policies.fingerprint(str(folder))
    (folder / "more.txt").write_text("x")
    assert policies.fingerprint(str(folder)) == second  # the manifest decides
    assert policies.fingerprint("bm25") == "bm25" and policies.fingerprint("http://h/v1#m") == "http://h/v1#m"

    class Silent:
        def __init__(self, source, **settings):
            raise DataError("the model is not loaded where nothing is missing")

    monkeypatch.setattr(autotools.llm.local, "LocalPolicy", Silent)
    monkeypatch.setattr(policies, "check_model", lambda source: None)
    with pytest.raises(DataError, match="policy a: the model is not loaded"):
        run.main(["--world", str(nouns_world), "--out", str(tmp_path / "o"), "--policies", f"a={folder}"])


@pytest.mark.parametrize("half", [b"", b'{"task_id": "x"', b"\xf0\x9f"])
def test_half_a_line_is_dropped(tmp_path, half):
    (tmp_path / "predictions.jsonl").write_bytes(half)
    assert Predictions.open(tmp_path, []).kept == {}
    assert (tmp_path / "predictions.jsonl").read_bytes() == b""
