"""Minimum degree, stopped early: nodes of low degree in the order of their elimination, and the core that is left.

The elimination graph is held as plain neighbour lists, so degrees are exact. Eliminating v joins its neighbours to a
clique; the list of v at that moment is the pattern of v's column of L. Dead nodes are dropped from a list when it is
next read, so that a hub which loses thousands of leaves pays for them once.
"""

from __future__ import annotations

import numpy as np

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.ldl.minimum_degree import link, unlink


@jit
def low_degree_first(indptr, indices, max_degree, max_reads):
    """Eliminate nodes of degree at most ``max_degree``, always one of least degree.

    Returns ``(order, eliminated, colptr, rows, operations)``: ``order`` lists all nodes, the eliminated first;
    ``rows[colptr[t]:colptr[t+1]]`` are the neighbours of ``order[t]`` when it went, and for the nodes that stay, their
    neighbours of a higher number. It also ends after ``max_reads`` entries: where hubs meet hubs, reading their lists
    is what takes the time.
    """
    n = len(indptr) - 1
    start, degree = indptr[:-1].copy(), np.empty(n, np.int64)
    length, room = np.empty(n, np.int64), np.empty(n, np.int64)
    for v in range(n):
        length[v] = room[v] = degree[v] = indptr[v + 1] - indptr[v]
    pool, used = np.empty(3 * len(indices) + 8 * n + 16, np.int32), np.array([len(indices)])
    _copy(indices, 0, pool, 0, len(indices))
    first, after, before = _bucket(degree)
    alive = np.ones(n, np.bool_)
    member, seen = np.full(n, -1), np.full(n, -1)
    order, colptr = np.empty(n, np.int32), np.zeros(n + 1, np.int64)
    rows = np.empty(len(indices) + n + 16, np.int32)
    operations, reads, lowest, done = 0.0, 0, 0, 0
    while done < n:
        while first[lowest] < 0:
            lowest += 1
        if lowest > max_degree or reads > max_reads:
            break
        d, v = lowest, first[lowest]
        operations += d * (d + 1) / 2
        unlink(degree, first, after, before, v)
        alive[v] = False
        rows = _with_room(rows, colptr[done], d)
        _read(v, start, length, pool, alive)
        _copy(pool, start[v], rows, colptr[done], d)
        clique = rows[colptr[done] : colptr[done] + d]
        order[done], colptr[done + 1] = v, colptr[done] + d
        done += 1
        for a in clique:
            unlink(degree, first, after, before, a)
            member[a] = v
        pool, read = _join(clique, v, start, length, room, pool, used, degree, alive, member, seen)
        for a in clique:
            degree[a] -= 1
            link(degree, first, after, before, a)
            lowest = min(lowest, degree[a])
        reads += read
    rows = _remaining(done, order, alive, start, length, pool, colptr, rows)
    return order, done, colptr, rows[: colptr[n]], operations


@jit
def _copy(source, i, target, j, count):
    for t in range(count):  # a slice assignment would check for overlap and broadcasting, and compile for a second
        target[j + t] = source[i + t]


@jit
def _bucket(degree):
    """Doubly linked lists of the nodes of each degree."""
    n = len(degree)
    first, after, before = np.full(n + 1, -1), np.empty(n, np.int64), np.empty(n, np.int64)
    for v in range(n - 1, -1, -1):
        link(degree, first, after, before, v)
    return first, after, before


@jit
def _read(v, start, length, pool, alive):
    """Drop the dead from v's list."""
    kept = start[v]
    for p in range(start[v], start[v] + length[v]):
        if alive[pool[p]]:
            pool[kept] = pool[p]
            kept += 1
    length[v] = kept - start[v]


@jit
def _join(clique, v, start, length, room, pool, used, degree, alive, member, seen):
    """Make ``clique`` a clique. A pair is looked up in one list only, so the longest list is never read."""
    _longest_last(clique, length)
    reads = 0
    for t in range(len(clique) - 1):
        b = clique[t]
        reads += length[b]
        _read(b, start, length, pool, alive)
        for p in range(start[b], start[b] + length[b]):
            if member[pool[p]] == v:
                seen[pool[p]] = b
        for a in clique[t + 1 :]:
            if seen[a] != b:
                pool = _append(b, a, start, length, room, pool, used, alive)
                pool = _append(a, b, start, length, room, pool, used, alive)
                degree[a] += 1
                degree[b] += 1
        for p in range(start[b], start[b] + length[b]):
            seen[pool[p]] = -1
    return pool, reads


@jit
def _longest_last(clique, length):
    if len(clique) > 1:
        longest = 0
        for t in range(1, len(clique)):
            if length[clique[t]] > length[clique[longest]]:
                longest = t
        clique[longest], clique[-1] = clique[-1], clique[longest]


@jit
def _append(b, a, start, length, room, pool, used, alive):
    if length[b] == room[b]:
        _read(b, start, length, pool, alive)
    if length[b] == room[b]:
        room[b] = 2 * length[b] + 4
        pool = _with_room(pool, used[0], room[b])
        _copy(pool, start[b], pool, used[0], length[b])
        start[b] = used[0]
        used[0] += room[b]
    pool[start[b] + length[b]] = a
    length[b] += 1
    return pool


@jit
def _with_room(array, used, more):
    if used + more <= len(array):
        return array
    larger = np.empty(2 * len(array) + more, array.dtype)
    _copy(array, 0, larger, 0, used)
    return larger


@jit
def _remaining(done, order, alive, start, length, pool, colptr, rows):
    """Order the nodes that are left by number and append their columns."""
    position = done
    for v in range(len(alive)):
        if alive[v]:
            order[position] = v
            position += 1
    rest = order[done:]
    for t in range(len(rest)):
        v, used = rest[t], colptr[done + t]
        rows = _with_room(rows, used, len(rest))
        for u in pool[start[v] : start[v] + length[v]]:
            if alive[u] and u > v:
                rows[used] = u
                used += 1
        colptr[done + t + 1] = used
    return rows
