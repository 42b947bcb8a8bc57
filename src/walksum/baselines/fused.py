"""Attention of all nodes to all nodes by the Triton kernels, under autograd and torch.func alike.

One launch serves all members of a batch, and vmap adds to the batch. The backward pass is a Function of its own, so
that it folds in the same way; there is no second derivative.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from walksum.baselines import passes
from walksum.baselines.tiles import Tiles
from walksum.untraced import untraced


@untraced  # the kernels are not torch code
def fused_attention(query: Tensor, key: Tensor, value: Tensor, table: Tensor, tiles: Tiles | None) -> Tensor:
    """softmax_j(q_i k_j / sqrt(d) + table[bucket_ij]) v_j: float32 [B, H, N, d] each, table [B, H, K] -> [B, H, N, d].

    Without tiles there is no bias, and the table has K = 0.
    """
    return _Attention.apply(query, key, value, table, tiles)[0]


def _fold(info: Any, dims: tuple, tensors: tuple) -> list[Tensor]:
    """Move a vmap dimension into the batch: [S, B, ...] -> [S B, ...]."""
    whole = [
        t.unsqueeze(0).expand(info.batch_size, *t.shape) if d is None else t.movedim(d, 0)
        for t, d in zip(tensors, dims, strict=False)
    ]
    return [t.flatten(0, 1) for t in whole]


def _unfold(info: Any, tensors: tuple) -> tuple:
    whole = tuple(t.reshape(info.batch_size, t.size(0) // info.batch_size, *t.shape[1:]) for t in tensors)
    return whole, (0,) * len(whole)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(query: Tensor, key: Tensor, value: Tensor, table: Tensor, tiles: Tiles | None) -> tuple:
        return passes.attention(query, key, value, table, tiles)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        *_, table, ctx.tiles = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*output, table)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple:
        if grad is None:
            return (None,) * 5
        return (*_AttentionGradient.apply(grad, *ctx.saved_tensors, ctx.tiles), None)

    @staticmethod
    def vmap(info: Any, dims: tuple, *args: Any) -> tuple:
        *tensors, tiles = args
        return _unfold(info, _Attention.apply(*_fold(info, dims, tuple(tensors)), tiles))


class _AttentionGradient(torch.autograd.Function):
    @staticmethod
    def forward(grad: Tensor, *args: Any) -> tuple:
        return passes.attention_gradient(grad, *args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        raise NotImplementedError("fused attention has no second derivative; in float64 it is not fused and has one")

    @staticmethod
    def vmap(info: Any, dims: tuple, *args: Any) -> tuple:
        *tensors, tiles = args
        return _unfold(info, _AttentionGradient.apply(*_fold(info, dims, tuple(tensors)), tiles))
