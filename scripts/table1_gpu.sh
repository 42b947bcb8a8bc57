#!/usr/bin/env bash
# Table 1 on a machine with one large GPU: bash scripts/table1_gpu.sh STORE LOGS SECONDS
# The citation graphs on the GPU, WebKB on the CPU, whose runs are too small to fill a GPU; all into one store. Run it again to
# go on. A few processes share the GPU through CUDA's multi-process service; more of them only wait for each other.
set -u
store=$1 logs=$2 limit=$3
mkdir -p "$logs"
export PYTHONPATH=src:. PYTHONUNBUFFERED=1
nvidia-cuda-mps-control -d </dev/null >/dev/null 2>&1
bench() { timeout -s TERM -k 12 "$limit" python3 -m walksum bench table1 --runs 30 --store "$store" "$@"; }
gpu() { bench --datasets cora,citeseer,pubmed --device cuda --workers "$1" --models "$2"; }
gpu 2 glt,sign >"$logs/glt.log" 2>&1 &
gpu 1 gcn,gat,sage,mlp,appnp,gcnii,gprgnn,h2gcn,acm-gcn >"$logs/light.log" 2>&1 &
(gpu 1 sat,graphormer,graphormer-1e-3 && gpu 1 gde,cgnn,cgnn-weights) >"$logs/heavy.log" 2>&1 &
OMP_NUM_THREADS=1 bench --models glt,sign,baselines,extra --datasets texas,wisconsin,cornell --device cpu --workers 10 \
  >"$logs/webkb.log" 2>&1 &
wait
for log in "$logs"/*.log; do echo "== $log"; tail -n 14 "$log"; done
