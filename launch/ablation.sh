#!/usr/bin/env bash
# A comparison of RL settings in the tool world, several seeds each, from one file of rows:
#   bash launch/ablation.sh [--config configs/ablation/paper.yaml] [--seeds N] [--rows NAME ...] [--out DIR] [--resume]
# An interrupted study goes on with --resume; --dry_run prints the commands, --help lists the keys.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=launch/setup.sh
source "$here/setup.sh"
exec "$PYTHON" "$ROOT/launch/ablation.py" "$@"
