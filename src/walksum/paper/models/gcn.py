"""Graph Convolutional Network (Kipf and Welling, 2017)."""

import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GCNConv

from walksum.paper.models.structure import ComparedModel, PerGraph, gcn_edges


class GCN(ComparedModel):
    """Y = A ReLU(A X W_1) W_2 with A = D^-1/2 (A + I) D^-1/2, dropout before each W.

    Self-loops: added here where missing.

    Args:
        in_channels, out_channels: features per node, classes.
        hidden_channels, dropout: width and dropout rate.

    Shapes: x [N, in_channels], edge_index [2, E] -> [N, out_channels].
    """

    def __init__(self, in_channels: int, out_channels: int, *, hidden_channels: int = 64, dropout: float = 0.6):
        super().__init__()
        self.first = GCNConv(in_channels, hidden_channels, normalize=False)
        self.second = GCNConv(hidden_channels, out_channels, normalize=False)
        self.dropout = dropout
        self.adjacency = PerGraph(gcn_edges)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edges, weight = self.adjacency(edge_index, x)
        x = F.dropout(x, self.dropout, self.training)
        x = self.first(x, edges, weight).relu()
        x = F.dropout(x, self.dropout, self.training)
        return self.second(x, edges, weight)
