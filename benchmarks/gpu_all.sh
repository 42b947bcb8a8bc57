#!/usr/bin/env bash
# Tests and measures the GPU path on a machine with a CUDA device: bash benchmarks/gpu_all.sh FOLDER
# Tests run side by side with processes that only compile, so that the measurements after them need not.
set -u
out=$1
mkdir -p "$out"
export PYTHONPATH=src:.${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
gpu_tests() { python3 -m pytest -m gpu -W default -p no:cacheprovider "$@"; }
gpu_tests tests/kernels/test_gpu.py >"$out/test_kernels.log" 2>&1 &
gpu_tests tests/solvers/test_cuda.py -k "cg or buffers" >"$out/test_cg.log" 2>&1 &
gpu_tests tests/solvers/test_cuda.py -k "not (cg or buffers)" >"$out/test_gabp.log" 2>&1 &
for k in $(seq 0 10); do
  python3 -m benchmarks.gpu_probe --warm "$k/11" --out "$out" >>"$out/warm.log" 2>&1 &
done
wait
grep warmed "$out/warm.log" | sort | tail -n 3
python3 -m benchmarks.gpu_probe --out "$out" --budget "${BUDGET:-330}" 2>&1 | tee "$out/gpu_probe.log"
grep -c Error "$out/warm.log"
tail -n 12 "$out"/test_*.log
