"""L D L^T of a dense block: the last columns of an elimination, four at a time.

Column k of the block lies in a row of its own, ``S[k]``, from its diagonal on; rows start on a cache line. The four
columns share what they read of the columns before them, and stay in registers meanwhile.
"""

from __future__ import annotations

import numpy as np

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.simd import WIDTHS, at, fma, load, store

LINE = 8  # numbers of a cache line
CHUNK = 16  # rows of a column that are in registers at a time
L8, L16 = WIDTHS[8], WIDTHS[CHUNK]


@jit
def block(size):
    """Memory for a block of so many columns, not filled, and the step from column to column."""
    step = (size + LINE - 1) // LINE * LINE + CHUNK  # chunks may go beyond the last row
    raw = np.empty(size * step + CHUNK)
    start = -raw.ctypes.data % 64 // 8
    return raw[start : start + size * step + LINE], step


@jit
def factorise_block(S, step, size, smallest, D):
    """L into the columns and D; the number of columns done, fewer than ``size`` if a pivot is not above its bound."""
    f = np.empty(4 * size + 4)
    for j in range(0, size, 4):
        width = min(4, size - j)
        if width == 4:
            _subtract(S, step, size, j, D, f)
        else:
            _subtract_each(S, step, size, j, D)
        for c in range(j, j + width):
            pivot = at(S, step * c + c)
            if not pivot > smallest[c]:
                D[c] = pivot
                return c
            D[c] = pivot
            _scale(S, step, size, c, 1 / pivot)
            for other in range(c + 1, j + width):
                _take(S, step, size, c, other, -at(S, step * c + other) * pivot)
    return size


@jit
def _subtract(S, step, size, j, D, f):
    """From the columns j, ..., j + 3 what the columns before j contribute."""
    for t in range(j):
        for c in range(4):
            f[4 * t + c] = -at(S, step * t + j + c) * at(D, t)
    for row in range(j // LINE * LINE, size, CHUNK):
        first = step * j + row
        a, b = load(L16, S, first), load(L16, S, first + step)
        c, d = load(L16, S, first + 2 * step), load(L16, S, first + 3 * step)
        for t in range(j):
            known = load(L16, S, step * t + row)
            a, b = fma(at(f, 4 * t), known, a), fma(at(f, 4 * t + 1), known, b)
            c, d = fma(at(f, 4 * t + 2), known, c), fma(at(f, 4 * t + 3), known, d)
        store(S, first, a)
        store(S, first + step, b)
        store(S, first + 2 * step, c)
        store(S, first + 3 * step, d)


@jit
def _subtract_each(S, step, size, j, D):
    for c in range(j, size):
        for t in range(j):
            _take(S, step, size, t, c, -at(S, step * t + c) * at(D, t))


@jit
def _take(S, step, size, source, target, factor):
    for row in range(target // LINE * LINE, size, LINE):
        store(S, step * target + row, fma(factor, load(L8, S, step * source + row), load(L8, S, step * target + row)))


@jit
def _scale(S, step, size, c, factor):
    """The entries behind the diagonal; what stands before it is of no use."""
    for row in range(c // LINE * LINE, size, LINE):
        store(S, step * c + row, factor * load(L8, S, step * c + row))
