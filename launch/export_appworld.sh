#!/usr/bin/env bash
# Writes AppWorld's API documents to external/appworld/api_docs.jsonl (457 documents of 11 apps), for
#   python -m autotools.docs external/appworld/api_docs.jsonl
#
# The package pins other versions than ours, so it gets an environment of its own in external/appworld/, which git
# ignores: its authors ask that what it unpacks is neither published nor trained on. canary.txt there holds the line
# by which such text is known; a test looks for it. Installing needs the network once (about 230 MB), unpacking does not.
# Set AUTOTOOLS_PYTHON to choose the Python (3.11 or newer); extra pip options go into pip's own PIP_* variables.
set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
TARGET="$ROOT/external/appworld"
VERSION="0.1.3.post1"
BASE="${AUTOTOOLS_PYTHON:-python3}"

if [[ $# -gt 0 ]]; then
  sed -n '2,/^set/p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'
  if [[ "$1" == "-h" || "$1" == "--help" ]]; then exit 0; fi
  echo "error: no arguments are known, got '$1'" >&2
  exit 2
fi
if ! "$BASE" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  echo "error: '$BASE' is no Python 3.11 or newer; install one, or name it in AUTOTOOLS_PYTHON" >&2
  exit 2
fi

# Unpacked files go below external/, not into the home folder or the current one.
export APPWORLD_CACHE="$TARGET/cache" APPWORLD_ROOT="$TARGET/root"
PYTHON="$TARGET/venv/bin/python"
STAMP="$TARGET/venv/installed"
mkdir -p "$APPWORLD_CACHE" "$APPWORLD_ROOT"
if [[ ! -f "$STAMP" || "$(<"$STAMP")" != "$VERSION" ]]; then
  echo "export_appworld: installing appworld $VERSION into $TARGET/venv" >&2
  "$BASE" -m venv --clear "$TARGET/venv"
  if ! "$PYTHON" -m pip install --quiet --disable-pip-version-check "appworld==$VERSION"; then
    echo "error: pip could not install appworld $VERSION (its message is above); start the command again" >&2
    exit 2
  fi
  (cd "$TARGET" && venv/bin/appworld install) >&2
  echo "$VERSION" >"$STAMP"
fi

cd "$TARGET"
"$PYTHON" - <<'PY'
import json
import os
import sys

from appworld.api_docs import prepare_api_docs
from appworld.apps import get_all_apps
from appworld.common.constants import CANARY_STRING

documents = [document for app in get_all_apps(skip_admin=True) for document in prepare_api_docs(app_name=app)]
apps = {document["app_name"] for document in documents}
if (len(documents), len(apps)) != (457, 11):
    sys.exit(f"error: {len(documents)} documents of {len(apps)} apps instead of 457 of 11; nothing was written")
for name, text in (
    ("canary.txt", CANARY_STRING + "\n"),
    ("api_docs.jsonl", "".join(json.dumps(document, ensure_ascii=False) + "\n" for document in documents)),
):
    with open(f"{name}.part", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(f"{name}.part", name)
print(f"external/appworld/api_docs.jsonl: {len(documents)} documents of {len(apps)} apps")
PY
