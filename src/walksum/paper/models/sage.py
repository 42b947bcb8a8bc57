"""GraphSAGE with the mean aggregator (Hamilton et al., 2017)."""

import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import SAGEConv

from walksum.paper.models.structure import ComparedModel, PerGraph, with_loops


class GraphSAGE(ComparedModel):
    """h'_i = W_1 mean_{j in N(i) + i} h_j + W_2 h_i, twice, ReLU between, dropout before each layer.

    Self-loops: added here where missing, as the paper has them for every baseline; so a node is in its own
    mean besides the root term.

    Args:
        in_channels, out_channels: features per node, classes.
        hidden_channels, dropout: width and dropout rate.

    Shapes: x [N, in_channels], edge_index [2, E] -> [N, out_channels].
    """

    def __init__(self, in_channels: int, out_channels: int, *, hidden_channels: int = 64, dropout: float = 0.6):
        super().__init__()
        self.first = SAGEConv(in_channels, hidden_channels)
        self.second = SAGEConv(hidden_channels, out_channels)
        self.dropout = dropout
        self.edges = PerGraph(with_loops)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edges = self.edges(edge_index, x)
        x = F.dropout(x, self.dropout, self.training)
        x = self.first(x, edges).relu()
        x = F.dropout(x, self.dropout, self.training)
        return self.second(x, edges)
