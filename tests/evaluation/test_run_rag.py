"""The baseline RAG played by the evaluation command: an endpoint and a checkpoint that get their documents at once."""

import json

import pytest

from autotools.errors import ConfigError, DataError, ModelError
from autotools.rundir import read_jsonl
from autotools.schema import Trajectory
from autotools.search.prompt import RAG_SYSTEM_TEXT
from evaluation import run
from evaluation.policies import derived_name, parse_policies


def picks_the_named_noun(body):
    """A model that reads: the listed tool whose noun the request names, and whose verb is price."""
    documents, _, request = body["messages"][1]["content"].partition("\n\nRequest: ")
    names = [line.partition(":")[0] for line in documents.splitlines()[1:]]
    noun = request.rpartition(" ")[2]
    found = [name for name in names if f".{noun}_desk." in name and name.endswith("price")]
    message = {"role": "assistant", "content": f"<tool_list>{', '.join(found)}</tool_list>"}
    return 200, {"choices": [{"message": message, "finish_reason": "stop"}]}


def test_an_endpoint_reads_documents_and_is_offered_no_tool(nouns_world, tmp_path, chat_server, capsys):
    server, out = chat_server(picks_the_named_noun), tmp_path / "o"
    words = ["--world", str(nouns_world), "--out", str(out), "--rag.documents", "4"]
    assert run.main([*words, "--policies", f"rag=rag:{server.url}#m", "--seed", "3"]) == 0
    bodies = [body for _, body, _ in server.asked]
    assert len(bodies) == 6 and not any("tools" in body for body in bodies)
    assert {body["messages"][0]["content"] for body in bodies} == {RAG_SYSTEM_TEXT}
    assert {len(body["messages"][1]["content"].splitlines()) for body in bodies} == {1 + 4 + 2}
    rows = read_jsonl(out / "rag" / "predictions.jsonl", Trajectory)
    assert all(row.selection == row.targets and len(row.events[0].hits) == 4 for row in rows)
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["policies"]["rag"]["overall"]["match"] == metrics["policies"]["rag"]["overall"]["srecall"] == 1.0
    kind = "endpoint, greedy, RAG with 4 documents of one search with the raw request"
    assert metrics["notes"]["rag"]["kind"] == kind and f"rag  ({kind})" in capsys.readouterr().out


def test_a_checkpoint_plays_and_one_that_cannot_hold_the_documents_says_so(nouns_world, tmp_path, untrained_model):
    words = [
        "--world",
        str(nouns_world),
        "--search.turn_tokens",
        "4",
        "--policies",
        f"r=rag:{untrained_model(max_position_embeddings=400)}",
    ]
    assert run.main([*words, "--out", str(tmp_path / "o"), "--rag.documents", "2", "--rag.document_chars", "20"]) == 0
    rows = read_jsonl(tmp_path / "o" / "r" / "predictions.jsonl", Trajectory)
    assert len(rows) == 6 and all(len(row.events) == 2 and len(row.events[0].hits) == 2 for row in rows)
    manifest = json.loads((tmp_path / "o" / "manifest.json").read_text())
    assert manifest["counts"]["played"] == 6
    with pytest.raises(ModelError, match="has [0-9]+ tokens, model '.*' takes 400; give it fewer or shorter documents"):
        run.main([*words, "--out", str(tmp_path / "p"), "--rag.document_chars", "1000"])


def test_names_and_what_needs_a_model(nouns_world, tmp_path):
    assert derived_name("rag:runs/sft") == "rag_sft" == derived_name("rag:vllm:runs/sft/")
    assert parse_policies([], "rag:http://127.0.0.1:8000/v1#org/m-7b") == {
        "rag_org_m_7b": "rag:http://127.0.0.1:8000/v1#org/m-7b"
    }
    words = ["--world", str(nouns_world), "--out", str(tmp_path / "o"), "--dry_run", "--policy"]
    for source, message in (
        ("rag:bm25", "policy rag_bm25: 'rag:bm25' needs a model that reads the documents"),
        ("rag:127.0.0.1:9/v1", "reads like an address; write http://127.0.0.1:9/v1"),
        ("rag:http://u:geheim@h/v1", "address of h holds a user name or password"),
    ):
        with pytest.raises(ConfigError, match=message):
            run.main([*words, source])
    with pytest.raises(DataError, match="policy rag_such: no model at 'runs/no/such'"):
        run.main([*words, "rag:runs/no/such"])
