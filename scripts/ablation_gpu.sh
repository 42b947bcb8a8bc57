#!/usr/bin/env bash
# What hangs on open choices, and on one split, on one large GPU:
#   bash scripts/ablation_gpu.sh STORE LOGS SECONDS [RUNS [--variant "learning rate 1e-2" ...]]
# Records of the ablation into STORE, of the single splits into STORE/one-split. Begins nothing new after SECONDS; run
# it again to go on. Long runs come first: in short time, name the variants. Several processes share the GPU, as in
# table1_gpu.sh. GCN and the fixed designs of the single splits are quick on a CPU: walksum bench table1
# --protocol one-split --models gcn,glt-laplacian-fixed,glt-pairwise-normal-fixed --device cpu --store STORE/one-split
set -u
store=$1 logs=$2 limit=$3 runs=${4:-5} chosen=("${@:5}")
mkdir -p "$logs"
export PYTHONPATH=src PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
nvidia-cuda-mps-control -d </dev/null >/dev/null 2>&1
common=(--device "${DEVICE:-cuda}" --time-limit "$limit")
bounded() { timeout -s TERM -k 12 $((limit + 60)) python3 -m "$@" "${common[@]}"; }
ablation() { bounded benchmarks.ablation --out "$store" "$@"; }
ablation --runs "$runs" "${chosen[@]}" --dataset pubmed --workers "${WORKERS:-6}" >"$logs/pubmed.log" 2>&1 &
ablation --runs "$runs" "${chosen[@]}" --dataset cora --dataset citeseer --workers "${WORKERS:-4}" \
  >"$logs/planetoid.log" 2>&1 &
ablation --runs 30 --dataset texas --dataset wisconsin --dataset cornell --workers "${WORKERS:-3}" \
  >"$logs/webkb.log" 2>&1 &
for protocol in one-split one-split-1 one-split-2 one-split-3 one-split-4; do
  bounded walksum bench table1 --protocol $protocol --datasets texas,wisconsin,cornell --runs 30 --workers 1 \
    --models gat,sage,gde,cgnn,mlp --store "$store/one-split" \
    >"$logs/$protocol.log" 2>&1 &
done
wait
for log in "$logs"/*.log; do echo "== $log"; tail -n 20 "$log"; done
