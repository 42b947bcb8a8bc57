"""APPNP: predict, then propagate by personalised PageRank (Gasteiger et al., 2019)."""

from torch import Tensor
from torch_geometric.nn import APPNP as Propagate

from walksum.nn.mlp import MLP
from walksum.paper.models.structure import ComparedModel, PerGraph, gcn_edges


class APPNP(ComparedModel):
    """H = MLP(X); Z_0 = H, Z_{k+1} = (1 - alpha) A Z_k + alpha H; Y = Z_K.

    K to infinity is PPNP, Y = alpha (I - (1 - alpha) A)^-1 H: with alpha = 0.01 the fixed Laplacian of this
    library up to scale. The published model also drops edges in every step; this one does not.

    Self-loops: added here where missing.

    Args:
        in_channels, out_channels: features per node, classes.
        hidden_channels, dropout: of the MLP.
        steps, alpha: K and the restart probability.

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
        self.propagate = Propagate(steps, alpha, normalize=False)
        self.adjacency = PerGraph(gcn_edges)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edges, weight = self.adjacency(edge_index, x)
        return self.propagate(self.predict(x), edges, weight)
