#!/usr/bin/env bash
# Table 1 on a machine with one large GPU: bash scripts/table1_gpu.sh STORE LOGS SECONDS
# GLT rows and light baselines on the GPU, the baselines of WebKB on the CPU, all into one store; run it again to go on.
# Several processes share the GPU through CUDA's multi-process service, since small graphs leave it waiting for the host.
set -u
store=$1 logs=$2 limit=$3
mkdir -p "$logs"
export PYTHONPATH=src:. PYTHONUNBUFFERED=1
nvidia-cuda-mps-control -d </dev/null >/dev/null 2>&1
bench() { timeout -s TERM -k 12 "$limit" python3 -m walksum bench table1 --runs 30 --store "$store" "$@"; }
light=gcn,gat,sage,gde,cgnn,cgnn-weights,mlp,appnp,gcnii,gprgnn,h2gcn,acm-gcn
bench --models glt --datasets cora,citeseer,pubmed --device cuda --workers 5 >"$logs/glt.log" 2>&1 &
bench --models glt --datasets texas,wisconsin,cornell --device cuda --workers 2 >"$logs/webkb.log" 2>&1 &
bench --models $light --datasets cora,citeseer --device cuda --workers 1 >"$logs/light.log" 2>&1 &
OMP_NUM_THREADS=1 bench --models baselines,extra --datasets texas,wisconsin,cornell --device cpu --workers 7 \
  >"$logs/cpu.log" 2>&1 &
wait
for log in "$logs"/*.log; do echo "== $log"; tail -n 14 "$log"; done
