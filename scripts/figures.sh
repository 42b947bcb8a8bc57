#!/bin/sh
# Makes the pictures of docs/figures.md, and the numbers its text states (results/figures.txt). Needs the Wisconsin
# dataset ($WALKSUM_DATA, or the network) and a few minutes.
set -eu
cd "$(dirname "$0")/.."
PYTHON="${PYTHON:-python}"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
"$PYTHON" -m walksum figures --paper --dataset wisconsin --format png --dpi 100 --out "$scratch"
for name in figure-1 figure-4 figure-5 figure-6 figure-7 spectral-response influence-by-hop convergence steps-by-epoch walk-sums; do
    cp "$scratch/$name.png" "docs/images/$name.png"
done
"$PYTHON" scripts/figure_numbers.py > results/figures.txt
