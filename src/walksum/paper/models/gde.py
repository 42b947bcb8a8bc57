"""Graph neural ordinary differential equations (Poli et al., 2019)."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GCNConv

from walksum.paper.models.ode import integrate
from walksum.paper.models.structure import ComparedModel, PerGraph, gcn_edges


class GDE(ComparedModel):
    """H(0) = ReLU(GCN(X)); dH/dt = GCN(softplus(GCN(H))) for t in [0, 1]; Y = GCN(H(1)).

    One rk4 step is four evaluations of the field. Dropout inside the field uses one mask per forward: with a
    new one in every evaluation the field would be noise, and an adaptive solver would chase it.

    Self-loops: added here where missing.

    Args:
        in_channels, out_channels: features per node, classes.
        hidden_channels, dropout: width and dropout rate.
        method, step: of `ode.integrate`. After a forward, `evaluations` says how often the field was called.

    Shapes: x [N, in_channels], edge_index [2, E] -> [N, out_channels].
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden_channels: int = 64,
        dropout: float = 0.6,
        method: str = "rk4",
        step: float = 1.0,
    ):
        super().__init__()
        self.encode = GCNConv(in_channels, hidden_channels, normalize=False)
        self.inner = GCNConv(hidden_channels, hidden_channels, normalize=False)
        self.outer = GCNConv(hidden_channels, hidden_channels, normalize=False)
        self.decode = GCNConv(hidden_channels, out_channels, normalize=False)
        self.dropout, self.method, self.step = dropout, method, step
        self.evaluations = 0
        self.adjacency = PerGraph(gcn_edges)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edges, weight = self.adjacency(edge_index, x)
        self.evaluations = 0
        h = self.encode(F.dropout(x, self.dropout, self.training), edges, weight).relu()
        inner_mask, outer_mask = (F.dropout(torch.ones_like(h), self.dropout, self.training) for _ in "io")

        def field(t: Tensor, state: Tensor) -> Tensor:
            self.evaluations += 1
            hidden = F.softplus(self.inner(inner_mask * state, edges, weight))
            return self.outer(outer_mask * hidden, edges, weight)

        h = integrate(field, h, 1.0, self.method, self.step)
        return self.decode(F.dropout(h, self.dropout, self.training), edges, weight)
