"""Solves with a factor of :mod:`walksum.kernels.ldl`, a block of columns at a time.

A block is copied into elimination order, swept forward and backward in registers, written back, and measured against
J itself while it is still in the cache. Blocks are up to 32 columns wide; one kernel call takes a range of blocks.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from walksum.kernels import lanes
from walksum.kernels.lanes import L8, L16, L32
from walksum.kernels.numba_settings import SETTINGS

WIDTH = 32


@njit(**SETTINGS)
def solve(start, stop, h, mu, factor, inverse, sweeps, diag, off, matrix, norms):
    """Fill the blocks ``start:stop`` of mu (blocks of one head after the other); returns their worst backward error."""
    worst, blocks = 0.0, -(-h.shape[2] // WIDTH)
    for unit in range(start, stop):
        head, first = unit // blocks, unit % blocks * WIDTH
        args = (h[head], mu[head], first, factor[head], inverse[head], sweeps, diag[head], off[head], matrix)
        width = min(WIDTH, h.shape[2] - first)
        if width <= 8:
            error = _solve_block(L8, norms[head], *args)
        elif width <= 16:
            error = _solve_block(L16, norms[head], *args)
        else:
            error = _solve_block(L32, norms[head], *args)
        worst = _worse(worst, error)
    return worst


@njit(**SETTINGS)
def _worse(a, b):
    """The larger one; NaN if either is."""
    return a if a != a or a >= b else b


@njit(**SETTINGS)
def _solve_block(wide, norm, h, mu, first, factor, inverse, sweeps, diag, off, matrix):
    order = sweeps[0]
    x = np.empty(8 * len(wide) * len(order), h.dtype)
    _enter(wide, x, h, first, order)
    _forward(wide, x, factor, sweeps)
    _backward(wide, x, factor, inverse, sweeps)
    _leave(wide, x, mu, first, order)
    return _measure(wide, norm, x, h, first, order, diag, off, matrix)


@njit(**SETTINGS)
def _enter(wide, x, h, first, order):
    """Columns of h into x, rows in elimination order, columns without a number zero."""
    W, width = 8 * len(wide), min(8 * len(wide), h.shape[1] - first)
    flat, F = h.reshape(-1), h.shape[1]
    for i in range(len(order)):
        source, target = F * order[i] + first, W * i
        if width == W:
            lanes.store(x, target, lanes.load(flat, source, wide))
        else:
            for f in range(width):
                x[target + f] = flat[source + f]
            for f in range(width, W):
                x[target + f] = 0


@njit(**SETTINGS)
def _leave(wide, x, mu, first, order):
    W, width = 8 * len(wide), min(8 * len(wide), mu.shape[1] - first)
    flat, F = mu.reshape(-1), mu.shape[1]
    for i in range(len(order)):
        source, target = W * i, F * order[i] + first
        if width == W:
            lanes.store(flat, target, lanes.load(x, source, wide))
        else:
            for f in range(width):
                flat[target + f] = x[source + f]


@njit(**SETTINGS)
def _forward(wide, x, factor, sweeps):
    """``x <- L^-1 x``, by rows: the row that changes stays in registers."""
    _, _, _, rowptr, rowcol, rowslot = sweeps
    W = 8 * len(wide)
    for i in range(len(rowptr) - 1):
        if rowptr[i] < rowptr[i + 1]:
            total = lanes.load(x, W * i, wide)
            for q in range(rowptr[i], rowptr[i + 1]):
                total = lanes.minus_product(total, factor[rowslot[q]], lanes.load(x, W * rowcol[q], wide))
            lanes.store(x, W * i, total)


@njit(**SETTINGS)
def _backward(wide, x, factor, inverse, sweeps):
    """``x <- L^-T D^-1 x``, by columns from the last."""
    _, colptr, rows, _, _, _ = sweeps
    W = 8 * len(wide)
    for k in range(len(inverse) - 1, -1, -1):
        total = lanes.times(inverse[k], lanes.load(x, W * k, wide))
        for p in range(colptr[k], colptr[k + 1]):
            total = lanes.minus_product(total, factor[p], lanes.load(x, W * rows[p], wide))
        lanes.store(x, W * k, total)


@njit(**SETTINGS)
def _measure(wide, norm, x, h, first, order, diag, off, matrix):
    """The worst normwise backward error ``|h - J x| / (|J| |x| + |h|)`` of the block's columns."""
    adjptr, adjcol, adjedge = matrix
    W, F, flat = 8 * len(wide), h.shape[1], h.reshape(-1)
    width = min(W, F - first)
    row = np.zeros(W, h.dtype)
    zero = lanes.load(row, 0, wide)
    top_h, top_x, top_r = zero, zero, zero
    for i in range(len(order)):
        source = F * order[i] + first
        if width == W:
            total = lanes.load(flat, source, wide)
        else:
            for f in range(width):
                row[f] = flat[source + f]
            total = lanes.load(row, 0, wide)
        top_h = lanes.largest(top_h, total)
        own = lanes.load(x, W * i, wide)
        top_x = lanes.largest(top_x, own)
        total = lanes.minus_product(total, diag[order[i]], own)
        for p in range(adjptr[i], adjptr[i + 1]):
            total = lanes.minus_product(total, off[adjedge[p]], lanes.load(x, W * adjcol[p], wide))
        top_r = lanes.largest(top_r, total)
    tops = np.empty(3 * W, h.dtype)
    lanes.store(tops, 0, top_h)
    lanes.store(tops, W, top_x)
    lanes.store(tops, 2 * W, top_r)
    worst = 0.0
    for f in range(width):
        if tops[2 * W + f] != 0:
            worst = _worse(worst, tops[2 * W + f] / (norm * tops[W + f] + tops[f]))
    return worst
