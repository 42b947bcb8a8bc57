"""NodeLinear: a linear layer together with the norm, activation and dropout before it and the residual after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as nnf
from torch import Tensor, nn

from walksum._torch import Function, in_forward_mode, transforms_active, watched
from walksum.backends import has_numba
from walksum.nn import row_pass

SMALL = 1 << 15  # entries up to which torch's operations are as quick
FEWEST = 8  # times fewer nodes with a gradient than nodes, from which on it pays to pick them


class NodeLinear(nn.Linear):
    """``residual + nn.Linear(before(x))``; on a CPU in one pass over the nodes, see :mod:`walksum.nn.row_pass`.

    ``before`` are modules. The pass takes in a LayerNorm, a (leaky) ReLU and a Dropout, in that order; with others it
    runs after all of them. They may see heads apart, ``x [N, H, F]``.

    The backward pass skips nodes without a gradient where most have none: a loss reads the nodes that have a label,
    often a few in a hundred, and between two mixings of the graph a node's gradient stays its own.
    """

    def forward(self, input: Tensor, before: Sequence[nn.Module] = (), residual: Tensor | None = None) -> Tensor:
        return _linear(input, self.weight, self.bias, before, residual)  # read once: a parametrization computes them


def _linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, before: Sequence[nn.Module], residual: Tensor | None
) -> Tensor:
    if takes(x, weight, SMALL) and (x.dim() == 2 or (before and x.dim() == 3)):
        steps = row_pass.read_steps(before)
        if steps is not None and row_pass.serves(x, weight, bias, residual, steps):
            return row_pass.linear(x, weight, bias, residual, steps)
    if before:
        return _linear(_in_turn(before, x), weight, bias, (), residual)
    pick = torch.is_grad_enabled() and takes(x, weight, SMALL) and x.dim() == 2
    y = _Linear.apply(x, weight, bias) if pick else nnf.linear(x, weight, bias)
    return y if residual is None else residual + y


def linear_after(layer: nn.Module, before: Sequence[nn.Module], x: Tensor, residual: Tensor | None = None) -> Tensor:
    """``residual + layer(before(x))``, whatever someone has put in the place of a NodeLinear."""
    if takes_more(layer, NodeLinear):
        return layer(x, before, residual)
    y = layer(_in_turn(before, x))
    return y if residual is None else residual + y


def takes_more(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether a module takes the arguments of this kind: one with hooks or another forward expects x alone."""
    if torch.compiler.is_compiling() or watched(module):
        return False
    return getattr(module.forward, "__func__", None) is kind.forward


def _in_turn(modules: Sequence[nn.Module], x: Tensor) -> Tensor:
    for module in modules:
        x = module(x)
    return x.flatten(-2) if x.dim() > 2 else x


def takes(x: Tensor, weight: Tensor, small: int) -> bool:
    """Whether the kernels can read these, and x has more than ``small`` entries."""
    if torch.compiler.is_compiling() or not x.is_cpu or x.numel() <= small:
        return False
    if not row_pass.has_memory(x) or not row_pass.has_memory(weight):
        return False
    if x.dtype is not weight.dtype or x.dtype not in (torch.float32, torch.float64):
        return False
    busy = transforms_active() or in_forward_mode() or torch.is_autocast_enabled("cpu")
    return not busy and has_numba()


class _Linear(Function):
    # y = x W^T + b: dL/dx = g W, dL/dW = g^T x, dL/db the sum of g; rows of g that are zero add nothing
    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return nnf.linear(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        (x, weight), g = ctx.saved_tensors, grads[0]
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        rows = None if torch.is_grad_enabled() or transforms_active() else _rows_with_gradient(g)
        if rows is not None:
            g, nodes, x = g.index_select(0, rows), x.size(0), x.index_select(0, rows)
        d_x = g @ weight if needs_x else None
        if rows is not None and d_x is not None:
            d_x = d_x.new_zeros(nodes, d_x.size(1)).index_copy_(0, rows, d_x)
        return d_x, g.t() @ x if needs_weight else None, g.sum(0) if needs_bias else None


def _rows_with_gradient(g: Tensor) -> Tensor | None:
    """The rows that are not zero; None where there are many, which the first of them tell."""
    from walksum.backends.cpu.sparse_rows import nonzero_rows

    rows = g.new_empty(g.size(0) // FEWEST, dtype=torch.int64)
    count = nonzero_rows(g.detach().contiguous().numpy(), rows.numpy())
    return None if count < 0 else rows[:count]
