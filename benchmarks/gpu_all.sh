#!/usr/bin/env bash
# Tests, tunes and measures the GPU path on a machine with a CUDA device: bash benchmarks/gpu_all.sh FOLDER
# Every part has its own limit and leaves what it has found; TUNE=0 leaves out the sweeps.
set -u
out=$1
mkdir -p "$out"
export PYTHONPATH=src:.${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
export WALKSUM_CACHE=${WALKSUM_CACHE:-/tmp/walksum}
timeout 300 python3 -m pytest -m gpu -n 8 -W default -p no:cacheprovider tests/solvers tests/kernels tests/baselines \
  tests/paper/test_runs.py tests/training >"$out/tests.log" 2>&1
tail -n 5 "$out/tests.log"
if [ "${TUNE:-1}" != 0 ]; then
  timeout 120 python3 -m benchmarks.gpu_tune --out "$out" --seconds 95 >"$out/gpu_tune.log" 2>&1
  grep -v "^  rows up to" "$out/gpu_tune.log" | tail -n 70
fi
timeout "${BENCH:-270}" python3 -m benchmarks.gpu --fresh --seconds $((${BENCH:-270} - 60)) --out "$out/gpu.json" \
  >"$out/gpu_bench.log" 2>&1
grep -v "^\s*$" "$out/gpu_bench.log" | tail -n 40
