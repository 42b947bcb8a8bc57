#!/usr/bin/env bash
# Every open choice of the cells below the paper, on one large GPU: bash scripts/ablation_gpu.sh STORE LOGS SECONDS [RUNS]
# Begins nothing new after SECONDS; run it again to go on. Several processes share the GPU, as in table1_gpu.sh.
set -u
store=$1 logs=$2 limit=$3 runs=${4:-5}
mkdir -p "$logs"
export PYTHONPATH=src PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
nvidia-cuda-mps-control -d </dev/null >/dev/null 2>&1
ablation() {
  timeout -s TERM -k 12 $((limit + 90)) python3 -m walksum.experiments.ablation --runs "$runs" --device "${DEVICE:-cuda}" \
    --time-limit "$limit" --out "$store" "$@"
}
ablation --dataset pubmed --workers "${WORKERS:-7}" >"$logs/pubmed.log" 2>&1 &
ablation --dataset cora --dataset citeseer --workers "${WORKERS:-6}" >"$logs/planetoid.log" 2>&1 &
wait
for log in "$logs"/*.log; do echo "== $log"; tail -n 70 "$log"; done
