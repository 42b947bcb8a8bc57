"""An implicit graph neural network (Gu et al., 2020): the fixed point of one message-passing layer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from walksum.designs.base import degree_sum, ends
from walksum.graph import Graph
from walksum.paper.models.structure import PerGraph
from walksum.precision import Precision


class IGNN(nn.Module):
    """Z = ReLU(A Z W + X U + b), read out linearly, with A = D^-1/2 (A + I) D^-1/2.

    The absolute row sums of W are kept at most ``kappa`` by scaling rows that exceed it, so that the map is a
    contraction and the fixed point exists. Forward and backward passes iterate to it, at most ``steps`` times; the
    gradient is that of the implicit function theorem.

    Args:
        in_channels, out_channels, hidden_channels: sizes.
        kappa: bound of the rows of W, below 1.
        steps, tol: of the iteration; ``tol`` is the largest change of an entry relative to the largest entry.

    Shapes: x [N, in_channels], edge_index [2, E] -> [N, out_channels].
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden_channels: int = 32,
        kappa: float = 0.95,
        steps: int = 300,
        tol: float = 1e-5,
    ):
        super().__init__()
        self.kappa, self.steps, self.tol = kappa, steps, tol
        self.weight = nn.Parameter(torch.empty(hidden_channels, hidden_channels))
        self.inject, self.read = nn.Linear(in_channels, hidden_channels), nn.Linear(hidden_channels, out_channels)
        self.adjacency = PerGraph(_adjacency)
        nn.init.uniform_(self.weight, -(hidden_channels**-0.5), hidden_channels**-0.5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        A, u = self.adjacency(edge_index, x), self.inject(x)
        W = self.weight * (self.kappa / self.weight.abs().sum(0).clamp_min(self.kappa))

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
