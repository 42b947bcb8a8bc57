"""The default scale of a Laplacian in a layer: two GLTConv(learned=False) on Cora, judged on validation nodes alone.

python -m benchmarks.layer_scale [--seeds 5] [--out results/pyg/layer_scale.jsonl]
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import torch
import torch.nn.functional as nnf

import walksum as ws
from benchmarks import records
from walksum.data import load, make_split

SCALES, EPOCHS, HIDDEN = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99), 60, 16


def best_validation(scale: float, seed: int) -> float:
    """The best accuracy in per cent over the epochs, on a random split of this seed."""
    data = load("cora")
    split = make_split(data, "random", seed, name="cora")
    graph = ws.Graph.from_edge_index(data.edge_index, data.num_nodes)
    torch.manual_seed(seed)
    first = ws.GLTConv(data.num_features, HIDDEN, learned=False, scale=scale)
    last = ws.GLTConv(HIDDEN, 7, learned=False, scale=scale)
    optimiser = torch.optim.Adam([*first.parameters(), *last.parameters()], 0.01, weight_decay=5e-4)
    best = 0.0
    for _ in range(EPOCHS):
        out = last(first(data.x, graph).relu(), graph)  # without dropout, so that one pass serves both
        best = max(best, float((out.argmax(1) == data.y)[split.val].float().mean()))
        optimiser.zero_grad()
        nnf.cross_entropy(out[split.train], data.y[split.train]).backward()
        optimiser.step()
    return 100 * best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    for scale in SCALES:
        values = [best_validation(scale, seed) for seed in range(args.seeds)]
        found.append(
            {"scale": scale, "mean": round(statistics.mean(values), 2), "values": [round(v, 1) for v in values]}
        )
        print(found[-1], flush=True)
    about = {"commit": records.commit(), "seeds": args.seeds, "epochs": EPOCHS, "hidden": HIDDEN}
    records.write_lines(args.out, [about, *found])


if __name__ == "__main__":
    main()
