"""The vector work of conjugate gradients on the GPU, fused: 9 passes over N x F numbers per step beside the product.

z = D^-1 r is never stored; it costs less to compute again.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from walksum.backends.cuda.triton.launch import launch
from walksum.backends.cuda.triton.matrix import Control
from walksum.backends.cuda.triton.plan import FEW, Tile, feature_width, sum_block
from walksum.backends.cuda.triton.scalars import (
    ALPHA,
    BETA,
    SCALE,
    SIZES,
    START,
    UPDATE,
    field,
    finish,
    has_work,
    is_last_program,
    magnitude,
    store_partial,
)

UPDATES = 2048  # programs of the vector kernels at most
FEWER = 256  # where as many rows do not fill them: their sums are then added up without another launch


@triton.jit(do_not_specialize=["num_nodes", "turns", "count", "max_steps"])
def update_kernel(
    mu, r, p, q, inverse, control, partial, counter, J_norm, num_nodes, F, turns, count, tol, max_steps,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, FINISH: tl.constexpr,
):  # fmt: skip
    """mu += alpha p, r -= alpha q, and r . z, max |r|, max |mu| of every column."""
    head = tl.program_id(2).to(tl.int64)
    cols = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    if has_work(control, cols, F, UPDATE):
        alpha = tl.load(field(control, ALPHA, F) + cols, mask=cols < F, other=0.0)[None, :]
        dot = tl.zeros([ROWS, WIDTH], tl.float32)
        r_max = tl.zeros([ROWS, WIDTH], tl.float32)
        mu_max = tl.zeros([ROWS, WIDTH], tl.float32)
        for turn in range(turns):
            rows = (tl.program_id(0) * turns + turn) * ROWS + tl.arange(0, ROWS)
            mask = (rows < num_nodes)[:, None] & (cols < F)[None, :]
            at = (head * num_nodes + rows)[:, None] * F + cols[None, :]
            new_mu = tl.load(mu + at, mask=mask, other=0.0)
            new_mu += alpha * tl.load(p + at, mask=mask, other=0.0).to(tl.float32)
            new_r = tl.load(r + at, mask=mask, other=0.0) - alpha * tl.load(q + at, mask=mask, other=0.0)
            z = new_r * tl.load(inverse + head * num_nodes + rows, mask=rows < num_nodes, other=0.0)[:, None]
            tl.store(mu + at, new_mu, mask=mask)
            tl.store(r + at, new_r, mask=mask)
            dot += new_r * z
            r_max = tl.maximum(r_max, magnitude(new_r))
            mu_max = tl.maximum(mu_max, magnitude(new_mu))
        store_partial(partial, 0, tl.program_id(0), tl.sum(dot, 0), cols, F, count)
        store_partial(partial, 1, tl.program_id(0), tl.max(r_max, 0), cols, F, count)
        store_partial(partial, 2, tl.program_id(0), tl.max(mu_max, 0), cols, F, count)
        if FINISH:  # noqa: SIM102
            if is_last_program(counter, count):
                finish(control, partial, J_norm, cols, F, count, tol, max_steps, BLOCK, UPDATE)


@triton.jit(do_not_specialize=["num_nodes", "turns", "count"])
def sizes_kernel(
    h, control, partial, counter, J_norm, num_nodes, F, turns, count,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, FINISH: tl.constexpr,
):  # fmt: skip
    """The largest entry of every column of h, and the scalars a solve begins with."""
    head = tl.program_id(2).to(tl.int64)
    cols = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    largest = tl.zeros([ROWS, WIDTH], tl.float32)
    for turn in range(turns):
        rows = (tl.program_id(0) * turns + turn) * ROWS + tl.arange(0, ROWS)
        mask = (rows < num_nodes)[:, None] & (cols < F)[None, :]
        at = (head * num_nodes + rows)[:, None] * F + cols[None, :]
        largest = tl.maximum(largest, magnitude(tl.load(h + at, mask=mask, other=0.0)))
    store_partial(partial, 1, tl.program_id(0), tl.max(largest, 0), cols, F, count)
    store_partial(partial, 2, tl.program_id(0), tl.zeros([WIDTH], tl.float32), cols, F, count)
    if FINISH:  # noqa: SIM102
        if is_last_program(counter, count):
            finish(control, partial, J_norm, cols, F, count, 0.0, 0, BLOCK, SIZES)


@triton.jit(do_not_specialize=["num_nodes", "turns", "count"])
def start_kernel(
    h, mu, r, p, inverse, control, partial, counter, J_norm, num_nodes, F, turns, count,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, FINISH: tl.constexpr,
):  # fmt: skip
    """mu = 0, r = h in units of its columns' sizes, p = z, and r . z."""
    head = tl.program_id(2).to(tl.int64)
    cols = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    # unit columns: the squares inside the dot products of float32 overflow from 1e19 on
    scale = tl.load(field(control, SCALE, F) + cols, mask=cols < F, other=1.0)[None, :]
    dot = tl.zeros([ROWS, WIDTH], tl.float32)
    for turn in range(turns):
        rows = (tl.program_id(0) * turns + turn) * ROWS + tl.arange(0, ROWS)
        mask = (rows < num_nodes)[:, None] & (cols < F)[None, :]
        at = (head * num_nodes + rows)[:, None] * F + cols[None, :]
        first_r = tl.load(h + at, mask=mask, other=0.0) / scale
        z = first_r * tl.load(inverse + head * num_nodes + rows, mask=rows < num_nodes, other=0.0)[:, None]
        tl.store(mu + at, tl.zeros_like(z), mask=mask)
        tl.store(r + at, first_r, mask=mask)
        tl.store(p + at, z.to(p.dtype.element_ty), mask=mask)
        dot += first_r * z
    store_partial(partial, 0, tl.program_id(0), tl.sum(dot, 0), cols, F, count)
    if FINISH:  # noqa: SIM102
        if is_last_program(counter, count):
            finish(control, partial, J_norm, cols, F, count, 0.0, 0, BLOCK, START)


