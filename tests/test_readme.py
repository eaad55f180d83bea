"""The README's commands run for real: every ```bash block as it stands, after the quickstart that it refers to.

Blocks marked console (test.sh, GPU, Slurm) are not run; the keys of their training commands are checked by dry runs.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = {p.name: p.read_text(encoding="utf-8") for p in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]}
README = DOCUMENTS["README.md"]
QUICKSTART = "bash launch/quickstart.sh"
SCRIPTS = ("training/sft.py", "rl/train.py")


def blocks(language: str, text: str = README) -> list[str]:
    """Contents of the fenced blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


RUNNABLE = [(name, number) for name, text in DOCUMENTS.items() for number in range(len(blocks("bash", text)))]
RUNNABLE.remove(("README.md", 0))  # the quickstart itself: the fixture


def training_commands(text: str) -> list[list[str]]:
    """The words after the launcher (script, then arguments) of each line that starts SFT or RL."""
    found = []
    for line in text.splitlines():
        words = line.strip().rstrip("'").split()
        starts = [words.index(script) for script in SCRIPTS if script in words]
        found += [words[start:] for start in starts]
    return found


def test_readme_begins_with_the_two_commands() -> None:
    assert blocks("bash")[0].strip() == QUICKSTART
    assert blocks("console")[0].strip() == "bash launch/test.sh"
    assert set(re.findall(r"^```(\w*)$", README, re.M)) == {"bash", "console", "text", ""}  # "" ends a block


def test_readme_shows_the_stage_commands_as_they_are(quickstart_run: Any) -> None:
    done = subprocess.run(
        [sys.executable, "launch/quickstart.py", "--dry_run"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.stdout in blocks("text")
    # and those very commands are what the quickstart ran, only in another folder
    ran = [(quickstart_run.folder / "logs" / f"{name}.log").read_text(encoding="utf-8").splitlines()[0][2:]
           for name in ("world", "data", "sft", "rl", "sft_longer", "evaluate", "report")]  # fmt: skip
    where = {str(quickstart_run.folder), str(quickstart_run.folder.resolve())}
    for name in where:
        ran = [line.replace(name, "runs/quickstart") for line in ran]
    assert ran == done.stdout.splitlines()


@pytest.mark.parametrize(("document", "number"), RUNNABLE)
def test_block_runs(document: str, number: int, quickstart_run: Any) -> None:
    """A text block that follows directly shows what the commands print."""
    script = blocks("bash", DOCUMENTS[document])[number]
    done = quickstart_run.shell(script)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    assert "Traceback" not in done.stderr
    rest = DOCUMENTS[document].split(f"```bash\n{script}```\n", 1)[1]
    if rest.startswith("```text\n"):
        assert done.stdout == blocks("text", rest)[0]


def test_a_wrong_readme_command_would_be_seen(quickstart_run: Any) -> None:
    wrong = blocks("bash")[1].replace("--baseline", "--baselin")
    done = quickstart_run.shell(wrong)
    assert done.returncode == 2
    assert "did you mean 'baseline'?" in done.stderr


def test_gpu_and_slurm_commands_have_known_keys(quickstart_run: Any) -> None:
    """All in one child process (it imports TRL once); a model that only an earlier GPU run makes stands for itself."""
    commands = [words for text in blocks("console") for words in training_commands(text)]
    assert len(commands) == 5
    commands = [[word.replace("runs/quickstart", str(quickstart_run.folder)) for word in c] for c in commands]
    for words in commands:
        made_by_gpus = [i for i, word in enumerate(words) if words[i - 1] == "--model" and word.startswith("runs/gpu")]
        for i in made_by_gpus:
            words[i] = str(quickstart_run.folder / "sft")
    code = (
        "import json, runpy, sys\n"
        "from rl.train import main as rl\n"
        "from training.sft import main as sft\n"
        "for script, *words in json.loads(sys.argv[1]):\n"
        "    (sft if script == 'training/sft.py' else rl)([*words, '--dry_run'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(commands)], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("would write runs/") == 5


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_named_in_a_document_exist(document: str) -> None:
    made_later = {"launch/submit.py", "launch/check.py", "launch/plan.py"}  # named as not there yet
    folders = "autotools|configs|data_synthesis|docs|evaluation|launch|retriever|rl|tests|toolworld|training"
    pattern = rf"(?<![\w./-])(?:{folders})/[\w./]*\.(?:py|sh|md|yaml|json)(?!\w)"
    missing = {name for name in set(re.findall(pattern, DOCUMENTS[document])) if not (ROOT / name).exists()}
    assert missing <= made_later
