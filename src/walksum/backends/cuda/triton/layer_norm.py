"""Layer normalisation of narrow rows on the GPU: one pass over the rows forth, one back for all three gradients.

torch's kernels give every row a block of threads, and read the rows once more for the gradients of scale and offset:
with 64 channels that takes several times as long as the memory does.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from walksum.backends.cuda.triton.launch import launch

WIDEST = 1024  # channels
TILE = 2048  # numbers that a program holds at once
PROGRAMS = 512  # of the backward pass at most; each has partial sums of its own


@triton.jit
def normalised(x, at, mask, epsilon, F):
    """The rows without scale and offset, and one over their deviations."""
    value = tl.load(x + at, mask=mask, other=0.0)
    centred = tl.where(mask, value - tl.sum(value, 1)[:, None] / F, 0.0)
    inverse = tl.rsqrt(tl.sum(centred * centred, 1) / F + epsilon)[:, None]
    return centred * inverse, inverse


@triton.jit(do_not_specialize=["num_rows"])
def forward_kernel(x, gamma, beta, y, num_rows, F, epsilon, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, WIDTH)
    mask = (rows < num_rows)[:, None] & (cols < F)[None, :]
    at = rows[:, None] * F + cols[None, :]
    value, _ = normalised(x, at, mask, epsilon, F)
    scale = tl.load(gamma + cols, mask=cols < F, other=0.0)[None, :]
    tl.store(y + at, value * scale + tl.load(beta + cols, mask=cols < F, other=0.0)[None, :], mask=mask)


@triton.jit(do_not_specialize=["num_rows", "turns"])
def backward_kernel(x, gamma, grad, d_x, sums, num_rows, turns, F, epsilon, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    cols = tl.arange(0, WIDTH)
    scale = tl.load(gamma + cols, mask=cols < F, other=0.0)[None, :]
    d_gamma = tl.zeros([ROWS, WIDTH], tl.float32)
    d_beta = tl.zeros([ROWS, WIDTH], tl.float32)
    for turn in range(turns):
        rows = (tl.program_id(0).to(tl.int64) * turns + turn) * ROWS + tl.arange(0, ROWS)
        mask = (rows < num_rows)[:, None] & (cols < F)[None, :]
        at = rows[:, None] * F + cols[None, :]
        value, inverse = normalised(x, at, mask, epsilon, F)
        g = tl.load(grad + at, mask=mask, other=0.0)
        d_gamma += tl.where(mask, g * value, 0.0)
        d_beta += g
        g *= scale
        along = tl.sum(g * value, 1)[:, None] / F
        tl.store(d_x + at, (g - tl.sum(g, 1)[:, None] / F - value * along) * inverse, mask=mask)
    out = sums + tl.program_id(0).to(tl.int64) * 2 * F + cols
    tl.store(out, tl.sum(d_gamma, 0), mask=cols < F)
    tl.store(out + F, tl.sum(d_beta, 0), mask=cols < F)


def forward(x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> Tensor:
    """``[..., F]``, contiguous."""
    y, (num_rows, F, rows, width) = torch.empty_like(x), _shape(x)
    grid = (-(-num_rows // rows), 1, 1)
    launch(forward_kernel, grid, x, x, gamma, beta, y, num_rows, F, epsilon, ROWS=rows, WIDTH=width)
    return y


def backward(x: Tensor, gamma: Tensor, grad: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, gamma and beta."""
    d_x, (num_rows, F, rows, width) = torch.empty_like(x), _shape(x)
    groups = -(-num_rows // rows)
    turns = -(-groups // PROGRAMS)
    sums = x.new_empty(-(-groups // max(turns, 1)), 2, F)
    numbers = (num_rows, turns, F, epsilon)
    launch(backward_kernel, (len(sums), 1, 1), x, x, gamma, grad, d_x, sums, *numbers, ROWS=rows, WIDTH=width)
    d_gamma, d_beta = sums.sum(0)
    return d_x, d_gamma, d_beta


def _shape(x: Tensor) -> tuple[int, int, int, int]:
    """Rows, channels, and both as a program takes them."""
    F = x.size(-1)
    width = triton.next_power_of_2(F)
    return x.numel() // F, F, max(1, TILE // width), width
