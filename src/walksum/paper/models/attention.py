"""Attention of all nodes to all nodes, biased by the bucket of each pair or not."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

MAX_SCORES = 2**27


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    table: Tensor | None = None,
    bucket: Tensor | None = None,
    max_scores: int = MAX_SCORES,
) -> Tensor:
    """softmax_j(q_i k_j / sqrt(d) + table[bucket_ij]) v_j, per head; without a table no bias.

    The bias takes heads x N x N numbers. Where that exceeds max_scores, queries are taken in chunks that the backward
    pass computes again instead of storing.

    Shapes: query, key, value [H, N, d], table [H, B], bucket [N, N], symmetric -> [H, N, d].
    """
    heads, num_nodes = query.size(0), query.size(1)
    rows = max(1, max_scores // max(1, heads * num_nodes))
    if table is None or bucket is None or rows >= num_nodes:
        return _attend_rows(query, key, value, table, bucket)
    chunks = zip(query.split(rows, dim=1), bucket.split(rows), strict=True)
    # Nothing in a chunk is random, so there is no generator state to keep.
    options: Any = {"use_reentrant": False, "preserve_rng_state": False}
    return torch.cat([checkpoint(_attend_rows, q, key, value, table, b, **options) for q, b in chunks], dim=1)


def _attend_rows(query: Tensor, key: Tensor, value: Tensor, table: Tensor | None, bucket: Tensor | None) -> Tensor:
    bias = None if table is None else DistanceBias.apply(table, bucket).unsqueeze(0)
    # torch's fused kernels want four dimensions
    query, key, value = (part.unsqueeze(0) for part in (query, key, value))
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
