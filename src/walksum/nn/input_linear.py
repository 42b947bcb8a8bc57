"""InputLinear: the projection of input features, which are mostly zeros where they are bags of words."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as nnf
from torch import Tensor, nn

from walksum._torch import Function, transforms_active
from walksum.backends.cpu.simd import lanes_for
from walksum.backends.cpu.threads import over_columns
from walksum.nn.dropout import LANES, Dropout, _Dropout
from walksum.nn.node_linear import takes
from walksum.nn.row_pass import block_rows

SMALL = 1 << 16  # entries up to which a dense product is quicker than a look
LOOKED_AT = 64  # rows that tell how many zeros there are
DENSEST = 0.2  # share of entries that are not zero up to which skipping zeros pays


class InputLinear(nn.Linear):
    """``nn.Linear(dropout(x))``; on a CPU the zeros of ``x`` are skipped where most entries are zero.

    The sums are those of torch in another order. Dropout leaves zeros alone: its mask is drawn for the other entries
    only, and is the one that ``dropout(x)`` would have.
    """

    def forward(self, input: Tensor, dropout: nn.Module | None = None) -> Tensor:
        x = input
        if not _takes(x, self.weight) or not _mostly_zeros(x):
            return super().forward(x if dropout is None else dropout(x))
        seed, p = 0, 0.0
        if type(dropout) is Dropout and not dropout._forward_hooks and not dropout._forward_pre_hooks:
            if dropout.training and 0 < dropout.p < 1:
                seed, p = int(torch.randint(2**62, (1,), device="cpu")), dropout.p
            elif dropout.training and dropout.p == 1:
                x = dropout(x)
        elif dropout is not None:
            x = dropout(x)
        return _Product.apply(x, self.weight, self.bias, seed, p, [])


class LazyInputLinear(nn.LazyLinear, InputLinear):
    """An :class:`InputLinear` that takes its width from the first input."""

    cls_to_become = InputLinear

    def initialize_parameters(self, input: Tensor, dropout: nn.Module | None = None) -> None:
        super().initialize_parameters(input)


def _takes(x: Tensor, weight: Tensor) -> bool:
    """Whether the kernels can read these, and nobody asks for derivatives by x."""
    return takes(x, weight, SMALL) and x.dim() == 2 and x.is_contiguous() and not x.requires_grad


def _mostly_zeros(x: Tensor) -> bool:
    """By a look at a few rows: a wrong guess costs time alone."""
    rows = x[:: -(-x.size(0) // LOOKED_AT)]
    return int(rows.count_nonzero()) <= DENSEST * rows.numel()


class _Product(Function):
    # linear in weight and bias: their gradients are dropout(x)^T g and the sum of g
    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None, seed: int, p: float, kept: list) -> Tensor:
        from walksum.backends.cpu.sparse_rows import product

        channels, lanes, blocks = _blocks(weight.size(0))
        added = weight.new_zeros(1, weight.size(0)) if bias is None else bias.detach().unsqueeze(0)
        table, offset = (_by_blocks(t, blocks, channels) for t in (weight.detach().t(), added))
        out = x.new_empty(x.size(0), blocks * channels)
        numbers = x.detach().numpy()
        given = (numbers.reshape(-1), x.size(1), table, offset, out.view(-1, channels).numpy())
        knobs = (seed, round(p * LANES), numbers.dtype.type(1 / (1 - p)))
        kept += over_columns(product, x.size(0), float(x.numel()), lanes, *given, *knobs, width=block_rows(x))
        return out if out.size(1) == weight.size(0) else out[:, : weight.size(0)].contiguous()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        x, _, _, ctx.seed, ctx.p, ctx.kept = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        (x,), grad, d_weight = ctx.saved_tensors, grads[0], None
        if ctx.needs_input_grad[1]:
            if torch.is_grad_enabled() or transforms_active():  # someone will differentiate this again
                dropped = (
                    _Dropout.apply(x.unsqueeze(0), torch.tensor([ctx.seed], device="cpu"), ctx.p).squeeze(0)
                    if ctx.p
                    else x
                )
                d_weight = grad.t() @ dropped
            else:
                d_weight = _weight_gradient(x, grad, ctx.kept)
        return None, d_weight, grad.sum(0) if ctx.needs_input_grad[2] else None, None, None, None


def _weight_gradient(x: Tensor, grad: Tensor, kept: list) -> Tensor:
    from walksum.backends.cpu.sparse_rows import transposed_product

    channels, lanes, blocks = _blocks(grad.size(1))
    given, rows = _by_blocks(grad, blocks, channels), block_rows(x) * blocks

    def part(k: int, _: int) -> np.ndarray:
        return transposed_product(lanes, *kept[k], x.size(1), given[k * rows : (k + 1) * rows], blocks)

    parts = over_columns(part, len(kept), float(x.numel()), width=1)
    total = parts[0]
    for other in parts[1:]:
        total += other
    return torch.from_numpy(total).view(x.size(1), -1)[:, : grad.size(1)].t()


def _blocks(out_channels: int) -> tuple[int, Any, int]:
    """Channels of a block, the lanes that hold them, and how many blocks there are."""
    lanes = lanes_for(out_channels)
    channels = 8 * lanes.itemsize
    return channels, lanes, -(-out_channels // channels)


def _by_blocks(rows: Tensor, blocks: int, channels: int) -> np.ndarray:
    """Rows filled up to whole blocks, one block per row."""
    return nnf.pad(rows, (0, blocks * channels - rows.size(1))).contiguous().view(-1, channels).numpy()
