"""GCNII: a deep GCN with initial residual and identity mapping (Chen et al., 2020)."""

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCN2Conv

from walksum.paper.models.structure import ComparedModel, PerGraph, gcn_edges


class GCNII(ComparedModel):
    """H_0 = ReLU(X W); H_{l+1} = ReLU(S ((1 - b_l) I + b_l W_l)), S = (1 - alpha) A H_l + alpha H_0.

    b_l = log(theta / l + 1); dropout before every W; a linear read-out.

    Self-loops: added here where missing.

    Args:
        in_channels, out_channels: features per node, classes.
        hidden_channels, dropout: width and dropout rate.
        num_layers: depth; 64, 32 and 16 were published for Cora, CiteSeer and PubMed.
        alpha, theta: share of H_0, and how fast the W_l fade to the identity.

    Shapes: x [N, in_channels], edge_index [2, E] -> [N, out_channels].
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden_channels: int = 64,
        dropout: float = 0.6,
        num_layers: int = 16,
        alpha: float = 0.1,
        theta: float = 0.5,
    ):
        super().__init__()
        self.embed = nn.Linear(in_channels, hidden_channels)
        self.layers = nn.ModuleList(
            GCN2Conv(hidden_channels, alpha, theta, layer + 1, normalize=False) for layer in range(num_layers)
        )
        self.readout = nn.Linear(hidden_channels, out_channels)
        self.dropout = dropout
        self.adjacency = PerGraph(gcn_edges)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edges, weight = self.adjacency(edge_index, x)
        first = self.embed(F.dropout(x, self.dropout, self.training)).relu()
        h = first
        for layer in self.layers:
            h = F.dropout(h, self.dropout, self.training)
            h = layer(h, first, edges, weight).relu()
        return self.readout(F.dropout(h, self.dropout, self.training))
