"""The order of the triangular sweeps: nodes peeled off by least remaining degree (degeneracy order)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.tiling import rows
from walksum.graph import Graph


@dataclass(frozen=True)
class Halves:
    """J's pattern in a new order, split into neighbours that come before (lower) and after (upper).

    The rows of ``upper`` are stored last to first, the way a backward sweep reads them.
    """

    order: np.ndarray  # order[new] = old
    lower_ptr: np.ndarray
    lower: np.ndarray
    lower_edge: np.ndarray
    upper_ptr: np.ndarray
    upper: np.ndarray
    upper_edge: np.ndarray


def halves(graph: Graph) -> Halves:
    return graph.derived(_build_halves)


def _build_halves(graph: Graph) -> Halves:
    G = rows(graph)
    order = _degeneracy(G.indptr, G.indices)
    return Halves(order, *_split(G.indptr, G.indices, G.edge, order))


@jit
def _degeneracy(indptr, indices):
    """Batagelj and Zaversnik's bucket algorithm, O(E)."""
    n = indptr.size - 1
    degree = np.empty(n, np.int64)
    for i in range(n):
        degree[i] = indptr[i + 1] - indptr[i]
    largest = 0 if n == 0 else degree.max()
    bucket = np.zeros(largest + 2, np.int64)  # bucket[k]: first place in order of a node of degree k
    for i in range(n):
        bucket[degree[i] + 1] += 1
    bucket = np.cumsum(bucket)
    order, place, free = np.empty(n, indices.dtype), np.empty(n, np.int64), bucket.copy()
    for i in range(n):
        place[i] = free[degree[i]]
        order[place[i]] = i
        free[degree[i]] += 1
    for p in range(n):
        i = order[p]
        for e in range(indptr[i], indptr[i + 1]):
            k = indices[e]
            if degree[k] > degree[i]:  # k moves to the front of its bucket, then into the one below
                front = max(bucket[degree[k]], p + 1)
                other = order[front]
                order[front], order[place[k]] = k, other
                place[other], place[k] = place[k], front
                bucket[degree[k]] = front + 1
                degree[k] -= 1
    return order


@jit
def _split(indptr, indices, edge, order):
    n = order.size
    rank = np.empty(n, indices.dtype)
    for i in range(n):
        rank[order[i]] = i
    lower_ptr, upper_ptr = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
    half = indices.size // 2
    lower, upper = np.empty(half, indices.dtype), np.empty(half, indices.dtype)
    lower_edge, upper_edge = np.empty(half, edge.dtype), np.empty(half, edge.dtype)
    low, up = 0, 0
    for p in range(n):
        i, q = order[p], order[n - 1 - p]
        for e in range(indptr[i], indptr[i + 1]):
            if rank[indices[e]] < p:
                lower[low], lower_edge[low] = rank[indices[e]], edge[e]
                low += 1
        for e in range(indptr[q], indptr[q + 1]):
            if rank[indices[e]] > n - 1 - p:
                upper[up], upper_edge[up] = rank[indices[e]], edge[e]
                up += 1
        lower_ptr[p + 1], upper_ptr[p + 1] = low, up
    return lower_ptr, lower, lower_edge, upper_ptr, upper, upper_edge
