"""Solves with a factor of :mod:`walksum.backends.cpu.ldl.numeric`, a block of columns at a time.

A block lives in elimination order in a scratch array that stays in the cache: swept forward as it is read, backward as
it is written, and measured against J itself. One kernel call takes a range of blocks, one head's after another's.
Tensors come by address (``cpu/pointers.py``); ``where`` is :attr:`walksum.solvers.factor.Factor.where`.
"""

from __future__ import annotations

import numpy as np

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.ldl.numeric import opened
from walksum.backends.cpu.ldl.sweeps_tail import backward_tail, dense_tail, forward_tail
from walksum.backends.cpu.pointers import matrix, vector
from walksum.backends.cpu.simd import at, fma, largest, load, prefetch, store, width

AHEAD = 4  # rows and entries between asking for a row and using it


@jit
def solve(start, stop, lanes, plan, where, columns, h, mu):
    """mu of the blocks ``start:stop``; returns their worst backward error."""
    diag, off, factor, inverse, _, norms = opened(plan, where)
    H, X, x, worst = _rows(h, diag, columns), _rows(mu, diag, columns), _scratch(lanes, diag), 0.0
    for unit in range(start, stop):
        k, first = _place(lanes, unit, columns)
        b, result = _whole(lanes, H[k], columns, first, True), _whole(lanes, X[k], columns, first, False)
        _forward_complete(lanes, x, b, factor[k], plan)
        _backward(lanes, x, result, factor[k], inverse[k], plan)
        _leave(lanes, result, X[k], columns, first)
        worst = _worse(worst, _measure(lanes, x, b, columns - first, diag[k], off[k], norms[k], plan))
    return worst


@jit
def eliminate(start, stop, lanes, plan, where, columns, h, out):
    """``L^-1 h`` in elimination order: the last rows are what the eliminated nodes leave of h for the core."""
    diag, _, factor, _, _, _ = opened(plan, where)
    H, Y, x = _rows(h, diag, columns), _rows(out, diag, columns), _scratch(lanes, diag)
    for unit in range(start, stop):
        k, first = _place(lanes, unit, columns)
        b = _whole(lanes, H[k], columns, first, True)
        if columns == width(lanes):  # rows as those of the scratch
            _forward(lanes, Y[k], b, factor[k], plan)
        else:
            result, step, skip = _whole(lanes, Y[k], columns, first, False)
            _forward(lanes, x, b, factor[k], plan)
            for i in range(len(plan[0])):
                store(result, step * i + skip, load(lanes, x, width(lanes) * i))
            _leave(lanes, (result, step, skip), Y[k], columns, first)


@jit
def substitute(start, stop, lanes, plan, where, columns, h, eliminated, core, mu):
    """mu from ``L^-1 h``, of :func:`eliminate`, and the solution of the core; returns its worst backward error.

    What came from :func:`eliminate` may be overwritten."""
    diag, off, factor, inverse, _, norms = opened(plan, where)
    n, gone, own, worst = diag.shape[1], inverse.shape[1], _scratch(lanes, diag), 0.0
    H, X, Y = _rows(h, diag, columns), _rows(mu, diag, columns), _rows(eliminated, diag, columns)
    C = matrix(core, len(diag), (n - gone) * columns, diag.dtype.type(0))
    for unit in range(start, stop):
        k, first = _place(lanes, unit, columns)
        b, result = _whole(lanes, H[k], columns, first, True), _whole(lanes, X[k], columns, first, False)
        x = own
        if columns == width(lanes):
            x = Y[k]
        else:
            _enter(lanes, x, 0, gone, _whole(lanes, Y[k], columns, first, True))
        _enter(lanes, x, gone, n, _whole(lanes, C[k], columns, first, True))
        _backward(lanes, x, result, factor[k], inverse[k], plan)
        _leave(lanes, result, X[k], columns, first)
        worst = _worse(worst, _measure(lanes, x, b, columns - first, diag[k], off[k], norms[k], plan))
    return worst


