"""Supernodes: runs of columns of L with the same rows below them, so that the numeric work is on dense blocks.

Supernode s has the columns ``first[s]:first[s + 1]``, its *pivots*, and below them the rows
``rows[rowptr[s]:rowptr[s + 1]]``. Its *front* is the dense matrix of both, pivots first. A child with nearly the rows
of its parent is merged into it: a few zeros cost less than another block.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from walksum.backends.cpu.compile import jit

# The zeros a merged supernode may have, as a share of its entries, by its number of pivots: small blocks gain most.
# More zeros made the factorisation of grids and citation graphs no faster, and solves slower.
FEW, SOME, MANY = 4, 16, 48
SHARE_FEW, SHARE_SOME, SHARE_MANY, SHARE = 0.5, 0.3, 0.1, 0.05


class Supernodes(NamedTuple):
    """Pattern of a supernodal factor; S supernodes, in postorder."""

    order: np.ndarray  # [N] node at each position
    first: np.ndarray  # [S + 1] pivots
    rowptr: np.ndarray  # [S + 1]
    rows: np.ndarray  # positions below the pivots, ascending
    local: np.ndarray  # the same rows as places in the front of the parent
    childptr: np.ndarray  # [S + 1]
    child: np.ndarray
    panel: np.ndarray  # [S + 1] where the columns of a supernode begin in L: column after column, pivots then rows
    entryptr: np.ndarray  # [S + 1] edges whose value starts in a supernode
    entryslot: np.ndarray  # [E] their places in its panel
    entryedge: np.ndarray  # [E]
    adjptr: np.ndarray  # [N + 1] rows of J
    adjcol: np.ndarray  # [2 E]
    adjedge: np.ndarray  # [2 E]


@jit
def partition(parent, count):
    """First column of every supernode, ``[S + 1]``, of a postordered tree."""
    n, made = len(parent), 0
    first, entries = np.empty(n + 1, np.int32), np.empty(n, np.float64)  # entries that are not zero
    begins = np.zeros(n, np.bool_)
    for j in range(n):
        begins[j] = j == 0 or parent[j - 1] != j or count[j - 1] != count[j] + 1
    j = 0
    while j < n:
        stop = j + 1
        while stop < n and not begins[stop]:
            stop += 1
        first[made], entries[made] = j, _trapezoid(stop - j, count[stop - 1])
        while made > 0 and parent[first[made] - 1] >= first[made] and parent[first[made] - 1] < stop:
            together, wide = entries[made - 1] + entries[made], stop - first[made - 1]
            whole = _trapezoid(wide, count[stop - 1])
            zeros = whole - together
            most = SHARE_FEW if wide <= FEW else SHARE_SOME if wide <= SOME else SHARE_MANY if wide <= MANY else SHARE
            if zeros > most * whole:
                break
            made -= 1
            entries[made] = together
        made += 1
        j = stop
    first[made] = n
    return first[: made + 1].copy()


@jit
def _trapezoid(wide, below):
    return wide * (wide + 1.0) / 2 + wide * np.float64(below)


@jit
def structure(indptr, indices, edge, order, position, first, count):
    """The arrays of :class:`Supernodes` after ``first``."""
    n, S = len(order), len(first) - 1
    of, rowptr, panel = np.empty(n, np.int32), np.zeros(S + 1, np.int64), np.zeros(S + 1, np.int64)
    for s in range(S):
        below, wide = count[first[s + 1] - 1], first[s + 1] - first[s]
        rowptr[s + 1], panel[s + 1] = rowptr[s] + below, panel[s] + wide * (wide + below)
        for j in range(first[s], first[s + 1]):
            of[j] = s
    rows = union(indptr, indices, order, position, first, of, rowptr)
    rows = ascending(n, rowptr, rows)
    childptr, child = _children(S, of, rowptr, rows)
    local, entryptr, slots, edges = _places(
        indptr, indices, edge, order, position, first, rowptr, rows, childptr, child
    )
    return rowptr, rows, local, childptr, child, panel, entryptr, slots, edges


@jit
def union(indptr, indices, order, position, first, of, rowptr):
    """Rows of a supernode: neighbours of its pivots and rows of its children, beyond its last pivot; not sorted."""
    n, S = len(order), len(first) - 1
    rows, seen = np.empty(rowptr[S], np.int32), np.full(n, -1, np.int32)
    eldest, sibling = np.full(S, -1, np.int32), np.empty(S, np.int32)
    for s in range(S):
        used, last = rowptr[s], first[s + 1] - 1
        for j in range(first[s], first[s + 1]):
            v = order[j]
            for p in range(indptr[v], indptr[v + 1]):
                i = position[indices[p]]
                if i > last and seen[i] != s:
                    seen[i], rows[used] = s, i
                    used += 1
        c = eldest[s]
        while c >= 0:
            for p in range(rowptr[c], rowptr[c + 1]):
                i = rows[p]
                if i > last and seen[i] != s:
                    seen[i], rows[used] = s, i
                    used += 1
            c = sibling[c]
        if used > rowptr[s]:
            lowest = rows[rowptr[s]]
            for p in range(rowptr[s] + 1, used):
                lowest = min(lowest, rows[p])
            up = of[lowest]
            sibling[s], eldest[up] = eldest[up], s
    return rows


@jit
def ascending(n, rowptr, rows):
    """Every list ascending: listed by rows, then back."""
    S, start = len(rowptr) - 1, np.zeros(n + 1, np.int64)
    for p in range(len(rows)):
        start[rows[p] + 1] += 1
    for i in range(n):
        start[i + 1] += start[i]
    owner = np.empty(len(rows), np.int32)
    for s in range(S):
        for p in range(rowptr[s], rowptr[s + 1]):
            owner[start[rows[p]]] = s
            start[rows[p]] += 1
    out, free, p = np.empty_like(rows), rowptr[:-1].copy(), 0
    for i in range(n):
        while p < start[i]:
            out[free[owner[p]]] = i
            free[owner[p]] += 1
            p += 1
    return out


@jit
def _children(S, of, rowptr, rows):
    childptr, child = np.zeros(S + 1, np.int64), np.empty(S, np.int32)
    for s in range(S):
        if rowptr[s + 1] > rowptr[s]:
            childptr[of[rows[rowptr[s]]] + 1] += 1
    for s in range(S):
        childptr[s + 1] += childptr[s]
    free = childptr[:-1].copy()
    for s in range(S):
        if rowptr[s + 1] > rowptr[s]:
            up = of[rows[rowptr[s]]]
            child[free[up]] = s
            free[up] += 1
    return childptr, child


@jit
def _places(indptr, indices, edge, order, position, first, rowptr, rows, childptr, child):
    """Rows of children, and edges, as places in a front."""
    n, S = len(order), len(first) - 1
    local, place = np.empty_like(rows), np.empty(n, np.int32)
    entryptr, slots = np.zeros(S + 1, np.int64), np.empty(len(indices) // 2, np.int64)
    edges, used = np.empty(len(edge) // 2, np.int32), 0
    for s in range(S):
        low, wide = first[s], first[s + 1] - first[s]
        size = wide + rowptr[s + 1] - rowptr[s]
        for j in range(wide):
            place[low + j] = j
        for p in range(rowptr[s], rowptr[s + 1]):
            place[rows[p]] = wide + p - rowptr[s]
        for t in range(childptr[s], childptr[s + 1]):
            for p in range(rowptr[child[t]], rowptr[child[t] + 1]):
                local[p] = place[rows[p]]
        for j in range(wide):
            v = order[low + j]
            for p in range(indptr[v], indptr[v + 1]):
                i = position[indices[p]]
                if i > low + j:
                    slots[used], edges[used] = place[i] + j * np.int64(size), edge[p]
                    used += 1
        entryptr[s + 1] = used
    return local, entryptr, slots, edges
