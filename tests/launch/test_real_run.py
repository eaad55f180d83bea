"""The quickstart over real tools: refusals at once; the whole run with few steps (slow: minutes)."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONFIG = "configs/quickstart/real.yaml"
CORPUS = "sources/toolbench_corpus/corpus.jsonl.gz"


def driver(*argv: str, limit_s: float = 60) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "launch" / "quickstart.py"), *argv]
    environment = os.environ | {"COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit_s)


def test_dry_run_imports_instead_of_building_a_world(tmp_path: Path) -> None:
    corpus = tmp_path / "c.jsonl"
    corpus.touch()
    done = driver("--config", CONFIG, "--corpus", str(corpus), "--queries", str(tmp_path), "--seed", "3", "--dry_run")
    lines = done.stdout.splitlines()
    world = "runs/real/world"  # a folder of its own: the first quickstart's run stays
    assert lines[0] == f"python -m data_synthesis.real --corpus {corpus} --queries {tmp_path} --out {world} --seed 3"
    assert f"--config configs/data/real.yaml --world {world} " in lines[1]
    assert len(lines) == 7 and all("real" in line for line in lines)


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--config", CONFIG], "real tools need both --corpus FILE and --queries DIR"),
        (["--config", CONFIG, "--corpus", "pyproject.toml"], "real tools need both --corpus FILE and --queries DIR"),
        (["--corpus", "x", "--queries", "y"], "corpus and queries belong to real tools: add --config configs/quickst"),
        (["--source", "web"], "unknown source 'web'; known: toolworld, real"),
        (["--config", CONFIG, "--corpus", "none.gz", "--queries", "docs"], "none.gz does not exist; the corpus file"),
    ],
)
@pytest.mark.parametrize("dry", [[], ["--dry_run"]], ids=["run", "dry_run"])
def test_bad_use_is_one_line(dry: list[str], argv: list[str], line: str, tmp_path: Path) -> None:
    done = driver(*argv, "--out", str(tmp_path / "run"), *dry)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert line in done.stderr and not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.shared
def test_whole_run_over_the_real_corpus(shared_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    few = ["sft.max_steps=4", "sft.eval_steps=4", "sft.max_records=60", "data.num_search_demos=60"]
    few += ["sft_longer.max_steps=2", "sft_longer.eval_steps=2", "rl.max_steps=1", "evaluate.limit=24"]
    sources = ["--corpus", str(shared_data / CORPUS), "--queries", str(shared_data / "sources")]
    done = driver("--config", CONFIG, *sources, "--out", str(out), "--more", *few, limit_s=900)
    assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads((out / "summary.json").read_text())
    assert set(summary["eval"]) == {"bm25_oneshot", "before", "sft_longer", "after"}
    for table in summary["eval"].values():
        assert table["overall"]["n"] == 24 == sum(row["n"] for name, row in table.items() if name != "overall")
        assert {"G1_instruction", "G1_tool", "G1_category"} <= set(table) and "I1" not in table
    assert summary["world"]["tools"] == 16_302 and summary["functions"] == {"total": 0, "verified": 0}
    for text in (summary["note"], (out / "report.html").read_text(), (out / "report.md").read_text(), done.stderr):
        assert "Plumbing check, not a result" in " ".join(text.split())
    log = (out / "logs/data.log").read_text()
    assert "no record of the task function" in log and re.search(r"rejected: \d+", log)
