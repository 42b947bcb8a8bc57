#!/usr/bin/env bash
# Install a wheel into an empty environment, away from the clone, and run its demo: bash scripts/try_wheel.sh WHEEL
set -euo pipefail
wheel="$(realpath "$1")"
constraints="$(realpath "$(dirname "$0")/../constraints.txt")"
place="$(mktemp -d)"
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv empty
empty/bin/pip install --quiet --no-compile --disable-pip-version-check -c "$constraints" "$wheel"
empty/bin/walksum train --model glt --epochs 20 --out demo
test -s demo/report.html
empty/bin/walksum info demo
empty/bin/python -c "import walksum, pathlib; assert 'empty' in pathlib.Path(walksum.__file__).parts"
