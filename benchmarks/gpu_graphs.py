"""Random graphs of the sizes that matter, made on the device itself."""

from __future__ import annotations

import torch
from torch import Tensor

from walksum import Graph, Precision

LARGE = ("power-law-1m", "wide-2.4m")  # 1M nodes, 20M directed edges, hubs of 19 thousand; 2.4M nodes, 121M


def weighted_pairs(weight: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Endpoints drawn in proportion to ``weight``: expected degrees follow it (Chung and Lu)."""
    total = weight.double().cumsum(0)
    draw = torch.rand(2, count, dtype=torch.float64, device=weight.device, generator=generator) * total[-1]
    return torch.searchsorted(total, draw).clamp_(max=weight.numel() - 1)


def power_law(num_nodes: int, num_edges: int, device: str, seed: int, exponent: float = 0.556) -> Graph:
    """1M nodes and 10M edges give hubs of about 19 thousand neighbours."""
    generator = torch.Generator(device=device).manual_seed(seed)
    weight = torch.arange(1, num_nodes + 1, device=device).double() ** -exponent
    weight = weight[torch.randperm(num_nodes, device=device, generator=generator)]  # hubs anywhere
    return Graph.from_edge_index(weighted_pairs(weight, num_edges, generator), num_nodes)


def lognormal(num_nodes: int, num_edges: int, device: str, seed: int, sigma: float = 1.16) -> Graph:
    """Median degree half of the mean, as in ogbn-products."""
    generator = torch.Generator(device=device).manual_seed(seed)
    weight = torch.exp(sigma * torch.randn(num_nodes, device=device, generator=generator))
    return Graph.from_edge_index(weighted_pairs(weight, num_edges, generator), num_nodes)


def uniform(num_nodes: int, num_edges: int, device: str, seed: int) -> Graph:
    generator = torch.Generator(device=device).manual_seed(seed)
    return Graph.from_edge_index(
        torch.randint(num_nodes, (2, num_edges), device=device, generator=generator), num_nodes
    )


def dominant(graph: Graph, margin: float = 1.0) -> Precision:
    """J_ij = -1, J_ii = degree + margin."""
    return Precision(graph, graph.degree.float() + margin, -torch.ones(graph.num_edges, device=graph.device))


def laplacian(graph: Graph, strength: float = 0.99) -> Precision:
    """I - strength D^-1/2 A D^-1/2."""
    root = graph.degree.float().clamp_min(1).rsqrt()
    i, j = graph.edges
    return Precision(graph, torch.ones(graph.num_nodes, device=graph.device), -strength * root[i] * root[j])


def repulsive(graph: Graph, heads: int, seed: int) -> Precision:
    """Random couplings of both signs, dominated by the diagonal."""
    generator = torch.Generator(device=graph.device).manual_seed(seed)
    off = 2 * torch.rand(heads, graph.num_edges, device=graph.device, generator=generator) - 1
    i, j = graph.edges
    diag = torch.full((heads, graph.num_nodes), 0.5, device=graph.device)
    return Precision(graph, diag.index_add_(1, i, off.abs()).index_add_(1, j, off.abs()), off)


def large(name: str, device: str, share: float = 1.0) -> Graph:
    """The graphs of the GPU targets; ``share`` shrinks them."""

    def size(full: float) -> int:
        return max(20, round(full * share))

    if name == "power-law-1m":
        return power_law(size(1e6), size(1.006e7), device, 1)
    if name == "wide-2.4m":
        return lognormal(size(2.4e6), size(6.06e7), device, 1)
    raise ValueError(f"name={name!r}; known: {', '.join(LARGE)}")
