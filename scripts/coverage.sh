#!/usr/bin/env bash
# Line coverage of src/walksum by the default tests: one part of the tests after the other, so that it may be stopped and
# resumed; parts that have ended are left out the next time. The last part done, the report goes to results/trust/coverage.txt.
# Bodies of CPU kernels (functions under @jit) are machine code, which no line tracer sees: they are not counted, and each is
# compared with a float64 twin by tests/backends and tests/solvers. A line of a Triton kernel counts when the interpreter has run it.
#   bash scripts/coverage.sh [PART ...]      parts: folders or files under tests/; default: all
set -uo pipefail
cd "$(dirname "$0")/.."
PYTHON="${PYTHON:-.venv/bin/python}"
OUT="${OUT:-.benchmarks/coverage}"
mkdir -p "$OUT"
OUT="$(cd "$OUT" && pwd)"
export OMP_NUM_THREADS=1
all=$#
[ $# -gt 0 ] || set -- $(ls -d tests/*/ | grep -v -e __pycache__ -e golden) tests/test_*.py
for part in "$@"; do
    name="$(basename "$part" .py)"
    if [ ! -e "$OUT/done.$name" ]; then
        rm -f "$OUT/data.$name".*
        COVERAGE_FILE="$OUT/data.$name" timeout "${LIMIT:-1800}" \
            "$PYTHON" -m coverage run -m pytest "$part" -q -m "not slow" -p no:cacheprovider >"$OUT/log.$name" 2>&1
        status=$?
        tail -n 1 "$OUT/log.$name" | sed "s|^|$part: |"
        [ $status -ne 0 ] && [ $status -ne 5 ] || touch "$OUT/done.$name"  # 5: all of its tests are slow
    fi
done
"$PYTHON" -m coverage combine --keep --quiet --data-file="$OUT/all" "$OUT"/data.*
report=("$PYTHON" -m coverage report --data-file="$OUT/all" --sort=cover --fail-under=95)
if [ "$all" -eq 0 ]; then "${report[@]}" | tee results/trust/coverage.txt; else "${report[@]}"; fi
