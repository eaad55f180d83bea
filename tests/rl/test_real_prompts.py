"""Thirty steps of RL on real requests over the real corpus, from a model that knows nothing: they end, and each alarm
says what is wrong, why, and what to do. Slow: two minutes."""

from pathlib import Path

import pytest

from autotools.rundir import read_jsonl
from data_synthesis import build, real
from retriever.corpus import load_tools
from rl import train
from rl.alarm_rules import RULES
from training.tiny import TinyConfig, build_model, build_tokenizer

ROOT = Path(__file__).resolve().parents[2]
CORPUS = "sources/toolbench_corpus/corpus.jsonl.gz"


@pytest.mark.slow
@pytest.mark.shared
def test_thirty_steps_on_real_prompts_end_with_alarms_that_explain_themselves(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world, data, model, out = (tmp_path / name for name in ("world", "data", "model", "rl"))
    real.main(["--corpus", str(shared_data / CORPUS), "--queries", str(shared_data / "sources"), "--out", str(world)])
    config = ["--config", str(ROOT / "configs/data/real.yaml"), "--num_search_demos", "100", "--num_relevance", "5"]
    build.main([*config, "--world", str(world), "--out", str(data)])
    texts = [m["content"] for row in read_jsonl(data / "sft" / "train.jsonl") for m in row["messages"]]
    tiny = TinyConfig(hidden_size=16, intermediate_size=32, num_layers=1, num_heads=2, max_words=300)
    tokenizer = build_tokenizer(texts, [], tiny)
    build_model(tokenizer, tiny, 0).save_pretrained(model)
    tokenizer.save_pretrained(model)
    paths = ["--data", str(data), "--tools", str(world), "--model", str(model), "--output_dir", str(out)]
    assert train.main(["--config", str(ROOT / "configs/rl/real_30.yaml"), *paths, "--search.turn_tokens", "16"]) == 0

    rows = read_jsonl(out / "metrics.jsonl")
    assert [row["step"] for row in rows if "srecall" in row] == list(range(1, 31))
    suites = {line["id"].partition("/")[0] for line in read_jsonl(data / "rl" / "train.jsonl")}
    assert suites == {"toollens", "anytoolbench"} and len(load_tools(str(world))) == 16_302
    alarms = read_jsonl(out / "alarms.jsonl")
    rules = {rule.name: rule for rule in RULES}
    assert {"no_finds", "answered", "zero_variance"} <= {alarm["name"] for alarm in alarms} <= set(rules)
    said = capsys.readouterr().err
    for alarm in alarms:
        rule = rules[alarm["name"]]
        assert alarm["meaning"].startswith(rule.meaning) and alarm["advice"] == rule.advice
        assert f"alarm {rule.name}, step {alarm['step']}: " in said
        assert alarm["tasks"] and all(task.partition("/")[0] in suites for task in alarm["tasks"])
