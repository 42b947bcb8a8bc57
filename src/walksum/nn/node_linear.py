"""NodeLinear: a linear layer after the last mixing, where few nodes have a gradient."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as nnf
from torch import Tensor, nn

from walksum._torch import Function, in_forward_mode, transforms_active
from walksum.backends import has_numba

SMALL = 1 << 15  # entries up to which a look costs more than it saves
FEWEST = 8  # times fewer nodes with a gradient than nodes, from which on it pays to pick them


class NodeLinear(nn.Linear):
    """``nn.Linear``, whose backward pass on a CPU skips the nodes without a gradient where most have none.

    A loss reads the nodes that have a label, often a few in a hundred, and between two mixings of the graph a node's
    gradient stays its own.
    """

    def forward(self, input: Tensor) -> Tensor:
        if torch.is_grad_enabled() and _takes(input, self.weight):
            return _Linear.apply(input, self.weight, self.bias)
        return super().forward(input)


def _takes(x: Tensor, weight: Tensor) -> bool:
    if torch.compiler.is_compiling() or not x.is_cpu or x.dim() != 2 or x.numel() <= SMALL:
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

    rows = torch.empty(g.size(0) // FEWEST, dtype=torch.int64)
    count = nonzero_rows(g.detach().contiguous().numpy(), rows.numpy())
    return None if count < 0 else rows[:count]