@triton.jit(do_not_specialize=["num_nodes"])
def direction_kernel(p, r, inverse, control, num_nodes, F, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """p = z + beta p."""
    head = tl.program_id(2).to(tl.int64)
    cols = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    if has_work(control, cols, F, UPDATE):
        beta = tl.load(field(control, BETA, F) + cols, mask=cols < F, other=0.0)[None, :]
        rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        mask = (rows < num_nodes)[:, None] & (cols < F)[None, :]
        at = (head * num_nodes + rows)[:, None] * F + cols[None, :]
        z = tl.load(r + at, mask=mask, other=0.0)
        z *= tl.load(inverse + head * num_nodes + rows, mask=rows < num_nodes, other=0.0)[:, None]
        new_p = z + beta * tl.load(p + at, mask=mask, other=0.0).to(tl.float32)
        tl.store(p + at, new_p.to(p.dtype.element_ty), mask=mask)


def update_programs(num_nodes: int, columns: int) -> tuple[int, int]:
    """Programs, and row groups that each of them takes in turn."""
    groups = -(-num_nodes // _tile(columns).rows)
    turns = -(-groups // (UPDATES if groups > UPDATES else FEWER))
    return -(-groups // turns), turns


def update(control: Control, mu: Tensor, r: Tensor, p: Tensor, q: Tensor, inverse: Tensor) -> None:
    heads, num_nodes, F = mu.shape
    tile = _tile(F)
    count, turns = update_programs(num_nodes, F)
    inside = count <= FEW * sum_block(tile)
    launch(
        update_kernel, (count, -(-F // tile.features), heads), mu, mu, r, p, q, inverse, control.scalars,
        control.partial, control.counter, control.J_norm, num_nodes, F, turns, count, control.aim, control.max_steps,
        warps=tile.warps, ROWS=tile.rows, WIDTH=tile.features, BLOCK=sum_block(tile), FINISH=inside,
    )  # fmt: skip
    if not inside:
        control.finish(UPDATE.value, count, tile.features)


def start(control: Control, h: Tensor, mu: Tensor, r: Tensor, p: Tensor, inverse: Tensor) -> None:
    """Begin a solve of ``h``: the columns' scalars and vectors."""
    heads, num_nodes, F = mu.shape
    tile = _tile(F)
    count, turns = update_programs(num_nodes, F)
    grid, inside = (count, -(-F // tile.features), heads), count <= FEW * sum_block(tile)
    shape = {"ROWS": tile.rows, "WIDTH": tile.features, "BLOCK": sum_block(tile), "FINISH": inside}
    common = (control.scalars, control.partial, control.counter, control.J_norm, num_nodes, F, turns, count)
    launch(sizes_kernel, grid, h, h, *common, warps=tile.warps, **shape)
    if not inside:
        control.finish(SIZES.value, count, tile.features)
    launch(start_kernel, grid, h, h, mu, r, p, inverse, *common, warps=tile.warps, **shape)
    if not inside:
        control.finish(START.value, count, tile.features)


def direction(control: Control, p: Tensor, r: Tensor, inverse: Tensor) -> None:
    heads, num_nodes, F = r.shape
    tile = _tile(F)
    grid = (-(-num_nodes // tile.rows), -(-F // tile.features), heads)
    launch(
        direction_kernel, grid, r, p, r, inverse, control.scalars, num_nodes, F,
        warps=tile.warps, ROWS=tile.rows, WIDTH=tile.features,
    )  # fmt: skip


def _tile(columns: int) -> Tile:
    width = feature_width(columns)
    return Tile(edges=1, rows=min(256, max(1, 2048 // width)), features=width, warps=8)  # eight numbers per thread
