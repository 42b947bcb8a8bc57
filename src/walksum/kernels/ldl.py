"""The numeric side of elimination: J = L D L^T in float64, column after column.

Left-looking: column j gathers what the columns k with L_jk != 0 have to subtract from it. No list of target slots is
needed, so memory stays at the size of L. Where the rows of k that are left form one run (always so in the dense tail),
the update is a plain vector operation.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from walksum.kernels import lanes
from walksum.kernels.lanes import L8
from walksum.kernels.numba_settings import SETTINGS

FINE, INDEFINITE, NONFINITE = 0, 1, 2
SINGULAR = 4 * np.finfo(np.float64).eps  # a pivot this small beside its J_ii is rounding: no digit of mu would be right
GROUP = 8  # heads side by side: one AVX-512 register of float64


@njit(**SETTINGS)
def factorise(start, stop, eliminated, diag, off, pattern, matrix, factor, pivots, solve_factor, solve_inverse, norms):
    """Factorise the groups ``start:stop`` of heads; fills the last five and returns how it ended."""
    heads = len(diag)
    for g in range(start, stop):
        low, high = (g, g + 1) if heads == 1 else (GROUP * g, min(GROUP * g + GROUP, heads))
        for head in range(low, high):
            norms[head] = _norm(diag[head], off[head], pattern[0], matrix)
            if not norms[head] < np.inf:
                return NONFINITE
        if heads == 1:
            outcome = _factorise_one(eliminated, diag[0], off[0], pattern, factor[0], pivots[0])
        else:
            outcome = _factorise_group(low, high, eliminated, diag, off, pattern, factor, pivots)
        if outcome != FINE:
            return outcome
        for head in range(low, high):
            solve_factor[head] = factor[head, : solve_factor.shape[1]]
            solve_inverse[head] = 1 / pivots[head, :eliminated]
    return FINE


@njit(**SETTINGS)
def _norm(diag, off, order, matrix):
    """``|J|_inf``, infinite if there is a NaN."""
    adjptr, _, adjedge = matrix
    largest = 0.0
    for i in range(len(order)):
        total = abs(np.float64(diag[order[i]]))
        for p in range(adjptr[i], adjptr[i + 1]):
            total += abs(np.float64(off[adjedge[p]]))
        if not total < np.inf:
            return np.inf
        largest = max(largest, total)
    return largest


@njit(**SETTINGS)
def _factorise_one(eliminated, diag, off, pattern, factor, pivots):
    order, colptr, rows, source, rowptr, rowcol, rowslot = pattern
    column = np.zeros(len(order))
    for j in range(len(order)):
        for p in range(colptr[j], colptr[j + 1]):
            column[rows[p]] = off[source[p]] if source[p] >= 0 else 0.0
        pivot = np.float64(diag[order[j]])
        for q in range(rowptr[j], rowptr[j + 1]):
            k, slot = rowcol[q], rowslot[q]
            f = factor[slot] * pivots[k]
            pivot -= factor[slot] * f
            _subtract(column, rows, factor, slot + 1, colptr[k + 1], f)
        if not pivot > SINGULAR * diag[order[j]]:
            return INDEFINITE if pivot == pivot else NONFINITE
        pivots[j] = pivot
        scale = 1 / pivot if j < eliminated else 1.0
        for p in range(colptr[j], colptr[j + 1]):
            factor[p] = column[rows[p]] * scale
    return FINE


@njit(**SETTINGS)
def _subtract(column, rows, factor, begin, end, f):
    if end > begin and rows[end - 1] - rows[begin] == end - 1 - begin:
        target = column[rows[begin] : rows[begin] + end - begin]
        values = factor[begin:end]
        for t in range(end - begin):
            target[t] -= values[t] * f
    else:
        for p in range(begin, end):
            column[rows[p]] -= factor[p] * f


@njit(**SETTINGS)
def _factorise_group(low, high, eliminated, diag, off, pattern, factor, pivots):
    """The same for up to eight heads side by side; places without a head repeat the last one."""
    order, colptr, rows, source, rowptr, rowcol, rowslot = pattern
    column = np.zeros(GROUP * len(order))
    L, D = np.empty(GROUP * len(rows)), np.empty(GROUP * len(order))
    one = np.ones(GROUP)
    for j in range(len(order)):
        for p in range(colptr[j], colptr[j + 1]):
            for lane in range(GROUP):
                value = off[min(low + lane, high - 1), source[p]] if source[p] >= 0 else 0.0
                column[GROUP * rows[p] + lane] = value
        for lane in range(GROUP):
            D[GROUP * j + lane] = diag[min(low + lane, high - 1), order[j]]
        pivot = lanes.load(D, GROUP * j, L8)
        for q in range(rowptr[j], rowptr[j + 1]):
            k, slot = rowcol[q], rowslot[q]
            entry = lanes.load(L, GROUP * slot, L8)
            f = lanes.times(lanes.load(D, GROUP * k, L8), entry)
            pivot = lanes.minus_product(pivot, f, entry)
            for p in range(slot + 1, colptr[k + 1]):
                target = GROUP * rows[p]
                total = lanes.minus_product(lanes.load(column, target, L8), f, lanes.load(L, GROUP * p, L8))
                lanes.store(column, target, total)
        lanes.store(D, GROUP * j, pivot)
        for lane in range(high - low):
            d = D[GROUP * j + lane]
            if not d > SINGULAR * diag[low + lane, order[j]]:
                return INDEFINITE if d == d else NONFINITE
        if j < eliminated:
            for lane in range(GROUP):
                one[lane] = 1 / D[GROUP * j + lane]
        else:
            one[:] = 1.0
        scale = lanes.load(one, 0, L8)
        for p in range(colptr[j], colptr[j + 1]):
            lanes.store(L, GROUP * p, lanes.times(scale, lanes.load(column, GROUP * rows[p], L8)))
    for lane in range(high - low):
        factor[low + lane] = L.reshape(-1, GROUP)[:, lane]
        pivots[low + lane] = D.reshape(-1, GROUP)[:, lane]
    return FINE
