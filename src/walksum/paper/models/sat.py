"""Structure-Aware Transformer (Chen, O'Bray and Borgwardt, 2022), for node classification."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv
from torch_geometric.utils import remove_self_loops, scatter

from walksum.paper.models.attention import attend
from walksum.paper.models.ego import EgoGraphs, ego_graphs
from walksum.paper.models.structure import Edges, PerGraph, gcn_edges, incoming


def _batch_norm(width: int) -> nn.BatchNorm1d:
    # Each forward sees all nodes, so batch statistics are exact in training and evaluation alike, and running
    # averages, which torch.func.vmap could not update, are not needed.
    return nn.BatchNorm1d(width, track_running_stats=False)


class Subtree(nn.Module):
    """phi(H) = W BN([Z_0 | ... | Z_k]) + b, with Z_0 = H and Z_{l+1} = ReLU(GCN(Z_l))."""

    def __init__(self, width: int, hops: int):
        super().__init__()
        self.convs = nn.ModuleList(GCNConv(width, width, normalize=False) for _ in range(hops))
        self.norm = _batch_norm((hops + 1) * width)
        self.out = nn.Linear((hops + 1) * width, width)

    def forward(self, h: Tensor, edges: Edges) -> Tensor:
        states = [h]
        for conv in self.convs:
            states.append(conv(states[-1], *edges).relu())
        return self.out(self.norm(torch.cat(states, dim=-1)))


class Subgraph(nn.Module):
    """phi(v) = W BN([h_v | u_v]) + b, u_v the sum over v's k-hop ego graph of Z_k computed inside it."""

    def __init__(self, width: int, hops: int):
        super().__init__()
        self.convs = nn.ModuleList(GCNConv(width, width, normalize=False) for _ in range(hops))
        self.norm = _batch_norm(2 * width)
        self.out = nn.Linear(2 * width, width)

    def forward(self, h: Tensor, egos: EgoGraphs) -> Tensor:
        z = h[egos.node]
        for conv in self.convs:
            z = conv(z, egos.edge_index, egos.weight).relu()
        pooled = scatter(z, egos.centre, dim_size=h.size(0), reduce="sum")
        return self.out(self.norm(torch.cat([h, pooled], dim=-1)))


def attend_by_heads(query: Tensor, key: Tensor, value: Tensor, heads: int) -> Tensor:
    """Softmax attention of all nodes to all nodes, [N, d] each; fused, so no N x N tensor is stored."""
    split = (x.unflatten(-1, (heads, -1)).transpose(-3, -2) for x in (query, key, value))  # [heads, N, d / heads]
    return attend(*split).transpose(-3, -2).flatten(-2)


class SATLayer(nn.Module):
    """H' = LN(H + Drop(out)); LN(H' + Drop(W_2 Drop(ReLU(W_1 H')))): post-norm, FFN twice as wide."""

    def __init__(self, width: int, heads: int, extractor: nn.Module, dropout: float):
        super().__init__()
        self.extractor = extractor
        self.query_key = nn.Linear(width, 2 * width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.wide = nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)
        self.heads, self.dropout = heads, dropout

    def forward(self, h: Tensor, structure: Edges | EgoGraphs, scale: Tensor | None) -> Tensor:
        query, key = self.query_key(self.extractor(h, structure)).chunk(2, dim=-1)
        out = self.out(attend_by_heads(query, key, self.value(h), self.heads))
        out = out if scale is None else scale * out
        h = self.norms[0](h + F.dropout(out, self.dropout, self.training))
        out = self.narrow(F.dropout(self.wide(h).relu(), self.dropout, self.training))
        return self.norms[1](h + F.dropout(out, self.dropout, self.training))


def inverse_root_degree(edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> Tensor:
    degree = incoming(remove_self_loops(edge_index)[0], num_nodes, dtype)
    return (1 + degree).rsqrt().unsqueeze(-1)


class SAT(nn.Module):
    """H = X W; attention whose queries and keys see each node's surroundings, twice; Linear-ReLU-Linear.

    Queries and keys come from phi(H), values from H. There is no positional encoding.

    Self-loops: added where missing for the extractor's GCN; attention includes the node itself.

    Args:
        in_channels, out_channels: features per node, classes.
        hidden_channels, dropout: width (a multiple of the heads) and dropout rate.
        heads: one number per layer.
        extractor, hops: "subtree" or "subgraph" of depth k.
        degree_scale: divide the attention's output by sqrt(1 + degree) before the residual.

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
        extractor: str = "subtree",
        hops: int = 2,
        degree_scale: bool = False,
    ):
        super().__init__()
        if extractor not in ("subtree", "subgraph"):
            raise ValueError(f"extractor={extractor!r} is unknown; choose 'subtree' or 'subgraph'")
        if any(hidden_channels % count for count in heads):
            raise ValueError(f"hidden_channels={hidden_channels} is not a multiple of every one of heads={heads}")
        kind = Subtree if extractor == "subtree" else Subgraph
        derive = gcn_edges if extractor == "subtree" else partial(ego_graphs, hops=hops)
        self.embed = nn.Linear(in_channels, hidden_channels)
        self.layers = nn.ModuleList(
            SATLayer(hidden_channels, count, kind(hidden_channels, hops), dropout) for count in heads
        )
        self.hidden = nn.Linear(hidden_channels, hidden_channels)
        self.readout = nn.Linear(hidden_channels, out_channels)
        self.structure: PerGraph[Edges | EgoGraphs] = PerGraph(derive)
        self.scale = PerGraph(inverse_root_degree) if degree_scale else None

    def reset_parameters(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.LayerNorm | nn.BatchNorm1d | GCNConv):
                module.reset_parameters()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        structure = self.structure(edge_index, x)
        scale = None if self.scale is None else self.scale(edge_index, x)
        h = self.embed(x)
        for layer in self.layers:
            h = layer(h, structure, scale)
        return self.readout(self.hidden(h).relu())
