"""Graph Attention Network (Veličković et al., 2018)."""

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv

from walksum.paper.models.structure import ComparedModel, PerGraph, with_loops


class GAT(ComparedModel):
    """Eight heads of width 8, ELU, one head of width 64, ELU, a linear read-out.

    The second layer is as wide as the first, as the paper sets it for every head-based model, so the classes
    need a read-out of their own. Dropout is on the input of each layer, on the attention weights and before
    the read-out.

    Self-loops: added here where missing, so that a node attends to itself.

    Args:
        in_channels, out_channels: features per node, classes.
        hidden_channels, dropout: width (a multiple of heads) and dropout rate.
        heads: number of heads of the first layer.

    Shapes: x [N, in_channels], edge_index [2, E] -> [N, out_channels].
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden_channels: int = 64,
        dropout: float = 0.6,
        heads: int = 8,
    ):
        super().__init__()
        if hidden_channels % heads:
            raise ValueError(f"hidden_channels={hidden_channels} is not a multiple of heads={heads}")
        width = hidden_channels // heads
        self.first = GATConv(in_channels, width, heads, dropout=dropout, add_self_loops=False)
        self.second = GATConv(hidden_channels, hidden_channels, 1, dropout=dropout, add_self_loops=False)
        self.readout = nn.Linear(hidden_channels, out_channels)
        self.dropout = dropout
        self.edges = PerGraph(with_loops)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edges = self.edges(edge_index, x)
        for layer in (self.first, self.second):
            x = F.dropout(x, self.dropout, self.training)
            x = F.elu(layer(x, edges))
        return self.readout(F.dropout(x, self.dropout, self.training))
