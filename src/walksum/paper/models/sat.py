"""Structure-Aware Transformer (Chen, O'Bray and Borgwardt, 2022), for node classification."""

from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv
from torch_geometric.utils import remove_self_loops, scatter

from walksum.paper.models.attention import attend
from walksum.paper.models.structure import ComparedModel, Edges, PerGraph, check_heads, gcn_edges, incoming


class EgoGraphs(NamedTuple):
    """Every node's k-hop ego graph, side by side as one graph.

    Copy c of a node is node[c] as seen from centre[c]; the edges join copies of one ego graph.

    Shapes: node [M], centre [M], edge_index [2, K], weight [K].
    """

    node: Tensor
    centre: Tensor
    edge_index: Tensor
    weight: Tensor


def ego_graphs(edge_index: Tensor, num_nodes: int, dtype: torch.dtype, hops: int) -> EgoGraphs:
    """Induced subgraphs on the nodes at most `hops` steps upstream, GCN-normalised each on its own."""
    source, target = edge_index.cpu().numpy()
    ones = np.ones(len(source), dtype=bool)
    # Row i holds the nodes whose messages reach i in one step.
    adjacency = sp.csr_matrix((ones, (target, source)), (num_nodes, num_nodes))
    reach = sp.eye_array(num_nodes, dtype=bool, format="csr")
    for _ in range(hops):
        reach = (reach + reach @ adjacency).astype(bool).tocsr()
    reach.sort_indices()
    centre, node = np.repeat(np.arange(num_nodes), np.diff(reach.indptr)), reach.indices.astype(np.int64)
    made = (node, centre, _copy_edges(adjacency, centre, node, num_nodes))
    nodes, centres, copies = (torch.from_numpy(values).to(edge_index.device) for values in made)
    return EgoGraphs(nodes, centres, *gcn_edges(copies, len(node), dtype))


def _copy_edges(adjacency: sp.csr_matrix, centre: np.ndarray, node: np.ndarray, num_nodes: int) -> np.ndarray:
    """For each copy (centre, node), the edges into it from copies with the same centre."""
    degree = np.diff(adjacency.indptr)[node]
    receiver = np.repeat(np.arange(len(node)), degree)
    offset = np.arange(degree.sum()) - np.repeat(np.cumsum(degree) - degree, degree)
    sender_node = adjacency.indices[adjacency.indptr[node][receiver] + offset]
    # Copies are ordered by (centre, node), so one search finds the sender's copy, or that there is none.
    key = centre * num_nodes + node
    wanted = centre[receiver] * num_nodes + sender_node
    sender = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    inside = key[sender] == wanted
    return np.stack([sender[inside], receiver[inside]])


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


class SAT(ComparedModel):
    """H = X W; attention whose queries and keys see each node's surroundings, twice; Linear-ReLU-Linear.

    Queries and keys come from phi(H), values from H. There is no positional encoding. Self-loops are added where
    missing for the extractor's GCN; attention includes the node itself.

    Args:
        heads: one number per layer; hidden_channels is a multiple of each.
        extractor, hops: "subtree" or "subgraph" of depth k.
        degree_scale: divide the attention's output by sqrt(1 + degree) before the residual.
    """

    derive = staticmethod(gcn_edges)

    def build(
        self,
        inputs: int,
        hidden: int,
        classes: int,
        heads: tuple[int, ...] = (8, 1),
        extractor: str = "subtree",
        hops: int = 2,
        degree_scale: bool = False,
    ) -> None:
        if extractor not in ("subtree", "subgraph"):
            raise ValueError(f"extractor={extractor!r} is unknown; choose 'subtree' or 'subgraph'")
        check_heads(hidden, heads)
        kind = Subtree if extractor == "subtree" else Subgraph
        if kind is Subgraph:
            self.structure = PerGraph(partial(ego_graphs, hops=hops))
        self.embed = nn.Linear(inputs, hidden)
        self.layers = nn.ModuleList(SATLayer(hidden, count, kind(hidden, hops), self.dropout) for count in heads)
        self.hidden, self.readout = nn.Linear(hidden, hidden), nn.Linear(hidden, classes)
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
