"""Formulas of the two ends of every edge, each with one derivative of its own.

Written in torch operations, each of them leaves half a dozen edge-sized tensors for the backward pass; on a graph of a
few thousand nodes that costs more than the solve. Every derivative is made of differentiable parts, so it
differentiates again.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from walksum import backends
from walksum._torch import Function, no_compile
from walksum.graph import Graph
from walksum.ops import OverHeads, edge_dot, edge_sum, end_sum, fold_heads, spmm, unfold_heads, zeros_if_none

SMALLEST_EXPONENT = -50.0  # exp(-50) = 2e-22: below, degree normalisation would divide rounding errors
SMALLEST = math.exp(SMALLEST_EXPONENT) * (1 + 1e-5)  # at most this much is a value that was clipped


@no_compile
def symmetric_scaling(graph: Graph, diag: Tensor, off: Tensor) -> Tensor:
    """``off_ij / sqrt(d_i d_j)``, ``[H, E]``; a d that is not positive counts as 1."""
    return _Scaling.apply(diag, off.expand(diag.size(0), -1), graph.structure)


@no_compile
def gaussian_of_ends(graph: Graph, s: Tensor) -> Tensor:
    """``exp(-|s_i - s_j|^2 / 2)``, ``[H, N, F] -> [H, E]``; at least exp(-50)."""
    return _Gaussian.apply(s.contiguous(), graph.structure)  # kernels read it more than once


@no_compile
def cosine_of_ends(graph: Graph, s: Tensor) -> Tensor:
    """Cosine of the angle between the ends, ``[H, N, F] -> [H, E]``; 0 for a zero vector."""
    return _Cosine.apply(s.contiguous(), graph.structure)


def _positive(diag: Tensor) -> Tensor:
    return torch.where(diag > 0, diag, 1.0)


class _Scaling(OverHeads):
    @staticmethod
    def forward(diag: Tensor, off: Tensor, graph: Graph) -> Tensor:
        factor, kernel = _positive(diag).rsqrt(), backends.find(off, "scale_edges")
        if kernel is not None:
            return kernel(graph, off, factor)
        i, j = graph.edges
        return off * factor.index_select(1, i) * factor.index_select(1, j)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        diag, _, ctx.graph = inputs
        ctx.save_for_backward(diag, output)
        ctx.save_for_forward(diag, output)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        diag, out = ctx.saved_tensors
        d_diag, d_off = (zeros_if_none(t, like) for t, like in zip(tangents, (diag, out), strict=False))
        share = torch.where(diag > 0, d_diag / _positive(diag), 0.0)
        return symmetric_scaling(ctx.graph, diag, d_off) - 0.5 * out * end_sum(ctx.graph, share)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        (grad,), (diag, out), d_diag = grads, ctx.saved_tensors, None
        if ctx.needs_input_grad[0]:
            d_diag = torch.where(diag > 0, -0.5 * edge_sum(ctx.graph, grad * out) / _positive(diag), 0.0)
        return d_diag, symmetric_scaling(ctx.graph, diag, grad) if ctx.needs_input_grad[1] else None, None


class _OfEnds(Function):
    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        s, ctx.graph = inputs
        ctx.save_for_backward(s, output)
        ctx.save_for_forward(s, output)

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple, s: Tensor, graph: Graph) -> tuple:
        return unfold_heads(info, cls.apply(fold_heads(info, s, in_dims[0]).contiguous(), graph)), 0


class _Gaussian(_OfEnds):
    @staticmethod
    def forward(s: Tensor, graph: Graph) -> Tensor:
        square, products = backends.backend(s).value_gradients(graph, s, s)  # -|s_i|^2 and -2 s_i . s_j
        return (0.5 * (end_sum(graph, square) - products)).clamp_(SMALLEST_EXPONENT, 0).exp_()

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        (s, out), d_s = ctx.saved_tensors, tangents[0]
        change = edge_dot(ctx.graph, s, d_s) - end_sum(ctx.graph, torch.linalg.vecdot(s, d_s))
        return torch.where(out > SMALLEST, out, 0.0) * change

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        s, out = ctx.saved_tensors
        weight = grads[0] * torch.where(out > SMALLEST, out, 0.0)
        return spmm(ctx.graph, -edge_sum(ctx.graph, weight), weight, s), None  # sum_j weight_ij (s_j - s_i)


def _unit(s: Tensor) -> tuple[Tensor, Tensor]:
    """The unit vectors and the lengths; a zero vector stays, with length 1."""
    # dividing by the largest entry first keeps the squares in range; the cosine does not see it
    largest = s.detach().abs().amax(-1, keepdim=True)
    largest = torch.where(largest > 0, largest, 1.0)
    s = s / largest
    square = torch.linalg.vecdot(s, s).unsqueeze(-1)
    length = torch.where(square > 0, square, 1.0).sqrt()
    return s / length, largest * length


class _Cosine(_OfEnds):
    @staticmethod
    def forward(s: Tensor, graph: Graph) -> Tensor:
        unit, _ = _unit(s)
        return backends.backend(s).edge_dot(graph, unit, unit) / 2

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        (s, out), d_s = ctx.saved_tensors, tangents[0]
        unit, length = _unit(s)
        turn = d_s / length
        return edge_dot(ctx.graph, unit, turn) - out * end_sum(ctx.graph, torch.linalg.vecdot(unit, turn))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        (s, out), (grad,) = ctx.saved_tensors, grads
        unit, length = _unit(s)
        # sum_j grad_ij (u_j - cos_ij u_i) over the length of s_i
        return spmm(ctx.graph, -edge_sum(ctx.graph, grad * out), grad, unit) / length, None
