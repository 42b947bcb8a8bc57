"""Operands of the attention kernels: float16, divided by their size, rows and width filled up with zeros."""

from __future__ import annotations

import triton
import triton.language as tl

from walksum.kernels.gpu_attention import place


@triton.jit
def entries_of(
    x, rows, order, num_nodes, batch_step, head_step, row_step, col_step, WIDTH, ORDERED: tl.constexpr, D: tl.constexpr
):
    """Rows of this program's batch and head, zero beyond the last node and the width."""
    cols, nodes = tl.arange(0, D), rows.to(tl.int64)
    if ORDERED:
        nodes = tl.load(order + rows).to(tl.int64)
    at = nodes[:, None] * row_step + cols[None, :].to(tl.int64) * col_step
    mask = (rows < num_nodes)[:, None] & (cols < WIDTH)[None, :]
    base = tl.program_id(2).to(tl.int64) * batch_step + tl.program_id(0).to(tl.int64) * head_step
    return tl.load(x + base + at, mask=mask, other=0.0)


@triton.jit(do_not_specialize=["num_nodes", "batch_step", "head_step", "row_step", "col_step"])
def pack(
    x, size, order, out, num_nodes, stride, batch_step, head_step, row_step, col_step, WIDTH,
    ORDERED: tl.constexpr, ONES: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """x / size; ONES: with a column of ones behind."""
    _, _, z = place()
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    tile = entries_of(x, rows, order, num_nodes, batch_step, head_step, row_step, col_step, WIDTH, ORDERED, D)
    at = (z * stride + rows)[:, None] * D + tl.arange(0, D)[None, :]
    tile = tile / tl.load(size + z)
    if ONES:
        tile = tl.where((tl.arange(0, D) == WIDTH)[None, :], 1.0, tile)
    tl.store(out + at, tile.to(tl.float16))


@triton.jit(do_not_specialize=["num_nodes", "batch_step", "head_step", "row_step", "col_step"])
def weigh(
    grad, masses, order, sizes, num_nodes, stride, batch_step, head_step, row_step, col_step, WIDTH,
    ORDERED: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The largest entry of each row of grad / mass."""
    _, _, z = place()
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    g = entries_of(grad, rows, order, num_nodes, batch_step, head_step, row_step, col_step, WIDTH, ORDERED, D)
    mass = tl.load(masses + z * stride + rows)
    tl.store(sizes + z * stride + rows, tl.max(tl.abs(g), 1) / mass)


@triton.jit(do_not_specialize=["num_nodes", *(f"{x}_step_{i}" for x in "go" for i in range(4))])
def pack_weighed(
    grad, out, size, v_size, masses, order, packed, deltas, num_nodes, stride,
    g_step_0, g_step_1, g_step_2, g_step_3, o_step_0, o_step_1, o_step_2, o_step_3, WIDTH,
    ORDERED: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """grad / (mass size), and its product with the packed output: as rounded, so that a row's gradients sum to zero."""
    _, _, z = place()
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    g = entries_of(grad, rows, order, num_nodes, g_step_0, g_step_1, g_step_2, g_step_3, WIDTH, ORDERED, D)
    o = entries_of(out, rows, order, num_nodes, o_step_0, o_step_1, o_step_2, o_step_3, WIDTH, ORDERED, D)
    mass = tl.load(masses + z * stride + rows)
    g = (g / mass[:, None] / tl.load(size + z)).to(tl.float16)
    at = (z * stride + rows)[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(packed + at, g)
    tl.store(deltas + z * stride + rows, tl.sum(g.to(tl.float32) * o, 1) / tl.load(v_size + z))
