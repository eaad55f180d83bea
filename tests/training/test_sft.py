"""training/sft.py as a command: a whole small run, resumption that changes nothing, and bad use."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from autotools.errors import ConfigError, DataError, ModelError, RunFolderError
from autotools.rundir import read_jsonl, read_manifest
from training import sft
from training.runtime import find_checkpoint


def argv(data: Path, out: Path, **keys: Any) -> list[str]:
    values = {
        "data": data,
        "tools": data,
        "output_dir": out,
        "max_steps": 4,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "save_steps": 2,
        "seed": 1,
        "tiny.hidden_size": 32,
        "tiny.intermediate_size": 64,
        "tiny.num_layers": 1,
        "tiny.num_heads": 2,
        **{key.replace("__", "."): value for key, value in keys.items()},
    }
    return [
        "--mixture",
        '{"search": 3.0, "understanding": 1.0}',
        *(word for key, value in values.items() for word in (f"--{key}", str(value))),
    ]


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def losses(folder: Path) -> dict[int, float]:
    return {row["step"]: row["loss"] for row in read_jsonl(folder / "metrics.jsonl") if "loss" in row}


@pytest.fixture(scope="module")
def finished(sft_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps with checkpoints at 2 and 4; copy it before changing it."""
    out = tmp_path_factory.mktemp("sft") / "run"
    assert sft.main(argv(sft_data, out)) == 0
    return out


