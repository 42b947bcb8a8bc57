"""Structure-Aware Transformer (Chen, O'Bray and Borgwardt, 2022), for node classification."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from walksum.paper.models.structure import ComparedModel, Edges, check_heads, gcn_edges


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


def attend_by_heads(query: Tensor, key: Tensor, value: Tensor, heads: int) -> Tensor:
    """Softmax attention of all nodes to all nodes, [N, d] each; fused, so no N x N tensor is stored."""
    # [1, heads, N, d / heads]: torch's fused kernels want four dimensions
    split = (x.unflatten(-1, (heads, -1)).transpose(-3, -2).unsqueeze(0) for x in (query, key, value))
    return F.scaled_dot_product_attention(*split).squeeze(0).transpose(-3, -2).flatten(-2)


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

    def forward(self, h: Tensor, edges: Edges) -> Tensor:
        query, key = self.query_key(self.extractor(h, edges)).chunk(2, dim=-1)
        out = self.out(attend_by_heads(query, key, self.value(h), self.heads))
        h = self.norms[0](h + F.dropout(out, self.dropout, self.training))
        out = self.narrow(F.dropout(self.wide(h).relu(), self.dropout, self.training))
        return self.norms[1](h + F.dropout(out, self.dropout, self.training))


class SAT(ComparedModel):
    """H = X W; attention whose queries and keys see each node's surroundings, twice; Linear-ReLU-Linear.

    Queries and keys come from phi(H), values from H. There is no positional encoding. Self-loops are added where
    missing for the extractor's GCN; attention includes the node itself.

    Args:
        heads: one number per layer; hidden_channels is a multiple of each.
        hops: depth of the subtree extractor.
    """

    derive = staticmethod(gcn_edges)

    def build(
        self,
        inputs: int,
        hidden: int,
        classes: int,
        heads: tuple[int, ...] = (8, 1),
        hops: int = 2,
    ) -> None:
        check_heads(hidden, heads)
        self.embed = nn.Linear(inputs, hidden)
        self.layers = nn.ModuleList(SATLayer(hidden, count, Subtree(hidden, hops), self.dropout) for count in heads)
        self.hidden, self.readout = nn.Linear(hidden, hidden), nn.Linear(hidden, classes)

    def reset_parameters(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.LayerNorm | nn.BatchNorm1d | GCNConv):
                module.reset_parameters()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edges = self.structure(edge_index, x)
        h = self.embed(x)
        for layer in self.layers:
            h = layer(h, edges)
        return self.readout(self.hidden(h).relu())
