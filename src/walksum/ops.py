"""The two sparse products everything is made of, closed under differentiation.

``spmm`` is linear in the values of J and in x; its derivatives are ``spmm`` and ``edge_dot``. The derivative
of ``edge_dot`` is ``spmm`` again. So both differentiate to any order without an E x F temporary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import _add_batch_dim, _unwrap_batched, unwrap_if_dead
from torch._functorch.autograd_function import VmapInfo
from torch._functorch.pyfunctorch import VmapInterpreter, retrieve_current_functorch_interpreter

from walksum import backends
from walksum.graph import Graph
from walksum.untraced import untraced


@untraced  # the kernels are not torch code
def spmm(graph: Graph, diag: Tensor, off: Tensor, x: Tensor) -> Tensor:
    """``J x`` for values ``diag [H, N]``, ``off [H, E]`` and ``x [H, N, F]``."""
    return _SpMM.apply(diag, off, x, graph)


@untraced
def edge_dot(graph: Graph, a: Tensor, b: Tensor) -> Tensor:
    """``a_i . b_j + a_j . b_i`` for every edge (i, j): ``[H, N, F]`` twice -> ``[H, E]``."""
    return _EdgeDot.apply(a, b, graph)


def fold_heads(info: Any, tensor: Tensor, dim: int | None) -> Tensor:
    """Move a vmap dimension into the heads: ``[B, H, ...] -> [B H, ...]``."""
    tensor = tensor.unsqueeze(0).expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    return tensor.flatten(0, 1)


def unfold_heads(info: Any, tensor: Tensor) -> Tensor:
    return tensor.unflatten(0, (info.batch_size, tensor.size(0) // info.batch_size))


def zeros_if_none(tangent: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if tangent is None else tangent


class Function(torch.autograd.Function):
    """``torch.autograd.Function`` whose ``apply`` takes positional arguments only.

    torch's own inspects the signature of forward to bind defaults, which on a small graph takes longer than
    the solve. Under vmap it takes ten times as long; there the rule is called directly. Under other function
    transforms (grad, ...) everything is left to torch.
    """

    @classmethod
    def apply(cls, *args: Any) -> Any:
        if not transforms_active():
            return super(torch.autograd.Function, cls).apply(*args)  # type: ignore[misc]
        interpreter = retrieve_current_functorch_interpreter()
        if isinstance(interpreter, VmapInterpreter):
            return cls._apply_under_vmap(interpreter, args)
        return super().apply(*args)

    @classmethod
    def _apply_under_vmap(cls, interpreter: Any, args: tuple) -> Any:
        level = interpreter.level()
        args = tuple(unwrap_if_dead(a) if isinstance(a, Tensor) else a for a in args)
        pairs = [_unwrap_batched(a, level) if isinstance(a, Tensor) else (a, None) for a in args]
        in_dims = tuple(dim for _, dim in pairs)
        with interpreter.lower():
            if all(dim is None for dim in in_dims):
                return cls.apply(*args)
            info = VmapInfo(interpreter.batch_size(), interpreter.randomness())
            out, dim = cls.vmap(info, in_dims, *(value for value, _ in pairs))
        return _add_batch_dim(out, dim, level)


def transforms_active() -> bool:
    """Inside a torch.func transform, where tensors may be wrapped and kernels must not be called directly."""
    return torch._C._are_functorch_transforms_active()


class _SpMM(Function):
    @staticmethod
    def forward(diag: Tensor, off: Tensor, x: Tensor, graph: Graph) -> Tensor:
        return backends.backend(x).spmm(graph, diag, off, x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        *tensors, ctx.graph = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

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

    @staticmethod
    def vmap(info: Any, in_dims: tuple, diag: Tensor, off: Tensor, x: Tensor, graph: Graph) -> tuple:
        folded = [fold_heads(info, t, d) for t, d in zip((diag, off, x), in_dims, strict=False)]
        return unfold_heads(info, spmm(graph, *folded)), 0


class _EdgeDot(Function):
    @staticmethod
    def forward(a: Tensor, b: Tensor, graph: Graph) -> Tensor:
        return backends.backend(a).edge_dot(graph, a, b)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        a, b, ctx.graph = inputs
        ctx.save_for_backward(a, b)
        ctx.save_for_forward(a, b)

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

    @staticmethod
    def vmap(info: Any, in_dims: tuple, a: Tensor, b: Tensor, graph: Graph) -> tuple:
        folded = [fold_heads(info, t, d) for t, d in zip((a, b), in_dims, strict=False)]
        return unfold_heads(info, edge_dot(graph, *folded)), 0
