"""The numeric side of an elimination by columns: J = L D L^T in float64, column after column.

Left-looking: column j gathers what the columns k with L_jk != 0 have to subtract from it. No list of target slots is
needed, so memory stays at the size of L. The last columns of a complete elimination are almost full: those are left to
LAPACK, as a dense triangle.
"""

from __future__ import annotations

import numpy as np

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.ldl import blas as dense
from walksum.backends.cpu.pointers import matrix, vector
from walksum.backends.cpu.simd import at

OK, INDEFINITE, NONFINITE = 0, 1, 2
EPS = np.finfo(np.float64).eps


@jit
def singular(n):
    """The share of its J_ii up to which a pivot is rounding, which grows with the root of the nodes: no digit of mu
    would be right."""
    return 4 * EPS * np.sqrt(n)


@jit
def factorise(start, stop, plan, where, tail, blas):
    """Factorise the heads ``start:stop``: fill everything that :func:`opened` finds but J, and return how it ended.

    The columns from ``tail`` on are a dense triangle; ``blas`` is :func:`walksum.backends.cpu.ldl.blas.addresses`.
    """
    diag, off, factor, inverse, pivots, norms = opened(plan, where)
    eliminated = inverse.shape[1]
    for head in range(start, stop):
        norms[head] = norm(diag[head], off[head], plan[0], plan[7], plan[9])
        if not norms[head] < np.inf:
            return NONFINITE
        outcome = _factorise_head(eliminated, tail, blas, diag[head], off[head], plan, factor[head], pivots[head])
        if outcome != OK:
            return outcome
        for k in range(eliminated):
            inverse[head, k] = 1 / pivots[head, k]
    return OK


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
def norm(diag, off, order, adjptr, adjedge):
    """``|J|_inf``, infinite if there is a NaN."""
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
def _factorise_head(eliminated, tail, blas, diag, off, plan, rounded, pivots):
    order, colptr, rows, source, rowptr = plan[0], plan[1], plan[2], plan[3], plan[4]
    L, column, least = np.empty(colptr[tail]), np.zeros(len(order)), singular(len(order))
    for j in range(tail):
        own = np.float64(at(diag, at(order, j)))
        pivot, untouched = own, j < eliminated and at(rowptr, j) == at(rowptr, j + 1)
        if not untouched:
            _spread(j, off, plan, column)
            pivot -= _subtract(j, at(rowptr, j + 1), 0, L, pivots, plan, column)
        if not pivot > least * own:
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
    return _factorise_tail(tail, blas, diag, off, plan, L, rounded, pivots) if tail < len(order) else OK


@jit
def _factorise_tail(tail, blas, diag, off, plan, L, rounded, pivots):
    """The same for the last columns: ``S = C C^T``, of which ``D_j = C_jj^2`` and ``L_ij = C_ij / C_jj``."""
    order, colptr, rows, rowptr, rowcol = plan[0], plan[1], plan[2], plan[4], plan[5]
    size, adjptr, adjcol, adjedge = len(order) - tail, plan[7], plan[8], plan[9]
    S, info = np.zeros(size * size), np.zeros(1, np.int32)
    for c in range(size):
        j, column = tail + c, S[size * c : size * c + size]
        for p in range(at(adjptr, j), at(adjptr, j + 1)):
            if at(adjcol, p) > j:
                column[at(adjcol, p) - tail] = at(off, at(adjedge, p))
        stop = at(rowptr, j + 1)
        while stop > at(rowptr, j) and at(rowcol, stop - 1) >= tail:
            stop -= 1
        column[c] = np.float64(at(diag, at(order, j))) - _subtract(j, stop, tail, L, pivots, plan, column)
    dense.potrf(blas, size, np.int64(S.ctypes.data), size, info)
    for c in range(size):
        root = at(S, size * c + c)
        pivot = root * root if info[0] == 0 or c + 1 < info[0] else root  # where it stopped, the pivot itself
        if not pivot > singular(len(order)) * at(diag, at(order, tail + c)):
            return INDEFINITE if pivot == pivot else NONFINITE
        if not pivot < np.inf:
            return NONFINITE
        pivots[tail + c], scale, before = pivot, 1 / root, size * c - tail
        for p in range(at(colptr, tail + c), at(colptr, tail + c + 1)):
            rounded[p] = at(S, before + at(rows, p)) * scale
    return OK if info[0] == 0 else INDEFINITE


@jit
def _spread(j, off, plan, column):
    """J's own values into the column, zero where there will be fill."""
    colptr, rows, source = plan[1], plan[2], plan[3]
    for p in range(at(colptr, j), at(colptr, j + 1)):
        column[np.uint64(at(rows, p))] = np.float64(at(off, at(source, p))) if at(source, p) >= 0 else 0.0


@jit
def _subtract(j, stop, tail, L, pivots, plan, column):
    """Take from the column, which starts at row ``tail``, what the columns of the entries up to ``stop`` of row j
    contribute; returns their part in the pivot."""
    colptr, rows, rowptr, rowcol, rowslot = plan[1], plan[2], plan[4], plan[5], plan[6]
    total = 0.0
    for q in range(at(rowptr, j), stop):
        k, slot = at(rowcol, q), at(rowslot, q)
        g = at(L, slot) * at(pivots, k)
        total += at(L, slot) * g
        for p in range(slot + 1, at(colptr, k + 1)):
            i = np.uint64(at(rows, p) - tail)
            column[i] = at(column, i) - at(L, p) * g
    return total