@jit
def measure(start, stop, lanes, plan, where, columns, h, mu):
    """The worst backward error of any mu."""
    diag, off, _, _, _, norms = opened(plan, where)
    H, X, x, worst = _rows(h, diag, columns), _rows(mu, diag, columns), _scratch(lanes, diag), 0.0
    for unit in range(start, stop):
        k, first = _place(lanes, unit, columns)
        source, step, skip = _whole(lanes, X[k], columns, first, True)
        for i in range(len(plan[0])):
            store(x, width(lanes) * i, load(lanes, source, step * at(plan[0], i) + skip))
        b = _whole(lanes, H[k], columns, first, True)
        worst = _worse(worst, _measure(lanes, x, b, columns - first, diag[k], off[k], norms[k], plan))
    return worst


@jit
def residual(start, stop, plan, where, columns, h, mu, out):
    """``h - J mu`` of the heads ``start:stop``, with mu, the result and all sums in float64."""
    diag, off, _, _, _, _ = opened(plan, where)
    n, zero = diag.shape[1], diag.dtype.type(0)
    order, adjptr, adjcol, adjedge = plan[0], plan[7], plan[8], plan[9]
    for k in range(start, stop):
        here = k * n * columns
        H = vector(h, here + n * columns, zero)[here:]
        X, Y = vector(mu, here + n * columns, 0.0)[here:], vector(out, here + n * columns, 0.0)[here:]
        for i in range(n):
            v = order[i]
            for f in range(columns):
                total = H[v * columns + f] - np.float64(diag[k, v]) * X[v * columns + f]
                for p in range(adjptr[i], adjptr[i + 1]):
                    total -= np.float64(off[k, adjedge[p]]) * X[order[adjcol[p]] * columns + f]
                Y[v * columns + f] = total


@jit
def _rows(address, diag, columns):
    """``[H, N columns]``."""
    return matrix(address, len(diag), diag.shape[1] * columns, diag.dtype.type(0))


@jit
def _place(lanes, unit, columns):
    """Head and first column of a block."""
    blocks = (columns + width(lanes) - 1) // width(lanes)
    return unit // blocks, unit % blocks * width(lanes)


@jit
def _worse(a, b):
    """The larger one; NaN if either is."""
    return a if a != a or a >= b else b


