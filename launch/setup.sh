# shellcheck shell=bash
# Sourced by the other launch scripts: makes sure that .venv holds the tested versions, then sets ROOT and PYTHON.
#
# Order: check what the machine must bring (all missing things are named, one line each) -> make .venv -> install with
# constraints.txt -> compile once -> write a stamp. The stamp is the hash of what was installed and is written last, so
# a second start only compares it, and an interrupted installation is seen and completed.
# Set AUTOTOOLS_PYTHON to choose the Python; extra pip options go into pip's own PIP_* variables.

if [[ "${BASH_SOURCE[0]}" == "$0" && $# -gt 0 ]]; then # started itself; a script that sources it has words of its own
  if [[ "$1" == "-h" || "$1" == "--help" ]]; then
    echo "usage: bash launch/setup.sh"
    echo "Makes .venv with the versions of constraints.txt (minutes, once). The other launch scripts do so by themselves."
    echo "AUTOTOOLS_PYTHON chooses the Python (3.11 or newer), CXX the C++ compiler; pip reads its own PIP_* variables."
    exit 0
  fi
  echo "error: no arguments are known, got '$1'; see bash launch/setup.sh --help" >&2
  exit 2
fi

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="$ROOT/.venv"
PYTHON="$VENV/bin/python"
STAMP="$VENV/autotools-stamp"
MIN_FREE_GB=6

# One thread: with two OpenMP threads on two busy cores a training step is several times slower.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
# Keep freed memory: returning every large block to the system costs a third of a training step in page faults.
export MALLOC_MMAP_THRESHOLD_="${MALLOC_MMAP_THRESHOLD_:-1073741824}" MALLOC_TRIM_THRESHOLD_="${MALLOC_TRIM_THRESHOLD_:-4294967296}"
export TRL_EXPERIMENTAL_SILENCE=1 TOKENIZERS_PARALLELISM=false
export HF_HUB_OFFLINE="${HF_HUB_OFFLINE:-1}" # nothing here needs the network after installation

_modern() { # is $1 a Python >= 3.11?
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

_find_python() { # prints the first Python >= 3.11
  local name
  for name in ${AUTOTOOLS_PYTHON:+"$AUTOTOOLS_PYTHON"} python3.11 python3.12 python3.13 python3 python; do
    if command -v "$name" >/dev/null && _modern "$name"; then
      command -v "$name"
      return 0
    fi
  done
  return 1
}

_fingerprint() { # hash of everything that decides what is installed
  "$PYTHON" - "$ROOT/pyproject.toml" "$ROOT/constraints.txt" <<'PY' 2>/dev/null || echo "no-python"
import hashlib, pathlib, sys
parts = [sys.version.encode(), sys.prefix.encode(), *(pathlib.Path(p).read_bytes() for p in sys.argv[1:])]
print(hashlib.sha256(b"\0".join(parts)).hexdigest())
PY
}

_check_compiler() {
  local name
  if [[ -n "${CXX:-}" ]]; then # may carry options ("g++ -m64"); its first word is the program
    if command -v "${CXX%% *}" >/dev/null; then return 0; fi
    echo "error: the variable CXX names '$CXX', which is no program here; correct or unset it" >&2
    return 1
  fi
  for name in c++ g++ clang++; do
    if command -v "$name" >/dev/null; then return 0; fi
  done
  echo "error: no C++ compiler found (c++, g++ or clang++); install one, e.g. apt-get install g++" >&2
  return 1
}

_check_machine() { # prints one line per missing thing; fails if any is missing
  local ok=0 base="" free_kb
  _check_compiler || ok=1
  if [[ ! -d "$VENV" ]]; then
    free_kb="$(df -Pk "$ROOT" | awk 'NR == 2 { print $4 }')"
    if ((free_kb < MIN_FREE_GB * 1024 * 1024)); then
      echo "error: $((free_kb / 1024 / 1024)) GB free disk space at $ROOT; installing needs $MIN_FREE_GB GB" >&2
      ok=1
    fi
  fi
  if ! base="$(_find_python)"; then
    echo "error: no Python 3.11 or newer found; install one, or name it in AUTOTOOLS_PYTHON" >&2
    ok=1
  elif ! "$base" -c 'import ensurepip, venv' 2>/dev/null; then
    echo "error: $base cannot make virtual environments; install its venv package, e.g. apt-get install python3-venv" >&2
    ok=1
  elif ! "$base" -c 'import pathlib, sys, sysconfig as s; sys.exit(not (pathlib.Path(s.get_path("include")) / "Python.h").exists())'; then
    echo "error: $base has no C headers (Python.h); install them, e.g. apt-get install python3-dev" >&2
    ok=1
  fi
  return "$ok"
}

_compile_once() { # DeepSpeed's CPU communication is C++ that is otherwise built inside the first two-rank run
  echo "setup: compiling DeepSpeed's CPU communication (once)" >&2
  local log="$VENV/compile.log"
  if ! (cd "$ROOT" && PATH="$VENV/bin:$PATH" "$PYTHON" -m training.compiled_ops >"$log" 2>&1 </dev/null); then
    echo "warning: DeepSpeed's CPU communication did not compile, so runs on several CPU ranks will fail; see $log" >&2
  fi
}

_install() {
  local base
  _check_machine || return 1
  base="$(_find_python)"
  rm -f "$STAMP"
  if ! [[ -x "$PYTHON" ]] || ! _modern "$PYTHON" || ! "$PYTHON" -m pip --version >/dev/null 2>&1; then
    echo "setup: making $VENV with $("$base" -V)" >&2
    "$base" -m venv --clear "$VENV" || return 1
  fi
  echo "setup: installing the versions of constraints.txt (minutes, once)" >&2
  # torch first: building DeepSpeed looks at the torch that is installed
  (cd "$ROOT" && "$PYTHON" -m pip install --quiet --disable-pip-version-check -c constraints.txt torch &&
    "$PYTHON" -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]') || {
    echo "error: pip could not install the packages (its message is above); start the same command again to continue" >&2
    return 1
  }
  _compile_once
  _fingerprint >"$STAMP"
}

_setup() {
  _check_compiler || return 1
  if [[ -x "$PYTHON" && -f "$STAMP" && "$(<"$STAMP")" == "$(_fingerprint)" ]]; then return 0; fi
  if command -v flock >/dev/null; then # two first starts at once: the second one waits, then finds the stamp
    exec 9<"$ROOT/constraints.txt"
    flock 9
    if [[ ! -f "$STAMP" || "$(<"$STAMP")" != "$(_fingerprint)" ]]; then _install || return 1; fi
    exec 9<&-
  else
    _install || return 1
  fi
}

_setup || exit 2
