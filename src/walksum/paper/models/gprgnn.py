"""GPR-GNN: generalised PageRank with learned weights (Chien et al., 2021)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import LGConv

from walksum.nn.mlp import MLP
from walksum.paper.models.structure import PerGraph, gcn_edges


class GPRGNN(nn.Module):
    """Y = sum_{k=0..K} gamma_k A^k MLP(X), with gamma learned, negative values included.

    gamma starts as personalised PageRank: alpha (1 - alpha)^k, and (1 - alpha)^K for the last.

    Self-loops: added here where missing.

    Args:
        in_channels, out_channels: features per node, classes.
        hidden_channels, dropout: of the MLP; the same dropout is applied to its output.
        steps, alpha: K and the restart probability gamma starts from.

    Shapes: x [N, in_channels], edge_index [2, E] -> [N, out_channels].
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden_channels: int = 64,
        dropout: float = 0.6,
        steps: int = 10,
        alpha: float = 0.1,
    ):
        super().__init__()
        self.predict = MLP(in_channels, out_channels, hidden_channels=hidden_channels, dropout=dropout)
        self.propagate = LGConv(normalize=False)
        self.gamma = nn.Parameter(torch.empty(steps + 1))
        self.alpha = alpha
        self.dropout = dropout
        self.adjacency = PerGraph(gcn_edges)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.predict.reset_parameters()
        steps = self.gamma.numel() - 1
        pagerank = self.alpha * (1 - self.alpha) ** torch.arange(steps + 1.0)
        pagerank[-1] = (1 - self.alpha) ** steps
        with torch.no_grad():
            self.gamma.copy_(pagerank)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edges, weight = self.adjacency(edge_index, x)
        h = F.dropout(self.predict(x), self.dropout, self.training)
        out = self.gamma[0] * h
        for k in range(1, self.gamma.size(0)):
            h = self.propagate(h, edges, weight)
            out = out + self.gamma[k] * h
        return out
