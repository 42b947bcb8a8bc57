"""Solves with a factor of :mod:`walksum.kernels.ldl`, a block of columns at a time.

A block is copied into elimination order, swept forward and backward in registers, written back, and measured against
J itself while it is still in the cache. Blocks are up to 32 columns wide; one kernel call takes a range of blocks.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from walksum.kernels.lanes import L8, L32, at, largest, load, minus_product, store, times
from walksum.kernels.numba_settings import SETTINGS

WIDTH = 32


@njit(**SETTINGS)
def solve(start, stop, h, mu, factor, inverse, diag, off, norms, plan):
    """Fill the blocks ``start:stop`` of mu (blocks of one head after the other); returns their worst backward error."""
    worst, columns = 0.0, h.shape[2]
    blocks = (columns + WIDTH - 1) // WIDTH
    for unit in range(start, stop):
        k, first = unit // blocks, unit % blocks * WIDTH
        if columns - first <= 8:
            error = _solve_block(L8, first, h[k], mu[k], factor[k], inverse[k], diag[k], off[k], norms[k], plan)
        else:
            error = _solve_block(L32, first, h[k], mu[k], factor[k], inverse[k], diag[k], off[k], norms[k], plan)
        worst = _worse(worst, error)
    return worst


@njit(**SETTINGS)
def _solve_block(wide, first, h, mu, factor, inverse, diag, off, norm, plan):
    x = _aligned(8 * len(wide) * len(h), h)
    _enter(wide, x, h, first, plan[0])
    _forward(wide, x, factor, plan)
    _backward(wide, x, factor, inverse, plan)
    _leave(wide, x, mu, first, plan[0])
    return _measure(wide, x, h, first, diag, off, norm, plan)


@njit(**SETTINGS)
def eliminate(start, stop, h, out, factor, plan):
    """``L^-1 h`` into ``out``: what the eliminated nodes leave of h for the core."""
    blocks = (h.shape[2] + WIDTH - 1) // WIDTH
    for unit in range(start, stop):
        k, first = unit // blocks, unit % blocks * WIDTH
        x = _aligned(WIDTH * h.shape[1], h)
        _enter(L32, x, h[k], first, plan[0])
        _forward(L32, x, factor[k], plan)
        _leave(L32, x, out[k], first, plan[0])


@njit(**SETTINGS)
def substitute(start, stop, h, mu, factor, inverse, diag, off, norms, plan):
    """From mu of the core and ``L^-1 h`` elsewhere, both in ``mu``, to the whole mu; returns the worst error."""
    worst, blocks = 0.0, (h.shape[2] + WIDTH - 1) // WIDTH
    for unit in range(start, stop):
        k, first = unit // blocks, unit % blocks * WIDTH
        x = _aligned(WIDTH * h.shape[1], h)
        _enter(L32, x, mu[k], first, plan[0])
        _backward(L32, x, factor[k], inverse[k], plan)
        _leave(L32, x, mu[k], first, plan[0])
        worst = _worse(worst, _measure(L32, x, h[k], first, diag[k], off[k], norms[k], plan))
    return worst


@njit(**SETTINGS)
def measure(start, stop, h, mu, diag, off, norms, plan):
    """The worst backward error of the blocks ``start:stop`` of mu."""
    worst, blocks = 0.0, (h.shape[2] + WIDTH - 1) // WIDTH
    for unit in range(start, stop):
        k, first = unit // blocks, unit % blocks * WIDTH
        x = _aligned(WIDTH * h.shape[1], h)
        _enter(L32, x, mu[k], first, plan[0])
        worst = _worse(worst, _measure(L32, x, h[k], first, diag[k], off[k], norms[k], plan))
    return worst


@njit(**SETTINGS)
def residual(head, h, mu, diag, off, out, plan):
    """``h - J mu`` of one head with mu and the sums in float64."""
    order, adjptr, adjcol, adjedge = plan[0], plan[7], plan[8], plan[9]
    for i in range(len(order)):
        v = order[i]
        for f in range(h.shape[2]):
            total = h[head, v, f] - np.float64(diag[head, v]) * mu[head, v, f]
            for p in range(adjptr[i], adjptr[i + 1]):
                total -= np.float64(off[head, adjedge[p]]) * mu[head, order[adjcol[p]], f]
            out[head, v, f] = total


@njit(**SETTINGS)
def _worse(a, b):
    """The larger one; NaN if either is."""
    return a if a != a or a >= b else b


@njit(**SETTINGS)
def _aligned(count, like):
    """Rows that start on a cache line: a sweep whose rows straddle two is a fifth slower."""
    size = like.itemsize
    x = np.empty(count + 64 // size, like.dtype)
    start = -x.ctypes.data % 64 // size
    return x[start : start + count]


@njit(**SETTINGS)
def _enter(wide, x, h, first, order):
    """Columns of h into x, rows in elimination order, columns without a number zero."""
    W, F, flat = 8 * len(wide), h.shape[1], h.ravel()
    for i in range(len(order)):
        source = F * at(order, i) + first
        if first + W <= F:
            store(x, W * i, load(flat, source, wide))
        else:
            for f in range(W):
                x[W * i + f] = at(flat, source + f) if first + f < F else 0


@njit(**SETTINGS)
def _leave(wide, x, mu, first, order):
    W, F, flat = 8 * len(wide), mu.shape[1], mu.ravel()
    for i in range(len(order)):
        target = F * at(order, i) + first
        if first + W <= F:
            store(flat, target, load(x, W * i, wide))
        else:
            for f in range(F - first):
                flat[target + f] = at(x, W * i + f)


@njit(**SETTINGS)
def _forward(wide, x, factor, plan):
    """``x <- L^-1 x``, by rows: the row that changes stays in registers."""
    rowptr, rowcol, rowslot = plan[4], plan[5], plan[6]
    W = 8 * len(wide)
    for i in range(len(rowptr) - 1):
        start, stop = at(rowptr, i), at(rowptr, i + 1)
        if start < stop:
            total = load(x, W * i, wide)
            for q in range(start, stop):
                total = minus_product(total, at(factor, at(rowslot, q)), load(x, W * at(rowcol, q), wide))
            store(x, W * i, total)


@njit(**SETTINGS)
def _backward(wide, x, factor, inverse, plan):
    """``x <- L^-T D^-1 x``, by columns from the last."""
    colptr, rows = plan[1], plan[2]
    W = 8 * len(wide)
    for k in range(len(inverse) - 1, -1, -1):
        total = times(at(inverse, k), load(x, W * k, wide))
        for p in range(at(colptr, k), at(colptr, k + 1)):
            total = minus_product(total, at(factor, p), load(x, W * at(rows, p), wide))
        store(x, W * k, total)


@njit(**SETTINGS)
def _measure(wide, x, h, first, diag, off, norm, plan):
    """The worst normwise backward error ``|h - J x| / (|J| |x| + |h|)`` of the block's columns."""
    order, adjptr, adjcol, adjedge = plan[0], plan[7], plan[8], plan[9]
    W, F, flat = 8 * len(wide), h.shape[1], h.ravel()
    scratch = np.zeros(3 * W, h.dtype)
    top_h = top_x = top_r = load(scratch, 0, wide)
    for i in range(len(order)):
        v = at(order, i)
        if first + W <= F:
            total = load(flat, F * v + first, wide)
        else:
            for f in range(F - first):
                scratch[f] = at(flat, F * v + first + f)
            total = load(scratch, 0, wide)
        top_h = largest(top_h, total)
        own = load(x, W * i, wide)
        top_x = largest(top_x, own)
        total = minus_product(total, at(diag, v), own)
        for p in range(at(adjptr, i), at(adjptr, i + 1)):
            total = minus_product(total, at(off, at(adjedge, p)), load(x, W * at(adjcol, p), wide))
        top_r = largest(top_r, total)
    store(scratch, 0, top_h)
    store(scratch, W, top_x)
    store(scratch, 2 * W, top_r)
    return _ratio(scratch, W, norm, min(W, F - first))


@njit(**SETTINGS)
def _ratio(tops, W, norm, columns):
    worst = 0.0
    for f in range(columns):
        if tops[2 * W + f] != 0:  # 0 / 0 counts as 0
            worst = _worse(worst, tops[2 * W + f] / (norm * tops[W + f] + tops[f]))
    return worst
