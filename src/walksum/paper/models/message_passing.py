"""Graph convolutions (GCN, GraphSAGE, GAT), and many steps of propagation by one matrix (APPNP, GPR-GNN, GCNII).

Self-loops are added where missing; A = D^-1/2 (A + I) D^-1/2.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import APPNP as Propagate
from torch_geometric.nn import GATConv, GCN2Conv, GCNConv, LGConv, SAGEConv

from walksum.nn.mlp import MLP
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


class APPNP(ComparedModel):
    """H = MLP(X); Z_0 = H, Z_{k+1} = (1 - alpha) A Z_k + alpha H; Y = Z_K (Gasteiger et al., 2019).

    K to infinity is PPNP, Y = alpha (I - (1 - alpha) A)^-1 H: with alpha = 0.01 the fixed Laplacian of this
    library up to scale. The published model also drops edges in every step; this one does not.

    Args:
        steps, alpha: K and the restart probability.
    """

    derive = staticmethod(gcn_edges)

    def build(self, inputs: int, hidden: int, classes: int, steps: int = 10, alpha: float = 0.1) -> None:
        self.predict = MLP(inputs, classes, hidden_channels=hidden, dropout=self.dropout)
        self.propagate = Propagate(steps, alpha, normalize=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edges = self.structure(edge_index, x)
        return self.propagate(self.predict(x), *edges)


class GPRGNN(ComparedModel):
    """Y = sum_{k=0..K} gamma_k A^k Drop(MLP(X)), with gamma learned, negative values included (Chien et al., 2021).

    gamma starts as personalised PageRank: alpha (1 - alpha)^k, and (1 - alpha)^K for the last.

    Args:
        steps, alpha: K and the restart probability gamma starts from.
    """

    derive = staticmethod(gcn_edges)

    def build(self, inputs: int, hidden: int, classes: int, steps: int = 10, alpha: float = 0.1) -> None:
        self.predict = MLP(inputs, classes, hidden_channels=hidden, dropout=self.dropout)
        self.propagate = LGConv(normalize=False)
        self.gamma, self.alpha = nn.Parameter(torch.empty(steps + 1)), alpha
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        steps = self.gamma.numel() - 1
        pagerank = self.alpha * (1 - self.alpha) ** torch.arange(steps + 1.0)
        pagerank[-1] = (1 - self.alpha) ** steps
        with torch.no_grad():
            self.gamma.copy_(pagerank)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edges = self.structure(edge_index, x)
        h = self.drop(self.predict(x))
        out = self.gamma[0] * h
        for k in range(1, self.gamma.size(0)):
            h = self.propagate(h, *edges)
            out = out + self.gamma[k] * h
        return out


class GCNII(ComparedModel):
    """H_0 = ReLU(X W); H_{l+1} = ReLU(S ((1 - b_l) I + b_l W_l)), S = (1 - alpha) A H_l + alpha H_0 (Chen et al. 2020).

    b_l = log(theta / l + 1); dropout before every W; a linear read-out.

    Args:
        num_layers: depth; 64, 32 and 16 were published for Cora, CiteSeer and PubMed.
        alpha, theta: share of H_0, and how fast the W_l fade to the identity.
    """

    derive = staticmethod(gcn_edges)

    def build(
        self, inputs: int, hidden: int, classes: int, num_layers: int = 16, alpha: float = 0.1, theta: float = 0.5
    ) -> None:
        self.embed = nn.Linear(inputs, hidden)
        depths = range(1, num_layers + 1)
        self.layers = nn.ModuleList(GCN2Conv(hidden, alpha, theta, depth, normalize=False) for depth in depths)
        self.readout = nn.Linear(hidden, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edges = self.structure(edge_index, x)
        h = first = self.embed(self.drop(x)).relu()
        for layer in self.layers:
            h = layer(self.drop(h), first, *edges).relu()
        return self.readout(self.drop(h))
