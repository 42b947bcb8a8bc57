"""The numeric side of elimination: J = L D L^T in float64, column after column.

Left-looking: column j gathers what the columns k with L_jk != 0 have to subtract from it. No list of target slots is
needed, so memory stays at the size of L. In the dense tail rows follow each other without gaps, and the column that
changes stays in registers.
"""

from __future__ import annotations

import numpy as np

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.ldl.numeric_tail import LINE, block, factorise_block
from walksum.backends.cpu.pointers import matrix, vector
from walksum.backends.cpu.simd import at

FINE, INDEFINITE, NONFINITE = 0, 1, 2
SINGULAR = 4 * np.finfo(np.float64).eps  # a pivot this small beside its J_ii is rounding: no digit of mu would be right
MARGIN = 32  # entries behind the last column of a factor: vectors may read (never use) what follows a column


@jit
def factorise(start, stop, tail, plan, where):
    """Factorise the heads ``start:stop``: fill everything that :func:`opened` finds but J, and return how it ended."""
    diag, off, factor, inverse, pivots, norms = opened(plan, where)
    eliminated = inverse.shape[1]
    for head in range(start, stop):
        norms[head] = _norm(diag[head], off[head], plan)
        if not norms[head] < np.inf:
            return NONFINITE
        outcome = _factorise_head(eliminated, tail, diag[head], off[head], plan, factor[head], pivots[head])
        if outcome != FINE:
            return outcome
        for k in range(eliminated):
            inverse[head, k] = 1 / pivots[head, k]
    return FINE


@jit
def opened(plan, where):
    """What ``where = (zero, heads, eliminated, diag, off, numbers)`` points to, with ``zero`` of the dtype of J:

    diag ``[H, N]`` and off ``[H, E]``; in ``numbers``, made by the factorisation, L ``[H, nnz]`` and D^-1
    ``[H, eliminated]``, rounded to that dtype; D ``[H, N]`` and ``|J|_inf [H]``. From ``eliminated`` on, L and D hold
    the Schur complement.
    """
    zero, heads, eliminated, diag, off, numbers = where
    n, nnz, size = len(plan[0]), len(plan[2]), vector(numbers, 1, zero).itemsize
    pivots, norms = matrix(numbers, heads, n, 0.0), vector(numbers + 8 * heads * n, heads, 0.0)
    place = numbers + 2 * size * heads * (n + 1)
    factor, inverse = matrix(place, heads, nnz, zero), matrix(place + size * heads * nnz, heads, eliminated, zero)
    return matrix(diag, heads, n, zero), matrix(off, heads, len(plan[9]) // 2, zero), factor, inverse, pivots, norms


@jit
def _norm(diag, off, plan):
    """``|J|_inf``, infinite if there is a NaN."""
    order, adjptr, adjedge = plan[0], plan[7], plan[9]
    largest = 0.0
    for i in range(len(order)):
        total = abs(np.float64(diag[order[i]]))
        for p in range(adjptr[i], adjptr[i + 1]):
            total += abs(np.float64(at(off, at(adjedge, p))))
        if not total < np.inf:
            return np.inf
        largest = max(largest, total)
    return largest


@jit
def _factorise_head(eliminated, tail, diag, off, plan, rounded, pivots):
    order, colptr, rows, source, rowptr = plan[0], plan[1], plan[2], plan[3], plan[4]
    L, column = np.empty(colptr[tail]), np.zeros(len(order))
    for j in range(tail):
        own = np.float64(at(diag, at(order, j)))
        pivot, untouched = own, j < eliminated and at(rowptr, j) == at(rowptr, j + 1)
        if not untouched:
            _spread(j, off, plan, column)
            pivot -= _subtract(j, tail, L, pivots, plan, column)
        if not pivot > SINGULAR * own:
            return INDEFINITE if pivot == pivot else NONFINITE
        pivots[j] = pivot
        scale = 1 / pivot if j < eliminated else 1.0
        if untouched:  # a column of J itself
            for p in range(at(colptr, j), at(colptr, j + 1)):
                entry = np.float64(at(off, at(source, p))) * scale
                L[p], rounded[p] = entry, entry
        else:
            for p in range(at(colptr, j), at(colptr, j + 1)):
                entry = at(column, at(rows, p)) * scale
                L[p], rounded[p] = entry, entry
    return _factorise_tail(tail, diag, off, plan, L, rounded, pivots) if tail < len(order) else FINE


@jit
def _spread(j, off, plan, column):
    """J's own values into the column, zero where there will be fill."""
    colptr, rows, source = plan[1], plan[2], plan[3]
    for p in range(at(colptr, j), at(colptr, j + 1)):
        column[np.uint64(at(rows, p))] = np.float64(at(off, at(source, p))) if at(source, p) >= 0 else 0.0


@jit
def _subtract(j, tail, L, pivots, plan, column):
    """Take from the column what the columns before the tail contribute; returns their part in the pivot."""
    colptr, rows, rowptr, rowcol, rowslot = plan[1], plan[2], plan[4], plan[5], plan[6]
    total = 0.0
    for q in range(at(rowptr, j), at(rowptr, j + 1) - max(j - tail, 0)):
        k, slot = at(rowcol, q), at(rowslot, q)
        g = at(L, slot) * at(pivots, k)
        total += at(L, slot) * g
        for p in range(slot + 1, at(colptr, k + 1)):
            i = np.uint64(at(rows, p))
            column[i] = at(column, i) - at(L, p) * g
    return total


@jit
def _factorise_tail(tail, diag, off, plan, L, rounded, pivots):
    order, colptr, adjptr, adjcol, adjedge = plan[0], plan[1], plan[7], plan[8], plan[9]
    size = len(order) - tail
    S, step = block(size)
    smallest = np.empty(size)
    for c in range(size):
        j, column = tail + c, S[step * c : step * c + size]
        S[step * c + c // LINE * LINE : step * c + step] = 0.0
        for p in range(at(adjptr, j), at(adjptr, j + 1)):
            if at(adjcol, p) > j:
                column[at(adjcol, p) - tail] = at(off, at(adjedge, p))
        smallest[c] = SINGULAR * diag[order[j]]
        column[c] = np.float64(diag[order[j]]) - _subtract_from_row(j, tail, L, pivots, plan, column)
    done = factorise_block(S, step, size, smallest, pivots[tail:])
    if done < size:
        return INDEFINITE if pivots[tail + done] == pivots[tail + done] else NONFINITE
    for c in range(size):
        start, skip = at(colptr, tail + c), step * c + c + 1
        for t in range(size - c - 1):
            rounded[start + t] = at(S, skip + t)
    return FINE


@jit
def _subtract_from_row(j, tail, L, pivots, plan, column):
    """As :func:`_subtract`, for a column of the tail, which starts at row ``tail``."""
    colptr, rows, rowptr, rowcol, rowslot = plan[1], plan[2], plan[4], plan[5], plan[6]
    total = 0.0
    for q in range(at(rowptr, j), at(rowptr, j + 1) - (j - tail)):
        k, slot = at(rowcol, q), at(rowslot, q)
        g = at(L, slot) * at(pivots, k)
        total += at(L, slot) * g
        for p in range(slot + 1, at(colptr, k + 1)):
            i = np.uint64(at(rows, p) - tail)
            column[i] = at(column, i) - at(L, p) * g
    return total
