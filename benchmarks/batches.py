"""A new graph in every batch: forward and backward of one layer, in multiples of GAT with 8 heads in the same process.

    python -m benchmarks.batches [--runs 3] [--rounds 25] [--out results/pyg/batches.jsonl]

Times are CPU time of one thread. "new": an edge_index that nobody has seen; all structure is made within the call, for
every layer alike. "same": the second call with that tensor. A run takes the median over its rounds and divides by GAT's
of that run; the record holds the median over runs and their range.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch_geometric.nn import APPNP, GATConv, GCNConv

import walksum as ws
from benchmarks import records
from benchmarks.timing import no_collections

CHANNELS, HEADS = 64, 8
# the most that is asked for, in multiples of GAT: a new graph, and the same graph for fixed and learned designs
TARGETS = {"new": {"fixed": 1.0, "learned": 1.0}, "same": {"fixed": 0.3, "learned": 0.6}}


def small_graphs(count: int, size: int, generator: torch.Generator) -> Tensor:
    """Disjoint graphs of ``size`` nodes: a random tree each and a third as many edges more, as molecules have."""
    node = torch.arange(1, size)
    parent = (torch.rand(count, size - 1, generator=generator) * node).long()
    more = torch.randint(size, (2, count, size // 3), generator=generator)
    edges = torch.stack([torch.cat([node.expand(count, -1), more[0]], 1), torch.cat([parent, more[1]], 1)])
    return _both_ways((edges + size * torch.arange(count).view(1, -1, 1)).flatten(1), generator)


def sampled_tree(size: int, generator: torch.Generator) -> Tensor:
    """One graph as a neighbour sampler makes it: 64 seeds, ten children per node, some of which are shared."""
    child = torch.arange(64, size)
    parent = (child - 64) // 10
    again = torch.randint(size, (2, size // 5), generator=generator)
    return _both_ways(torch.cat([torch.stack([child, parent]), again], 1), generator)


def _both_ways(edges: Tensor, generator: torch.Generator) -> Tensor:
    edges = torch.cat([edges, edges.flip(0)], 1)
    return edges[:, torch.randperm(edges.size(1), generator=generator)]


SHAPES: dict[str, tuple[int, Callable[[torch.Generator], Tensor]]] = {
    "32 x 30": (960, lambda generator: small_graphs(32, 30, generator)),
    "128 x 30": (3840, lambda generator: small_graphs(128, 30, generator)),
    "5,000": (5000, lambda generator: sampled_tree(5000, generator)),
}


def layers() -> dict[str, tuple[str, nn.Module]]:
    """The kind and the layer; all map 64 channels to 64."""
    found: dict[str, tuple[str, nn.Module]] = {
        "GAT": ("other", GATConv(CHANNELS, CHANNELS // HEADS, heads=HEADS)),
        "GCN": ("other", GCNConv(CHANNELS, CHANNELS)),
        "APPNP, 10 steps": ("other", nn.Sequential(nn.Linear(CHANNELS, CHANNELS), APPNP(10, 0.1))),
    }
    for design in ("laplacian", "diagonally-dominant", "pairwise-normal"):
        found[f"{design}, fixed"] = ("fixed", ws.GLTConv(CHANNELS, CHANNELS, design=design, learned=False))
        for heads in (1, HEADS):
            layer = ws.GLTConv(CHANNELS, CHANNELS // heads, heads=heads, design=design)
            found[f"{design}, learned, {heads} head{'s' * (heads > 1)}"] = ("learned", layer)
    return found


def step(layer: nn.Module, x: Tensor, inputs: Tensor, edge_index: Tensor) -> float:
    """CPU seconds of forward and backward; x needs a gradient, as between the layers of a model."""
    reads_input = isinstance(layer, ws.GLTConv) and layer.design.reads_input
    more = {"features": inputs} if reads_input else {}
    start = time.process_time()
    if isinstance(layer, nn.Sequential):
        layer[1](layer[0](x), edge_index).sum().backward()
    else:
        layer(x, edge_index, **more).sum().backward()
    return time.process_time() - start


def measure(shape: str, rounds: int, seed: int) -> dict[str, dict[str, float]]:
    """One run: the median seconds of each layer for new and for known graphs."""
    generator = torch.Generator().manual_seed(seed)
    nodes, make = SHAPES[shape]
    known, taken = layers(), {"new": {}, "same": {}}  # type: ignore[var-annotated]
    inputs = torch.randn(nodes, CHANNELS, generator=generator)  # of the model, for the design that reads those
    x = inputs.clone().requires_grad_()
    with no_collections():
        for k in range(rounds + 3):
            edges = make(generator)
            for name, (_, layer) in known.items():
                own = edges.clone()
                new, same = step(layer, x, inputs, own), step(layer, x, inputs, own)
                if k >= 3:  # warm
                    taken["new"].setdefault(name, []).append(new)
                    taken["same"].setdefault(name, []).append(same)
    return {when: {name: statistics.median(values) for name, values in of.items()} for when, of in taken.items()}


def run(runs: int, rounds: int) -> list[records.Record]:
    found = []
    for shape in SHAPES:
        medians = [measure(shape, rounds, seed) for seed in range(runs)]
        for when, limits in TARGETS.items():
            for name, (kind, _) in layers().items():
                ratios = sorted(run[when][name] / run["new"]["GAT"] for run in medians)
                found.append(
                    {
                        "shape": shape,
                        "graph": when,
                        "layer": name,
                        "kind": kind,
                        "over_gat": round(statistics.median(ratios), 3),
                        "range": [round(ratios[0], 3), round(ratios[-1], 3)],
                        "ms": round(1e3 * statistics.median(run[when][name] for run in medians), 3),
                        "limit": limits.get(kind),
                    }
                )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = run(args.runs, args.rounds)
    for row in found:
        over = "" if row["limit"] is None else "  met" if row["over_gat"] <= row["limit"] else f"  over {row['limit']}"
        low, high = row["range"]
        print(f"{row['shape']:>9} {row['graph']:>4} {row['layer']:40} {row['over_gat']:6.2f} [{low:.2f}, {high:.2f}]"
              f" {row['ms']:8.2f} ms{over}")  # fmt: skip
    about = {"commit": records.commit(), **records.machine("cpu"), "runs": args.runs, "rounds": args.rounds}
    records.write_lines(args.out, [about, *found])


if __name__ == "__main__":
    main()
