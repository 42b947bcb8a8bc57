#!/usr/bin/env bash
# Line coverage of src/walksum by the default tests: one part of the tests after the other, so that it may be stopped and
# resumed; parts whose data are there already are left out. A line of a CPU kernel counts when numba has compiled it for
# some test (numba's own rule, NUMBA_JIT_COVERAGE), a line of a Triton kernel when the interpreter has run it.
#   bash scripts/coverage.sh [PART ...]      parts: folders or files under tests/; default: all
set -uo pipefail
cd "$(dirname "$0")/.."
PYTHON="${PYTHON:-.venv/bin/python}"
OUT="${OUT:-.benchmarks/coverage}"
mkdir -p "$OUT/numba"
OUT="$(cd "$OUT" && pwd)"
export OMP_NUM_THREADS=1 NUMBA_JIT_COVERAGE=1 NUMBA_CACHE_DIR="$OUT/numba"
[ $# -gt 0 ] || set -- $(ls -d tests/*/ | grep -v -e __pycache__ -e golden) tests/test_*.py
for part in "$@"; do
    name="$(basename "$part" .py)"
    if ! ls "$OUT/data.$name".* >/dev/null 2>&1; then
        COVERAGE_FILE="$OUT/data.$name" timeout "${LIMIT:-900}" \
            "$PYTHON" -m coverage run -m pytest "$part" -q -m "not slow" -p no:cacheprovider 2>&1 | tail -n 3
    fi
done
"$PYTHON" -m coverage combine --keep --quiet --data-file="$OUT/all" "$OUT"/data.*
"$PYTHON" -m coverage report --data-file="$OUT/all" --sort=cover --fail-under=95
