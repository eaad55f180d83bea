"""Sources of policies: their names, their checks before anything is played, the clear lines for what is missing."""

import pytest

from autotools.errors import ConfigError, DataError
from autotools.llm.endpoint import EndpointSettings
from evaluation import run
from evaluation.policies import check_policies, derived_name, parse_policies


@pytest.mark.parametrize(
    ("source", "name"),
    [("bm25", "bm25"), ("one_shot", "one_shot"), ("runs/q/rl", "rl"), ("runs/q/rl/", "rl"), (".", "policy"),
     ("Qwen/Qwen2.5-1.5B", "Qwen2.5_1.5B"), ("vllm:runs/rl", "rl"), ("http://127.0.0.1:8000/v1", "127.0.0.1_8000"),
     ("https://h/v1/#org/model-7b", "org_model_7b")],
)  # fmt: skip
def test_a_name_is_made_from_the_source(source, name):
    assert derived_name(source) == name and parse_policies([], source) == {name: source}


def test_two_forms_of_one_thing():
    assert parse_policies(["a=http://h/v1?x=y#m", "b=vllm:c"]) == {"a": "http://h/v1?x=y#m", "b": "vllm:c"}
    with pytest.raises(ConfigError, match="two forms of the same"):
        parse_policies(["a=bm25"], "bm25")
    with pytest.raises(ConfigError, match="no policies; pass --policy SOURCE"):
        parse_policies([])


def test_chunks_hold_four_rounds_of_what_runs_at_once():
    args, endpoint = run.EvalArgs(out="o", world="w", batch_size=8), EndpointSettings(concurrency=5)
    assert args.chunk_of("runs/rl", endpoint) == 32 and args.chunk_of("http://h/v1", endpoint) == 20
    assert run.EvalArgs(out="o", world="w", chunk=7).chunk_of("http://h/v1", endpoint) == 7


def test_what_is_not_there_is_said_before_the_run(nouns_world, tmp_path):
    check_policies({"a": "bm25", "b": "one_shot", "c": "http://127.0.0.1:9/v1"}, EndpointSettings())
    arguments = ["--world", str(nouns_world), "--out", str(tmp_path / "o"), "--dry_run", "--policy"]
    for source, message in (
        ("vllm:runs/no/such", "policy such: (vLLM is not installed; install the extra 'vllm'|no model at)"),
        ("runs/no/such", "policy such: no model at 'runs/no/such'"),
    ):
        with pytest.raises(DataError, match=message):
            run.main([*arguments, source])
    for source, message in (
        ("http://me:geheim@127.0.0.1:9/v1#m", "address of 127.0.0.1:9 holds a user name or password.*endpoint.key_env"),
        ("http://geheim@h/v1", "address of h holds"), ("http://[1/v1", "is no address"),
        ("http://h:9/v1/chat/completions#m", "leave that part out: http://h:9/v1$"),
        ("127.0.0.1:9/v1", "policy v1: '127.0.0.1:9/v1' reads like an address; write http://127"),
        ("localhost:9", "write http://localhost:9"),
    ):  # fmt: skip
        for dry in (arguments, [word for word in arguments if word != "--dry_run"]):
            with pytest.raises(ConfigError, match=message) as caught:
                run.main([*dry, source])
            assert "geheim" not in str(caught.value)
    assert run.main([*arguments, "http://127.0.0.1:9/v1"]) == 0  # a dry run asks nobody
    for words, message in (
        (["--encoder", "no-such"], "no-such"), (["--endpoint.attempts", "0"], "attempts must be above 0"),
        (["--one_shot_k", "-1"], "one_shot_k must be 0"), (["--endpoint.key", "x"], "unknown key 'endpoint.key'"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            run.main([*arguments, "bm25", *words])
    assert not (tmp_path / "o").exists()