@jit
def _scratch(lanes, like):
    """Rows that start on a cache line: a sweep whose rows straddle two is a fifth slower."""
    size, count = like.itemsize, width(lanes) * like.shape[1]
    x = np.empty(count + 64 // size, like.dtype)
    start = -x.ctypes.data % 64 // size
    return x[start : start + count]


@jit
def _whole(lanes, rows, columns, first, filled):
    """Where a block lies: ``(array, step, skip)``, row i from ``step i + skip`` on. A block with fewer columns than
    lanes lies in an array of its own, copied and filled up with zeros if ``filled``."""
    W = width(lanes)
    if first + W <= columns:
        return rows, columns, first
    own = np.zeros(len(rows) // columns * W, rows.dtype)
    if filled:
        for i in range(len(rows) // columns):
            for f in range(columns - first):
                own[W * i + f] = rows[columns * i + first + f]
    return own, W, 0


@jit
def _leave(lanes, block, rows, columns, first):
    """Write back a block that lies in an array of its own."""
    W, own = width(lanes), block[0]
    if first + W > columns:
        for i in range(len(rows) // columns):
            for f in range(columns - first):
                rows[columns * i + first + f] = own[W * i + f]


@jit
def _enter(lanes, x, start, stop, block):
    source, step, skip = block
    for i in range(start, stop):
        store(x, width(lanes) * i, load(lanes, source, step * (i - start) + skip))


@jit
def _forward(lanes, x, block, factor, plan):
    """``x = L^-1 h``, by rows: the row that changes stays in registers."""
    order, rowptr, rowcol, rowslot = plan[0], plan[4], plan[5], plan[6]
    W, (h, step, skip) = width(lanes), block
    for i in range(len(order)):
        if i + AHEAD < len(order):
            prefetch(lanes, h, step * at(order, i + AHEAD) + skip)
        total = load(lanes, h, step * at(order, i) + skip)
        for q in range(at(rowptr, i), at(rowptr, i + 1)):
            total = fma(-at(factor, at(rowslot, q)), load(lanes, x, W * at(rowcol, q)), total)
        store(x, W * i, total)


@jit
def _forward_complete(lanes, x, block, factor, plan):
    """The same for a complete elimination: in the dense tail four rows share what they read."""
    order, colptr, rowptr, rowcol, rowslot = plan[0], plan[1], plan[4], plan[5], plan[6]
    n, W, (h, step, skip) = len(order), width(lanes), block
    tail = dense_tail(colptr, n)
    for i in range(n):
        if i + AHEAD < n:
            prefetch(lanes, h, step * at(order, i + AHEAD) + skip)
        total = load(lanes, h, step * at(order, i) + skip)
        for q in range(at(rowptr, i), at(rowptr, i + 1) - max(i - tail, 0)):
            total = fma(-at(factor, at(rowslot, q)), load(lanes, x, W * at(rowcol, q)), total)
        store(x, W * i, total)
    forward_tail(lanes, x, factor, colptr, tail)


@jit
def _backward(lanes, x, block, factor, inverse, plan):
    """``x <- L^-T D^-1 x``, also into mu, by columns from the last; of the core, x is the solution already."""
    order, colptr, rows = plan[0], plan[1], plan[2]
    W, (mu, step, skip) = width(lanes), block
    for k in range(len(order) - 1, len(inverse) - 1, -1):
        store(mu, step * at(order, k) + skip, load(lanes, x, W * k))
    rest = backward_tail(lanes, x, block, factor, inverse, plan) if len(inverse) == len(order) else len(inverse)
    for k in range(rest - 1, -1, -1):
        total = at(inverse, k) * load(lanes, x, W * k)
        for p in range(at(colptr, k), at(colptr, k + 1)):
            total = fma(-at(factor, p), load(lanes, x, W * at(rows, p)), total)
        store(x, W * k, total)
        store(mu, step * at(order, k) + skip, total)


@jit
def _measure(lanes, x, block, columns, diag, off, norm, plan):
    """The worst normwise backward error ``|h - J x| / (|J| |x| + |h|)`` of the block's columns."""
    order, adjptr, adjcol, adjedge = plan[0], plan[7], plan[8], plan[9]
    W, (h, step, skip) = width(lanes), block
    tops = np.zeros(3 * W, x.dtype)
    top_h = top_x = top_r = load(lanes, tops, 0)
    for i in range(len(order)):
        v = at(order, i)
        if i + AHEAD < len(order):
            prefetch(lanes, h, step * at(order, i + AHEAD) + skip)
        total, own = load(lanes, h, step * v + skip), load(lanes, x, W * i)
        top_h, top_x = largest(top_h, total), largest(top_x, own)
        total = fma(-at(diag, v), own, total)
        for p in range(at(adjptr, i), at(adjptr, i + 1)):
            if p + AHEAD < len(adjcol):
                prefetch(lanes, x, W * at(adjcol, p + AHEAD))
            total = fma(-at(off, at(adjedge, p)), load(lanes, x, W * at(adjcol, p)), total)
        top_r = largest(top_r, total)
    store(tops, 0, top_h)
    store(tops, W, top_x)
    store(tops, 2 * W, top_r)
    return _ratio(tops, W, norm, min(W, columns))


@jit
def _ratio(tops, W, norm, columns):
    worst = 0.0
    for f in range(columns):
        if tops[2 * W + f] != 0:  # 0 / 0 counts as 0
            worst = _worse(worst, tops[2 * W + f] / (norm * tops[W + f] + tops[f]))
    return worst
