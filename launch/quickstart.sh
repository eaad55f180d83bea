#!/usr/bin/env bash
# The whole pipeline on the embedded tool world, from an empty machine to a report:
#   bash launch/quickstart.sh [--seed N] [--out DIR] [--config FILE] [--overwrite | --resume] [--dry_run] [--key value ...]
# Sets the environment up first (minutes, once); --help lists the keys.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=launch/setup.sh
source "$here/setup.sh"
exec "$PYTHON" "$ROOT/launch/quickstart.py" "$@"
