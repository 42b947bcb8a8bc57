"""Graphs: published ones, and random ones of the sizes that matter, made on the host or on the device itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from walksum import Graph

LARGE = ("power-law-1m", "wide-2.4m")  # 1M nodes, 20M directed edges, hubs of 19 thousand; 2.4M nodes, 121M


def power_law(nodes: int, edges: int, skew: float) -> Graph:
    """Endpoints drawn with density ~ rank^-skew, ranks shuffled: exactly ``edges`` edges, no loops, no duplicates.

    The largest hub has about ``2 edges / nodes^(1 - skew)`` neighbours.
    """
    rng = np.random.default_rng(0)
    label, keys = rng.permutation(nodes), np.empty(0, np.int64)
    while keys.size < edges:
        a, b = (label[(nodes * rng.random(edges + edges // 6) ** (1 / (1 - skew))).astype(np.int64)] for _ in range(2))
        low, high = np.minimum(a, b), np.maximum(a, b)
        keys = np.sort(np.concatenate([keys, (low * nodes + high)[low < high]]))
        keys = keys[np.diff(keys, prepend=-1) > 0]
    surplus = keys.size - edges
    if surplus:
        keys = np.delete(keys, np.argpartition(rng.random(keys.size), surplus)[:surplus])
    return Graph(torch.from_numpy(np.stack(np.divmod(keys, nodes))), nodes)


def grid(side: int) -> Graph:
    node = torch.arange(side * side).view(side, side)
    across, down = (node[:, :-1], node[:, 1:]), (node[:-1], node[1:])
    return Graph.from_edge_index(torch.cat([torch.stack(p).flatten(1) for p in (across, down)], 1), side * side)


SYNTHETIC: dict[str, Callable[[], Graph]] = {
    "tiny": lambda: power_law(60, 120, 0.4),
    "small": lambda: power_law(2_000, 8_000, 0.5),
    "grid-300": lambda: grid(300),
    "power-law-100k": lambda: power_law(100_000, 1_000_000, 0.5),
    "power-law-1m": lambda: power_law(1_000_000, 10_000_000, 0.5),  # a hub of 19k
    "wide-2.4m": lambda: power_law(2_400_000, 60_000_000, 0.3),  # the size of ogbn-products
}


def weighted_pairs(weight: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Endpoints drawn in proportion to ``weight``: expected degrees follow it (Chung and Lu)."""
    total = weight.double().cumsum(0)
    draw = torch.rand(2, count, dtype=torch.float64, device=weight.device, generator=generator) * total[-1]
    return torch.searchsorted(total, draw).clamp_(max=weight.numel() - 1)


def power_law_on(device: str, num_nodes: int, num_edges: int, exponent: float = 0.556) -> Graph:
    """1M nodes and 10M edges give hubs of about 19 thousand neighbours."""
    generator = torch.Generator(device=device).manual_seed(1)
    weight = torch.arange(1, num_nodes + 1, device=device).double() ** -exponent
    weight = weight[torch.randperm(num_nodes, device=device, generator=generator)]  # hubs anywhere
    return Graph.from_edge_index(weighted_pairs(weight, num_edges, generator), num_nodes)


def lognormal_on(device: str, num_nodes: int, num_edges: int) -> Graph:
    """Median degree half of the mean, as in ogbn-products."""
    generator = torch.Generator(device=device).manual_seed(1)
    weight = torch.exp(1.16 * torch.randn(num_nodes, device=device, generator=generator))
    return Graph.from_edge_index(weighted_pairs(weight, num_edges, generator), num_nodes)


def large_on(device: str, name: str) -> Graph:
    """The graphs of the GPU targets, drawn on the device: on the host it takes minutes."""
    if name == "power-law-1m":
        return power_law_on(device, 1_000_000, 10_060_000)
    if name == "wide-2.4m":
        return lognormal_on(device, 2_400_000, 60_600_000)
    raise ValueError(f"name={name!r}; known: {', '.join(LARGE)}")
