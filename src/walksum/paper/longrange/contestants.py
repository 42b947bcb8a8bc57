"""The contestants of the long-range bench; a layer of message passing is given to them for each hop, up to a cap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GAT, GCN

from walksum._checks import check_choice
from walksum.designs.base import degree_sum, ends
from walksum.graph import Graph
from walksum.nn import GLT, PredictThenPropagate, Propagate
from walksum.paper.models.message_passing import APPNP, GCNII
from walksum.paper.models.structure import PerGraph, gcn_edges, with_loops
from walksum.precision import Precision

KAPPA = 0.95  # below 1


class IGNN(nn.Module):
    """Z = ReLU(A Z W + X U + b), read out linearly, with A = D^-1/2 (A + I) D^-1/2.

    The absolute row sums of W are kept at most ``KAPPA`` by scaling rows that exceed it, so that the map is a
    contraction and the fixed point exists. Forward and backward passes iterate to it, at most ``steps`` times; the
    gradient is that of the implicit function theorem.

    Args:
        in_channels, out_channels, hidden_channels: sizes.
        steps, tol: of the iteration; ``tol`` is the largest change of an entry relative to the largest entry.

    Shapes: x [N, in_channels], edge_index [2, E] -> [N, out_channels].
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden_channels: int = 32,
        steps: int = 300,
        tol: float = 1e-5,
    ):
        super().__init__()
        self.steps, self.tol = steps, tol
        self.weight = nn.Parameter(torch.empty(hidden_channels, hidden_channels))
        self.inject, self.read = nn.Linear(in_channels, hidden_channels), nn.Linear(hidden_channels, out_channels)
        self.adjacency = PerGraph(_adjacency)
        nn.init.uniform_(self.weight, -(hidden_channels**-0.5), hidden_channels**-0.5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        A, u = self.adjacency(edge_index, x), self.inject(x)
        W = self.weight * (KAPPA / self.weight.abs().sum(0).clamp_min(KAPPA))

        def layer(z: Tensor) -> Tensor:
            return (A @ (z @ W) + u).relu()

        with torch.no_grad():
            z = self._fixed_point(layer, torch.zeros_like(u))
        z = layer(z)
        if z.requires_grad:
            at = z.detach().requires_grad_()
            once = layer(at)

            def adjoint(gradient: Tensor) -> Tensor:
                """g with g = gradient + g dlayer/dz: the implicit function theorem."""
                return self._fixed_point(
                    lambda g: torch.autograd.grad(once, at, g, retain_graph=True)[0] + gradient, gradient
                )

            z.register_hook(adjoint)
        return self.read(z)

    def _fixed_point(self, layer: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
        for _ in range(self.steps):
            last, z = z, layer(z)
            if (z - last).abs().max() <= self.tol * z.abs().max():
                break
        return z


def _adjacency(edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> Precision:
    """D^-1/2 (A + I) D^-1/2, as one of our symmetric matrices: their products are quick."""
    graph = Graph.from_edge_index(edge_index, num_nodes)
    degree = 1 + degree_sum(graph, torch.ones(1, graph.num_edges, dtype=dtype))
    root_i, root_j = ends(graph, degree.sqrt())
    return Precision(graph, 1 / degree, 1 / root_i / root_j)


WIDTH = 32
CAP = 32  # layers of message passing at most


class OneLayer(nn.Module):
    """One :class:`walksum.Propagate` without weights, each node's row divided by its largest entry, a linear read-out.

    What arrives is small, as one node's features are spread over many; only its direction says the class.
    """

    def __init__(self, in_channels: int, out_channels: int, reach: float):
        super().__init__()
        self.mix, self.read = Propagate(reach=reach), nn.Linear(in_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        z = self.mix(x, edge_index)
        return self.read(z / z.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(z.dtype).tiny))


class Stack(nn.Module):
    """GCN or GAT of any depth: layers with ReLU after each, a linear read-out."""

    def __init__(self, kind: str, in_channels: int, out_channels: int, num_layers: int):
        super().__init__()
        sizes: Any = {"num_layers": num_layers, "out_channels": out_channels, "jk": "last"}
        if kind == "gcn":
            self.model = GCN(in_channels, WIDTH, normalize=False, **sizes)
            self.edges: PerGraph[tuple[Tensor, ...]] = PerGraph(gcn_edges)
        else:
            self.model = GAT(in_channels, WIDTH, heads=4, add_self_loops=False, **sizes)
            self.edges = PerGraph(_looped)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.model(x, *self.edges(edge_index, x))


def _looped(edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> tuple[Tensor]:
    return (with_loops(edge_index, num_nodes, dtype),)


Make = Callable[[int, int, int], nn.Module]  # in_channels, out_channels, hops or layers

OURS: dict[str, Make] = {
    "Propagate(reach)": OneLayer,
    "PredictThenPropagate": lambda a, b, hops: PredictThenPropagate(a, WIDTH, b, dropout=0.0),
    "GLT(reach)": lambda a, b, hops: GLT(a, WIDTH, 1, b, learned=False, reach=hops, dropout=0.0),
    "GLT": lambda a, b, hops: GLT(a, WIDTH, 2, b, dropout=0.0),
}
IMPLICIT: dict[str, Make] = {"IGNN": lambda a, b, hops: IGNN(a, b, WIDTH)}
MESSAGE_PASSING: dict[str, Make] = {
    "GCN": lambda a, b, layers: Stack("gcn", a, b, layers),
    "GAT": lambda a, b, layers: Stack("gat", a, b, layers),
    "APPNP": lambda a, b, layers: APPNP(a, b, hidden_channels=WIDTH, dropout=0.0, steps=layers),
    "GCNII": lambda a, b, layers: GCNII(a, b, hidden_channels=WIDTH, dropout=0.0, num_layers=layers),
}
MODELS = {**OURS, **IMPLICIT, **MESSAGE_PASSING}


def make_model(name: str, in_channels: int, out_channels: int, hops: int) -> nn.Module:
    """A contestant; message passing gets one layer for each hop up to ``CAP``, ``reach`` is the number of hops."""
    check_choice("model", name, tuple(MODELS))
    return MODELS[name](in_channels, out_channels, min(hops, CAP) if name in MESSAGE_PASSING else hops)
