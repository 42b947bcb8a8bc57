"""Small graphs on which every design and every solver is tried."""

from __future__ import annotations

import itertools

import torch

import walksum as ws


def _graph(pairs, num_nodes: int, weight=None) -> ws.Graph:
    pairs = list(pairs)
    edge_index = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()
    edge_weight = None if weight is None else torch.tensor(weight, dtype=torch.double)
    return ws.Graph.from_edge_index(edge_index, num_nodes, edge_weight)


def path(n: int) -> ws.Graph:
    return _graph(((i, i + 1) for i in range(n - 1)), n)


def star(n: int) -> ws.Graph:
    return _graph(((0, i) for i in range(1, n)), n)


def cycle(n: int) -> ws.Graph:
    return _graph(((i, (i + 1) % n) for i in range(n)), n)


def complete(n: int) -> ws.Graph:
    return _graph(itertools.combinations(range(n), 2), n)


def grid(rows: int, cols: int) -> ws.Graph:
    right = [(r * cols + c, r * cols + c + 1) for r in range(rows) for c in range(cols - 1)]
    down = [(r * cols + c, (r + 1) * cols + c) for r in range(rows - 1) for c in range(cols)]
    return _graph(right + down, rows * cols)


def binary_tree(n: int) -> ws.Graph:
    return _graph((((i - 1) // 2, i) for i in range(1, n)), n)


def islands() -> ws.Graph:
    """A triangle, an edge and two nodes without edges."""
    return _graph([(0, 1), (1, 2), (0, 2), (4, 5)], 7)


def random_graph(n: int, m: int, seed: int = 0) -> ws.Graph:
    generator = torch.Generator().manual_seed(seed)
    return ws.Graph.from_edge_index(torch.randint(n, (2, m), generator=generator), n)


def weighted() -> ws.Graph:
    return _graph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (3, 4)], 6, [0.5, 2.0, 1.0, 0.25, 3.0, 1e-3])


GALLERY: dict[str, ws.Graph] = {
    "path": path(6),
    "star": star(6),
    "cycle": cycle(5),
    "complete": complete(5),
    "grid": grid(3, 3),
    "tree": binary_tree(7),
    "islands": islands(),
    "random": random_graph(8, 16),
    "weighted": weighted(),
    "one node": _graph([], 1),
    "no edges": _graph([], 3),
}

FEATURES, CHANNELS = 5, 2  # of x, and of each head of h


DESIGNS = (
    "fixed pairwise normal",
    "learned pairwise normal",
    "fixed diagonally dominant",
    "learned diagonally dominant",
    "fixed laplacian",
    "learned laplacian",
)


def make_design(name: str, heads: int = 1, **kwargs) -> ws.Design:
    learned, _, kind = name.partition(" ")
    kinds = {
        "fixed": (ws.FixedPairwiseNormal, ws.FixedDiagonallyDominant, ws.FixedLaplacian),
        "learned": (ws.LearnedPairwiseNormal, ws.LearnedDiagonallyDominant, ws.LearnedLaplacian),
    }
    design = kinds[learned][("pairwise normal", "diagonally dominant", "laplacian").index(kind)]
    if learned == "fixed":
        return design(**kwargs)
    return design(CHANNELS if kind == "pairwise normal" else FEATURES, heads, **kwargs)


def problem(graph: ws.Graph, design: str, heads: int, seed: int = 0) -> tuple[ws.Precision, torch.Tensor]:
    """J of ``heads`` heads in float64, and h. A fixed design is given ``heads`` scaled copies of its J."""
    torch.manual_seed(seed)
    module = make_design(design, heads).double()
    x = torch.randn(graph.num_nodes, FEATURES, dtype=torch.double)
    h = torch.randn(heads, graph.num_nodes, CHANNELS, dtype=torch.double)
    with torch.no_grad():
        J = module(graph, x, h)
    if J.heads != heads:
        scale = torch.linspace(1, 2, heads, dtype=torch.double).unsqueeze(1)
        J = ws.Precision(graph, J.diag * scale, J.off * scale)
    return J, h


def dense_solve(J: ws.Precision, h: torch.Tensor) -> torch.Tensor:
    """The oracle: a float64 LU solve of the dense matrix."""
    return torch.linalg.solve(J.to_dense().double(), h.double())
