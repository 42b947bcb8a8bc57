"""The elimination tree: parents, a postorder, and the number of entries in each column of L, in nearly linear time.

The parent of a column is the row of its first entry below the diagonal. Neighbour lists come as ``indptr, indices`` of
the graph; ``order`` and ``position`` say which node stands where.
"""

from __future__ import annotations

import numpy as np

from walksum.backends.cpu.compile import jit


@jit
def inverse_of(order):
    position = np.empty_like(order)
    for i in range(len(order)):
        position[order[i]] = i
    return position


@jit
def parents(indptr, indices, order, position):
    """The elimination tree, ``[N]`` in positions; -1 at a root."""
    n = len(order)
    parent, ancestor = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
    for i in range(n):
        v = order[i]
        for p in range(indptr[v], indptr[v + 1]):
            k = position[indices[p]]
            while 0 <= k < i:  # climb, and let every ancestor on the way point here
                following = ancestor[k]
                ancestor[k] = i
                if following < 0:
                    parent[k] = i
                k = following if following != i else np.int32(-1)
    return parent


@jit
def postordered(parent):
    """A postorder of the tree, and the tree in it."""
    order = _postorder(parent)
    position, out = inverse_of(order), np.empty_like(parent)
    for j in range(len(order)):
        up = parent[order[j]]
        out[j] = position[up] if up >= 0 else -1
    return order, out


@jit
def _postorder(parent):
    """Columns in postorder, the largest subtree of a column last: it can then share a supernode with its parent."""
    n = len(parent)
    size, largest = np.ones(n, np.int32), np.full(n, -1, np.int32)
    for j in range(n):  # children come before their parents
        k = parent[j]
        if k >= 0:
            size[k] += size[j]
            if largest[k] < 0 or size[j] >= size[largest[k]]:
                largest[k] = j
    first, after = np.full(n + 1, -1, np.int32), np.empty(n, np.int32)
    for j in range(n - 1, -1, -1):
        k = parent[j] if parent[j] >= 0 else n
        if k < n and largest[k] == j:
            continue
        after[j], first[k] = first[k], j
    order, stack, done, depth = np.empty(n, np.int32), np.empty(n, np.int32), 0, 0
    root = first[n]
    while root >= 0:
        stack[0], depth = root, 1
        while depth > 0:
            j = stack[depth - 1]
            child = first[j]
            if child >= 0:
                first[j] = after[child]
            elif largest[j] >= 0:
                child = largest[j]
                largest[j] = -1
            if child >= 0:
                stack[depth] = child
                depth += 1
            else:
                order[done] = j
                done += 1
                depth -= 1
        root = after[root]
    return order


@jit
def column_counts(indptr, indices, order, position, parent):
    """Entries of each column of L below the diagonal, ``[N]``, of a postordered tree.

    Row i of L is the subtree of the elimination tree that hangs on i and whose leaves are neighbours of i. Each leaf
    adds a path up to the least common ancestor with the leaf before it (Gilbert, Ng and Peyton, 1994).
    """
    n = len(order)
    low = np.empty(n, np.int32)  # the first column of the subtree below each column
    for j in range(n):
        low[j] = j
    for j in range(n):
        k = parent[j]
        if k >= 0 and low[j] < low[k]:
            low[k] = low[j]
    count = np.zeros(n, np.int64)
    ancestor, last_leaf, last_column = np.arange(n).astype(np.int32), np.full(n, -1, np.int32), np.full(n, -1, np.int32)
    for j in range(n):
        if low[j] == j:
            count[j] += 1
        v = order[j]
        if parent[j] >= 0:
            count[parent[j]] -= 1
        for p in range(indptr[v], indptr[v + 1]):
            i = position[indices[p]]
            if i <= j or low[j] <= last_column[i]:
                continue  # not a leaf of row i's subtree
            count[j] += 1
            if last_leaf[i] >= 0:
                root = last_leaf[i]
                while root != ancestor[root]:
                    root = ancestor[root]
                k = last_leaf[i]
                while k != root:
                    following = ancestor[k]
                    ancestor[k] = root
                    k = following
                count[root] -= 1
            last_leaf[i] = last_column[i] = j
        if parent[j] >= 0:
            ancestor[j] = parent[j]
    for j in range(n):
        if parent[j] >= 0:
            count[parent[j]] += count[j]
    for j in range(n):
        count[j] -= 1
    return count
