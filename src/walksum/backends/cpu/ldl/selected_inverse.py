"""Entries of J^-1 from its factor: the Takahashi equations, one front after the other, from the root down.

With the front of a supernode split into pivots (1) and rows below them (2), and ``V = L_21 L_11^-1``::

    Z_21 = -Z_22 V,    Z_11 = (L_11 L_11^T)^-1 - V^T Z_21.

All of Z_22 lies in the front of the parent, which hands it down on a stack.
"""

from __future__ import annotations

import numpy as np

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.ldl import blas as dense
from walksum.backends.cpu.ldl.blas import NO

SMALL = 4096  # multiply-adds of a front below which plain loops are quicker than the calls of BLAS


@jit
def selected_inverse(start, stop, plan, room, blas, L, diag, off):
    """``J^-1`` on the pattern of J for the heads ``start:stop``, into ``diag [H, N]`` and ``off [H, E]``.

    Args:
        plan: :class:`walksum.backends.cpu.ldl.supernodes.Supernodes` as a tuple.
        room: what :func:`walksum.backends.cpu.ldl.multifrontal.workspace` found.
        blas: :func:`walksum.backends.cpu.ldl.blas.addresses`.
        L: ``[H, size]``, float64.
    """
    for head in range(start, stop):
        _of_head(plan, room, blas, L[head], diag[head], off[head])


@jit
def _of_head(plan, room, blas, L, diag, off):
    order, first, rowptr, local, childptr, child, panel = plan[0], plan[1], plan[2], plan[4], plan[5], plan[6], plan[7]
    entryptr, slots, edges = plan[8], plan[9], plan[10]
    stack, top = np.empty(room[0]), 0
    Z, V = np.empty(room[1] * room[1]), np.empty(room[1] * room[1])
    for s in range(len(first) - 2, -1, -1):
        k, m, P = first[s + 1] - first[s], rowptr[s + 1] - rowptr[s], L[panel[s] : panel[s + 1]]
        size = k + m
        top -= m * (m + 1) // 2
        _pop(stack, top, Z, k, size)
        if k * size * size < SMALL:
            _extend(k, size, P, Z, V)
        else:
            _extend_blas(k, m, P, Z, V, blas)
        for j in range(k):
            diag[order[first[s] + j]] = Z[j * size + j]
        for p in range(entryptr[s], entryptr[s + 1]):
            off[edges[p]] = Z[slots[p]]
        for t in range(childptr[s], childptr[s + 1]):
            c = child[t]
            top = _hand_down(stack, top, Z, size, local[rowptr[c] : rowptr[c + 1]])


@jit
def _pop(stack, place, Z, k, size):
    """Z_22 into both triangles of the front."""
    for j in range(k, size):
        for i in range(j, size):
            Z[j * size + i] = stack[place + i - j]
        for i in range(j + 1, size):
            Z[i * size + j] = stack[place + i - j]
        place += size - j


@jit
def _hand_down(stack, top, Z, size, local):
    n = len(local)
    for j in range(n):
        base = local[j] * size
        for i in range(j, n):
            stack[top + i - j] = Z[base + local[i]]
        top += n - j
    return top


@jit
def _extend(k, size, P, Z, column):
    """Pivot after pivot, from the last; both triangles of Z are kept, so that every loop runs along a column."""
    for j in range(k - 1, -1, -1):
        scale = 1 / P[j * size + j]
        for i in range(j + 1, size):
            column[i] = P[j * size + i] * scale
            Z[j * size + i] = 0.0
        for c in range(j + 1, size):
            factor, base = column[c], c * size
            for i in range(j + 1, size):
                Z[j * size + i] -= factor * Z[base + i]
        own = scale * scale
        for i in range(j + 1, size):
            own -= column[i] * Z[j * size + i]
            Z[i * size + j] = Z[j * size + i]
        Z[j * size + j] = own


@jit
def _extend_blas(k, m, P, Z, V, blas):
    size, info = k + m, np.zeros(1, np.int32)
    top, at_V, of_L = np.int64(Z.ctypes.data), np.int64(V.ctypes.data), np.int64(P.ctypes.data)
    for j in range(k):
        for i in range(j, k):
            Z[j * size + i] = P[j * size + i]
        for i in range(m):
            V[j * m + i] = P[j * size + k + i]
    dense.potri(blas, k, top, size, info)
    if m > 0:
        dense.trsm_right(blas, NO, m, k, of_L, size, at_V, m)
        dense.symm(blas, m, k, top + 8 * (k * size + k), size, at_V, m, top + 8 * k, size)
        dense.gemm_transposed(blas, k, k, m, at_V, m, top + 8 * k, size, 1.0, top, size)
