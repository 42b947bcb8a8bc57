"""Solves with a supernodal factor, a block of columns at a time.

A block lives in elimination order in a scratch array. Within a supernode four rows of it are changed together, so that
they share what they read of the others. Tensors come by address (``cpu/pointers.py``).
"""

from __future__ import annotations

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.ldl.sweeps import leave, measured, place_of, rows_of, scratch, whole, worse
from walksum.backends.cpu.pointers import matrix, vector
from walksum.backends.cpu.simd import at, fma, load, store, width


@jit
def opened(plan, where):
    """What ``where = (zero, heads, diag, off, L, norms)`` points to: ``[H, N], [H, E], [H, size], [H]``."""
    zero, heads, diag, off, L, norms = where
    n, E, size = len(plan[0]), len(plan[10]), plan[7][-1]
    return (
        matrix(diag, heads, n, zero),
        matrix(off, heads, E, zero),
        matrix(L, heads, size, zero),
        vector(norms, heads, 0.0),
    )


@jit
def solve(start, stop, lanes, plan, where, columns, h, mu):
    """mu of the blocks ``start:stop``; returns their worst backward error."""
    diag, off, L, norms = opened(plan, where)
    H, X, x, worst = rows_of(h, diag, columns), rows_of(mu, diag, columns), scratch(lanes, diag), 0.0
    of_J = plan[0], plan[11], plan[12], plan[13]
    for unit in range(start, stop):
        head, first = place_of(lanes, unit, columns)
        b, result = whole(lanes, H[head], columns, first, True), whole(lanes, X[head], columns, first, False)
        _read(lanes, x, b, plan[0])
        _forward(lanes, x, L[head], plan)
        _backward(lanes, x, L[head], plan)
        _write(lanes, x, result, plan[0])
        leave(lanes, result, X[head], columns, first)
        worst = worse(worst, measured(lanes, x, b, columns - first, diag[head], off[head], norms[head], of_J))
    return worst


@jit
def half_solve(start, stop, lanes, plan, where, columns, z, out):
    """``L^-T z`` of the blocks ``start:stop``."""
    diag, _, L, _ = opened(plan, where)
    Z, X, x = rows_of(z, diag, columns), rows_of(out, diag, columns), scratch(lanes, diag)
    for unit in range(start, stop):
        head, first = place_of(lanes, unit, columns)
        result = whole(lanes, X[head], columns, first, False)
        _read(lanes, x, whole(lanes, Z[head], columns, first, True), plan[0])
        _backward(lanes, x, L[head], plan)
        _write(lanes, x, result, plan[0])
        leave(lanes, result, X[head], columns, first)


@jit
def _read(lanes, x, block, order):
    source, step, skip = block
    for i in range(len(order)):
        store(x, width(lanes) * i, load(lanes, source, step * at(order, i) + skip))


@jit
def _write(lanes, x, block, order):
    target, step, skip = block
    for i in range(len(order)):
        store(target, step * at(order, i) + skip, load(lanes, x, width(lanes) * i))


