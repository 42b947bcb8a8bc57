"""The numeric side of elimination: J = L D L^T in float64, column after column.

Left-looking: column j gathers what the columns k with L_jk != 0 have to subtract from it. No list of target slots is
needed, so memory stays at the size of L. In the dense tail rows follow each other without gaps, and the column that
changes stays in registers.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from walksum.kernels.lanes import L8, L32, at, largest, load, minus_product, repeat, store, times
from walksum.kernels.numba_settings import SETTINGS

FINE, INDEFINITE, NONFINITE = 0, 1, 2
SINGULAR = 4 * np.finfo(np.float64).eps  # a pivot this small beside its J_ii is rounding: no digit of mu would be right
GROUP = 8  # heads side by side: one AVX-512 register of float64
GROUP_LIMIT = 2**17  # entries of L: beyond, eight factors at once leave the cache and one after the other is faster
MARGIN = 32  # entries after the last column of a factor: vectors may read (never use) what lies behind a column


def group_size(heads: int, entries: int) -> int:
    """How many heads to factorise side by side."""
    return GROUP if heads > 1 and entries <= GROUP_LIMIT else 1


@njit(**SETTINGS)
def factorise(start, stop, size, eliminated, tail, diag, off, plan, factor, pivots, inverse, norms):
    """Factorise the groups ``start:stop`` of ``size`` heads; fills the last four and returns how it ended.

    ``factor [H, nnz]`` is L and ``inverse [H, eliminated]`` D^-1, rounded to their dtype; ``pivots [H, N]`` is D. From
    ``eliminated`` on they hold the Schur complement. norms are ``|J|_inf``.
    """
    for g in range(start, stop):
        low, high = size * g, min(size * g + size, len(diag))
        if size == 1:
            outcome = _one(eliminated, tail, diag[g], off[g], plan, factor[g], pivots[g], norms[g : g + 1])
        else:
            outcome = _group(low, high, eliminated, tail, diag, off, plan, factor, pivots, norms)
        if outcome != FINE:
            return outcome
        for head in range(low, high):
            for k in range(eliminated):
                inverse[head, k] = 1 / pivots[head, k]
    return FINE


@njit(**SETTINGS)
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


@njit(**SETTINGS)
def _one(eliminated, tail, diag, off, plan, rounded, pivots, norm):
    order, colptr, rows, source, rowptr, rowcol, rowslot, _, _, _ = plan
    n, factor = len(order), np.empty(len(rows) + MARGIN)
    column, f, base = np.zeros(n + MARGIN), np.empty(n), np.empty(n, np.int64)
    norm[0] = _norm(diag, off, plan)
    if not norm[0] < np.inf:
        return NONFINITE
    for j in range(n):
        for p in range(colptr[j], colptr[j + 1]):
            column[at(rows, p)] = np.float64(at(off, source[p])) if source[p] >= 0 else 0.0
        pivot, last = np.float64(diag[order[j]]), rowptr[j + 1] - max(j - tail, 0)
        for q in range(rowptr[j], last):
            k, slot = at(rowcol, q), at(rowslot, q)
            g = at(factor, slot) * at(pivots, k)
            pivot -= at(factor, slot) * g
            for p in range(slot + 1, at(colptr, k + 1)):
                column[at(rows, p)] -= at(factor, p) * g
        for q in range(last, rowptr[j + 1]):
            slot = rowslot[q]
            f[q - last], base[q - last] = factor[slot] * pivots[rowcol[q]], slot + 1
            pivot -= factor[slot] * f[q - last]
        if last < rowptr[j + 1]:
            for c in range(0, n - 1 - j, 32):
                total = load(column, j + 1 + c, L32)
                for t in range(rowptr[j + 1] - last):
                    total = minus_product(total, at(f, t), load(factor, at(base, t) + c, L32))
                store(column, j + 1 + c, total)
        if not pivot > SINGULAR * diag[order[j]]:
            return INDEFINITE if pivot == pivot else NONFINITE
        pivots[j] = pivot
        scale = 1 / pivot if j < eliminated else 1.0
        for p in range(colptr[j], colptr[j + 1]):
            factor[p] = at(column, at(rows, p)) * scale
    for p in range(len(rows)):
        rounded[p] = factor[p]
    return FINE


@njit(**SETTINGS)
def _interleave(low, high, values):
    """``[heads, count] -> [count * GROUP]`` in float64; places without a head repeat the last one."""
    out = np.empty(GROUP * values.shape[1])
    for lane in range(GROUP):
        row = values[min(low + lane, high - 1)]
        for e in range(len(row)):
            out[GROUP * e + lane] = row[e]
    return out


@njit(**SETTINGS)
def _group_norm(diag, off, plan, out):
    """``|J|_inf`` of eight heads into ``out``, which comes filled with zeros; NaN where there is one."""
    order, adjptr, adjedge = plan[0], plan[7], plan[9]
    top = zero = load(out, 0, L8)
    for i in range(len(order)):
        total = largest(zero, load(diag, GROUP * at(order, i), L8))
        for p in range(at(adjptr, i), at(adjptr, i + 1)):
            total = minus_product(total, -1.0, largest(zero, load(off, GROUP * at(adjedge, p), L8)))
        top = largest(top, total)
    store(out, 0, top)


@njit(**SETTINGS)
def _group(low, high, eliminated, tail, diag, off, plan, rounded, pivots, norms):
    """The same for up to eight heads side by side."""
    order, colptr, rows, source, rowptr, rowcol, rowslot, _, _, _ = plan
    n, G = len(order), GROUP
    column, f, base = np.zeros(G * (n + MARGIN)), np.empty(G * n), np.empty(n, np.int64)
    L, D, eight = np.empty(G * (len(rows) + MARGIN)), np.empty(G * n), np.zeros(G)
    J_diag, J_off, zero = _interleave(low, high, diag), _interleave(low, high, off), load(eight, 0, L8)
    _group_norm(J_diag, J_off, plan, eight)
    for head in range(low, high):
        norms[head] = eight[head - low]
        if not norms[head] < np.inf:
            return NONFINITE
    for j in range(n):
        for p in range(colptr[j], colptr[j + 1]):
            store(column, G * at(rows, p), load(J_off, G * source[p], L8) if source[p] >= 0 else zero)
        pivot, last = load(J_diag, G * order[j], L8), rowptr[j + 1] - max(j - tail, 0)
        for q in range(rowptr[j], last):
            k, slot = at(rowcol, q), at(rowslot, q)
            entry = load(L, G * slot, L8)
            g = times(load(D, G * k, L8), entry)
            pivot = minus_product(pivot, g, entry)
            for p in range(slot + 1, at(colptr, k + 1)):
                target = G * at(rows, p)
                store(column, target, minus_product(load(column, target, L8), g, load(L, G * p, L8)))
        for q in range(last, rowptr[j + 1]):
            slot = rowslot[q]
            entry = load(L, G * slot, L8)
            g = times(load(D, G * rowcol[q], L8), entry)
            pivot = minus_product(pivot, g, entry)
            store(f, G * (q - last), g)
            base[q - last] = G * (slot + 1)
        if last < rowptr[j + 1]:
            for c in range(0, G * (n - 1 - j), 32):
                total = load(column, G * (j + 1) + c, L32)
                for t in range(rowptr[j + 1] - last):
                    total = minus_product(total, repeat(load(f, G * t, L8), L32), load(L, at(base, t) + c, L32))
                store(column, G * (j + 1) + c, total)
        store(D, G * j, pivot)
        for lane in range(high - low):
            d = at(D, G * j + lane)
            if not d > SINGULAR * J_diag[G * order[j] + lane]:
                return INDEFINITE if d == d else NONFINITE
        for lane in range(G):
            eight[lane] = 1 / at(D, G * j + lane) if j < eliminated else 1.0
        scale = load(eight, 0, L8)
        for p in range(colptr[j], colptr[j + 1]):
            store(L, G * p, times(scale, load(column, G * at(rows, p), L8)))
    _separate(low, high, L, rounded)
    _separate(low, high, D, pivots)
    return FINE


@njit(**SETTINGS)
def _separate(low, high, values, out):
    for e in range(out.shape[1]):
        for lane in range(high - low):
            out[low + lane, e] = at(values, GROUP * e + lane)
