"""The evaluation command with a policy behind an endpoint: what fails is counted and listed, never an answer."""

import json
import threading

import pytest

from autotools.config import run_main
from autotools.errors import ConfigError, ProviderError, RunFolderError
from autotools.rundir import read_jsonl
from autotools.schema import Trajectory
from evaluation import run

FAST = ["--endpoint.attempts", "2", "--endpoint.backoff_s", "0.01", "--endpoint.attempt_timeout_s", "1.5"]


def noun(body):
    return body["messages"][1]["content"].rpartition(" ")[2]


def turn(body):
    return sum(message["role"] == "assistant" for message in body["messages"])


def calls(*arguments, name="search"):
    rows = [{"id": f"c{i}", "function": {"name": name, "arguments": text}} for i, text in enumerate(arguments)]
    return 200, {"choices": [{"message": {"content": None, "tool_calls": rows}, "finish_reason": "tool_calls"}]}


class Model:
    """hotel: fine. train: 500 at first. museum: 500 always, at its second turn. ferry: a try that takes too long.

    tram: arguments that are no JSON at first. cinema: two calls in its first turn. ``mended`` ends all faults.
    """

    def __init__(self, plain):
        self.plain, self.asked, self.lock, self.mended = plain, [], threading.Lock(), False

    def __call__(self, body):
        key = (noun(body), turn(body))
        with self.lock:
            self.asked.append(key)
            times = self.asked.count(key)
        if not self.mended:
            if key == ("train", 0) and times == 1 or key == ("museum", 1):
                return 500, {"error": {"message": "oh no"}}
            if key == ("ferry", 0) and times == 1:
                threading.Event().wait(2.5)
            if key == ("tram", 0):
                return calls('{"query": "tram')
            if key == ("tram", 1):
                return calls('{"query": "tram price"}')
            if key == ("cinema", 0):
                return calls('{"query": "cinema price"}', '{"query": "hotel price"}')
        return 200, self.plain(body)


@pytest.fixture
def model(noun_model):
    return Model(noun_model)


def test_every_fault_of_server_and_model_has_its_place(nouns_world, tmp_path, chat_server, model, capsys):
    server, out = chat_server(model), tmp_path / "o"
    arguments = ["--world", str(nouns_world), "--out", str(out), "--policy", f"{server.url}#some/model", *FAST]
    assert run.main(arguments) == 0
    err = capsys.readouterr().err
    folder = out / "some_model"
    assert read_jsonl(folder / "failed.jsonl") == [{"task": "test-museum", "reason": "HTTP 500: oh no"}]
    assert "some_model: 1 of 6 requests got no answer and count as failed" in err and "(first: HTTP 500: oh no)" in err
    rows = {row.task_id: row for row in read_jsonl(folder / "predictions.jsonl", Trajectory)}
    assert list(rows) == ["test-hotel", "test-train", "test-ferry", "test-tram", "test-cinema"]
    assert all(row.selection == row.targets for row in rows.values())
    assert [event.kind.value for event in rows["test-tram"].events] == ["bad_arguments", "search", "answer"]
    assert rows["test-cinema"].events[0].extra_calls == 1 and rows["test-cinema"].events[0].query == "cinema price"
    assert model.asked.count(("train", 0)) == model.asked.count(("ferry", 0)) == 2 == model.asked.count(("museum", 1))
    metrics = json.loads((out / "metrics.json").read_text())
    overall = metrics["policies"]["some_model"]["overall"]  # 5 tasks outside the unseen domain, 4 of them solved
    assert (overall["n"], overall["missing"]) == (5, 1) and overall["f1"] == overall["answered"] == pytest.approx(0.8)
    assert metrics["counts"]["failed"] == {"some_model": 1} and metrics["counts"]["played"] == 6
    assert metrics["notes"]["some_model"] == {"kind": "endpoint, greedy", "model": "some/model"}

    model.mended, before = True, len(model.asked)
    assert run.main([*arguments, "--resume"]) == 0
    assert {key[0] for key in model.asked[before:]} == {"museum"}  # nothing else is asked again
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["policies"]["some_model"]["overall"]["f1"] == 1.0 and "failed" not in metrics["counts"]
    assert not (folder / "failed.jsonl").exists()
    assert [row.task_id for row in read_jsonl(folder / "predictions.jsonl", Trajectory)][2] == "test-museum"
    before = len(model.asked)
    assert run.main([*arguments, "--resume"]) == 0 and len(model.asked) == before  # the third time nothing is missing
    with pytest.raises(RunFolderError, match="in use; pass --resume to continue it"):
        run.main(arguments)


def test_a_dead_endpoint_stops_the_run_and_leaves_nothing(nouns_world, tmp_path, chat_server):
    server, out = chat_server(lambda body: (503, b"no GPU is free")), tmp_path / "o"
    arguments = ["--world", str(nouns_world), "--out", str(out), "--policy", f"{server.url}#m", *FAST]
    with pytest.raises(ProviderError, match=r"answered none of 6 requests \(HTTP 503: no GPU is free\)"):
        run.main(arguments)
    with pytest.raises(SystemExit):
        run_main(lambda: run.main([*arguments, "--overwrite"]))
    assert not out.exists()


def test_a_key_is_read_from_the_variable_and_written_nowhere(
    nouns_world, tmp_path, chat_server, noun_model, monkeypatch
):
    server, out = chat_server(lambda body: (200, noun_model(body))), tmp_path / "o"
    arguments = ["--world", str(nouns_world), "--out", str(out), "--policies", f"a={server.url}#m"]
    arguments += ["--endpoint.key_env", "MY_KEY", "--endpoint.model", "other"]
    monkeypatch.delenv("MY_KEY", raising=False)
    for dry in ([], ["--dry_run"]):
        with pytest.raises(ConfigError, match="'MY_KEY', which is not set or empty"):
            run.main([*arguments, *dry])
    assert not out.exists() and not server.asked
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    assert run.main(arguments) == 0
    assert {headers["Authorization"] for _, _, headers in server.asked} == {"Bearer sk-very-secret"}
    assert {body["model"] for _, body, _ in server.asked} == {"m"}
    texts = [path.read_text() for path in out.rglob("*") if path.is_file()]
    assert len(texts) > 5 and not [text for text in texts if "sk-very-secret" in text]
    refusing = chat_server(lambda body: (401, {"error": {"message": "who are you"}}))
    words = ["--policies", f"a={refusing.url}#m", "--out", str(tmp_path / "p")]
    with pytest.raises(ProviderError, match="HTTP 401: who are you; the key in the variable MY_KEY was refused"):
        run.main([*arguments, *words])
    words = ["--world", str(nouns_world), "--policies", f"a={refusing.url}#m", "--out", str(tmp_path / "q")]
    with pytest.raises(ProviderError, match="HTTP 401: who are you; name the variable that holds a key"):
        run.main(words)
