"""Solves with a factor of :mod:`walksum.backends.cpu.ldl.numeric`, a block of columns at a time.

A block lives in elimination order in a scratch array that stays in the cache: swept forward as it is read, backward as
it is written, and measured against J itself. One kernel call takes a range of blocks, one head's after another's.
Tensors come by address (``cpu/pointers.py``); ``where`` is :attr:`walksum.solvers.column_factor.ColumnFactor.where`.
"""

from __future__ import annotations

import numpy as np

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.ldl.numeric import OK, factorise, opened
from walksum.backends.cpu.packing import ratio
from walksum.backends.cpu.pointers import matrix
from walksum.backends.cpu.products import dot_rows
from walksum.backends.cpu.simd import at, fma, largest, load, prefetch, store, width

AHEAD = 4  # rows and entries between asking for a row and using it


@jit
def solve(start, stop, lanes, plan, where, columns, h, mu):
    """mu of the blocks ``start:stop``; returns their worst backward error."""
    diag, off, factor, inverse, _, norms = opened(plan, where)
    H, X, x, worst = rows_of(h, diag, columns), rows_of(mu, diag, columns), scratch(lanes, diag), 0.0
    for unit in range(start, stop):
        k, first = place_of(lanes, unit, columns)
        b, result = whole(lanes, H[k], columns, first, True), whole(lanes, X[k], columns, first, False)
        _forward(lanes, x, b, factor[k], plan)
        _backward(lanes, x, result, factor[k], inverse[k], plan)
        leave(lanes, result, X[k], columns, first)
        worst = worse(worst, measured(lanes, x, b, columns - first, diag[k], off[k], norms[k], rows_of_J(plan)))
    return worst


@jit
def eliminate(start, stop, lanes, plan, where, columns, h, out):
    """``L^-1 h`` in elimination order: the last rows are what the eliminated nodes leave of h for the core."""
    diag, _, factor, _, _, _ = opened(plan, where)
    H, Y, x = rows_of(h, diag, columns), rows_of(out, diag, columns), scratch(lanes, diag)
    for unit in range(start, stop):
        k, first = place_of(lanes, unit, columns)
        b = whole(lanes, H[k], columns, first, True)
        if columns == width(lanes):  # rows as those of the scratch
            _forward(lanes, Y[k], b, factor[k], plan)
        else:
            result, step, skip = whole(lanes, Y[k], columns, first, False)
            _forward(lanes, x, b, factor[k], plan)
            for i in range(len(plan[0])):
                store(result, step * i + skip, load(lanes, x, width(lanes) * i))
            leave(lanes, (result, step, skip), Y[k], columns, first)


@jit
def substitute(start, stop, lanes, plan, where, columns, h, eliminated, core, mu):
    """mu from ``L^-1 h``, of :func:`eliminate`, and the solution of the core; returns its worst backward error.

    What came from :func:`eliminate` may be overwritten."""
    diag, off, factor, inverse, _, norms = opened(plan, where)
    n, gone, own, worst = diag.shape[1], inverse.shape[1], scratch(lanes, diag), 0.0
    H, X, Y = rows_of(h, diag, columns), rows_of(mu, diag, columns), rows_of(eliminated, diag, columns)
    C = matrix(core, len(diag), (n - gone) * columns, diag.dtype.type(0))
    for unit in range(start, stop):
        k, first = place_of(lanes, unit, columns)
        b, result = whole(lanes, H[k], columns, first, True), whole(lanes, X[k], columns, first, False)
        x = own
        if columns == width(lanes):
            x = Y[k]
        else:
            _enter(lanes, x, 0, gone, whole(lanes, Y[k], columns, first, True))
        _enter(lanes, x, gone, n, whole(lanes, C[k], columns, first, True))
        _backward(lanes, x, result, factor[k], inverse[k], plan)
        leave(lanes, result, X[k], columns, first)
        worst = worse(worst, measured(lanes, x, b, columns - first, diag[k], off[k], norms[k], rows_of_J(plan)))
    return worst


@jit
def rows_of_J(plan):
    return plan[0], plan[7], plan[8], plan[9]


@jit
def rows_of(address, diag, columns):
    """``[H, N columns]``."""
    return matrix(address, len(diag), diag.shape[1] * columns, diag.dtype.type(0))


@jit
def place_of(lanes, unit, columns):
    """Head and first column of a block."""
    blocks = (columns + width(lanes) - 1) // width(lanes)
    return unit // blocks, unit % blocks * width(lanes)


@jit
def worse(a, b):
    """The larger one; NaN if either is."""
    return a if a != a or a >= b else b


@jit
def scratch(lanes, like):
    """Rows that start on a cache line: a sweep whose rows straddle two is a fifth slower."""
    size, count = like.itemsize, width(lanes) * like.shape[1]
    x = np.empty(count + 64 // size, like.dtype)
    start = -x.ctypes.data % 64 // size
    return x[start : start + count]


@jit
def whole(lanes, rows, columns, first, filled):
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
def leave(lanes, block, rows, columns, first):
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
def _backward(lanes, x, block, factor, inverse, plan):
    """``x <- L^-T D^-1 x``, also into mu, by columns from the last; of the core, x is the solution already."""
    order, colptr, rows = plan[0], plan[1], plan[2]
    W, (mu, step, skip) = width(lanes), block
    for k in range(len(order) - 1, len(inverse) - 1, -1):
        store(mu, step * at(order, k) + skip, load(lanes, x, W * k))
    for k in range(len(inverse) - 1, -1, -1):
        total = at(inverse, k) * load(lanes, x, W * k)
        for p in range(at(colptr, k), at(colptr, k + 1)):
            total = fma(-at(factor, p), load(lanes, x, W * at(rows, p)), total)
        store(x, W * k, total)
        store(mu, step * at(order, k) + skip, total)


@jit
def measured(lanes, x, block, columns, diag, off, norm, of_J):
    """The worst normwise backward error ``|h - J x| / (|J| |x| + |h|)`` of the block's columns.

    ``of_J`` are order, adjptr, adjcol and adjedge.
    """
    order, adjptr, adjcol, adjedge = of_J
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
            worst = worse(worst, ratio(tops[2 * W + f], norm, tops[W + f], tops[f]))
    return worst


@jit
def factorise_and_solve(units, lanes, plan, where, tail, blas, columns, h, mu):
    """The worst backward error, or less the outcome of a factorisation that failed."""
    outcome = factorise(0, where[1], plan, where, tail, blas)
    if outcome != OK:
        return -np.float64(outcome)
    return solve(0, units, lanes, plan, where, columns, h, mu)


@jit
def solve_and_dot(units, lanes, plan, where, columns, h, g, shape, upper, strides, mu, diag, off):
    """A solve, then the gradients of J's values given the mu of the forward pass; the worst backward error."""
    worst = solve(0, units, lanes, plan, where, columns, h, g)
    dot_rows(0, shape[1], lanes, where[0], shape, upper, strides, g, mu, diag, off, -1.0)
    return worst
