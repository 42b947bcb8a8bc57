"""H2GCN: ego, neighbours and two-hop neighbours kept apart (Zhu et al., 2020)."""

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import LGConv

from walksum.paper.models.structure import ComparedModel, Edges, PerGraph, neighbours, symmetric_edges


def one_and_two_hops(edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> tuple[Edges, Edges]:
    """The neighbours at distance exactly 1 and exactly 2, each normalised by its own degrees."""
    near = neighbours(edge_index, num_nodes)
    rows, cols = near.cpu().numpy()
    adjacency = sp.csr_matrix((np.ones(len(rows), dtype=np.int64), (rows, cols)), (num_nodes, num_nodes))
    reach = (adjacency @ adjacency).tocoo()
    row, col = reach.coords
    known = np.isin(row * np.int64(num_nodes) + col, rows * num_nodes + cols)
    beyond = (row != col) & ~known
    far = torch.from_numpy(np.stack([row[beyond], col[beyond]]).astype(np.int64)).to(edge_index.device)
    return symmetric_edges(near, num_nodes, dtype), symmetric_edges(far, num_nodes, dtype)


class H2GCN(ComparedModel):
    """H_0 = ReLU(X W); H_r = [A_1 H_{r-1} | A_2 H_{r-1}]; Y = Drop([H_0 | H_1 | ... | H_R]) W_o.

    A_1 and A_2 are D^-1/2 A D^-1/2 of the neighbours at distance exactly 1 and exactly 2; no weights and no
    activation between rounds.

    Self-loops: removed here, and the graph made undirected; keeping the ego apart is the point of the model.

    Args:
        in_channels, out_channels: features per node, classes.
        hidden_channels, dropout: width of H_0 (H_r is 2^r times as wide) and dropout rate.
        rounds: R.

    Shapes: x [N, in_channels], edge_index [2, E] -> [N, out_channels].
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden_channels: int = 64,
        dropout: float = 0.6,
        rounds: int = 2,
    ):
        super().__init__()
        self.embed = nn.Linear(in_channels, hidden_channels)
        self.readout = nn.Linear(hidden_channels * (2 ** (rounds + 1) - 1), out_channels)
        self.propagate = LGConv(normalize=False)
        self.rounds = rounds
        self.dropout = dropout
        self.hops = PerGraph(one_and_two_hops)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hops = self.hops(edge_index, x)
        states = [self.embed(F.dropout(x, self.dropout, self.training)).relu()]
        for _ in range(self.rounds):
            states.append(torch.cat([self.propagate(states[-1], *edges) for edges in hops], dim=-1))
        return self.readout(F.dropout(torch.cat(states, dim=-1), self.dropout, self.training))
