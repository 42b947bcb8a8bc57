"""Models for neighbours of other classes: H2GCN (Zhu et al., 2020) and ACM-GCN (Luan et al., 2022)."""

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch_geometric.nn import LGConv

from walksum.paper.models.structure import ComparedModel, Edges, neighbours, random_walk_edges, symmetric_edges


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
    activation between rounds. Self-loops are removed and the graph is made undirected: keeping the ego apart is the
    point of the model.

    Args:
        rounds: R; H_r is 2^r times as wide as H_0.
    """

    derive = staticmethod(one_and_two_hops)

    def build(self, inputs: int, hidden: int, classes: int, rounds: int = 2) -> None:
        self.embed = nn.Linear(inputs, hidden)
        self.readout = nn.Linear(hidden * (2 ** (rounds + 1) - 1), classes)
        self.propagate, self.rounds = LGConv(normalize=False), rounds

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hops = self.structure(edge_index, x)
        states = [self.embed(self.drop(x)).relu()]
        for _ in range(self.rounds):
            states.append(torch.cat([self.propagate(states[-1], *edges) for edges in hops], dim=-1))
        return self.readout(self.drop(torch.cat(states, dim=-1)))


class ACMLayer(nn.Module):
    """H_L = ReLU(A X W_L), H_H = ReLU((I - A) X W_H), H_I = ReLU(X W_I); out = 3 sum_c m_c H_c.

    m = softmax(sigmoid([H_L a_L, H_H a_H, H_I a_I]) M / 3), one weight per node and channel.
    """

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.channels = nn.ModuleList(nn.Linear(in_channels, out_channels, bias=False) for _ in range(3))
        self.scores = nn.ModuleList(nn.Linear(out_channels, 1, bias=False) for _ in range(3))
        self.mixer = nn.Linear(3, 3, bias=False)
        self.propagate = LGConv(normalize=False)

    def filtered(self, x: Tensor, edges: Edges) -> list[Tensor]:
        low, high, same = (channel(x) for channel in self.channels)
        parts = (self.propagate(low, *edges), high - self.propagate(high, *edges), same)
        return [part.relu() for part in parts]

    def mix(self, parts: list[Tensor]) -> Tensor:
        """The weights m, [N, 3]."""
        scores = [score(part) for score, part in zip(self.scores, parts, strict=True)]
        return (self.mixer(torch.cat(scores, dim=-1).sigmoid()) / 3).softmax(dim=-1)

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        parts = self.filtered(x, edges)
        return 3 * (self.mix(parts).unsqueeze(-2) * torch.stack(parts, dim=-1)).sum(-1)


class ACMGCN(ComparedModel):
    """Two ACM layers with A = D^-1 (A + I), dropout before each.

    The channels' ReLU comes before the mixing, in the last layer too, as published. Self-loops are added where missing.
    """

    derive = staticmethod(random_walk_edges)

    def build(self, inputs: int, hidden: int, classes: int) -> None:
        self.first, self.second = ACMLayer(inputs, hidden), ACMLayer(hidden, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edges = self.structure(edge_index, x)
        return self.second(self.drop(self.first(self.drop(x), edges).relu()), edges)
