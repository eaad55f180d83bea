#!/usr/bin/env bash
# Linters and tests:  bash launch/test.sh [--all] [pytest arguments]
# --all adds the tests marked slow. GPU and Slurm tests are asked for by name: bash launch/test.sh -m gpu
set -euo pipefail
if [[ "${1:-}" == "-h" || "${1:-}" == "--help" ]]; then
  echo "usage: bash launch/test.sh [--all] [pytest arguments]"
  echo "Linters, then tests. --all adds the slow ones; -m gpu or -m slurm runs those; any other word goes to pytest."
  exit 0
fi
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=launch/setup.sh
source "$here/setup.sh"
cd "$ROOT"

marks="not slow and not gpu and not slurm"
if [[ "${1:-}" == "--all" ]]; then
  marks="not gpu and not slurm"
  shift
fi

"$PYTHON" -m ruff check .
if command -v shellcheck >/dev/null; then
  shellcheck -x launch/*.sh .ci/run
elif [[ "${CI:-}" == "true" ]]; then
  echo "error: shellcheck is not installed; CI must run it" >&2
  exit 1
else
  echo "note: shellcheck is not installed; shell scripts are not linted" >&2
fi
exec "$PYTHON" -m pytest -m "$marks" "$@"
