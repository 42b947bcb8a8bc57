"""Solves with a factor of :mod:`walksum.kernels.ldl`, a block of columns at a time.

A block is copied into elimination order, swept forward and backward in registers, written back, and measured against
J itself while it is still in the cache. One kernel call takes a range of blocks.
"""

from __future__ import annotations

import numpy as np

from walksum.kernels.compile import jit
from walksum.kernels.lanes import at, fma, largest, load, store, width


@jit
def solve(start, stop, lanes, h, mu, factor, inverse, diag, off, norms, plan):
    """Fill the blocks ``start:stop`` of mu (blocks of one head after the other); returns their worst backward error."""
    worst, blocks = 0.0, _blocks(lanes, h)
    x = _aligned(width(lanes) * h.shape[1], h)
    for unit in range(start, stop):
        k, first = unit // blocks, unit % blocks * width(lanes)
        _enter(lanes, x, h[k], first, plan)
        _forward(lanes, x, factor[k], plan)
        _backward(lanes, x, factor[k], inverse[k], plan)
        _leave(lanes, x, mu[k], first, plan)
        worst = _worse(worst, _measure(lanes, x, h[k], first, diag[k], off[k], norms[k], plan))
    return worst


@jit
def eliminate(start, stop, lanes, h, out, factor, plan):
    """``L^-1 h`` into ``out``: what the eliminated nodes leave of h for the core."""
    blocks, x = _blocks(lanes, h), _aligned(width(lanes) * h.shape[1], h)
    for unit in range(start, stop):
        k, first = unit // blocks, unit % blocks * width(lanes)
        _enter(lanes, x, h[k], first, plan)
        _forward(lanes, x, factor[k], plan)
        _leave(lanes, x, out[k], first, plan)


@jit
def substitute(start, stop, lanes, h, mu, factor, inverse, diag, off, norms, plan):
    """From mu of the core and ``L^-1 h`` elsewhere, both in ``mu``, to the whole mu; returns the worst error.

    With no ``inverse`` (of length 0) mu is taken as it is and only measured.
    """
    worst, blocks = 0.0, _blocks(lanes, h)
    x = _aligned(width(lanes) * h.shape[1], h)
    for unit in range(start, stop):
        k, first = unit // blocks, unit % blocks * width(lanes)
        _enter(lanes, x, mu[k], first, plan)
        _backward(lanes, x, factor[k], inverse[k], plan)
        _leave(lanes, x, mu[k], first, plan)
        worst = _worse(worst, _measure(lanes, x, h[k], first, diag[k], off[k], norms[k], plan))
    return worst


@jit
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


@jit
def _blocks(lanes, h):
    return (h.shape[2] + width(lanes) - 1) // width(lanes)


@jit
def _worse(a, b):
    """The larger one; NaN if either is."""
    return a if a != a or a >= b else b


@jit
def _aligned(count, like):
    """Rows that start on a cache line: a sweep whose rows straddle two is a fifth slower."""
    size = like.itemsize
    x = np.empty(count + 64 // size, like.dtype)
    start = -x.ctypes.data % 64 // size
    return x[start : start + count]


@jit
def _enter(lanes, x, h, first, plan):
    """Columns of h into x, rows in elimination order, columns without a number zero."""
    W, F, flat, order = width(lanes), h.shape[1], h.ravel(), plan[0]
    for i in range(len(order)):
        source = F * at(order, i) + first
        if first + W <= F:
            store(x, W * i, load(lanes, flat, source))
        else:
            for f in range(W):
                x[W * i + f] = at(flat, source + f) if first + f < F else 0


@jit
def _leave(lanes, x, mu, first, plan):
    W, F, flat, order = width(lanes), mu.shape[1], mu.ravel(), plan[0]
    for i in range(len(order)):
        target = F * at(order, i) + first
        if first + W <= F:
            store(flat, target, load(lanes, x, W * i))
        else:
            for f in range(F - first):
                flat[target + f] = at(x, W * i + f)


@jit
def _forward(lanes, x, factor, plan):
    """``x <- L^-1 x``, by rows: the row that changes stays in registers."""
    rowptr, rowcol, rowslot = plan[4], plan[5], plan[6]
    W = width(lanes)
    for i in range(len(rowptr) - 1):
        start, stop = at(rowptr, i), at(rowptr, i + 1)
        if start < stop:
            total = load(lanes, x, W * i)
            for q in range(start, stop):
                total = fma(-at(factor, at(rowslot, q)), load(lanes, x, W * at(rowcol, q)), total)
            store(x, W * i, total)


@jit
def _backward(lanes, x, factor, inverse, plan):
    """``x <- L^-T D^-1 x``, by columns from the last."""
    colptr, rows = plan[1], plan[2]
    W = width(lanes)
    for k in range(len(inverse) - 1, -1, -1):
        total = at(inverse, k) * load(lanes, x, W * k)
        for p in range(at(colptr, k), at(colptr, k + 1)):
            total = fma(-at(factor, p), load(lanes, x, W * at(rows, p)), total)
        store(x, W * k, total)


@jit
def _measure(lanes, x, h, first, diag, off, norm, plan):
    """The worst normwise backward error ``|h - J x| / (|J| |x| + |h|)`` of the block's columns."""
    order, adjptr, adjcol, adjedge = plan[0], plan[7], plan[8], plan[9]
    W, F, flat = width(lanes), h.shape[1], h.ravel()
    scratch = np.zeros(3 * W, h.dtype)
    top_h = top_x = top_r = load(lanes, scratch, 0)
    for i in range(len(order)):
        v = at(order, i)
        if first + W <= F:
            total = load(lanes, flat, F * v + first)
        else:
            for f in range(F - first):
                scratch[f] = at(flat, F * v + first + f)
            total = load(lanes, scratch, 0)
        top_h = largest(top_h, total)
        own = load(lanes, x, W * i)
        top_x = largest(top_x, own)
        total = fma(-at(diag, v), own, total)
        for p in range(at(adjptr, i), at(adjptr, i + 1)):
            total = fma(-at(off, at(adjedge, p)), load(lanes, x, W * at(adjcol, p)), total)
        top_r = largest(top_r, total)
    store(scratch, 0, top_h)
    store(scratch, W, top_x)
    store(scratch, 2 * W, top_r)
    return _ratio(scratch, W, norm, min(W, F - first))


@jit
def _ratio(tops, W, norm, columns):
    worst = 0.0
    for f in range(columns):
        if tops[2 * W + f] != 0:  # 0 / 0 counts as 0
            worst = _worse(worst, tops[2 * W + f] / (norm * tops[W + f] + tops[f]))
    return worst
