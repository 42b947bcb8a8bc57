"""Learned couplings: from linear maps to J in a few kernels, with one backward pass for all of it.

Each function has an equivalent in differentiable operations, ``composed``, which takes over wherever the kernels do
not serve: other devices and dtypes, weighted graphs, function transforms, forward-mode derivatives and derivatives of
derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from walksum import backends
from walksum._torch import Function, in_forward_mode, no_compile, transforms_active
from walksum.designs.base import CONFIDENCE
from walksum.graph import Graph

WIDEST = 256  # channels per head on a GPU
CHUNK = 8  # numbers that kernels read at once
FEW_THREADS, LARGE = 4, 2**23  # the kernels run in one thread: of more, torch's operations on large graphs make more


def serves(graph: Graph, channels: int, *tensors: Tensor) -> bool:
    """Whether the kernels can be used for these."""
    usual = graph.edge_weight is None and graph.solve_across is None and graph.num_edges > 0
    if not usual or transforms_active() or in_forward_mode():
        return False
    if backends.uses_triton(tensors[0]):
        return channels <= WIDEST and all(map(backends.uses_triton, tensors))
    dtype, width = tensors[0].dtype, tensors[0].numel() / max(1, graph.num_nodes)
    return (
        all(t.is_cpu and t.dtype is dtype for t in tensors)
        and dtype in (torch.float32, torch.float64)
        and channels % CHUNK == 0
        and (torch.get_num_threads() <= FEW_THREADS or graph.num_edges * width <= LARGE)
        and backends.has_numba()
    )


@cache
def _kernels() -> Any:
    """The CPU kernels; importing numba takes a second."""
    return import_module("walksum.backends.cpu.couplings")


def _arguments(graph: Graph, heads: int, channels: int, row: int, dtype: torch.dtype) -> tuple:
    """Lanes, zero, shape and the two lists of edges, as kernels take them; and tensors to be imitated."""
    from walksum.backends.cpu.pointers import ZERO
    from walksum.backends.cpu.products import _build_ends, _build_second_ends
    from walksum.backends.cpu.simd import WIDTHS

    shape = (heads, graph.num_nodes, graph.num_edges, channels) + ((row,) if row else ())
    of_edges = torch.empty(heads, graph.num_edges, dtype=dtype, device="cpu")
    of_nodes = torch.empty(heads, graph.num_nodes, dtype=dtype, device="cpu")
    lists = graph.derived(_build_second_ends), graph.derived(_build_ends)
    return WIDTHS[math.gcd(channels, 64)], ZERO[dtype], shape, *lists, of_edges, of_nodes


def again(composed: Callable[..., Tensor], inputs: Sequence[Tensor | None], grad: Tensor) -> list[Tensor | None]:
    """The gradients by ``composed``, for whoever differentiates them again."""
    with torch.enable_grad():
        # views: of the inputs themselves autograd would go on into what made them, and where a weight serves two layers
        # count the first one twice
        inputs = [t.view_as(t) if t is not None and t.requires_grad else t for t in inputs]
        wanted = [t for t in inputs if t is not None and t.requires_grad]
        if not wanted:
            return [None] * len(inputs)
        found = iter(torch.autograd.grad(composed(*inputs), wanted, grad, create_graph=True, allow_unused=True))
    return [next(found) if t is not None and t.requires_grad else None for t in inputs]


class _Fused(Function):
    """A function of tensors, the graph, ``composed`` and numbers; see the module."""

    @classmethod
    def backward(cls, ctx: Any, *grads: Any) -> tuple:
        saved = ctx.saved_tensors  # read once: where activations are computed again, a second look is an error
        inputs, kept = saved[: ctx.count], saved[ctx.count :]
        if torch.is_grad_enabled() or transforms_active():
            found: Any = again(ctx.composed, inputs, grads[0])
        else:
            found = cls.gradient(ctx, grads[0].contiguous(), inputs, kept)
        return *found, *(None,) * (len(ctx.needs_input_grad) - len(found))

    @staticmethod
    def gradient(ctx: Any, grad: Tensor, inputs: tuple[Tensor, ...], kept: tuple[Tensor, ...]) -> tuple:
        raise NotImplementedError

    @staticmethod
    def keep(ctx: Any, composed: Callable[..., Tensor], inputs: tuple[Tensor, ...], *kept: Any) -> None:
        ctx.composed, ctx.count = composed, len(inputs)
        ctx.save_for_backward(*inputs, *kept)


class _OnGPU(_Fused):
    """The Laplacian of y, bias and gate, or without a gate the diagonally dominant couplings of h and logit."""

    @staticmethod
    def forward(
        ctx: Any, v: Tensor, a: Tensor, gate: Tensor | None, graph: Graph, composed: Any, numbers: tuple
    ) -> Tensor:
        from walksum.backends.cuda.triton.couplings import Couplings  # imports triton

        gaussian = gate is not None
        heads, K = (gate.size(0), v.size(1) // gate.size(0) - 1) if gate is not None else (v.size(0), v.size(2))
        ctx.kernels = graph.derived(Couplings, heads, K, *numbers, gaussian)
        inputs = (v, a) if gate is None else (v, a, gate)
        off, root = ctx.kernels.forward(*_OnGPU._given(inputs))
        _Fused.keep(ctx, composed, inputs, root, off)
        return off

    @staticmethod
    def _given(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """v, logit, bias and gate."""
        v, a, *gate = inputs
        return (v, v, a, *gate) if gate else (v, a, a, a)

    @staticmethod
    def gradient(ctx: Any, grad: Tensor, inputs: tuple[Tensor, ...], kept: tuple[Tensor, ...]) -> tuple:
        d_v, d_logit, sums = ctx.kernels.backward(*_OnGPU._given(inputs), *kept, grad)
        if len(inputs) == 2:
            return d_v, d_logit
        d_bias, d_gate = sums.sum(2)
        return d_v, d_bias, d_gate.unsqueeze(1)


@no_compile
def laplacian_couplings(
    graph: Graph, composed: Callable[..., Tensor], y: Tensor, bias: Tensor, gate: Tensor, bound: float, scale: float
) -> Tensor:
    """``scale sigma(gate) A_ij / sqrt(D_i D_j)``, ``[H, E]``, see :class:`walksum.designs.LearnedLaplacian`.

    Args:
        y: ``[N, H K + H]``: the projections before LeakyReLU, then the logits of the confidences without bias.
        bias: ``[H]``.
        gate: ``[H, 1]``.
    """
    kind = _OnGPU if backends.uses_triton(y) else _Laplacian
    return kind.apply(y.contiguous(), bias, gate, graph.structure, composed, (bound, scale))


class _Laplacian(_Fused):
    @staticmethod
    def forward(ctx: Any, y: Tensor, bias: Tensor, gate: Tensor, graph: Graph, composed: Any, numbers: tuple) -> Tensor:
        (bound, scale), kernels, heads, row = numbers, _kernels(), gate.size(0), y.size(1)
        used = row - heads
        lanes, zero, shape, by_first, ends, of_edges, of_nodes = graph.derived(
            _arguments, heads, used // heads, row, y.dtype
        )
        s, strength, degree = y.new_empty(y.size(0), used), torch.empty_like(of_edges), torch.empty_like(of_nodes)
        kernels.gaussian_exponents(lanes, zero, shape, by_first, y.data_ptr(), s.data_ptr(), strength.data_ptr())
        strength.exp_()
        confidence, factor = torch.add(y[:, used:], bias).sigmoid_(), torch.sigmoid(gate).mul_(scale)
        off = torch.empty_like(of_edges)
        addresses = degree.data_ptr(), off.data_ptr()
        kernels.laplacian_couplings(
            zero, shape, ends, strength.data_ptr(), factor.data_ptr(), confidence.data_ptr(), bound, *addresses
        )
        _Fused.keep(ctx, composed, (y, bias, gate), s, strength, degree, confidence, off)
        ctx.what = lanes, zero, shape, by_first, ends, bound
        return off

    @staticmethod
    def gradient(ctx: Any, grad: Tensor, inputs: tuple[Tensor, ...], kept: tuple[Tensor, ...]) -> tuple:
        lanes, zero, shape, by_first, ends, bound = ctx.what
        y, _, gate = inputs
        d_y, d_gate = torch.empty_like(y), torch.empty_like(gate)
        values = tuple(t.data_ptr() for t in kept)
        _kernels().laplacian_gradient(
            lanes, zero, shape, by_first, ends, values, bound, grad.data_ptr(), d_y.data_ptr(), d_gate.data_ptr()
        )
        return d_y, d_y[:, -gate.size(0) :].sum(0), d_gate.mul_(1 - torch.sigmoid(gate))


@no_compile
def dominant_couplings(
    graph: Graph, composed: Callable[..., Tensor], h: Tensor, logit: Tensor, sign: float, margin: float
) -> Tensor:
    """``sign cos_ij / sqrt(D_i D_j)``, ``[H, E]``, see :class:`walksum.designs.LearnedDiagonallyDominant`.

    Args:
        h: ``[H, N, F]``.
        logit: of the confidences, ``[N, H]``.
    """
    if backends.uses_triton(h):
        return _OnGPU.apply(h.contiguous(), logit.contiguous(), None, graph.structure, composed, (margin, sign))
    return _Dominant.apply(h.contiguous(), logit.contiguous(), graph.structure, composed, (sign, margin))


class _Dominant(_Fused):
    @staticmethod
    def forward(ctx: Any, h: Tensor, logit: Tensor, graph: Graph, composed: Any, numbers: tuple) -> Tensor:
        what, unit, length, cosine = _cosines(graph, h)
        _, zero, shape, _, ends, of_edges, of_nodes = what
        confidence = softplus(logit).add_(CONFIDENCE[0]).clamp_(max=CONFIDENCE[1])
        diag, off = torch.empty_like(of_nodes), torch.empty_like(of_edges)
        _kernels().dominant_couplings(
            zero, shape, ends, cosine.data_ptr(), confidence.data_ptr(), *numbers, diag.data_ptr(), off.data_ptr()
        )
        _Fused.keep(ctx, composed, (h, logit), unit, length, cosine, diag, off)
        ctx.what, ctx.numbers = what, numbers
        return off

    @staticmethod
    def gradient(ctx: Any, grad: Tensor, inputs: tuple[Tensor, ...], kept: tuple[Tensor, ...]) -> tuple:
        (_, zero, shape, _, ends, of_edges, _), (h, logit) = ctx.what, inputs
        unit, length, cosine, diag, off = kept
        d_cosine, d_logit = torch.empty_like(of_edges), torch.empty_like(logit)
        values = cosine.data_ptr(), diag.data_ptr(), off.data_ptr()
        _kernels().dominant_gradient(
            zero, shape, ends, values, *ctx.numbers, grad.data_ptr(), d_cosine.data_ptr(), d_logit.data_ptr()
        )
        d_logit = d_logit.mul_(torch.sigmoid(logit)).masked_fill_(logit >= CONFIDENCE[1], 0)
        return _gradient_of_cosines(ctx.what, h, unit, length, cosine, d_cosine), d_logit


@no_compile
def pairwise_couplings(
    graph: Graph, composed: Callable[..., Tensor], h: Tensor, own: Tensor, other: Tensor, bias: Tensor, epsilon: float
) -> Tensor:
    """``epsilon sqrt(a_ij c_ij) cos_ij / sqrt(D_i D_j)``, ``[H, E]``: :class:`walksum.designs.LearnedPairwiseNormal`.

    Args:
        h: ``[H, N, F]``.
        own, other: ``[H, F, 1]``.
        bias: ``[H, 1]``.
    """
    weights = own.contiguous(), other.contiguous(), bias.contiguous()
    return _Pairwise.apply(h.contiguous(), *weights, graph.structure, composed, epsilon)


class _Pairwise(_Fused):
    @staticmethod
    def forward(
        ctx: Any, h: Tensor, own: Tensor, other: Tensor, bias: Tensor, graph: Graph, composed: Any, epsilon: float
    ) -> Tensor:
        what, unit, length, cosine = _cosines(graph, h)
        lanes, zero, shape, _, ends, of_edges, of_nodes = what
        maps, logits = of_nodes.new_empty(2, *of_nodes.shape), of_edges.new_empty(2, *of_edges.shape)
        _kernels().pairwise_logits(
            lanes, zero, shape, ends, *(t.data_ptr() for t in (h, own, other, bias, maps, logits))
        )
        precisions = softplus(logits).add_(CONFIDENCE[0]).clamp_(max=CONFIDENCE[1])
        diag, off = torch.empty_like(of_nodes), torch.empty_like(of_edges)
        _kernels().pairwise_couplings(
            zero, shape, ends, cosine.data_ptr(), precisions.data_ptr(), epsilon, diag.data_ptr(), off.data_ptr()
        )
        _Fused.keep(ctx, composed, (h, own, other, bias), unit, length, cosine, logits, precisions, diag, off)
        ctx.what, ctx.epsilon = what, epsilon
        return off

    @staticmethod
    def gradient(ctx: Any, grad: Tensor, inputs: tuple[Tensor, ...], kept: tuple[Tensor, ...]) -> tuple:
        lanes, zero, shape, _, ends, of_edges, of_nodes = ctx.what
        (h, own, other, bias), (unit, length, cosine, logits, precisions, diag, off) = inputs, kept
        d_cosine, d_logits = torch.empty_like(of_edges), torch.empty_like(logits)
        values = precisions.data_ptr(), diag.data_ptr(), off.data_ptr()
        _kernels().pairwise_gradient(
            zero, shape, ends, values, ctx.epsilon, grad.data_ptr(), d_cosine.data_ptr(), d_logits.data_ptr()
        )
        d_logits = d_logits.mul_(torch.sigmoid(logits)).masked_fill_(logits >= CONFIDENCE[1], 0)
        d_h = _gradient_of_cosines(ctx.what, h, unit, length, cosine, d_cosine)
        d_maps, d_weights = of_nodes.new_empty(2, *of_nodes.shape), own.new_empty(2 * own.numel() + bias.numel())
        _kernels().gradient_of_logits(
            lanes, zero, shape, ends, h.data_ptr(), (own.data_ptr(), other.data_ptr()),
            *(t.data_ptr() for t in (d_logits, d_maps, d_h, d_weights)),
        )  # fmt: skip
        d_own, d_other, d_bias = d_weights.split((own.numel(), own.numel(), bias.numel()))
        return d_h, d_own.view_as(own), d_other.view_as(other), d_bias.view_as(bias)


def _cosines(graph: Graph, h: Tensor) -> tuple[tuple, Tensor, Tensor, Tensor]:
    what = graph.derived(_arguments, h.size(0), h.size(2), 0, h.dtype)
    lanes, zero, shape, by_first, _, of_edges, of_nodes = what
    unit, length, cosine = torch.empty_like(h), torch.empty_like(of_nodes), torch.empty_like(of_edges)
    _kernels().cosines(lanes, zero, shape, by_first, *(t.data_ptr() for t in (h, unit, length, cosine)))
    return what, unit, length, cosine


def _gradient_of_cosines(what: tuple, h: Tensor, unit: Tensor, length: Tensor, cosine: Tensor, grad: Tensor) -> Tensor:
    lanes, zero, shape, by_first, *_ = what
    out, values = torch.empty_like(h), tuple(t.data_ptr() for t in (unit, length, cosine))
    _kernels().gradient_of_cosines(lanes, zero, shape, by_first, values, grad.data_ptr(), out.data_ptr())
    return out
