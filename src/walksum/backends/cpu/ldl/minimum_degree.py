"""Approximate minimum degree: an order of elimination that fills in little, in nearly linear time.

The elimination graph is never formed. An eliminated node stays as an *element*, the clique of its neighbours, so a
node's list holds the elements it belongs to and, behind them, the neighbours that no element covers yet. Nodes with the
same neighbours become one supervariable. The degree of a node is bounded from above by summing over its elements
(Amestoy, Davis and Duff, 1996); nodes of very high degree are left to the end, since every elimination next to them
would read their lists.

Variables and elements share the numbers of the nodes. The arrays of the quotient graph go to every function one by one,
because numba would count references at each access through a tuple; all but ``lists`` hold one number per node::

    lists     workspace in which every list lies
    start     of a list; -1 for what has none any more
    length    of a list
    elements  entries at the front of a variable's list that are elements
    weight    nodes in a supervariable; 0 once it is gone, negative while it is in the current element
    degree    bound of a variable's degree; size of an element
    into      the variable or element that took this one in
    mark      0 for an absorbed element, else compared with a flag that grows
    first     first variable of each degree
    after     next variable of the same degree; in the current element, of the same hash
    before    previous variable of the same degree; in the current element, the hash
    bucket    first variable of each hash
"""

from __future__ import annotations

from functools import partial

import numpy as np

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.numba_api import numba

# handing a dozen arrays to a function takes as long as many a step of the search
inlined = partial(numba.njit, nogil=True, error_model="numpy", forceinline=True)

HUB, HUB_LEAST = 10.0, 16.0  # a node of more than max(16, 10 sqrt(N)) neighbours is eliminated last


@jit
def minimum_degree(indptr, indices, limit):
    """An order of elimination, ``[N]``; empty once it takes more than ``limit`` multiply-adds, hubs not counted."""
    n = len(indptr) - 1
    leaves, number = peeled(indptr, indices)
    many = len(leaves)
    if many == 0:
        return _without_leaves(indptr, indices, limit)
    rest = without(indptr, indices, number, n - many)
    inner = _without_leaves(rest[0], rest[1], limit - many)
    if len(inner) < n - many:
        return inner
    order = np.empty(n, np.int32)
    order[:many] = leaves
    for i in range(n - many):
        order[many + i] = rest[2][inner[i]]
    return order


@jit
def peeled(indptr, indices):
    """The nodes that have at most one neighbour left when they go, in their order; and the number that each node has
    among those that stay, -1 for one that goes.

    They fill in nothing, so every good order begins with them, and a node that has one neighbour left needs no list:
    the sum of the neighbours it had, less those that went, is that neighbour.
    """
    n = len(indptr) - 1
    degree, left, number = np.empty(n, np.int32), np.empty(n, np.int64), np.zeros(n, np.int32)
    leaves, many = np.empty(n, np.int32), 0
    for v in range(n):
        total = 0
        for p in range(indptr[v], indptr[v + 1]):
            total += indices[p]
        degree[v], left[v] = indptr[v + 1] - indptr[v], total
        if degree[v] <= 1:
            number[v], leaves[many] = -1, v
            many += 1
    done = 0
    while done < many:
        v = leaves[done]
        done += 1
        if degree[v] == 1:
            u = left[v]
            degree[u] -= 1
            left[u] -= v
            if degree[u] == 1 and number[u] == 0:
                number[u], leaves[many] = -1, u
                many += 1
    kept = 0
    for v in range(n):
        if number[v] == 0:
            number[v] = kept
            kept += 1
    return leaves[:many], number


@jit
def without(indptr, indices, number, kept):
    """The neighbour lists of the nodes that stay, in their new numbers, and the nodes these numbers stand for."""
    start, node = np.zeros(kept + 1, np.int64), np.empty(kept, np.int32)
    lists, used = np.empty(len(indices), np.int32), 0
    for v in range(len(number)):
        k = number[v]
        if k >= 0:
            for p in range(indptr[v], indptr[v + 1]):
                if number[indices[p]] >= 0:
                    lists[used] = number[indices[p]]
                    used += 1
            start[k + 1], node[k] = used, v
    return start, lists[:used], node


