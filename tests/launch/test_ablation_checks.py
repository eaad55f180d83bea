"""What a study refuses before anything runs, in its dry run as in its run, and how it names what differs."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autotools.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
STUDIES = sorted((ROOT / "configs" / "ablation").glob("*.yaml"))


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--rows", "gsp"], "error: unknown row 'gsp'; rows of the table: toolsearcher, no_cctd, no_esm"),
        (["--baseline", "x"], "error: unknown row 'x'"),
        (["--seeds", "0"], "error: AblationArgs: seeds is 0; it must be 1 or more"),
        (["--more", "rll.max_steps=5"], "error: key 'rll.max_steps' names no stage; they are world, data, sft, rl"),
    ],
)
def test_bad_use_is_one_line(argv: list[str], line: str) -> None:
    command = [sys.executable, str(ROOT / "launch" / "ablation.py"), *argv, "--dry-run"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(line) and done.stderr.count("\n") == 1


@pytest.mark.parametrize("path", STUDIES, ids=lambda p: p.stem)
def test_every_row_of_a_study_is_taken_by_the_trainer(
    ablation: ModuleType, study_args: Any, path: Path, tmp_path: Path
) -> None:
    args = study_args(path)
    ablation.refuse_own_keys(args, ablation.COMMANDS, ablation.OWN_KEYS)
    ablation.refuse_bad_rows(args, ablation.study_jobs(args, tmp_path))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("{algorithm: grp}", "row a: unknown algorithm 'grp'"),
        ("{algorithm: grpo, credit.esn: 1}", r"row a: .*did you mean 'credit\.es"),
        ("{credit.useless_cost: -1}", "row a: .*must be a number of at least 0"),
        ("{temperature: 0}", "row a: .*key 'temperature': must be above 0"),
        ("{output-dir: x}", "row a: key 'rl.output-dir' is set by the study itself"),
    ],
)
@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["run", "dry_run"])
def test_bad_row_is_named_before_anything_runs(
    dry: list[str], ablation: ModuleType, row: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(f"baseline: a\ntable: {{a: {row}}}\n")
    with pytest.raises(ConfigError, match=words):
        ablation.main(["--config", str(path), "--out", str(tmp_path / "run"), *dry])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("sft.max_stepz=1", "stage seed0_sft: unknown key 'max_stepz'"),
        ("sft.max_records=-1", "stage seed0_sft: SFTArgs: max_records must be 0"),
        ("sft.tiny.num_layers=0", "stage seed0_sft: section 'tiny': num_layers must be 1"),
        ("data.expert.own_words=3", "stage seed0_data: expert.own_words is 3"),
        ("rl.max_steps=0", "row a: key 'max_steps': must be 1 or more"),
        ("data.out=x", "more: key 'data.out' is set by the study itself"),
        ("sft.overwrite=true", "more: key 'sft.overwrite' is set by the study itself"),
        ("evaluate.policies=x", "more: key 'evaluate.policies' is set"),
        ("rl.seed=3", "more: key 'rl.seed' is set by"),
        ("rl.model=x", "more: key 'rl.model' is set by"),
    ],
)
def test_dry_run_refuses_what_the_run_would(ablation: ModuleType, more: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text("baseline: a\ntable: {a: {algorithm: grpo}}\n")
    with pytest.raises(ConfigError, match=words):
        ablation.main(["--config", str(path), "--out", str(tmp_path / "run"), "--more", more, "--dry_run"])


def test_keys_of_the_study_are_refused_in_common_too(ablation: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text("baseline: a\ntable: {a: {algorithm: grpo}}\ncommon: {rl.config: x.yaml}\n")
    with pytest.raises(ConfigError, match="common: key 'rl.config' is set by the study itself"):
        ablation.main(["--config", str(path), "--dry_run"])


def test_differing_words_by_hand(ablation: ModuleType) -> None:
    from ablation_checks import differing_words

    old = "python x.py --a 1 --b 2 --p k=1 l=2 --on".split()
    assert differing_words(old, old) == ""
    assert differing_words(old, "python x.py --a 3 --p k=1 l=2 --on".split()) == (
        "--a 3 (before: 1), --b not given (before: 2)"
    )
    long = "row=" + "x/" * 20
    assert differing_words(["y.py", "--p", "k=1", long], ["y.py", "--p", "k=1"]) == "--p without row"
    assert differing_words(old, "python y.py --a 1 --b 2 --p k=1 m=3".split(), most=4) == (
        "without x.py, with y.py, --p without l=2, --p with m=3 and 1 more"
    )
