"""Graph convolutions: GCN (Kipf and Welling, 2017), GraphSAGE (Hamilton et al., 2017), GAT (Veličković et al., 2018).

Self-loops are added where missing.
"""

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

from walksum.paper.models.structure import ComparedModel, gcn_edges, with_loops


class GCN(ComparedModel):
    """Y = A ReLU(A X W_1) W_2 with A = D^-1/2 (A + I) D^-1/2, dropout before each W."""

    derive = staticmethod(gcn_edges)

    def build(self, inputs: int, hidden: int, classes: int) -> None:
        self.first = GCNConv(inputs, hidden, normalize=False)
        self.second = GCNConv(hidden, classes, normalize=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edges = self.structure(edge_index, x)
        return self.second(self.drop(self.first(self.drop(x), *edges).relu()), *edges)


class GraphSAGE(ComparedModel):
    """h'_i = W_1 mean_{j in N(i) + i} h_j + W_2 h_i, twice, ReLU between, dropout before each layer.

    The paper has self-loops for every baseline; so a node is in its own mean besides the root term.
    """

    derive = staticmethod(with_loops)

    def build(self, inputs: int, hidden: int, classes: int) -> None:
        self.first, self.second = SAGEConv(inputs, hidden), SAGEConv(hidden, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edges = self.structure(edge_index, x)
        return self.second(self.drop(self.first(self.drop(x), edges).relu()), edges)


class GAT(ComparedModel):
    """Eight heads of width 8, ELU, one head of width 64, ELU, a linear read-out.

    The second layer is as wide as the first, as the paper sets it for every head-based model, so the classes
    need a read-out of their own. Dropout is on the input of each layer, on the attention weights and before
    the read-out.

    Args:
        heads: number of heads of the first layer; hidden_channels is a multiple of it.
    """

    derive = staticmethod(with_loops)

    def build(self, inputs: int, hidden: int, classes: int, heads: int = 8) -> None:
        if hidden % heads:
            raise ValueError(f"hidden_channels={hidden} is not a multiple of heads={heads}")
        self.first = GATConv(inputs, hidden // heads, heads, dropout=self.dropout, add_self_loops=False)
        self.second = GATConv(hidden, hidden, 1, dropout=self.dropout, add_self_loops=False)
        self.readout = nn.Linear(hidden, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edges = self.structure(edge_index, x)
        for layer in (self.first, self.second):
            x = F.elu(layer(self.drop(x), edges))
        return self.readout(self.drop(x))
