"""L D L^T of eight heads side by side: :mod:`walksum.backends.cpu.ldl.numeric` with a vector in place of every number.

An elimination of few operations spends its time on finding entries; here each is found once for eight heads.
"""

from __future__ import annotations

import numpy as np

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.ldl.numeric import INDEFINITE, NONFINITE, OK, opened, singular
from walksum.backends.cpu.pointers import vector
from walksum.backends.cpu.simd import WIDTHS, at, fma, largest, load, store

GROUP = 8  # heads: one AVX-512 register of float64
GROUP_LIMIT = 2**17  # entries of L: beyond, eight factors at once leave the cache and one after the other is faster
L8 = WIDTHS[GROUP]


@jit
def factorise(start, stop, plan, where):
    """As :func:`walksum.backends.cpu.ldl.numeric.factorise`, for the groups ``start:stop`` of eight heads."""
    diag, off, factor, inverse, pivots, norms = opened(plan, where)
    kept = interleaved_values(plan, where)
    for g in range(start, stop):
        low, high = GROUP * g, min(GROUP * g + GROUP, len(diag))
        outcome = _factorise_group(low, high, inverse.shape[1], diag, off, plan, factor, pivots, norms, kept)
        if outcome != OK:
            return outcome
        _invert(low, high, pivots, inverse)
    return OK


@jit
def interleaved_values(plan, where):
    """Where diag and off of whole groups lie entry by entry, eight heads in a row, behind the numbers of the factor."""
    zero, heads, eliminated, _, _, numbers = where
    n, edges, size = len(plan[0]), len(plan[9]) // 2, vector(numbers, 1, zero).itemsize
    place = numbers + size * heads * (2 * (n + 1) + len(plan[2]) + eliminated)
    return vector(place, heads * n, zero), vector(place + size * heads * n, heads * edges, zero)


@jit
def interleaved(heads, eliminated, nodes):
    """Whether L and D^-1 of a group stay entry by entry, eight heads in a row: of whole groups, for whole solves."""
    return heads % GROUP == 0 and eliminated == nodes


@jit
def _invert(low, high, pivots, out):
    together, flat = interleaved(len(pivots), out.shape[1], pivots.shape[1]), out.reshape(out.size)
    for head in range(low, high):
        for k in range(out.shape[1]):
            place = low * out.shape[1] + GROUP * k + head - low if together else head * out.shape[1] + k
            flat[place] = 1 / pivots[head, k]


@jit
def _factorise_group(low, high, eliminated, diag, off, plan, rounded, pivots, norms, kept):
    order, colptr, rows, (kept_diag, kept_off) = plan[0], plan[1], plan[2], kept
    n, G, least = len(order), GROUP, singular(len(order))
    column, L, D, scale = np.zeros(G * n), np.empty(G * len(rows)), np.empty(G * n), np.zeros(G)
    J_diag, J_off = _interleave(low, high, diag, D), _interleave(low, high, off, D)
    _norm(J_diag, J_off, plan, scale)
    for head in range(low, high):
        norms[head] = scale[head - low]
        if not norms[head] < np.inf:
            return NONFINITE
    for j in range(n):
        _spread(j, J_off, plan, column)
        pivot = _subtract(j, load(L8, J_diag, G * order[j]), L, D, plan, column)
        store(D, G * j, pivot)
        for lane in range(high - low):
            d = at(D, G * j + lane)
            if not d > least * at(J_diag, G * order[j] + lane):
                return INDEFINITE if d == d else NONFINITE
        for lane in range(G):
            scale[lane] = 1 / at(D, G * j + lane) if j < eliminated else 1.0
        factor = load(L8, scale, 0)
        for p in range(colptr[j], colptr[j + 1]):
            store(L, G * p, factor * load(L8, column, G * at(rows, p)))
    if interleaved(len(diag), eliminated, n):
        _round(L, rounded.reshape(rounded.size)[low * len(rows) :])
        _round(J_diag, kept_diag[G * n * (low // G) :])
        _round(J_off, kept_off[len(J_off) * (low // G) :])
    else:
        _separate(low, high, L, rounded)
    _separate(low, high, D, pivots)
    return OK


@jit
def _round(values, out):
    for e in range(len(values)):
        out[e] = values[e]


@jit
def _interleave(low, high, values, like):
    """``[heads, count] -> [count * GROUP]`` in the dtype of ``like``; places without a head repeat the last one."""
    out = np.empty(GROUP * values.shape[1], like.dtype)
    for lane in range(GROUP):
        row = values[min(low + lane, high - 1)]
        for e in range(len(row)):
            out[GROUP * e + lane] = row[e]
    return out


@jit
def _separate(low, high, values, out):
    for e in range(out.shape[1]):
        for lane in range(high - low):
            out[low + lane, e] = at(values, GROUP * e + lane)


@jit
def _norm(diag, off, plan, out):
    """``|J|_inf`` of every head into ``out``, which comes filled with zeros; NaN where there is one."""
    order, adjptr, adjedge = plan[0], plan[7], plan[9]
    zero = load(L8, out, 0)
    top = zero
    for i in range(len(order)):
        total = largest(zero, load(L8, diag, GROUP * at(order, i)))
        for p in range(at(adjptr, i), at(adjptr, i + 1)):
            total = total + largest(zero, load(L8, off, GROUP * at(adjedge, p)))
        top = largest(top, total)
    store(out, 0, top)


@jit
def _spread(j, off, plan, column):
    """J's own values into the column, zero where there will be fill."""
    colptr, rows, source = plan[1], plan[2], plan[3]
    for p in range(colptr[j], colptr[j + 1]):
        target, e = GROUP * at(rows, p), at(source, p)
        if e >= 0:
            store(column, target, load(L8, off, GROUP * e))
        else:
            for lane in range(GROUP):
                column[target + lane] = 0.0


@jit
def _subtract(j, pivot, L, D, plan, column):
    """Take from the column and the pivot what the columns before contribute; returns the pivot."""
    colptr, rows, rowptr, rowcol, rowslot = plan[1], plan[2], plan[4], plan[5], plan[6]
    for q in range(rowptr[j], rowptr[j + 1]):
        k, slot = at(rowcol, q), at(rowslot, q)
        entry = load(L8, L, GROUP * slot)
        g = -1.0 * entry * load(L8, D, GROUP * k)
        pivot = fma(g, entry, pivot)
        for p in range(slot + 1, at(colptr, k + 1)):
            target = GROUP * at(rows, p)
            store(column, target, fma(g, load(L8, L, GROUP * p), load(L8, column, target)))
    return pivot
