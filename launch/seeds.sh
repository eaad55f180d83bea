#!/usr/bin/env bash
# The quickstart once per seed, then one report with the table over seeds:  bash launch/seeds.sh [OUT] [SEED...]
# Default: runs/seeds, seeds 0 1 2; about four minutes a seed. Finished seeds are kept, an interrupted one goes on.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=launch/setup.sh
source "$here/setup.sh"

out="${1:-$ROOT/runs/seeds}"
shift || true
seeds=("$@")
if ((${#seeds[@]} == 0)); then seeds=(0 1 2); fi
folders=()
for seed in "${seeds[@]}"; do
  folder="$out/seed$seed"
  resume=()
  if [[ -d "$folder" ]]; then resume=(--resume); fi
  # In the background and waited for: bash runs a trap only between commands, and a kill of this script must reach the
  # driver, which ends its stages.
  "$PYTHON" "$ROOT/launch/quickstart.py" --seed "$seed" --out "$folder" "${resume[@]}" &
  driver=$!
  trap 'kill -TERM "$driver"; wait "$driver" || true; exit 143' TERM INT HUP
  wait "$driver"
  folders+=("$folder")
done
exec "$PYTHON" -m evaluation.report --run "${folders[0]}" --seed_runs "${folders[@]}" --out "$out/report.html"
