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
"$PYTHON" -c '
import torch
import walksum as ws

edges = torch.tensor([[0, 1, 1, 2, 3, 4, 0], [1, 2, 3, 3, 4, 5, 2]])
ws.plot.save(ws.plot.layer(), "docs/images/layer.png", dpi=100)
ws.plot.save(ws.plot.how_J_is_made(ws.Graph.from_edge_index(edges)), "docs/images/how-J-is-made.png", dpi=100)
'
"$PYTHON" scripts/figure_numbers.py > results/figures.txt