@jit
def _without_leaves(indptr, indices, limit):
    n = len(indptr) - 1
    pivot = np.full(n, -1, np.int32)
    lists, start, length, elements, weight, degree, into, mark, first, after, before, bucket = _quotient(
        indptr, indices
    )
    hubs = _leave_hubs(start, weight, degree, first, after, before)
    pivots, left, free, lowest, flag, operations = 0, n - hubs, len(indices), 0, 2, 0.0
    while left > 0:
        while first[lowest] < 0:
            lowest += 1
        p = first[lowest]
        unlink(degree, first, after, before, p)
        nodes = weight[p]
        if elements[p] > 0 and free + degree[p] > len(lists):
            free = _compress(lists, start, length, free)
        begin, end, size = _form_element(
            lists, start, length, elements, weight, degree, into, mark, first, after, before, p, free
        )
        pivot[p] = pivots
        pivots += 1
        _measure_outside(lists, start, elements, weight, degree, mark, begin, end, flag)
        size, gone = _update(
            lists, start, length, elements, weight, degree, into, mark, after, before, bucket, p, begin, end, size, flag
        )
        nodes += gone
        left -= nodes
        flag = _merge_equal(
            lists, start, length, elements, weight, into, mark, after, before, bucket, begin, end, flag + n + 1
        )
        end, lowest = _relist(
            lists, start, length, weight, degree, mark, first, after, before, p, begin, end, size, left, lowest
        )
        if begin == free:
            free = end
        high, low = size + nodes - 1.0, size - 1.0
        operations += (high * (high + 1) * (high + 2) - low * (low + 1) * (low + 2)) / 6
        if operations > limit:
            return np.empty(0, np.int32)
    return _order(degree, into, pivot, pivots)