def test_a_run_leaves_model_manifest_and_metrics(finished: Path, sft_data: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    manifest = read_manifest(finished)
    assert (manifest["stage"], manifest["seed"]) == ("sft", 1)
    assert manifest["counts"] == {
        "train": {"read": 32, "kept": 32},
        "dev": {"read": 5, "kept": 5},
        "steps": 4,
    }
    assert list(manifest["inputs"]) == ["manifest.json"]
    found = losses(finished)
    assert sorted(found) == [1, 2, 3, 4] and found[4] < found[1]
    tokenizer = AutoTokenizer.from_pretrained(finished)
    assert len(tokenizer("Travel.hotel_desk.find")["input_ids"]) == 2
    assert AutoModelForCausalLM.from_pretrained(finished).config.vocab_size == len(tokenizer)
    assert json.loads((finished / "run_config.json").read_text())["mixture"] == {"search": 3.0, "understanding": 1.0}
    assert {"command", "commit", "versions", "seed"} <= json.loads((finished / "run.json").read_text()).keys()


def test_same_seed_same_run(finished: Path, sft_data: Path, tmp_path: Path) -> None:
    sft.main(argv(sft_data, tmp_path / "run"))
    assert losses(tmp_path / "run") == losses(finished)
    again = weights(tmp_path / "run")
    assert all((value == again[name]).all() for name, value in weights(finished).items())


def test_resuming_gives_the_run_that_was_never_stopped(finished: Path, sft_data: Path, tmp_path: Path) -> None:
    """As if stopped after step 3: only the checkpoint of step 2 is there, and no final model."""
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    shutil.rmtree(out / "checkpoint-4")
    for name in ("model.safetensors", "manifest.json", "metrics.jsonl"):
        (out / name).unlink()
    # the folder's name stands in its config, and a resumption wants the same config
    saved = json.loads((out / "run_config.json").read_text())
    (out / "run_config.json").write_text(json.dumps({**saved, "output_dir": str(out)}))
    assert sft.main(argv(sft_data, out, resume="true")) == 0
    again = weights(out)
    assert all((value == again[name]).all() for name, value in weights(finished).items())
    assert losses(out) == {step: loss for step, loss in losses(finished).items() if step > 2}
    assert read_manifest(out)["counts"]["steps"] == 4

    with pytest.raises(RunFolderError, match="config differs in .learning_rate."):
        sft.main(argv(sft_data, out, resume="true", learning_rate=0.5))


def test_the_batch_that_is_learned_has_labels_on_assistant_tokens_only(sft_data: Path, tmp_path: Path) -> None:
    """TRL could make labels of its own from input_ids; look at what really reaches the loss."""
    from autotools.chat import ChatRenderer
    from autotools.config import load_config
    from autotools.rundir import RunDir
    from training import sft_run
    from training.lora import LoraArgs
    from training.sft_data import encode_records, read_records
    from training.tiny import TinyConfig

    sections = {"": (sft.SFTArgs, "trl:SFTConfig"), "tiny": TinyConfig, "lora": LoraArgs}
    config = load_config(argv(sft_data, tmp_path), sections, prog="test", description="")
    trl_args = sft_run.trainer_config(config)
    rows = read_records(sft_data, "train", ["search", "understanding"])
    start = sft_run._start(config, rows, 0)
    encoded, _ = encode_records(rows, ChatRenderer(start[1]), 1000)
    trainer = sft_run._trainer(config, trl_args, start, encoded, encoded, RunDir(tmp_path))
    wanted = {tuple(e["input_ids"]): e["labels"] for e in encoded}
    seen = 0
    for batch in trainer.get_train_dataloader():
        for ids, labels, mask in zip(batch["input_ids"], batch["labels"], batch["attention_mask"], strict=True):
            real = mask.bool()
            assert labels[real].tolist() == wanted[tuple(ids[real].tolist())]
            assert (labels[~real] == -100).all()
            seen += 1
    assert seen > 20


def test_keep_best_ends_with_the_lowest_held_out_loss(sft_data: Path, tmp_path: Path) -> None:
    # a rate this large makes later steps worse, so the best checkpoint is not the last
    out = tmp_path / "run"
    sft.main(argv(sft_data, out, eval_steps=1, save_steps=1, learning_rate=2.0, max_steps=3))
    evaluated = {r["step"]: r["eval_loss"] for r in read_jsonl(out / "metrics.jsonl") if "eval_loss" in r}
    best = min(evaluated, key=lambda step: evaluated[step])
    manifest = read_manifest(out)
    assert sorted(evaluated) == [1, 2, 3] and best != 3
    assert (manifest["best_step"], manifest["best_eval_loss"]) == (best, pytest.approx(evaluated[best]))
    kept = weights(out / f"checkpoint-{best}")
    assert all((value == kept[name]).all() for name, value in weights(out).items())


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["--learn_rate", "1"], "unknown key 'learn_rate'; did you mean 'learning_rate'"),
        (["--tiny.hidden", "1"], "did you mean 'tiny.hidden_size'"),
        (["--model", "no/such/model"], "no model at 'no/such/model': there is no such folder"),
        (["--mixture", '{"search": 1, "understanding": 0}'], "one share > 0 per task"),
        (["--mixture", "search=-1"], "one share > 0 per task"),
        (["--mixture", "search=.inf"], "one share > 0 per task"),
        (["--mixture", "search=1", "singing=1"], "mixture names task 'singing', which has no record; there are search"),
        (["--max_records", "-1"], "max_records must be 0 .all. or more, got -1"),
        (["--seed", "-1"], "key 'seed': must be 0 or more, got -1"),
        (["--learning_rate", "nan"], "key 'learning_rate': nan is not a number"),
        (["--learning_rate", "-1"], "key 'learning_rate': must be 0 or more, got -1.0"),
        (["--per_device_train_batch_size", "0"], "'per_device_train_batch_size': must be 1 or more, got 0"),
        (["--max_steps", "0"], "key 'max_steps': must be 1 or more, or -1"),
        (["--report_to", "nowhere"], "key 'report_to': unknown 'nowhere'"),
        (["--tiny.num_heads", "7"], "section 'tiny': hidden_size 32 must be a multiple of 2 x num_heads = 14"),
        (["--tiny.num_heads", "32"], "hidden_size 32 must be a multiple of 2 x num_heads = 64"),
        (["--tiny.num_layers", "0"], "section 'tiny': num_layers must be 1 or more, got 0"),
        (["--lora.r", "-1"], "section 'lora': r must be 0 or more, got -1"),
        (["--output_dir", "{here}", "--overwrite"], "was not made by this project"),
    ],
)
@pytest.mark.parametrize("dry", [[], ["--dry_run"]], ids=["run", "dry_run"])
def test_bad_use_is_one_clear_error(
    dry: list[str], extra: list[str], words: str, sft_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "keep.txt").write_text("mine")
    extra = [word.replace("{here}", str(tmp_path)) for word in extra]
    with pytest.raises((ConfigError, ModelError, RunFolderError), match=words):
        sft.main([*argv(sft_data, tmp_path / "run"), *extra, *dry])
    assert [path.name for path in tmp_path.iterdir()] == ["keep.txt"]


