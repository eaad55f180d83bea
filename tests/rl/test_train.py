"""rl/train.py as a command: a real run of the sampled tiny model, and bad use."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from autotools.errors import ConfigError, DataError, ModelError, RunFolderError
from autotools.rundir import read_jsonl, read_manifest, write_jsonl
from rl import train

Argv = Callable[..., list[str]]


def test_three_sampled_steps_leave_a_whole_run_folder(small_world: Path, rl_argv: Argv, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    out = tmp_path / "run"
    argv = rl_argv(small_world, out, max_steps=3, beta=0.01, credit__useless_cost=0.1)
    assert train.main(argv) == 0
    manifest = read_manifest(out)
    assert manifest["stage"] == "rl"
    assert manifest["counts"] == {"prompts": 10, "other_levels": 0, "dropped_prompts": 0, "steps": 3}
    assert list(manifest["inputs"]) == ["manifest.json"]
    rows = [row for row in read_jsonl(out / "metrics.jsonl") if "reward" in row]
    assert [row["step"] for row in rows] == [1, 2, 3]
    names = {"loss", "srecall", "recall", "precision", "searches", "answered", "malformed_turns", "reward_f1"}
    names |= {"reward_format", "reward_match", "credit/kept_token_share", "credit/kept_zero_share", "kl"}
    assert names <= rows[0].keys()
    recorded = read_jsonl(out / "trajectories.jsonl")
    assert [r["step"] for r in recorded] == [step for step in range(3) for _ in range(8)]
    assert json.loads((out / "run_config.json").read_text())["credit"]["useless_cost"] == 0.1
    before = AutoModelForCausalLM.from_pretrained(small_world / "model").state_dict()
    after = AutoModelForCausalLM.from_pretrained(out).state_dict()
    assert before.keys() == after.keys()
    assert any((before[k] != after[k]).any() for k in before) and all(after[k].isfinite().all() for k in after)
    assert len(AutoTokenizer.from_pretrained(out)) == len(AutoTokenizer.from_pretrained(small_world / "model"))

    with pytest.raises(RunFolderError, match="in use"):
        train.main(argv)


def test_dry_run_says_what_would_be_done(
    small_world: Path, rl_argv: Argv, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train.main([*rl_argv(small_world, tmp_path / "run"), "--dry_run"]) == 0
    said = capsys.readouterr().out
    assert "10 prompts" in said and "10 tools" in said and "3 prompts x 4 rollouts" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["--learn_rate", "1"], "did you mean 'learning_rate'"),
        (["--search.topk", "3"], "did you mean 'search.top_k'"),
        (["--algorithm", "ppo"], "known: toolsearcher, grpo, gspo, gdpo, rloo, marag, event_grpo, to_go"),
        (["--max_completion_length", "99"], "contradicts search.total_tokens 300"),
        (["--encoder", "dense"], "unknown encoder 'dense'"),
        (["--model", "no/such/model"], "no model at 'no/such/model': there is no such folder"),
        (["--seed", "-1"], "key 'seed': must be 0 or more, got -1"),
        (["--learning_rate", "nan"], "key 'learning_rate': nan is not a number"),
        (["--num_generations", "0"], "command line: key 'num_generations': must be 2 or more"),
        (["--temperature", "0"], "key 'temperature': must be above 0"),
        (["--loss_type", "foo"], "key 'loss_type': known are grpo, bnpo"),
        (["--report_to", "nowhere"], "key 'report_to': unknown 'nowhere'"),
        (["--max_steps", "0"], "key 'max_steps': must be 1 or more, or -1"),
        (["--reward.format_bonus", "-1"], "reward.format_bonus is -1.0; it must be 0 or more"),
        (["--max_dropped_share", "2"], "max_dropped_share lies between 0 and 1, got 2.0"),
        (
            ["--per_device_train_batch_size", "7"],
            "generation_batch_size (7) must be divisible by num_generations (4). It is per_device_train_batch_size x",
        ),
    ],
)
@pytest.mark.parametrize("dry", [[], ["--dry_run"]], ids=["run", "dry_run"])
def test_bad_use_is_one_clear_error(
    dry: list[str], extra: list[str], words: str, small_world: Path, rl_argv: Argv, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises((ConfigError, ModelError), match=re.escape(words)):
        train.main([*rl_argv(small_world, tmp_path / "run"), *extra, *dry])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("dry", [[], ["--dry_run"]], ids=["run", "dry_run"])
def test_what_the_data_cannot_give_is_said_before_the_folder_is_claimed(
    dry: list[str], small_world: Path, rl_argv: Argv, tmp_path: Path
) -> None:
    argv = [*rl_argv(small_world, tmp_path / "run"), *dry]
    with pytest.raises(DataError, match="10 prompts are fewer than the 11 of one generation"):
        train.main([*argv, "--per_device_train_batch_size", "44"])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "keep.txt").write_text("mine")
    with pytest.raises(RunFolderError, match="was not made by this project"):
        train.main([*argv, "--output_dir", str(tmp_path / "mine"), "--overwrite"])
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_bad_lines_of_the_corpus_go_to_rejected_jsonl(
    small_world: Path,
    rl_argv: Argv,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from rl import run

    class Ready(Exception):
        """All is read and said; nothing is trained."""

    def stop(*_: object) -> None:
        raise Ready

    tools = tmp_path / "tools.jsonl"
    tools.write_text((small_world / "tools.jsonl").read_text() + "{broken\n")
    monkeypatch.setattr(run, "_trainer", stop)
    with pytest.raises(Ready):
        train.main(rl_argv(small_world, tmp_path / "run", tools=tools))
    rejected = read_jsonl(tmp_path / "run" / "rejected.jsonl")
    assert [(row["source"], row["line"]) for row in rejected] == [("tools.jsonl", 11)]
    assert "tools.jsonl: 1 of 11 records set aside; first: line 11: not JSON" in capsys.readouterr().err


def test_prompts_outside_the_corpus_are_counted_and_dropped(small_world: Path, tmp_path: Path) -> None:
    from autotools.search.answer import NameIndex
    from retriever.corpus import load_tools
    from rl.prompts import read_prompts

    names = NameIndex(spec.id for spec in load_tools(small_world))
    good = read_jsonl(small_world / "rl" / "train.jsonl")[0]
    bad = [{**good, "targets": ["Travel.hotel_desk.gone"]}, {**good, "targets": []}, {**good, "targets": ["nonsense"]}]
    without = [{k: v for k, v in good.items() if k != key} for key in ("targets", "query", "id")]
    path = tmp_path / "rl" / "train.jsonl"
    write_jsonl(path, [bad[0], good, *bad[1:], *without, {**good, "targets": [1]}])
    path.write_text(path.read_text() + "{broken\n\n[1, 2]\n")
    kept, rejects = read_prompts(tmp_path, names)
    assert kept == [good]
    assert [reject["line"] for reject in rejects] == [1, 3, 4, 5, 6, 7, 8, 9, 11]  # line 10 is blank
    assert "Travel.hotel_desk.gone" in rejects[0]["reason"] and "not JSON" in rejects[-2]["reason"]
    write_jsonl(path, bad)
    with pytest.raises(DataError, match="none of the 3 prompts .* is usable; first: line 1"):
        read_prompts(tmp_path, names)
    with pytest.raises(DataError, match="no RL prompts at"):
        read_prompts(tmp_path / "missing", names)


def test_prompts_of_chosen_levels(
    small_world: Path, rl_argv: Argv, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from rl.prompts import of_levels

    rows = [{"id": "a", "level": "I1"}, {"id": "b", "level": "I2"}, {"id": "c"}, {"id": "d", "level": "I1"}]
    assert [row["id"] for row in of_levels(rows, ["I1"])] == ["a", "d"]
    assert [row["id"] for row in of_levels(rows, ["I2", "I1"])] == ["a", "b", "d"]
    assert of_levels(rows, []) == rows
    with pytest.raises(DataError, match=r"level 'I4'.*they have none \(1\), I1 \(2\), I2 \(1\)"):
        of_levels(rows, ["I4"])
    data = shutil.copytree(small_world, tmp_path / "data")
    prompts = read_jsonl(data / "rl" / "train.jsonl")
    write_jsonl(data / "rl" / "train.jsonl", [{**row, "level": "I1"} for row in prompts[:6]] + prompts[6:])
    assert train.main([*rl_argv(small_world, tmp_path / "run", data=data), "--levels", "I1", "--dry_run"]) == 0
    assert "6 prompts (0 unusable ones left out, 4 of other levels)" in capsys.readouterr().out


def test_missing_corpus(small_world: Path, rl_argv: Argv, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        train.main(rl_argv(small_world, tmp_path / "run", tools=tmp_path / "none.jsonl"))
    assert not (tmp_path / "run").exists()


def test_modules_that_the_model_does_not_have(small_world: Path, rl_argv: Argv, tmp_path: Path) -> None:
    """``q_proj`` alone is a pattern of whole names, too; a pattern that cannot be read is an error of another type."""
    for pattern in ("nosuch", "q_proj", "["):
        argv = rl_argv(small_world, tmp_path / "run", lora__r=2, lora__target_modules=pattern, overwrite="true")
        with pytest.raises(ConfigError, match=re.escape(f"key 'lora.target_modules': '{pattern}' matches no module")):
            train.main(argv)


def test_an_adapter_can_be_played_afterwards(small_world: Path, rl_argv: Argv, tmp_path: Path) -> None:
    from autotools.llm.local import LocalPolicy

    out = tmp_path / "run"
    train.main(rl_argv(small_world, out, max_steps=1, lora__r=2, beta=0.01))
    assert (out / "adapter_config.json").exists() and not (out / "model.safetensors").exists()
    policy = LocalPolicy(out, max_new_tokens=3)
    turns, _ = policy.generate([policy.tokenizer("hotel")["input_ids"]])
    assert len(turns[0]) == 3 or turns[0][-1] == policy.tokenizer.eos_token_id
