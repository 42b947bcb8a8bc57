"""Continuous Graph Neural Networks (Xhonneux et al., 2020), without and with weights."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import LGConv

from walksum.paper.models.ode import integrate
from walksum.paper.models.structure import Edges, PerGraph, incoming, neighbours

SELF_WEIGHT = 0.555  # s, the published weight of a node's link to itself


def weighted_loop_edges(edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> Edges:
    """A_s = D^-1/2 (A + s I) D^-1/2 of the undirected graph, D the row sums of A + s I."""
    near = neighbours(edge_index, num_nodes)
    scale = (incoming(near, num_nodes, dtype) + SELF_WEIGHT).rsqrt()
    nodes = torch.arange(num_nodes, device=near.device)
    weight = torch.cat([scale[near[0]] * scale[near[1]], SELF_WEIGHT * scale.square()])
    return torch.cat([near, torch.stack([nodes, nodes])], dim=1), weight


def orthonormalised(basis: Tensor, beta: float = 0.5) -> Tensor:
    """(1 + b) U - b U U^T U: one step towards the nearest orthonormal U, quadratic for b = 0.5."""
    return (1 + beta) * basis - beta * basis @ (basis.mT @ basis)


class CGNN(nn.Module):
    """E = Drop(X) W; H(0) = [E | 0]; dH/dt = (sigmoid(a)/2) (A_s - I) H + H_0; Y = Drop(ReLU(H(T)[:d])) W'.

    a is learned, one per node; H_0 is H(0) without its gradient. With weights the field has + H (W - I), where
    W = U diag(clip(m, 0, 1)) U^T. **Call `after_step()` after each optimiser step**: it keeps U orthonormal.

    For T to infinity, without weights, H solves (sigmoid(a)/2) (I - A_s) H = H_0: a linear system on the
    graph. I - A_s is singular, so H grows along its null vector; T cuts that short.

    Self-loops: made here with weight s; those given are dropped and the graph is made undirected.

    Args:
        in_channels, out_channels: features per node, classes.
        num_nodes: of the graph, as each node has a rate of its own.
        hidden_channels, dropout: d and dropout rate.
        weights: the second variant.
        time, method, step: T, and see `ode.integrate`. `evaluations` counts the field's calls in a forward.

    Shapes: x [N, in_channels], edge_index [2, E] -> [N, out_channels].
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        num_nodes: int,
        hidden_channels: int = 64,
        dropout: float = 0.6,
        weights: bool = False,
        time: float = 12.0,
        method: str = "rk4",
        step: float = 1.0,
    ):
        super().__init__()
        self.encode = nn.Linear(in_channels, hidden_channels)
        self.decode = nn.Linear(hidden_channels, out_channels)
        self.propagate = LGConv(normalize=False)
        self.rate = nn.Parameter(torch.empty(num_nodes, 1))
        self.basis = nn.Parameter(torch.empty(2 * hidden_channels, 2 * hidden_channels)) if weights else None
        self.spectrum = nn.Parameter(torch.empty(2 * hidden_channels)) if weights else None
        self.dropout, self.time, self.method, self.step = dropout, time, method, step
        self.evaluations = 0
        self.adjacency = PerGraph(weighted_loop_edges)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.encode.reset_parameters()
        self.decode.reset_parameters()
        nn.init.constant_(self.rate, 0.95)
        if self.basis is not None and self.spectrum is not None:
            nn.init.eye_(self.basis)
            nn.init.ones_(self.spectrum)

    @torch.no_grad()
    def after_step(self) -> None:
        if self.basis is not None:
            self.basis.copy_(orthonormalised(self.basis))

    def drift(self, h: Tensor, edges: Edges) -> Tensor:
        """The linear part of the field."""
        self.evaluations += 1
        out = self.rate.sigmoid() / 2 * (self.propagate(h, *edges) - h)
        if self.basis is None or self.spectrum is None:
            return out
        return out + (h @ (self.basis * self.spectrum.clamp(0, 1))) @ self.basis.mT - h

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if x.size(0) != self.rate.size(0):
            raise ValueError(f"x has {x.size(0)} nodes, the model num_nodes={self.rate.size(0)}; they must agree")
        edges = self.adjacency(edge_index, x)
        self.evaluations = 0
        e = self.encode(F.dropout(x, self.dropout, self.training))
        start = torch.cat([e, torch.zeros_like(e)], dim=-1)
        source = start.detach()
        h = integrate(lambda t, state: self.drift(state, edges) + source, start, self.time, self.method, self.step)
        h = h[..., : e.size(-1)].relu()
        return self.decode(F.dropout(h, self.dropout, self.training))
