"""Attention of all nodes to all nodes: SAT (Chen, O'Bray and Borgwardt, 2022) and Graphormer (Ying et al., 2021).

Both are adapted from graphs to nodes.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn import GCNConv

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.threads import over_columns
from walksum.paper.models.structure import ComparedModel, Edges, gcn_edges, incoming, neighbours

MAX_DEGREE = 511  # larger degrees share this row of the tables
MAX_DISTANCE = 20
UNREACHABLE = MAX_DISTANCE + 1
NUM_BUCKETS = MAX_DISTANCE + 2
MAX_SCORES = 2**27


def check_heads(width: int, heads: tuple[int, ...]) -> None:
    if any(width % count for count in heads):
        raise ValueError(f"hidden_channels={width} is not a multiple of every one of heads={heads}")


class Subtree(nn.Module):
    """phi(H) = W BN([Z_0 | ... | Z_k]) + b, with Z_0 = H and Z_{l+1} = ReLU(GCN(Z_l))."""

    def __init__(self, width: int, hops: int):
        super().__init__()
        self.convs = nn.ModuleList(GCNConv(width, width, normalize=False) for _ in range(hops))
        # Each forward sees all nodes, so batch statistics are exact in training and evaluation alike, and running
        # averages, which torch.func.vmap could not update, are not needed.
        self.norm = nn.BatchNorm1d((hops + 1) * width, track_running_stats=False)
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

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edges = self.structure(edge_index, x)
        h = self.embed(x)
        for layer in self.layers:
            h = layer(h, edges)
        return self.readout(self.hidden(h).relu())


def distance_buckets(near: Tensor, num_nodes: int, rows: int = 256) -> Tensor:
    """[N, N] uint8: the number of steps from i to j, at most 20; 21 where there is no path.

    One byte per pair: 0.4 GB for PubMed, where float distances would be 3 GB. Threads take ``rows`` sources at a time.
    """
    source, target = near.cpu().numpy()
    graph = sp.csr_matrix((np.ones(len(source), np.int8), (source, target)), (num_nodes, num_nodes))
    out = np.full((num_nodes, num_nodes), UNREACHABLE, dtype=np.uint8)
    work = float(num_nodes) * (num_nodes + graph.nnz)
    links = graph.indptr.astype(np.int64), graph.indices.astype(np.int64)
    over_columns(_steps_from, num_nodes, work, *links, MAX_DISTANCE, out, width=rows)
    return torch.from_numpy(out).to(near.device)


@jit
def _steps_from(start, stop, indptr, indices, longest, out):
    """``out[s, v]``: steps from s to v by breadth-first search, at most ``longest``; left as it is without a path."""
    queue = np.empty(len(indptr) - 1, np.int64)
    seen = np.full(len(indptr) - 1, -1, np.int64)
    for source in range(start, stop):
        row = out[source]
        queue[0], seen[source], row[source] = source, source, 0
        head, tail, level_end, steps = 0, 1, 1, 1
        while head < tail:
            node = queue[head]
            head += 1
            for p in range(indptr[node], indptr[node + 1]):
                near = indices[p]
                if seen[near] != source:
                    seen[near] = source
                    row[near] = min(steps, longest)
                    queue[tail] = near
                    tail += 1
            if head == level_end:
                level_end, steps = tail, steps + 1


class Geometry(NamedTuple):
    """degree [N], clamped to the tables; bucket [N, N], the distances as table rows."""

    degree: Tensor
    bucket: Tensor


def geometry(edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> Geometry:
    near = neighbours(edge_index, num_nodes)
    degree = incoming(near, num_nodes, torch.float32).long().clamp(max=MAX_DEGREE)
    return Geometry(degree, distance_buckets(near, num_nodes))


def attend(
    query: Tensor, key: Tensor, value: Tensor, table: Tensor, bucket: Tensor, max_scores: int = MAX_SCORES
) -> Tensor:
    """softmax_j(q_i k_j / sqrt(d) + table[bucket_ij]) v_j, per head.

    The bias takes heads x N x N numbers. Where that exceeds max_scores, queries are taken in chunks that the backward
    pass computes again instead of storing.

    Shapes: query, key, value [H, N, d], table [H, B], bucket [N, N], symmetric -> [H, N, d].
    """
    heads, num_nodes = query.size(0), query.size(1)
    rows = max(1, max_scores // max(1, heads * num_nodes))
    if rows >= num_nodes:
        return _attend_rows(query, key, value, table, bucket)
    chunks = zip(query.split(rows, dim=1), bucket.split(rows), strict=True)
    # Nothing in a chunk is random, so there is no generator state to keep.
    options: Any = {"use_reentrant": False, "preserve_rng_state": False}
    return torch.cat([checkpoint(_attend_rows, q, key, value, table, b, **options) for q, b in chunks], dim=1)


def _attend_rows(query: Tensor, key: Tensor, value: Tensor, table: Tensor, bucket: Tensor) -> Tensor:
    # torch's fused kernels want four dimensions
    query, key, value, bias = (part.unsqueeze(0) for part in (query, key, value, DistanceBias.apply(table, bucket)))
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias).squeeze(0)


class DistanceBias(torch.autograd.Function):
    """table [H, B], bucket [R, N] -> table[:, bucket] [H, R, N].

    The gradient adds millions of pairs into 22 buckets. Plain indexing does that with colliding atomic adds;
    as a product with the one-hot buckets it is a matrix multiplication.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(table: Tensor, bucket: Tensor) -> Tensor:
        return table[:, bucket.long()]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])
        ctx.num_buckets = inputs[0].size(-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (bucket,) = ctx.saved_tensors
        kinds = torch.arange(ctx.num_buckets, dtype=bucket.dtype, device=bucket.device)
        one_hot = (bucket.flatten().unsqueeze(-1) == kinds).to(grad.dtype)
        return grad.flatten(-2) @ one_hot, None


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


class Graphormer(ComparedModel):
    """H = X W + z_in[deg] + z_out[deg]; layers with scores q_i k_j / sqrt(d) + b[distance(i, j)]; LN; Linear.

    b is one scalar per head and distance, shared by all layers: a layer with fewer heads uses the first rows.
    Without edge features the edge encoding is a function of the distance alone, which b already is, so it is
    left out. So is the virtual node: nodes are classified, not graphs.

    Self-loops are ignored, and the graph made undirected, for degrees and distances; a node attends to itself at
    distance 0.

    Args:
        heads: one number per layer; hidden_channels is a multiple of each.
        max_scores: attention scores (heads x queries x nodes) held at once where attention is not fused; beyond it
            queries are chunked and recomputed in the backward pass, which torch.func transforms do not support.
    """

    derive = staticmethod(geometry)

    def build(
        self, inputs: int, hidden: int, classes: int, heads: tuple[int, ...] = (8, 1), max_scores: int = MAX_SCORES
    ) -> None:
        check_heads(hidden, heads)
        self.embed = nn.Linear(inputs, hidden)
        self.degree_in = nn.Embedding(MAX_DEGREE + 1, hidden)
        self.degree_out = nn.Embedding(MAX_DEGREE + 1, hidden)
        self.distance = nn.Parameter(torch.empty(max(heads), NUM_BUCKETS))
        self.layers = nn.ModuleList(GraphormerLayer(hidden, count, self.dropout) for count in heads)
        self.norm, self.readout = nn.LayerNorm(hidden), nn.Linear(hidden, classes)
        self.max_scores = max_scores
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
        graph = self.structure(edge_index, x)
        h = self.embed(x) + self.degree_in(graph.degree) + self.degree_out(graph.degree)
        h = self.drop(h)
        for layer in self.layers:
            h = layer(h, self.distance, graph.bucket, self.max_scores)
        return self.readout(self.norm(h))