@inlined
def _quotient(indptr, indices):
    n = len(indptr) - 1
    lists = np.empty(len(indices) + len(indices) // 4 + 2 * n + 16, np.int32)
    for p in range(len(indices)):
        lists[p] = indices[p]
    start, length, degree = np.empty(n, np.int64), np.empty(n, np.int32), np.empty(n, np.int32)
    for v in range(n):
        start[v] = indptr[v]
        length[v] = degree[v] = indptr[v + 1] - indptr[v]
    elements, weight, mark = np.zeros(n, np.int32), np.ones(n, np.int32), np.ones(n, np.int64)
    into, first, bucket = np.full(n, -1, np.int32), np.full(n + 1, -1, np.int32), np.full(n, -1, np.int32)
    after, before = np.empty(n, np.int32), np.empty(n, np.int32)
    return lists, start, length, elements, weight, degree, into, mark, first, after, before, bucket


@inlined
def _leave_hubs(start, weight, degree, first, after, before):
    """Put every node into its degree list but the hubs; returns their number."""
    n = len(start)
    most, hubs = max(HUB_LEAST, HUB * np.sqrt(n)), 0
    for v in range(n - 1, -1, -1):
        if degree[v] > most:
            weight[v], start[v] = 0, -1
            hubs += 1
        else:
            link(degree, first, after, before, v)
    return hubs


@inlined
def link(degree, first, after, before, v):
    d = degree[v]
    head = first[d]
    after[v], before[v] = head, -1
    if head >= 0:
        before[head] = v
    first[d] = v


@inlined
def unlink(degree, first, after, before, v):
    prior, later = before[v], after[v]
    if prior >= 0:
        after[prior] = later
    else:
        first[degree[v]] = later
    if later >= 0:
        before[later] = prior


@inlined
def _compress(lists, start, length, free):
    """Move the living lists together; returns where the free part of the workspace begins."""
    n = len(start)
    for v in range(n):
        if start[v] >= 0 and length[v] > 0:  # the first entry changes places with the owner
            p = start[v]
            start[v] = lists[p]
            lists[p] = -v - 1
    read, kept = 0, 0
    while read < free:
        v = -lists[read] - 1
        read += 1
        if v >= 0:
            lists[kept], start[v] = start[v], kept
            kept += 1
            for _ in range(length[v] - 1):
                lists[kept] = lists[read]
                kept += 1
                read += 1
    return kept


@inlined
def _take(lists, weight, degree, first, after, before, v, at):
    """Append a living variable to the current element."""
    lists[at] = v
    unlink(degree, first, after, before, v)
    nodes = weight[v]
    weight[v] = -nodes
    return nodes


@inlined
def _form_element(lists, start, length, elements, weight, degree, into, mark, first, after, before, p, free):
    """The neighbours of p as the list of element p: where it begins and ends, and how many nodes it holds."""
    here, size = start[p], 0
    weight[p] = 0
    many = elements[p]
    begin = here if many == 0 else free
    end = begin
    for t in range(many):
        e = lists[here + t]
        for s in range(start[e], start[e] + length[e]):
            v = lists[s]
            if weight[v] > 0:
                size += _take(lists, weight, degree, first, after, before, v, end)
                end += 1
        into[e], mark[e], start[e] = p, 0, -1
    for s in range(here + many, here + length[p]):
        v = lists[s]
        if weight[v] > 0:
            size += _take(lists, weight, degree, first, after, before, v, end)
            end += 1
    start[p], length[p], degree[p], elements[p] = begin, end - begin, size, 0
    return begin, end, size


@inlined
def _measure_outside(lists, start, elements, weight, degree, mark, begin, end, flag):
    """``mark[e] - flag`` becomes the number of nodes of element e outside the current element."""
    for s in range(begin, end):
        v = lists[s]
        nodes = -weight[v]
        for t in range(start[v], start[v] + elements[v]):
            e = lists[t]
            if mark[e] >= flag:
                mark[e] -= nodes
            elif mark[e] != 0:
                mark[e] = degree[e] + flag - nodes


@inlined
def _update(
    lists, start, length, elements, weight, degree, into, mark, after, before, bucket, p, begin, end, size, flag
):
    """New lists and degree bounds of the element's variables; those with no neighbour outside it go with p."""
    n, gone = len(start), 0
    for s in range(begin, end):
        v = lists[s]
        here, bound, key = start[v], 0, 0
        kept, variables = here, here + elements[v]
        for t in range(here, variables):
            e = lists[t]
            if mark[e] > flag:
                bound += mark[e] - flag
                lists[kept] = e
                kept += 1
                key += e
            elif mark[e] == flag:  # no node outside: taken in although p was not in it
                into[e], mark[e], start[e] = p, 0, -1
        divide = kept
        for t in range(variables, here + length[v]):
            u = lists[t]
            if weight[u] > 0:
                bound += weight[u]
                lists[kept] = u
                kept += 1
                key += u
        if kept == here:
            nodes = -weight[v]
            size -= nodes
            gone += nodes
            into[v], weight[v], start[v] = p, 0, -1
        else:
            degree[v] = min(degree[v], bound)
            lists[kept] = lists[divide]  # room for p in front
            lists[divide] = lists[here]
            lists[here] = p
            elements[v], length[v] = divide - here + 1, kept - here + 1
            key = (key + p) % n
            before[v], after[v], bucket[key] = key, bucket[key], v
    degree[p] = size
    return size, gone


@inlined
def _merge_equal(lists, start, length, elements, weight, into, mark, after, before, bucket, begin, end, flag):
    """Variables with the same list become one supervariable."""
    for s in range(begin, end):
        v = lists[s]
        if weight[v] == 0:
            continue
        key = before[v]
        a = bucket[key]
        bucket[key] = -1
        while a >= 0 and after[a] >= 0:
            for t in range(start[a] + 1, start[a] + length[a]):
                mark[lists[t]] = flag
            prior, b = a, after[a]
            while b >= 0:
                if _equal(lists, start, length, elements, mark, a, b, flag):
                    weight[a] += weight[b]
                    into[b], weight[b], start[b] = a, 0, -1
                    b = after[b]
                    after[prior] = b
                else:
                    prior, b = b, after[b]
            flag += 1
            a = after[a]
    return flag


@inlined
def _equal(lists, start, length, elements, mark, a, b, flag):
    if length[a] != length[b] or elements[a] != elements[b]:
        return False
    for t in range(start[b] + 1, start[b] + length[b]):  # noqa: SIM110 (numba has no generators here)
        if mark[lists[t]] != flag:
            return False
    return True


@inlined
def _relist(lists, start, length, weight, degree, mark, first, after, before, p, begin, end, size, left, lowest):
    """Drop what was taken in from the element; the rest returns to the degree lists."""
    kept = begin
    for s in range(begin, end):
        v = lists[s]
        nodes = -weight[v]
        if nodes > 0:
            weight[v] = nodes
            degree[v] = min(degree[v] + size - nodes, left - nodes)
            link(degree, first, after, before, v)
            lowest = min(lowest, degree[v])
            lists[kept] = v
            kept += 1
    length[p] = kept - begin
    if kept == begin:
        start[p], mark[p] = -1, 0
    return kept, lowest


@inlined
def _order(degree, into, pivot, pivots):
    """The nodes in the order of their pivots, hubs last by ascending degree."""
    n = len(pivot)
    group, before = np.empty(n, np.int64), np.zeros(pivots + n + 1, np.int64)
    for v in range(n):
        root = v
        while pivot[root] < 0 and into[root] >= 0:
            root = into[root]
        u = v
        while pivot[u] < 0 and into[u] >= 0:  # path compression
            following = into[u]
            into[u] = root
            u = following
        group[v] = pivot[root] if pivot[root] >= 0 else pivots + degree[v]
        before[group[v] + 1] += 1
    for g in range(pivots + n):
        before[g + 1] += before[g]
    order = np.empty(n, np.int32)
    for v in range(n):
        order[before[group[v]]] = v
        before[group[v]] += 1
    return order
