"""Shortest-path distances between all nodes, and attention biased by them."""

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from scipy.sparse.csgraph import dijkstra
from torch import Tensor
from torch.utils.checkpoint import checkpoint

MAX_DISTANCE = 20
UNREACHABLE = MAX_DISTANCE + 1
NUM_BUCKETS = MAX_DISTANCE + 2


def distance_buckets(near: Tensor, num_nodes: int, rows: int = 256) -> Tensor:
    """[N, N] uint8: the number of steps from i to j, at most 20; 21 where there is no path.

    One byte a pair: 0.4 GB for PubMed, where float distances would be 3 GB.
    """
    source, target = near.cpu().numpy()
    graph = sp.csr_matrix((np.ones(len(source)), (source, target)), (num_nodes, num_nodes))
    out = np.empty((num_nodes, num_nodes), dtype=np.uint8)
    for start in range(0, num_nodes, rows):
        chunk = np.arange(start, min(start + rows, num_nodes))
        steps = dijkstra(graph, unweighted=True, indices=chunk)
        out[chunk] = np.where(np.isinf(steps), UNREACHABLE, np.minimum(steps, MAX_DISTANCE))
    return torch.from_numpy(out).to(near.device)


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


def _attend_rows(query: Tensor, key: Tensor, value: Tensor, table: Tensor, bucket: Tensor) -> Tensor:
    bias = DistanceBias.apply(table, bucket)
    parts = (part.unsqueeze(0) for part in (query, key, value, bias))
    query, key, value, bias = parts
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias).squeeze(0)


def attend(query: Tensor, key: Tensor, value: Tensor, table: Tensor, bucket: Tensor, max_scores: int) -> Tensor:
    """softmax_j(q_i k_j / sqrt(d) + table[bucket_ij]) v_j, per head.

    The bias alone is heads x N x N numbers. Where that exceeds max_scores, queries are taken in chunks that
    the backward pass computes again instead of storing.

    Shapes: query, key, value [H, N, d], table [H, B], bucket [N, N] -> [H, N, d].
    """
    heads, num_nodes = query.size(0), query.size(1)
    rows = max(1, max_scores // (heads * num_nodes))
    if rows >= num_nodes:
        return _attend_rows(query, key, value, table, bucket)
    chunks = zip(query.split(rows, dim=1), bucket.split(rows), strict=True)
    return torch.cat(
        [
            # Nothing in a chunk is random, so there is no generator state to keep.
            checkpoint(_attend_rows, q, key, value, table, b, use_reentrant=False, preserve_rng_state=False)
            for q, b in chunks
        ],
        dim=1,
    )
