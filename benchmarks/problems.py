"""What is solved: graphs, and the values of J of the six designs on them.

The values come from formulas with the designs' constants rather than from trained layers, so that a problem
needs a seed and nothing else. Learned designs are taken as they stand before training: random projections.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as nnf
from torch import Tensor

import walksum as ws
from benchmarks.graphs import SYNTHETIC

REAL = ("texas", "cora", "citeseer", "pubmed")  # read from $WALKSUM_DATA
FEATURES = 16  # of a node of a synthetic graph


@dataclass(frozen=True)
class Problem:
    """One J, a right-hand side h and an upstream gradient dL/dmu, all float32."""

    graph_name: str
    design: str
    graph: ws.Graph
    diag: Tensor  # [H, N]
    off: Tensor  # [H, E]
    h: Tensor  # [H, N, F]
    grad: Tensor  # [H, N, F]

    @property
    def heads(self) -> int:
        return self.diag.size(0)

    @property
    def columns(self) -> int:
        return self.h.size(2)

    def take_columns(self, count: int) -> Problem:
        return replace(self, h=self.h[..., :count].contiguous(), grad=self.grad[..., :count].contiguous())


def available() -> list[str]:
    return [*(REAL if os.environ.get("WALKSUM_DATA") else ()), *SYNTHETIC]


def load(name: str) -> Any:
    """A published graph as a PyG ``Data``."""
    from walksum.data.datasets import load as load_dataset

    return load_dataset(name)


def load_graph(name: str) -> tuple[ws.Graph, Tensor]:
    """Graph and node features ``[N, D]``."""
    if name in REAL:
        data = load(name)
        return ws.Graph.from_edge_index(data.edge_index, data.num_nodes), data.x.float()
    if name not in SYNTHETIC:
        raise ValueError(f"graph={name!r}; known: {', '.join([*REAL, *SYNTHETIC])}")
    graph = SYNTHETIC[name]()
    return graph, torch.randn(graph.num_nodes, FEATURES, generator=torch.Generator().manual_seed(1))


def make(graph_name: str, graph: ws.Graph, x: Tensor, design: str, heads: int, columns: int) -> Problem:
    """A problem on the device of ``graph``; ``columns`` is the number in each head."""
    if design not in DESIGNS:
        raise ValueError(f"design={design!r}; known: {', '.join(DESIGNS)}")
    random = torch.Generator().manual_seed(2)
    with torch.no_grad():
        diag, off = DESIGNS[design](graph, x.to(graph.device), heads, random)
    h, grad = (torch.randn(heads, graph.num_nodes, columns, generator=random).to(graph.device) for _ in range(2))
    return Problem(graph_name, design, graph, diag.contiguous(), off.contiguous(), h, grad)


# ---- the six designs: graph, features, heads -> diag [H, N], off [H, E] ----


def _project(x: Tensor, heads: int, width: int, random: torch.Generator) -> Tensor:
    """An untrained Linear: ``[N, D] -> [H, N, width]``."""
    weight = (torch.rand(x.size(1), heads * width, generator=random) * 2 - 1) / x.size(1) ** 0.5
    return (x @ weight.to(x.device)).view(-1, heads, width).transpose(0, 1)


def _cosine(graph: ws.Graph, x: Tensor) -> Tensor:
    i, j = graph.edges
    unit = nnf.normalize(x, dim=-1)
    return torch.linalg.vecdot(unit[:, i], unit[:, j])


def _row_sum(graph: ws.Graph, at_i: Tensor, at_j: Tensor) -> Tensor:
    """What every edge adds to its two ends, ``[H, N]``; 1 for a node without edges."""
    i, j = graph.edges
    total = at_i.new_zeros(at_i.size(0), graph.num_nodes).index_add(1, i, at_i).index_add(1, j, at_j)
    return torch.where(graph.degree > 0, total, torch.ones_like(total))


def _normalised(graph: ws.Graph, diag: Tensor, off: Tensor) -> tuple[Tensor, Tensor]:
    J = ws.Precision(graph, diag, off).normalised()
    return J.diag, J.off


def _ones(graph: ws.Graph, heads: int) -> Tensor:
    return torch.ones(heads, graph.num_edges, device=graph.device)


def fixed_pairwise(graph, x, heads, random):
    one = _ones(graph, heads)
    return _normalised(graph, _row_sum(graph, one, one), 0.99 * _cosine(graph, x.unsqueeze(0)) * one)


def fixed_dominant(graph, x, heads, random):
    return (1.0 + graph.degree).float().repeat(heads, 1), -_ones(graph, heads)


def fixed_laplacian(graph, x, heads, random):
    one = _ones(graph, heads)
    return _normalised(graph, _row_sum(graph, one, one), -0.99 * one)


def learned_pairwise(graph, x, heads, random):
    i, j = graph.edges
    h = _project(x, heads, 64 // heads, random)
    own, other = _project(h.transpose(0, 1).flatten(1), heads, 2, random).unbind(-1)
    a, c = (nnf.softplus(own[:, k] + other[:, m]) + 1e-8 for k, m in ((i, j), (j, i)))
    return _normalised(graph, _row_sum(graph, a, c), 0.99 * (a * c).sqrt() * _cosine(graph, h))


def learned_dominant(graph, x, heads, random):
    off = _cosine(graph, _project(x, heads, 64 // heads, random))
    self_precision = nnf.softplus(_project(x, heads, 1, random).squeeze(-1)) + 1e-8
    return _normalised(graph, _row_sum(graph, off.abs(), off.abs()) + self_precision, off)


def learned_laplacian(graph, x, heads, random):
    i, j = graph.edges
    s = _project(x, heads, 64 // heads, random)
    weight = torch.exp(-(s[:, i] - s[:, j]).square().sum(-1) / 2)
    degree = _row_sum(graph, weight, weight)
    strength = torch.sigmoid(torch.tensor(2.0))  # the global factor, where training starts
    off = -0.99 * strength * weight / (degree[:, i] * degree[:, j]).sqrt()
    return _normalised(graph, 1 + 0.1 * torch.sigmoid(_project(x, heads, 1, random).squeeze(-1)), off)


DESIGNS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "F-PN": fixed_pairwise,
    "F-DD": fixed_dominant,
    "F-Lap": fixed_laplacian,
    "L-PN": learned_pairwise,
    "L-DD": learned_dominant,
    "L-Lap": learned_laplacian,
}
