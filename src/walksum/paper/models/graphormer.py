"""Graphormer (Ying et al., 2021), adapted from graphs to nodes."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from walksum.paper.models.attention import MAX_SCORES, attend
from walksum.paper.models.distance import NUM_BUCKETS, distance_buckets
from walksum.paper.models.structure import PerGraph, incoming, neighbours

MAX_DEGREE = 511  # larger degrees share this row of the tables


@dataclass(frozen=True)
class Geometry:
    """degree [N], clamped to the tables; bucket [N, N], the distances as table rows."""

    degree: Tensor
    bucket: Tensor


def geometry(edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> Geometry:
    near = neighbours(edge_index, num_nodes)
    degree = incoming(near, num_nodes, torch.float32).long().clamp(max=MAX_DEGREE)
    return Geometry(degree, distance_buckets(near, num_nodes))


class GraphormerLayer(nn.Module):
    """H' = H + Drop(MHA(LN(H))); H' + Drop(W_2 GELU(W_1 LN(H'))): pre-norm, FFN as wide as the state."""

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.wide = nn.Linear(width, width)
        self.narrow = nn.Linear(width, width)
        self.heads, self.dropout = heads, dropout

    def forward(self, h: Tensor, table: Tensor, bucket: Tensor, max_scores: int) -> Tensor:
        parts = self.query_key_value(self.norms[0](h)).unflatten(-1, (3, self.heads, -1))
        query, key, value = parts.movedim(-4, -2).unbind(-4)  # [3, H, N, d] -> three of [H, N, d]
        mixed = attend(query, key, value, table[: self.heads], bucket, max_scores)
        out = self.out(mixed.transpose(-3, -2).flatten(-2))
        h = h + F.dropout(out, self.dropout, self.training)
        out = self.narrow(F.gelu(self.wide(self.norms[1](h))))
        return h + F.dropout(out, self.dropout, self.training)


class Graphormer(nn.Module):
    """H = X W + z_in[deg] + z_out[deg]; layers with scores q_i k_j / sqrt(d) + b[distance(i, j)]; LN; Linear.

    b is one scalar per head and distance, shared by all layers: a layer with fewer heads uses the first rows.
    Without edge features the edge encoding is a function of the distance alone, which b already is, so it is
    left out. So is the virtual node: nodes are classified, not graphs.

    Self-loops: ignored, and the graph made undirected, for degrees and distances; a node attends to itself at
    distance 0.

    Args:
        in_channels, out_channels: features per node, classes.
        hidden_channels, dropout: width (a multiple of the heads) and dropout rate.
        heads: one number per layer.
        max_scores: attention scores (heads x queries x nodes) held at once where attention is not fused; beyond it
            queries are chunked and recomputed in the backward pass, which torch.func transforms do not support.

    Shapes: x [N, in_channels], edge_index [2, E] -> [N, out_channels].
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden_channels: int = 64,
        dropout: float = 0.6,
        heads: tuple[int, ...] = (8, 1),
        max_scores: int = MAX_SCORES,
    ):
        super().__init__()
        if any(hidden_channels % count for count in heads):
            raise ValueError(f"hidden_channels={hidden_channels} is not a multiple of every one of heads={heads}")
        self.embed = nn.Linear(in_channels, hidden_channels)
        self.degree_in = nn.Embedding(MAX_DEGREE + 1, hidden_channels)
        self.degree_out = nn.Embedding(MAX_DEGREE + 1, hidden_channels)
        self.distance = nn.Parameter(torch.empty(max(heads), NUM_BUCKETS))
        self.layers = nn.ModuleList(GraphormerLayer(hidden_channels, count, dropout) for count in heads)
        self.norm = nn.LayerNorm(hidden_channels)
        self.readout = nn.Linear(hidden_channels, out_channels)
        self.dropout, self.max_scores = dropout, max_scores
        self.geometry = PerGraph(geometry)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.distance, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
            if isinstance(module, nn.LayerNorm):
                module.reset_parameters()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        graph = self.geometry(edge_index, x)
        h = self.embed(x) + self.degree_in(graph.degree) + self.degree_out(graph.degree)
        h = F.dropout(h, self.dropout, self.training)
        for layer in self.layers:
            h = layer(h, self.distance, graph.bucket, self.max_scores)
        return self.readout(self.norm(h))
