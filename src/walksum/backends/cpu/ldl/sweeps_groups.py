"""Solves with the factors of eight heads side by side: :mod:`walksum.backends.cpu.ldl.sweeps` for eight heads at once.

A sweep over few columns spends its time on finding entries; here each is found once for eight heads. The numbers of a
group lie entry by entry, eight in a row, the way :mod:`walksum.backends.cpu.ldl.numeric_groups` made them.
"""

from __future__ import annotations

import numpy as np

from walksum.backends.cpu.backward_error import ratio
from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.ldl.head_lanes import COLUMNS, HEADS, L8, L64, each, gather, scatter
from walksum.backends.cpu.ldl.numeric import opened
from walksum.backends.cpu.ldl.sweeps import AHEAD, worse
from walksum.backends.cpu.pointers import vector
from walksum.backends.cpu.simd import at, fma, largest, load, prefetch, store

WIDTH = HEADS * COLUMNS


@jit
def solve(start, stop, plan, where, columns, strides, h, mu):
    """mu of the blocks ``start:stop`` of eight columns of eight heads, a multiple of eight each; the worst error.

    ``strides`` are those of h and mu from head to head and from node to node.
    """
    diag, off, factor, inverse, _, norms = opened(plan, where)
    zero, heads, n, nnz = diag.dtype.type(0), len(diag), diag.shape[1], factor.shape[1]
    H, X = vector(h, heads * n * columns, zero), vector(mu, heads * n * columns, zero)
    L, D = factor.reshape(heads * nnz), inverse.reshape(heads * n)
    x, J_diag, J_off = np.empty(WIDTH * n, diag.dtype), np.empty(0, diag.dtype), np.empty(0, diag.dtype)
    last, worst = -1, 0.0
    for unit in range(start, stop):
        group, first = unit // (columns // COLUMNS), unit % (columns // COLUMNS) * COLUMNS
        if group != last:
            J_diag, J_off = _side_by_side(diag, HEADS * group), _side_by_side(off, HEADS * group)
            last = group
        step, apart = strides
        begin = HEADS * group * step + first
        _forward(x, H, begin, step, apart, L[HEADS * group * nnz :], plan)
        _backward(x, X, begin, step, apart, L[HEADS * group * nnz :], D[HEADS * group * n :], plan)
        worst = worse(worst, _measured(x, H, begin, step, apart, J_diag, J_off, norms[HEADS * group :], plan))
    return worst


@jit
def _side_by_side(values, low):
    out = np.empty(HEADS * values.shape[1], values.dtype)
    for k in range(HEADS):
        row = values[low + k]
        for e in range(len(row)):
            out[HEADS * e + k] = row[e]
    return out


@jit
def _forward(x, h, begin, step, apart, L, plan):
    order, rowptr, rowcol, rowslot = plan[0], plan[4], plan[5], plan[6]
    for i in range(len(order)):
        total = gather(h, begin + apart * at(order, i), step)
        for q in range(at(rowptr, i), at(rowptr, i + 1)):
            entry = -1.0 * load(L8, L, HEADS * at(rowslot, q))
            total = fma(each(entry), load(L64, x, WIDTH * at(rowcol, q)), total)
        store(x, WIDTH * i, total)


@jit
def _backward(x, mu, begin, step, apart, L, D, plan):
    order, colptr, rows = plan[0], plan[1], plan[2]
    for k in range(len(order) - 1, -1, -1):
        total = each(load(L8, D, HEADS * k)) * load(L64, x, WIDTH * k)
        for p in range(at(colptr, k), at(colptr, k + 1)):
            total = fma(each(-1.0 * load(L8, L, HEADS * p)), load(L64, x, WIDTH * at(rows, p)), total)
        store(x, WIDTH * k, total)
        scatter(mu, begin + apart * at(order, k), step, total)


@jit
def _measured(x, h, begin, step, apart, J_diag, J_off, norms, plan):
    """The worst normwise backward error ``|h - J x| / (|J| |x| + |h|)`` of the block's columns."""
    order, adjptr, adjcol, adjedge = plan[0], plan[7], plan[8], plan[9]
    tops = np.zeros(3 * WIDTH, x.dtype)
    top_h = top_x = top_r = load(L64, tops, 0)
    for i in range(len(order)):
        v = at(order, i)
        total, own = gather(h, begin + apart * v, step), load(L64, x, WIDTH * i)
        top_h, top_x = largest(top_h, total), largest(top_x, own)
        total = fma(each(-1.0 * load(L8, J_diag, HEADS * v)), own, total)
        for p in range(at(adjptr, i), at(adjptr, i + 1)):
            if p + AHEAD < len(adjcol):
                prefetch(L64, x, WIDTH * at(adjcol, p + AHEAD))
            entry = -1.0 * load(L8, J_off, HEADS * at(adjedge, p))
            total = fma(each(entry), load(L64, x, WIDTH * at(adjcol, p)), total)
        top_r = largest(top_r, total)
    store(tops, 0, top_h)
    store(tops, WIDTH, top_x)
    store(tops, 2 * WIDTH, top_r)
    worst = 0.0
    for f in range(WIDTH):
        if tops[2 * WIDTH + f] != 0:  # 0 / 0 counts as 0
            worst = worse(worst, ratio(tops[2 * WIDTH + f], norms[f // COLUMNS], tops[WIDTH + f], tops[f]))
    return worst
