#!/usr/bin/env bash
# The sweeps of the tables on a machine with one large GPU; each begins nothing new after SECONDS: run it again to go on.
#   bash scripts/gpu_sweeps.sh table1 STORE LOGS SECONDS
#   bash scripts/gpu_sweeps.sh ablation STORE LOGS SECONDS [RUNS [--variant "learning rate 1e-2" ...]]
# table1: the citation graphs on the GPU; WebKB, whose runs are too small to fill a GPU, on the CPU.
# ablation: what hangs on open choices into STORE, and on one split into STORE/one-split. Long runs come first: in short
# time, name the variants. GCN and the fixed designs of the single splits are quick on a CPU: walksum bench table1
# --protocol one-split --models gcn,glt-laplacian-fixed,glt-pairwise-normal-fixed --device cpu --store STORE/one-split
# A few processes share the GPU through CUDA's multi-process service; more of them only wait for each other.
set -u
sweep=$1 store=$2 logs=$3 limit=$4 runs=${5:-5} chosen=("${@:6}")
mkdir -p "$logs"
export PYTHONPATH=src:. PYTHONUNBUFFERED=1
nvidia-cuda-mps-control -d </dev/null >/dev/null 2>&1

table1() {
  bench() { timeout -s TERM -k 12 "$limit" python3 -m walksum bench table1 --runs 30 --store "$store" "$@"; }
  gpu() { bench --datasets cora,citeseer,pubmed --device cuda --workers "$1" --models "$2"; }
  gpu 2 glt,sign >"$logs/glt.log" 2>&1 &
  gpu 1 gcn,gat,sage,mlp,appnp,gcnii,gprgnn,h2gcn,acm-gcn >"$logs/light.log" 2>&1 &
  (gpu 1 sat,graphormer,graphormer-1e-3 && gpu 1 gde,cgnn,cgnn-weights) >"$logs/heavy.log" 2>&1 &
  OMP_NUM_THREADS=1 bench --models glt,sign,baselines,extra --datasets texas,wisconsin,cornell --device cpu \
    --workers 10 >"$logs/webkb.log" 2>&1 &
}

ablation() {
  export OMP_NUM_THREADS=1
  common=(--device "${DEVICE:-cuda}" --time-limit "$limit")
  bounded() { timeout -s TERM -k 12 $((limit + 60)) python3 -m "$@" "${common[@]}"; }
  change() { bounded benchmarks.ablation --out "$store" "$@"; }
  change --runs "$runs" "${chosen[@]}" --dataset pubmed --workers "${WORKERS:-6}" >"$logs/pubmed.log" 2>&1 &
  change --runs "$runs" "${chosen[@]}" --dataset cora --dataset citeseer --workers "${WORKERS:-4}" \
    >"$logs/planetoid.log" 2>&1 &
  change --runs 30 --dataset texas --dataset wisconsin --dataset cornell --workers "${WORKERS:-3}" \
    >"$logs/webkb.log" 2>&1 &
  for protocol in one-split one-split-1 one-split-2 one-split-3 one-split-4; do
    bounded walksum bench table1 --protocol $protocol --datasets texas,wisconsin,cornell --runs 30 --workers 1 \
      --models gat,sage,gde,cgnn,mlp --store "$store/one-split" >"$logs/$protocol.log" 2>&1 &
  done
}

case $sweep in table1 | ablation) "$sweep" ;; *) echo "$sweep: name table1 or ablation" >&2; exit 2 ;; esac
wait
for log in "$logs"/*.log; do echo "== $log"; tail -n 20 "$log"; done
