"""J x on the GPU: rows in groups, hubs in pieces, and what a solver wants to know beside the product."""

from __future__ import annotations

import triton
import triton.language as tl

from walksum.backends.cuda.triton.scalars import (
    PLAIN,
    RESIDUAL,
    SCALE,
    VERIFY,
    field,
    finish,
    has_work,
    is_last_program,
    magnitude,
    store_partial,
)


@triton.jit
def weighted_sum(
    begin, end, stride, indices, values, x, cols, F,
    EDGES: tl.constexpr, ROWS: tl.constexpr, WEIGHTED: tl.constexpr,
):  # fmt: skip
    """Sum over the slots begin, begin + stride, ... < end of each of ROWS lanes: ``[ROWS, WIDTH]``."""
    longest = tl.max(end - begin, 0)
    acc = tl.zeros([ROWS, cols.shape[0]], tl.float32)
    for first in range(0, longest, EDGES * stride):
        slot = begin[None, :] + (first + tl.arange(0, EDGES) * stride)[:, None]
        here = slot < end[None, :]
        col = tl.load(indices + slot, mask=here, other=0)
        at = col.to(tl.int64)[:, :, None] * F + cols[None, None, :]
        mask = here[:, :, None] & (cols < F)[None, None, :]
        tile = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        if WEIGHTED:
            weight = tl.load(values + slot, mask=here, other=0.0)
            tile = tile * weight[:, :, None]
        acc += tl.sum(tile, 0)
    return acc


@triton.jit
def finish_rows(
    rows, here, acc, constant, diag, x, out, h, inverse, direction, control, cols, F,
    WEIGHTED: tl.constexpr, MODE: tl.constexpr,
):  # fmt: skip
    """Finish rows of the product, store them, and return what the mode counts: three numbers per column."""
    mask = here[:, None] & (cols < F)[None, :]
    at = rows.to(tl.int64)[:, None] * F + cols[None, :]
    own = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    if not WEIGHTED:
        acc = acc * tl.load(constant + tl.program_id(2))
    y = acc + tl.load(diag + rows, mask=here, other=0.0)[:, None] * own
    dot, r_max, mu_max = y * 0.0, y * 0.0, y * 0.0
    if MODE < RESIDUAL:
        tl.store(out + at, y, mask=mask)
        dot = tl.where(mask, own * y, 0.0)
    if MODE >= RESIDUAL:
        scale = tl.load(field(control, SCALE, F) + cols, mask=cols < F, other=1.0)
        r = tl.load(h + at, mask=mask, other=0.0) / scale[None, :] - y
        r_max, mu_max = tl.where(mask, magnitude(r), 0.0), tl.where(mask, magnitude(own), 0.0)
        if MODE == VERIFY:
            z = r * tl.load(inverse + rows, mask=here, other=0.0)[:, None]
            tl.store(out + at, r, mask=mask)
            tl.store(direction + at, z.to(direction.dtype.element_ty), mask=mask)
            dot = tl.where(mask, r * z, 0.0)
    return tl.sum(dot, 0), tl.max(r_max, 0), tl.max(mu_max, 0)


@triton.jit(do_not_specialize=["num_nodes", "num_slots", "hub", "turns", "count", "max_steps"])
def spmm_rows(
    indptr, indices, values, constant, diag, x, out, h, inverse, direction,
    control, partial, counter, J_norm,
    num_nodes, num_slots, F, hub, turns, count, tol, max_steps,
    EDGES: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    WEIGHTED: tl.constexpr, MODE: tl.constexpr, FINISH: tl.constexpr, FACTOR: tl.constexpr,
):  # fmt: skip
    """Rows of ``J x`` for every head, ROWS at a time, and what the mode counts of each column.

    J: ``indptr, indices`` (neighbour lists), ``values [H, 2E]`` or ``constant [H]``, ``diag [H, N]``, ``J_norm [H]``.
    Vectors ``[H, N, F]``: ``x``; ``out`` the product or residual; ``h``; ``direction`` of CG; ``inverse [H, N]``, the
    preconditioner. Workspace: ``control`` (scalars.py), ``partial`` sums of each program, ``counter`` of programs that
    are done.
    Numbers: ``num_nodes``, ``num_slots`` = 2E, ``F`` columns, ``hub`` (longer rows go to spmm_pieces), ``turns`` row
    groups per program, ``count`` of partial sums, ``tol``, ``max_steps``.
    Constants: EDGES, ROWS and WIDTH of a tile; BLOCK partial sums added at a time; WEIGHTED: values, not one constant;
    MODE: see scalars.py; FINISH: the last program adds up; FACTOR: a divisor of F.
    """
    if FACTOR > 1:  # so that rows are read in vectors
        F = F // FACTOR * FACTOR
    head = tl.program_id(2).to(tl.int64)
    cols = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    if has_work(control, cols, F, MODE):
        x += head * num_nodes * F
        out += head * num_nodes * F
        diag += head * num_nodes
        values += head * num_slots
        if MODE >= RESIDUAL:
            h += head * num_nodes * F
        if MODE == VERIFY:
            direction += head * num_nodes * F
            inverse += head * num_nodes
        dot = tl.zeros([WIDTH], tl.float32)
        r_max = tl.zeros([WIDTH], tl.float32)
        mu_max = tl.zeros([WIDTH], tl.float32)
        for turn in range(turns):
            rows = (tl.program_id(0) * turns + turn) * ROWS + tl.arange(0, ROWS)
            here = rows < num_nodes
            begin = tl.load(indptr + rows, mask=here, other=0)
            end = tl.load(indptr + rows + 1, mask=here, other=0)
            here = here & (end - begin <= hub)
            end = tl.where(here, end, begin)
            acc = weighted_sum(begin, end, 1, indices, values, x, cols, F, EDGES, ROWS, WEIGHTED)
            a, b, c = finish_rows(
                rows, here, acc, constant, diag, x, out, h, inverse, direction, control, cols, F,
                WEIGHTED, MODE,
            )  # fmt: skip
            dot, r_max, mu_max = dot + a, tl.maximum(r_max, b), tl.maximum(mu_max, c)
        store_results(
            control, partial, counter, J_norm, tl.program_id(0), dot, r_max, mu_max, cols, F, count, tol, max_steps,
            BLOCK, MODE, FINISH,
        )  # fmt: skip


