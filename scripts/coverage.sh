#!/usr/bin/env bash
# Line coverage of src/walksum: make coverage, or bash scripts/coverage.sh [PART ...] with folders, files or tests under tests/.
# One part after the other, so that it may be stopped and resumed: parts that have ended are left out the next time
# (rm -r .benchmarks/coverage begins anew). Without arguments the report goes to results/trust/coverage.txt.
#
# What counts: a line counts if it was run by the default tests, in this process or in one that a test has started.
# Kernels count by two more tests. Those of Triton run in its interpreter (test_gpu.py). CPU kernels are machine code,
# which no tracer sees: they run once more as plain Python (test_plain_kernels.py) and are compared with dense solves.
# What is left out: "if TYPE_CHECKING:", typing overloads and protocol stubs, which no program runs. Nothing else.
set -uo pipefail
cd "$(dirname "$0")/.."
PYTHON="${PYTHON:-.venv/bin/python}"
OUT="${OUT:-.benchmarks/coverage}"
mkdir -p "$OUT"
OUT="$(cd "$OUT" && pwd)"
export OMP_NUM_THREADS=1
export NUMBA_CACHE_DIR="$OUT/numba"  # empty at first: what writes machine code runs too
kernels=(tests/backends/test_gpu.py::test_the_gpu_tests_pass_in_the_interpreter
    tests/backends/test_plain_kernels.py::test_the_kernels_pass_as_plain_python)
all=$#
[ $# -gt 0 ] || set -- "${kernels[@]}" $(ls -d tests/*/ | grep -v -e __pycache__ -e golden) tests/test_*.py
for part in "$@"; do
    name="$(basename "${part##*::}" .py)"
    [[ $part == *::* ]] && which="" || which="not slow"
    if [ ! -e "$OUT/done.$name" ]; then
        rm -f "$OUT/data.$name".*
        COVERAGE_FILE="$OUT/data.$name" timeout "${LIMIT:-1800}" \
            "$PYTHON" -m coverage run -m pytest "$part" -m "$which" -p no:cacheprovider >"$OUT/log.$name" 2>&1
        status=$?
        echo "$part: $(tail -n 1 "$OUT/log.$name")" | tee "$OUT/said.$name"
        [ $status -ne 0 ] && [ $status -ne 5 ] || touch "$OUT/done.$name"  # 5: all of its tests are slow
    fi
done
"$PYTHON" -m coverage combine --keep --quiet --data-file="$OUT/all" "$OUT"/data.*
report=("$PYTHON" -m coverage report --data-file="$OUT/all" --sort=cover --fail-under=95)
[ "$all" -eq 0 ] || exec "${report[@]}"
{
    echo "Line coverage of src/walksum at $(git rev-parse --short HEAD), by scripts/coverage.sh, which says what counts."
    cat "$OUT"/said.*
    echo
    "${report[@]}"
} | tee results/trust/coverage.txt
exit "${PIPESTATUS[0]}"