def test_modules_that_the_model_does_not_have(finished: Path, sft_data: Path, tmp_path: Path) -> None:
    given = argv(sft_data, tmp_path / "run", model=finished, lora__r=2, lora__target_modules="nosuch")
    with pytest.raises(ConfigError, match="key 'lora.target_modules': 'nosuch' matches no module"):
        sft.main(given)


def test_a_used_folder_is_refused_and_overwrite_starts_anew(finished: Path, sft_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    with pytest.raises(RunFolderError, match="in use; pass --resume to continue it, --overwrite"):
        sft.main(argv(sft_data, out))
    assert sft.main(argv(sft_data, out, overwrite="true", max_steps=1, save_strategy="no")) == 0
    assert sorted(losses(out)) == [1] and not (out / "checkpoint-4").exists()


def test_missing_data_leaves_no_claimed_folder(tmp_path: Path, sft_data: Path) -> None:
    with pytest.raises(DataError, match="no SFT data at"):
        sft.main(argv(tmp_path / "none", tmp_path / "run"))
    assert not (tmp_path / "run").exists()
    assert sft.main([*argv(sft_data, tmp_path / "run"), "--dry_run"]) == 0
    assert not (tmp_path / "run").exists()


def test_newest_complete_checkpoint(tmp_path: Path) -> None:
    import torch

    def make(step: int) -> Path:
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        torch.save({"a": torch.zeros(1000)}, folder / "optimizer.pt")
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "max_steps": 40}))
        return folder

    assert find_checkpoint(tmp_path) is None
    make(9)
    good = make(10)
    (make(20) / "trainer_state.json").write_text('{"global_step": 2')  # was being written when the run died
    (make(25) / "trainer_state.json").unlink()
    cut = make(30) / "optimizer.pt"
    cut.write_bytes(cut.read_bytes()[:-100])
    make(40)  # the end of the training: Transformers would make one step more from there
    (tmp_path / "checkpoint-best").mkdir()
    assert find_checkpoint(tmp_path) == str(good)


def test_resuming_after_cut_off_lines_and_rows_of_later_steps(finished: Path, sft_data: Path, tmp_path: Path) -> None:
    """All metrics but wall times are those of the unbroken run, the token count, too."""
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    saved = json.loads((out / "run_config.json").read_text())
    (out / "run_config.json").write_text(json.dumps({**saved, "output_dir": str(out)}))
    (out / "manifest.json").unlink()
    (out / "checkpoint-4" / "trainer_state.json").unlink()
    with (out / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "lo')
    assert sft.main(argv(sft_data, out, resume="true")) == 0
    timed = ("time", "runtime", "per_second")
    rows = [
        [{k: v for k, v in row.items() if not k.endswith(timed)} for row in read_jsonl(folder / "metrics.jsonl")]
        for folder in (out, finished)
    ]
    assert rows[0] == rows[1] and "num_tokens" in rows[0][0]
    assert (out / "manifest.json").read_bytes() == (finished / "manifest.json").read_bytes()


@pytest.mark.parametrize("name", ["{here}/gone", "{here}/a/b/gone", "tests/gone"])
def test_a_mistyped_folder_is_refused_without_asking_the_hub(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    from autotools.llm.loading import load_model

    def asked(*_: object, **__: object) -> None:
        raise AssertionError("the hub was asked")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", asked)
    monkeypatch.chdir(Path(__file__).resolve().parents[2])
    with pytest.raises(ModelError, match="there is no such folder"):
        load_model(name.format(here=tmp_path))
    with pytest.raises(ModelError, match="the hub was asked"):
        load_model("someone/some-model")