@triton.jit
def store_results(
    control, partial, counter, J_norm, at, dot, r_max, mu_max, cols, F, count, tol, max_steps,
    BLOCK: tl.constexpr, MODE: tl.constexpr, FINISH: tl.constexpr,
):  # fmt: skip
    """Leave this program's partial results; the last program adds them up where that pays."""
    if MODE != PLAIN and MODE != RESIDUAL:
        store_partial(partial, 0, at, dot, cols, F, count)
    if MODE >= RESIDUAL:
        store_partial(partial, 1, at, r_max, cols, F, count)
        store_partial(partial, 2, at, mu_max, cols, F, count)
    if FINISH and MODE != PLAIN:  # noqa: SIM102
        if is_last_program(counter, count):
            finish(control, partial, J_norm, cols, F, count, tol, max_steps, BLOCK, MODE)


@triton.jit(do_not_specialize=["num_nodes", "num_slots", "num_pieces"])
def spmm_pieces(
    indices, values, x, control, pieces, piece_begin, piece_end, num_nodes, num_slots, num_pieces, F,
    EDGES: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, WEIGHTED: tl.constexpr,
    MODE: tl.constexpr, FACTOR: tl.constexpr,
):  # fmt: skip
    """One piece of a hub row: its slots dealt to the lanes, their sum filed for :func:`spmm_hubs`."""
    if FACTOR > 1:
        F = F // FACTOR * FACTOR
    head, piece = tl.program_id(2).to(tl.int64), tl.program_id(0)
    cols = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    if has_work(control, cols, F, MODE):
        begin = tl.load(piece_begin + piece) + tl.arange(0, ROWS)
        end = tl.load(piece_end + piece) + tl.zeros_like(begin)
        x += head * num_nodes * F
        values += head * num_slots
        acc = weighted_sum(begin, end, ROWS, indices, values, x, cols, F, EDGES, ROWS, WEIGHTED)
        tl.store(pieces + (head * num_pieces + piece) * F + cols, tl.sum(acc, 0), mask=cols < F)


@triton.jit(do_not_specialize=["first", "num_nodes", "num_pieces", "count"])
def spmm_hubs(
    hubs, piece_start, pieces, constant, diag, x, out, h, inverse, direction, control, partial,
    first, num_nodes, num_pieces, F, count,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr, WEIGHTED: tl.constexpr, MODE: tl.constexpr,
):  # fmt: skip
    """Add up the pieces of one hub and finish its row."""
    head, hub = tl.program_id(2).to(tl.int64), tl.program_id(0)
    cols = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    if has_work(control, cols, F, MODE):
        acc = sum_of_pieces(pieces + head * num_pieces * F, piece_start, hub, cols, F, BLOCK)
        x += head * num_nodes * F
        out += head * num_nodes * F
        diag += head * num_nodes
        if MODE >= RESIDUAL:
            h += head * num_nodes * F
        if MODE == VERIFY:
            direction += head * num_nodes * F
            inverse += head * num_nodes
        lane = tl.arange(0, 1)
        rows = tl.load(hubs + hub + lane)
        a, b, c = finish_rows(
            rows, lane == 0, acc, constant, diag, x, out, h, inverse, direction, control, cols, F,
            WEIGHTED, MODE,
        )  # fmt: skip
        store_results(control, partial, None, None, first + hub, a, b, c, cols, F, count, 0.0, 0, BLOCK, MODE, False)


@triton.jit
def sum_of_pieces(pieces, piece_start, hub, cols, F, BLOCK: tl.constexpr):
    begin, end = tl.load(piece_start + hub), tl.load(piece_start + hub + 1)
    acc = tl.zeros_like(cols).to(tl.float32)
    for first in range(begin, end, BLOCK):
        at = first + tl.arange(0, BLOCK)
        mask = (at < end)[:, None] & (cols < F)[None, :]
        acc += tl.sum(tl.load(pieces + at[:, None] * F + cols[None, :], mask=mask, other=0.0), 0)
    return acc
