#!/usr/bin/env bash
# The quickstart once per seed, then one report with the table over seeds:  bash launch/seeds.sh [OUT] [SEED...]
# Default: runs/seeds, seeds 0 1 2; about four minutes a seed. Finished seeds are kept, an interrupted one goes on.
set -euo pipefail

usage="usage: bash launch/seeds.sh [OUT] [SEED...]
The quickstart once per seed (default: runs/seeds, seeds 0 1 2; about four minutes a seed), then OUT/report.html with the
table over seeds. Finished seeds are kept, an interrupted one goes on."
for word in "$@"; do
  case "$word" in
    -h | --help)
      echo "$usage"
      exit 0
      ;;
    -* | "")
      echo "error: unknown option '$word'; usage: bash launch/seeds.sh [OUT] [SEED...]" >&2
      exit 2
      ;;
  esac
done
for word in "${@:2}"; do
  if ! [[ "$word" =~ ^[0-9]+$ ]]; then
    echo "error: a seed is a whole number of 0 or more, got '$word'" >&2
    exit 2
  fi
done
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
