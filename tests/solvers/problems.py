"""Small precision matrices of every shape, and their dense float64 solutions."""

from __future__ import annotations

import torch
from torch import Tensor

import walksum as ws


def path(n: int = 12) -> ws.Graph:
    return ws.Graph.from_edge_index(torch.stack([torch.arange(n - 1), torch.arange(1, n)]), num_nodes=n)


def star(n: int = 40) -> ws.Graph:
    return ws.Graph.from_edge_index(torch.stack([torch.zeros(n - 1, dtype=torch.long), torch.arange(1, n)]))


def grid(n: int = 7) -> ws.Graph:
    index = torch.arange(n * n).view(n, n)
    pairs = [(index[:, :-1], index[:, 1:]), (index[:-1], index[1:])]
    return ws.Graph.from_edge_index(torch.cat([torch.stack([a.flatten(), b.flatten()]) for a, b in pairs], 1))


def complete(n: int = 9) -> ws.Graph:
    return ws.Graph.from_edge_index(torch.combinations(torch.arange(n)).T)


def sparse(n: int = 60, m: int = 120, seed: int = 0) -> ws.Graph:
    generator = torch.Generator().manual_seed(seed)
    return ws.Graph.from_edge_index(torch.randint(0, n, (2, m), generator=generator), num_nodes=n)


def scattered() -> ws.Graph:
    """Two components and isolated nodes at the begin, in the middle and at the end."""
    return ws.Graph.from_edge_index(torch.tensor([[1, 2, 3, 6, 7], [2, 3, 1, 7, 8]]), num_nodes=10)


def empty(n: int = 5) -> ws.Graph:
    return ws.Graph.from_edge_index(torch.empty(2, 0, dtype=torch.long), num_nodes=n)


GALLERY = {
    "path": path,
    "star": star,
    "grid": grid,
    "complete": complete,
    "sparse": sparse,
    "scattered": scattered,
    "single": lambda: empty(1),
    "edgeless": empty,
}


def dominant(graph: ws.Graph, heads: int = 1, dtype: torch.dtype = torch.float64, seed: int = 0) -> ws.Precision:
    """Random couplings of both signs, diagonally dominant, so walk-summable."""
    generator = torch.Generator().manual_seed(seed)
    off = torch.randn(heads, graph.num_edges, generator=generator, dtype=torch.float64)
    i, j = graph.edges
    diag = torch.zeros(heads, graph.num_nodes, dtype=torch.float64)
    diag = diag.index_add(1, i, off.abs()).index_add(1, j, off.abs())
    diag = diag + 0.3 + torch.rand(diag.shape, generator=generator, dtype=torch.float64)
    return ws.Precision(graph, diag.to(dtype), off.to(dtype))


def unit_couplings(graph: ws.Graph, dtype: torch.dtype = torch.float64) -> ws.Precision:
    """J_ij = -1, J_ii = 1 + degree."""
    return ws.Precision(graph, 1 + graph.degree.to(dtype), -torch.ones(graph.num_edges, dtype=dtype))


def frustrated(n: int = 6, coupling: float = 0.45) -> ws.Precision:
    """Positive definite but not walk-summable: radius coupling * (n - 1) > 1, smallest eigenvalue 1 - coupling."""
    graph = complete(n)
    return ws.Precision(graph, torch.ones(n).double(), torch.full((graph.num_edges,), coupling).double())


def indefinite() -> ws.Precision:
    graph = path(4)
    return ws.Precision(graph, torch.ones(4).double(), torch.full((3,), 5.0).double())


def normal(J: ws.Precision, columns: int, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(J.heads, J.num_nodes, columns, generator=generator, dtype=torch.float64).to(J.dtype)
