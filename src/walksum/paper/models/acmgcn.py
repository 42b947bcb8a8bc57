"""ACM-GCN: low-pass, high-pass and identity channels, mixed node by node (Luan et al., 2022)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import LGConv

from walksum.paper.models.structure import Edges, PerGraph, random_walk_edges


class ACMLayer(nn.Module):
    """H_L = ReLU(A X W_L), H_H = ReLU((I - A) X W_H), H_I = ReLU(X W_I); out = 3 sum_c m_c H_c.

    m = softmax(sigmoid([H_L a_L, H_H a_H, H_I a_I]) M / 3), one weight a node and channel.
    """

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.channels = nn.ModuleList(nn.Linear(in_channels, out_channels, bias=False) for _ in range(3))
        self.scores = nn.ModuleList(nn.Linear(out_channels, 1, bias=False) for _ in range(3))
        self.mixer = nn.Linear(3, 3, bias=False)
        self.propagate = LGConv(normalize=False)

    def reset_parameters(self) -> None:
        for part in (*self.channels, *self.scores, self.mixer):
            part.reset_parameters()

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


class ACMGCN(nn.Module):
    """Two ACM layers with A = D^-1 (A + I), dropout before each.

    The channels' ReLU comes before the mixing, in the last layer too, as published.

    Self-loops: added here where missing.

    Args:
        in_channels, out_channels: features per node, classes.
        hidden_channels, dropout: width and dropout rate.

    Shapes: x [N, in_channels], edge_index [2, E] -> [N, out_channels].
    """

    def __init__(self, in_channels: int, out_channels: int, *, hidden_channels: int = 64, dropout: float = 0.6):
        super().__init__()
        self.first = ACMLayer(in_channels, hidden_channels)
        self.second = ACMLayer(hidden_channels, out_channels)
        self.dropout = dropout
        self.adjacency = PerGraph(random_walk_edges)

    def reset_parameters(self) -> None:
        self.first.reset_parameters()
        self.second.reset_parameters()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edges = self.adjacency(edge_index, x)
        x = self.first(F.dropout(x, self.dropout, self.training), edges).relu()
        return self.second(F.dropout(x, self.dropout, self.training), edges)
