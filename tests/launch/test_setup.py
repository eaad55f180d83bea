"""launch/setup.sh in a toy checkout, with a stub Python that notes every pip call instead of installing."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("bash", "dirname", "awk", "df", "cat", "env", "rm", "mkdir", "chmod", "cp")

# Behaves like a Python whose "venv" copies itself and whose "pip" only writes its arguments down.
STUB = """#!/usr/bin/env bash
set -e
if [[ "$1 $2" == "-m venv" ]]; then
  mkdir -p "$4/bin"; cp "$0" "$4/bin/python"; echo venv >>"$STUB_LOG"
elif [[ "$1 $2 $3" == "-m pip --version" ]]; then
  exit 0
elif [[ "$1 $2" == "-m pip" ]]; then
  echo "pip ${*:3}" >>"$STUB_LOG"
  if [[ -n "${STUB_FAIL:-}" && "$*" == *"$STUB_FAIL"* ]]; then echo "pip: no route" >&2; exit 1; fi
elif [[ "$2" == training.compiled_ops ]]; then
  echo compile >>"$STUB_LOG"
else
  exec "$REAL_PYTHON" "$@"
fi
"""


class Checkout:
    """A copy of what setup.sh reads, and a PATH of its own."""

    def __init__(self, folder: Path) -> None:
        self.root, self.bin, self.log = folder / "a checkout", folder / "bin", folder / "log"
        (self.root / "launch").mkdir(parents=True)
        self.bin.mkdir()
        self.log.touch()
        shutil.copy(ROOT / "launch" / "setup.sh", self.root / "launch")
        for name in ("pyproject.toml", "constraints.txt"):
            shutil.copy(ROOT / name, self.root)
        for name in TOOLS:
            (self.bin / name).symlink_to(shutil.which(name) or pytest.skip(f"{name} is not installed"))
        self.script("c++", "#!/usr/bin/env bash\n")
        self.script("python3.11", STUB)

    def script(self, name: str, text: str) -> None:
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def setup(self, **env: str) -> subprocess.CompletedProcess[str]:
        """Source setup.sh from another folder, the way the launch scripts do, then print what it set."""
        command = f'set -euo pipefail; source "{self.root}/launch/setup.sh"; echo "$PYTHON $OMP_NUM_THREADS"'
        full = {"PATH": str(self.bin), "STUB_LOG": str(self.log), "REAL_PYTHON": sys.executable, "HOME": "/", **env}
        bash = str(self.bin / "bash")
        return subprocess.run([bash, "-c", command], cwd="/", env=full, capture_output=True, text=True, timeout=60)

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


FRESH = [
    "venv",
    "pip install --quiet --disable-pip-version-check -c constraints.txt torch",
    "pip install --quiet --disable-pip-version-check -c constraints.txt -e .[dev]",
    "compile",
]


def test_first_start_installs_and_the_second_reuses_it(checkout: Checkout) -> None:
    first = checkout.setup()
    assert first.returncode == 0, first.stderr
    assert first.stdout == f"{checkout.root}/.venv/bin/python 1\n"
    assert checkout.calls() == FRESH
    start = time.monotonic()
    second = checkout.setup()
    assert (second.returncode, second.stdout, second.stderr) == (0, first.stdout, "")
    assert checkout.calls() == FRESH
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("name", ["constraints.txt", "pyproject.toml"])
def test_changed_requirements_are_installed_into_the_same_environment(checkout: Checkout, name: str) -> None:
    checkout.setup()
    with (checkout.root / name).open("a") as file:
        file.write("# changed\n")
    assert checkout.setup().returncode == 0
    assert checkout.calls() == FRESH + FRESH[1:]


def test_interrupted_installation_is_completed(checkout: Checkout) -> None:
    failed = checkout.setup(STUB_FAIL="-e")
    assert failed.returncode == 2
    assert failed.stderr.splitlines()[-1].startswith("error: pip could not install the packages")
    assert checkout.calls() == FRESH[:3]
    assert checkout.setup().returncode == 0
    assert checkout.calls() == FRESH[:3] + FRESH[1:]


def test_every_missing_thing_is_one_line(checkout: Checkout) -> None:
    (checkout.bin / "c++").unlink()
    alone = checkout.setup()
    assert (alone.returncode, alone.stdout, checkout.calls()) == (2, "", [])
    assert alone.stderr == "error: no C++ compiler found (c++, g++ or clang++); install one, e.g. apt-get install g++\n"
    wrong = checkout.setup(CXX="nowhere -O2")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1) and "'nowhere -O2'" in wrong.stderr
    checkout.script("my-cxx", "#!/usr/bin/env bash\n")
    assert checkout.setup(CXX="my-cxx -O2").returncode == 0


def test_missing_compiler_is_said_after_installation_too(checkout: Checkout) -> None:
    checkout.setup()
    (checkout.bin / "c++").unlink()
    assert checkout.setup().stderr.startswith("error: no C++ compiler found")


def test_little_disk_space(checkout: Checkout) -> None:
    table = "Filesystem 1024-blocks Used Available Capacity Mounted\\nx 9 9 4300000 9%% /\\n"
    checkout.script("df", f"#!/usr/bin/env bash\nprintf '{table}'\n")
    done = checkout.setup()
    assert (done.returncode, checkout.calls()) == (2, [])
    assert done.stderr == f"error: 4 GB free disk space at {checkout.root}; installing needs 6 GB\n"


def test_old_or_absent_python(checkout: Checkout) -> None:
    checkout.script("python3.11", "#!/usr/bin/env bash\nexit 1\n")  # as an old Python answers the version question
    done = checkout.setup()
    assert done.returncode == 2
    assert done.stderr == "error: no Python 3.11 or newer found; install one, or name it in AUTOTOOLS_PYTHON\n"
    checkout.script("mine", STUB)
    assert checkout.setup(AUTOTOOLS_PYTHON=str(checkout.bin / "mine")).returncode == 0


def test_failed_compilation_warns_and_names_the_log(checkout: Checkout) -> None:
    checkout.script("python3.11", STUB.replace('echo compile >>"$STUB_LOG"', "echo broken; exit 1"))
    done = checkout.setup()
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1].startswith("warning: DeepSpeed's CPU communication did not compile")
    assert (checkout.root / ".venv" / "compile.log").read_text() == "broken\n"


def test_no_compiler_stops_the_real_quickstart_in_one_line(tmp_path: Path) -> None:
    for name in ("bash", "dirname"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    command = [str(tmp_path / "bash"), str(ROOT / "launch" / "quickstart.sh"), "--dry_run"]
    env = {**{k: v for k, v in os.environ.items() if k != "CXX"}, "PATH": str(tmp_path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no C++ compiler found") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["setup.sh", "--help"], 0, "usage: bash launch/setup.sh\n"),
        (["setup.sh", "--frobnicate"], 2, "error: no arguments are known, got '--frobnicate'"),
        (["seeds.sh", "--help"], 0, "usage: bash launch/seeds.sh [OUT] [SEED...]\n"),
        (["seeds.sh", "runs/x", "0", "-h"], 0, "usage: bash launch/seeds.sh [OUT] [SEED...]\n"),
        (["seeds.sh", "--frobnicate"], 2, "error: unknown option '--frobnicate'"),
        (["seeds.sh", "runs/x", "-1"], 2, "error: unknown option '-1'"),
        (["seeds.sh", "runs/x", "0", "two"], 2, "error: a seed is a whole number of 0 or more, got 'two'"),
        (["test.sh", "--help"], 0, "usage: bash launch/test.sh [--all] [pytest arguments]\n"),
    ],
)
def test_usage_and_unknown_words(words: list[str], code: int, said: str, tmp_path: Path) -> None:
    """Also where nothing is installed: the copy has no environment, and making one would take minutes."""
    shutil.copytree(ROOT / "launch", tmp_path / "launch")
    command = ["bash", str(tmp_path / "launch" / words[0]), *words[1:]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert done.returncode == code
    assert (done.stdout if code == 0 else done.stderr).startswith(said)
    assert code == 0 or (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["launch"]
