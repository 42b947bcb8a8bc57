"""The sparse products everything is made of, closed under differentiation.

``spmm`` is linear in the values of J and in x; its derivatives are ``spmm`` and ``edge_dot``. The derivative
of ``edge_dot`` is ``spmm`` again. So both differentiate to any order without an E x F temporary. ``edge_sum`` (edges to
nodes) and ``end_sum`` (nodes to edges) are the transposes of each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from walksum import backends
from walksum._torch import Function, no_compile
from walksum.graph import Graph


@no_compile  # the kernels are not torch code
def spmm(graph: Graph, diag: Tensor, off: Tensor, x: Tensor) -> Tensor:
    """``J x`` for values ``diag [H, N]``, ``off [H, E]`` and ``x [H, N, F]``."""
    return _SpMM.apply(diag, off, x, graph.structure)


@no_compile
def edge_dot(graph: Graph, a: Tensor, b: Tensor) -> Tensor:
    """``a_i . b_j + a_j . b_i`` for every edge (i, j): ``[H, N, F]`` twice -> ``[H, E]``."""
    return _EdgeDot.apply(a, b, graph.structure)


@no_compile
def edge_sum(graph: Graph, values: Tensor) -> Tensor:
    """The sum over the edges of each node: ``[H, E] -> [H, N]``."""
    return _EdgeSum.apply(values, graph.structure)


@no_compile
def end_sum(graph: Graph, values: Tensor) -> Tensor:
    """The sum of both ends of each edge: ``[H, N] -> [H, E]``."""
    return _EndSum.apply(values, graph.structure)


def fold_heads(info: Any, tensor: Tensor, dim: int | None) -> Tensor:
    """Move a vmap dimension into the heads: ``[B, H, ...] -> [B H, ...]``."""
    tensor = tensor.unsqueeze(0).expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    return tensor.flatten(0, 1)


def unfold_heads(info: Any, tensor: Tensor) -> Tensor:
    return tensor.unflatten(0, (info.batch_size, tensor.size(0) // info.batch_size))


def zeros_if_none(tangent: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if tangent is None else tangent


class OverHeads(Function):
    """A function of tensors ``[H, ...]`` that treats every head alike: a dimension of vmap becomes further heads."""

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple, *given: Any) -> tuple:
        folded = [fold_heads(info, t, d) if isinstance(t, Tensor) else t for t, d in zip(given, in_dims, strict=True)]
        found = cls.apply(*folded)
        if isinstance(found, tuple):
            return tuple(unfold_heads(info, each) for each in found), (0,) * len(found)
        return unfold_heads(info, found), 0


class _OnGraph(OverHeads):
    """Of tensors and a graph; both are kept for the derivatives."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        *tensors, ctx.graph = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)


class _SpMM(_OnGraph):
    @staticmethod
    def forward(diag: Tensor, off: Tensor, x: Tensor, graph: Graph) -> Tensor:
        return backends.backend(x).spmm(graph, diag, off, x)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        values = ctx.saved_tensors
        d_diag, d_off, d_x = (zeros_if_none(t, like) for t, like in zip(tangents, values, strict=False))
        diag, off, x = values
        return spmm(ctx.graph, d_diag, d_off, x) + spmm(ctx.graph, diag, off, d_x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        (grad,) = grads
        diag, off, x = ctx.saved_tensors
        needs_diag, needs_off, needs_x, _ = ctx.needs_input_grad
        return (
            torch.linalg.vecdot(grad, x) if needs_diag else None,
            edge_dot(ctx.graph, grad, x) if needs_off else None,
            spmm(ctx.graph, diag, off, grad) if needs_x else None,
            None,
        )


class _EdgeDot(_OnGraph):
    @staticmethod
    def forward(a: Tensor, b: Tensor, graph: Graph) -> Tensor:
        return backends.backend(a).edge_dot(graph, a, b)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        a, b = ctx.saved_tensors
        d_a, d_b = (zeros_if_none(t, like) for t, like in zip(tangents, (a, b), strict=False))
        return edge_dot(ctx.graph, d_a, b) + edge_dot(ctx.graph, a, d_b)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        (grad,) = grads
        a, b = ctx.saved_tensors
        nothing = grad.new_zeros(a.shape[:2])
        return (
            spmm(ctx.graph, nothing, grad, b) if ctx.needs_input_grad[0] else None,
            spmm(ctx.graph, nothing, grad, a) if ctx.needs_input_grad[1] else None,
            None,
        )


class _Sum(OverHeads):
    """Linear in its only tensor, so its derivative is itself and its gradient the transpose."""

    itself: Callable[[Graph, Tensor], Tensor]
    transpose: Callable[[Graph, Tensor], Tensor]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        ctx.graph = inputs[1]

    @classmethod
    def jvp(cls, ctx: Any, *tangents: Any) -> Tensor:
        return cls.itself(ctx.graph, tangents[0])

    @classmethod
    def backward(cls, ctx: Any, *grads: Any) -> tuple:
        return cls.transpose(ctx.graph, grads[0]), None


class _EdgeSum(_Sum):
    itself, transpose = staticmethod(edge_sum), staticmethod(end_sum)

    @staticmethod
    def forward(values: Tensor, graph: Graph) -> Tensor:
        kernel = backends.find(values, "edge_sum")
        if kernel is not None:
            return kernel(graph, values)
        zeros, ones = graph.derived(_constants, values.size(0), values.dtype)
        return backends.backend(values).spmm(graph, zeros, values, ones).squeeze(-1)


def _constants(graph: Graph, heads: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    zeros = torch.zeros(heads, graph.num_nodes, dtype=dtype, device=graph.device)
    return zeros, torch.ones_like(zeros).unsqueeze(-1)


class _EndSum(_Sum):
    itself, transpose = staticmethod(end_sum), staticmethod(edge_sum)

    @staticmethod
    def forward(values: Tensor, graph: Graph) -> Tensor:
        kernel = backends.find(values, "end_sum")
        if kernel is not None:
            return kernel(graph, values)
        i, j = graph.edges
        return values.index_select(1, i) + values.index_select(1, j)
