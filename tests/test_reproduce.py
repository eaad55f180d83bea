"""docs/reproduce.md: its commands have known keys and values. Data and weights that only others have may be missing."""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
SCRIPTS = {"rl/train.py": "rl.train", "training/sft.py": "training.sft", "launch/ablation.sh": "launch/ablation.py"}
OTHER_PROGRAMS = ("--policies", "--resume", "--dry-run")  # keys in the text that are not of the RL line
CODE = """
import importlib, importlib.util, json, sys
from autotools.errors import AutoToolsError

sys.path.insert(0, "launch")  # as a script of that folder is started
for program, *words in json.loads(sys.argv[1]):
    if program.endswith(".py"):
        spec = importlib.util.spec_from_file_location("script", program)
        module = sys.modules["script"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(program)
    try:
        module.main([*words, "--dry_run"])
    except AutoToolsError as error:
        print("REFUSED", type(error).__name__, program, error)
"""


def commands(text: str) -> list[list[str]]:
    """[module or script, word, ...] of each command of the code blocks; launchers and their own keys left out."""
    found = []
    for block in re.findall(r"^```(?:bash|console)\n(.*?)^```$", text, re.M | re.S):
        for line in block.splitlines():
            words = line.split()
            script = next((word for word in words if word in SCRIPTS), None)
            if script:
                found.append([SCRIPTS[script], *words[words.index(script) + 1 :]])
            elif words[:2] == ["python", "-m"]:
                module = words[2] if words[2] not in ("autotools.docs", "autotools.queries") else f"{words[2]}.__main__"
                found.append([module, *words[3:]])
            else:
                assert line in ("source .venv/bin/activate", "bash launch/export_appworld.sh"), line
    return found


def variants(text: str, line: list[str]) -> list[list[str]]:
    """The RL line with each piece of the text that is keys to add to it."""
    pieces = {" ".join(piece.split()) for piece in re.findall(r"`(--[^`]+)`", text)}
    return [[*line, *piece.split()] for piece in sorted(pieces) if not piece.startswith(OTHER_PROGRAMS)]


def refusals(lines: list[list[str]]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps(lines)], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [line for line in done.stdout.splitlines() if line.startswith("REFUSED ConfigError")]


def test_commands_have_known_keys_and_values() -> None:
    lines = commands(TEXT)
    rl = next(words for words in lines if words[0] == "rl.train")
    more = variants(TEXT, rl)
    assert len(lines) > 15 and len(more) > 5
    assert refusals([*lines, *more]) == []


def test_a_wrong_key_would_be_seen() -> None:
    wrong = TEXT.replace("--credit.esm false", "--credit.esn false").replace("--turns", "--turn")
    lines = variants(wrong, ["rl.train", "--data", "D", "--tools", "T", "--model", "M", "--output_dir", "O"])
    lines.append(["evaluation.run", "--suite", "stabletoolbenc", "--out", "O"])
    seen = refusals(lines)
    assert len(seen) == 2 and "did you mean 'credit.esm'" in seen[0] and "stabletoolbenc" in seen[1]


def test_the_section_for_the_ablation_is_there_for_its_figures() -> None:
    section = TEXT.partition("### Ablation in the tool world")[2].partition("\n## ")[0]
    assert "bash launch/ablation.sh" in section