@jit
def _forward(lanes, x, L, plan):
    """``x <- L^-1 x``."""
    first, rowptr, rows, panel = plan[1], plan[2], plan[3], plan[7]
    W = width(lanes)
    for s in range(len(first) - 1):
        low, k, m, base = at(first, s), at(first, s + 1) - at(first, s), at(rowptr, s + 1) - at(rowptr, s), at(panel, s)
        size, begin = k + m, at(rowptr, s)
        for i in range(0, k - 3, 4):
            place = W * (low + i)
            _subtract_four(lanes, x, L, base + i, size, W * low, i, place, place + W, place + 2 * W, place + 3 * W)
            for c in range(i, i + 4):
                _finish_row(lanes, x, L, base, size, low, i, c)
        for c in range(k // 4 * 4, k):
            _finish_row(lanes, x, L, base, size, low, 0, c)
        for r in range(0, m - 3, 4):
            q = begin + r
            a, b, c, d = W * at(rows, q), W * at(rows, q + 1), W * at(rows, q + 2), W * at(rows, q + 3)
            _subtract_four(lanes, x, L, base + k + r, size, W * low, k, a, b, c, d)
        for r in range(m // 4 * 4, m):
            place = W * at(rows, begin + r)
            total = load(lanes, x, place)
            for j in range(k):
                total = fma(-at(L, base + j * size + k + r), load(lanes, x, W * (low + j)), total)
            store(x, place, total)


@jit
def _subtract_four(lanes, x, L, p, size, known, count, at_a, at_b, at_c, at_d):
    """Four rows less their products with ``count`` pivots; p is where the first row meets the first pivot."""
    W = width(lanes)
    a, b, c, d = load(lanes, x, at_a), load(lanes, x, at_b), load(lanes, x, at_c), load(lanes, x, at_d)
    for j in range(count):
        row, q = load(lanes, x, known + W * j), p + j * size
        a, b = fma(-at(L, q), row, a), fma(-at(L, q + 1), row, b)
        c, d = fma(-at(L, q + 2), row, c), fma(-at(L, q + 3), row, d)
    store(x, at_a, a)
    store(x, at_b, b)
    store(x, at_c, c)
    store(x, at_d, d)


@jit
def _finish_row(lanes, x, L, base, size, low, start, c):
    """Pivot c less its products with the pivots from ``start`` on, divided by its own entry."""
    W = width(lanes)
    total = load(lanes, x, W * (low + c))
    for j in range(start, c):
        total = fma(-at(L, base + j * size + c), load(lanes, x, W * (low + j)), total)
    store(x, W * (low + c), (1 / at(L, base + c * size + c)) * total)


@jit
def _backward(lanes, x, L, plan):
    """``x <- L^-T x``."""
    first, rowptr, rows, panel = plan[1], plan[2], plan[3], plan[7]
    W = width(lanes)
    for s in range(len(first) - 2, -1, -1):
        low, k, m, base = at(first, s), at(first, s + 1) - at(first, s), at(rowptr, s + 1) - at(rowptr, s), at(panel, s)
        size, begin, j = k + m, at(rowptr, s), k - 4
        while j >= 0:
            place, p = W * (low + j), base + j * size
            a, b = load(lanes, x, place), load(lanes, x, place + W)
            c, d = load(lanes, x, place + 2 * W), load(lanes, x, place + 3 * W)
            for t in range(j + 4, k):
                row = load(lanes, x, W * (low + t))
                a, b = fma(-at(L, p + t), row, a), fma(-at(L, p + size + t), row, b)
                c, d = fma(-at(L, p + 2 * size + t), row, c), fma(-at(L, p + 3 * size + t), row, d)
            for r in range(m):
                row, q = load(lanes, x, W * at(rows, begin + r)), p + k + r
                a, b = fma(-at(L, q), row, a), fma(-at(L, q + size), row, b)
                c, d = fma(-at(L, q + 2 * size), row, c), fma(-at(L, q + 3 * size), row, d)
            store(x, place, a)
            store(x, place + W, b)
            store(x, place + 2 * W, c)
            store(x, place + 3 * W, d)
            for t in range(3, -1, -1):
                _finish_column(lanes, x, L, base, size, low, j + t, j + 4)
            j -= 4
        for t in range(j + 3, -1, -1):
            place, p = W * (low + t), base + t * size
            total = load(lanes, x, place)
            for r in range(m):
                total = fma(-at(L, p + k + r), load(lanes, x, W * at(rows, begin + r)), total)
            store(x, place, total)
            _finish_column(lanes, x, L, base, size, low, t, k)


@jit
def _finish_column(lanes, x, L, base, size, low, c, stop):
    """Pivot c less its products with the pivots up to ``stop``, divided by its own entry."""
    W = width(lanes)
    total = load(lanes, x, W * (low + c))
    for i in range(c + 1, stop):
        total = fma(-at(L, base + c * size + i), load(lanes, x, W * (low + i)), total)
    store(x, W * (low + c), (1 / at(L, base + c * size + c)) * total)
