"""The numeric side of a complete elimination: P J P^T = L L^T in float64, one dense front per supernode.

A front gathers the values of J in its pivots and what its children left for it, eliminates its pivots, and leaves the
rest, its *update matrix*, on a stack for its parent. In postorder the update matrices of the children lie on top.
"""

from __future__ import annotations

import numpy as np

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.ldl import blas as dense
from walksum.backends.cpu.ldl.blas import YES
from walksum.backends.cpu.ldl.numeric import INDEFINITE, NONFINITE, OK, norm, singular
from walksum.backends.cpu.ldl.supernodal_sweeps import opened
from walksum.backends.cpu.pointers import matrix, vector

SMALL = 4096  # multiply-adds of a front below which plain loops are quicker than the calls of BLAS


@jit
def workspace(plan):
    """Largest total of update matrices on the stack, and the largest front."""
    first, rowptr, childptr, child = plan[1], plan[2], plan[5], plan[6]
    S = len(first) - 1
    top, most, front, where = 0, 0, 0, np.empty(S, np.int64)
    for s in range(S):
        below = rowptr[s + 1] - rowptr[s]
        if childptr[s + 1] > childptr[s]:
            top = where[child[childptr[s]]]
        where[s] = top
        top += below * (below + 1) // 2
        most, front = max(most, top), max(front, below + first[s + 1] - first[s])
    return most, front


@jit
def factorise(start, stop, plan, room, blas, where, pivots):
    """L, D and ``|J|_inf`` of the heads ``start:stop``, and how it ended.

    Args:
        plan: :class:`walksum.backends.cpu.ldl.supernodes.Supernodes` as a tuple.
        room: what :func:`workspace` found.
        blas: :func:`walksum.backends.cpu.ldl.blas.addresses`.
        where: see :func:`walksum.backends.cpu.ldl.supernodal_sweeps.opened`; L is rounded to the dtype of J.
        pivots: address of D ``[H, N]`` in elimination order, float64: the squares of L's diagonal.
    """
    diag, off, L, norms = opened(plan, where)
    D, size, own = matrix(pivots, len(diag), len(plan[0]), 0.0), plan[7][-1], L.itemsize == 8
    scratch = np.empty(0 if own else size)
    for head in range(start, stop):
        norms[head] = norm(diag[head], off[head], plan[0], plan[11], plan[13])
        if not norms[head] < np.inf:
            return NONFINITE
        exact = vector(where[4] + 8 * head * size, size, 0.0) if own else scratch
        outcome = _factorise_head(diag[head], off[head], plan, room, blas, exact, D[head])
        if outcome != OK:
            return outcome
        if not own:
            rounded = L[head]
            for p in range(size):
                rounded[p] = exact[p]
    return OK


@jit
def _factorise_head(diag, off, plan, room, blas, L, pivots):
    first, rowptr, local, childptr, child, panel = plan[1], plan[2], plan[4], plan[5], plan[6], plan[7]
    S = len(first) - 1
    stack, W, where, top = np.empty(room[0]), np.empty(room[1] * room[1]), np.empty(S, np.int64), 0
    info = np.zeros(1, np.int32)
    for s in range(S):
        k, m = first[s + 1] - first[s], rowptr[s + 1] - rowptr[s]
        P = L[panel[s] : panel[s + 1]]
        _enter(s, k, k + m, diag, off, plan, P)
        kept = 0.0
        if childptr[s + 1] > childptr[s]:
            kept = 1.0
            _clear(W, m)
            for t in range(childptr[s], childptr[s + 1]):
                c = child[t]
                _add(stack, where[c], local[rowptr[c] : rowptr[c + 1]], k, m, P, W)
            top = where[child[childptr[s]]]
        if k * (k + m) * (k + m) < SMALL:
            _eliminate(k, m, P, W, kept)
        else:
            _eliminate_blas(k, m, P, W, kept, blas, info)
        outcome = _checked(first[s], k, k + m, diag, plan[0], P, pivots)
        if outcome != OK:
            return outcome
        where[s] = top
        top = _push(stack, top, W, m)
    return OK


@jit
def _enter(s, k, size, diag, off, plan, P):
    """The values of J."""
    order, low, entryptr, slots, edges = plan[0], plan[1][s], plan[8], plan[9], plan[10]
    for p in range(len(P)):
        P[p] = 0.0
    for p in range(entryptr[s], entryptr[s + 1]):
        P[slots[p]] = off[edges[p]]
    for j in range(k):
        P[j * size + j] = diag[order[low + j]]


@jit
def _clear(W, m):
    for p in range(m * m):
        W[p] = 0.0


@jit
def _add(stack, place, local, k, m, P, W):
    """Add the update matrix of a child: columns of pivots to the panel, the others to the update matrix."""
    n, size = len(local), k + m
    for j in range(n):
        column = local[j]
        if column < k:
            base = column * size
            for i in range(j, n):
                P[base + local[i]] += stack[place + i - j]
        else:
            base = (column - k) * m - k
            for i in range(j, n):
                W[base + local[i]] += stack[place + i - j]
        place += n - j


@jit
def _push(stack, top, W, m):
    """The lower triangle, column after column."""
    for j in range(m):
        for i in range(j, m):
            stack[top + i - j] = W[j * m + i]
        top += m - j
    return top


@jit
def _eliminate(k, m, P, W, kept):
    size = k + m
    for j in range(k):
        root = np.sqrt(P[j * size + j])
        P[j * size + j] = root
        scale = 1 / root
        for i in range(j + 1, size):
            P[j * size + i] *= scale
        for c in range(j + 1, k):
            factor = P[j * size + c]
            for i in range(c, size):
                P[c * size + i] -= factor * P[j * size + i]
    for c in range(m):
        if kept == 0.0:
            for i in range(c, m):
                W[c * m + i] = 0.0
        j = 0
        while j + 1 < k:
            one, two = P[j * size + k + c], P[(j + 1) * size + k + c]
            at, then = j * size + k, (j + 1) * size + k
            for i in range(c, m):
                W[c * m + i] -= one * P[at + i] + two * P[then + i]
            j += 2
        if j < k:
            one, at = P[j * size + k + c], j * size + k
            for i in range(c, m):
                W[c * m + i] -= one * P[at + i]


@jit
def _eliminate_blas(k, m, P, W, kept, blas, info):
    size, A = k + m, np.int64(P.ctypes.data)
    dense.potrf(blas, k, A, size, info)
    if info[0] != 0:
        P[0] = np.nan  # found by the check of the pivots
    elif m > 0:
        dense.trsm_right(blas, YES, m, k, A, size, A + 8 * k, size)
        dense.syrk(blas, m, k, A + 8 * k, size, kept, np.int64(W.ctypes.data), m)


@jit
def _checked(low, k, size, diag, order, P, pivots):
    for j in range(k):
        pivot = P[j * size + j] ** 2
        if not pivot > singular(len(order)) * diag[order[low + j]]:
            return INDEFINITE
        if not pivot < np.inf:
            return NONFINITE
        pivots[low + j] = pivot
    return OK
