"""The number of threads that a fresh process really uses, asked of torch itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = """
import sys
from retriever.cpu_threads import set_threads
assert "torch" not in sys.modules
set_threads({threads})
import torch
print(torch.get_num_threads())
"""


@pytest.mark.parametrize(("threads", "variable", "expected"), [("None", None, 1), ("None", "2", 2), ("2", "1", 2)])
def test_one_thread_unless_told_otherwise(threads: str, variable: str | None, expected: int) -> None:
    env = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    env |= {"OMP_NUM_THREADS": variable} if variable else {}
    code = CODE.format(threads=threads)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert int(done.stdout) == expected


@pytest.mark.parametrize("command", ["build", "search", "evaluate", "serve"])
def test_no_command_imports_torch_before_it_sets_them(command: str) -> None:
    code = f"import sys, retriever.{command}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
