"""A small cell to train: sixty nodes with sparse features, three classes, a ring with chords.

In float64: Adam divides by the size of a gradient, so where a gradient is nothing but rounding (normalised designs do
not see the scale of their inputs), float32 runs drift apart whatever order their sums are taken in.
"""

import torch

from walksum.data.splits import make_split
from walksum.graph import Graph
from walksum.paper.rows import row_of
from walksum.paper.sweep.spec import paper_spec
from walksum.training.data import Data

NODES, FEATURES, CLASSES = 60, 48, 3


def cell(model, runs, **changes):
    return [paper_spec(model, "texas", seed, **{"lr": 1e-2, "hidden": 16, **changes}) for seed in range(runs)]


def data_of(specs, device="cpu", dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(CLASSES, (NODES,), generator=generator)
    words = torch.rand(NODES, FEATURES, generator=generator) < 0.08
    words |= (torch.arange(FEATURES) % CLASSES == y.unsqueeze(1)) & (
        torch.rand(NODES, FEATURES, generator=generator) < 0.2
    )
    ring = torch.arange(NODES)
    source, target = torch.cat([ring, ring[::3]]), torch.cat([ring.roll(-1), ring.roll(7)[::3]])
    edge_index = torch.stack([torch.cat([source, target]), torch.cat([target, source])])
    edge_index, y = edge_index.to(device), y.to(device)
    edges = edge_index if row_of(specs[0].model).baseline else Graph.from_edge_index(edge_index, NODES)
    splits = {spec.seed: make_split(y, "random", spec.seed, counts=(24, 18, 18)) for spec in specs}
    return Data(words.to(device, dtype), edges, y, splits)
