"""The symbolic side of elimination: order and pattern of L, once per graph.

Everything below counts in positions of the elimination order. A complete elimination is supernodal; a partial one keeps
plain columns, because what it leaves, the core, stays sparse.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.ldl import tree
from walksum.backends.cpu.ldl.minimum_degree import minimum_degree
from walksum.backends.cpu.ldl.multifrontal import workspace
from walksum.backends.cpu.ldl.partial_order import low_degree_first
from walksum.backends.cpu.ldl.supernodes import ascending, partition, structure, union
from walksum.graph import Graph

READS = 8  # list entries the search for a partial order may read, for each node and each end of an edge

# Measured on citation graphs, grids and random graphs: up to so many entries of L, and multiply-adds for each of them,
# an elimination column by column is quicker than one by supernodes, for one head and, up to three times, for eight;
# beyond, its sweeps through one head are slower.
FEW_ENTRIES, SHORT_COLUMNS = 2**17, 64
# nanoseconds per multiply-add of sparse columns, and of a dense block: per multiply-add, per entry, per call of LAPACK
SPARSE, DENSE, DENSE_ENTRY, DENSE_CALL = 0.8, 0.11, 0.6, 3000.0


@dataclass(frozen=True, eq=False)
class Symbolic:
    """The order and pattern of a complete elimination, and what it costs.

    Attributes:
        num_nodes: N.
        fill: entries of L below the diagonal; a solve takes ``2 fill`` multiply-adds per column.
        operations: multiply-adds of the numeric factorisation, for each head.
        order: the node at each position, ``[N]``.
        parent: the elimination tree, ``[N]`` in positions.
        count: entries of each column, ``[N]``.
        lists: the neighbours and edges of each node, see :func:`_lists`.
    """

    num_nodes: int
    fill: int
    operations: float
    order: np.ndarray
    parent: np.ndarray
    count: np.ndarray
    lists: tuple[np.ndarray, ...]
    spare: list[torch.Tensor] = field(default_factory=list, repr=False)  # memory of a factor that is gone

    @cached_property
    def _supernodes(self) -> tuple[tuple[int, int], tuple[np.ndarray, ...]]:
        return _gather(*self.lists, self.order, self.parent, self.count)  # not made where columns serve

    @property
    def plan(self) -> tuple[np.ndarray, ...]:
        """:class:`walksum.backends.cpu.ldl.supernodes.Supernodes` as a tuple; the order of the nodes comes first."""
        return self._supernodes[1]

    @property
    def room(self) -> tuple[int, int]:
        """Sizes of the workspace, see :func:`walksum.backends.cpu.ldl.multifrontal.workspace`."""
        return self._supernodes[0]

    @property
    def size(self) -> int:
        """Numbers in a factor: L with the zeros of its supernodes."""
        return int(self.plan[7][-1])

    @property
    def by_columns(self) -> bool:
        """Whether supernodes would be too small to pay, see :func:`all_columns`."""
        return self.fill <= FEW_ENTRIES and self.operations <= SHORT_COLUMNS * self.fill


@dataclass(frozen=True, eq=False)
class PartialSymbolic:
    """The pattern of a partial elimination, and what it costs.

    Columns of L lie one after the other with their rows ascending; ``rowptr, rowcol, rowslot`` list the same entries by
    rows. The columns from ``eliminated`` on hold the core, the Schur complement of what was eliminated.

    Attributes:
        num_nodes: N.
        eliminated: number of nodes that go.
        fill: entries of L below the diagonal, the size of a factor; a solve takes ``2 fill`` multiply-adds per column.
        operations: multiply-adds of the numeric factorisation, for each head.
        plan: the arrays that every kernel takes, in positions of the elimination order::

            order    [N]        node at each position
            colptr   [N + 1]    columns of L
            rows     [nnz]
            source   [nnz]      the edge whose value starts in this entry, -1 for fill
            rowptr   [N + 1]    rows of L
            rowcol   [fill]
            rowslot  [fill]     where in the columns this entry lies
            adjptr   [N + 1]    rows of J
            adjcol   [2 E]
            adjedge  [2 E]
    """

    num_nodes: int
    eliminated: int
    fill: int
    operations: float
    plan: tuple[np.ndarray, ...]

    @cached_property
    def entries(self) -> int:
        """Multiply-adds of a solve and its residual, for each column of a head."""
        return 2 * self.fill + len(self.plan[8]) + self.num_nodes

    @cached_property
    def tail(self) -> int:
        """The columns from here on are almost full: quicker as a dense triangle. N where none are, or with a core."""
        if self.core_nodes or not self.num_nodes:
            return self.num_nodes
        counts, size = np.diff(self.plan[1])[::-1].astype(float), np.arange(1.0, self.num_nodes + 1)
        sparse = SPARSE * np.cumsum(counts * (counts + 3) / 2)
        saved = sparse - DENSE * size**3 / 6 - DENSE_ENTRY * size**2 - DENSE_CALL
        best = int(saved.argmax())
        return self.num_nodes - 1 - best if saved[best] > 0 else self.num_nodes

    @property
    def core_nodes(self) -> int:
        return self.num_nodes - self.eliminated

    @property
    def core_edges(self) -> int:
        return len(self.plan[2]) - self.fill


def symbolic(graph: Graph, max_operations: float = math.inf) -> Symbolic | None:
    """The complete elimination of a graph, or None where it takes more than ``max_operations`` per head.

    Made once per graph. The search for the order stops as soon as the limit is passed; it is not tried again below
    that limit.
    """
    return graph.derived(_Complete).within(graph, max_operations)


def partial_symbolic(graph: Graph, max_degree: int) -> PartialSymbolic:
    """The elimination of nodes as long as there are some with at most ``max_degree`` neighbours."""
    return graph.derived(_eliminate_low_degrees, max_degree)


def all_columns(graph: Graph) -> PartialSymbolic:
    """The complete elimination of :func:`symbolic`, column by column: quicker where supernodes are small."""
    return graph.derived(_all_columns)


class _Complete:
    """The complete elimination of a graph, or the largest limit within which none was found."""

    def __init__(self, graph: Graph):
        self.found: Symbolic | None = None
        self.tried = -1.0
        self.lock = threading.Lock()

    def within(self, graph: Graph, limit: float) -> Symbolic | None:
        if self.found is None:
            with self.lock:
                if self.found is None and limit > self.tried:
                    self.found, self.tried = _eliminate(graph, limit), limit
        return self.found if self.found is not None and self.found.operations <= limit else None


def _lists(graph: Graph) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Neighbours and edges of each node. ``graph.csr`` has them too, but a graph seen once needs no more of it."""
    return _neighbours(*graph.edges.cpu().contiguous().numpy(), graph.num_nodes)


@jit
def _neighbours(low, high, n):
    indptr = np.zeros(n + 1, np.int64)
    for e in range(len(low)):
        indptr[low[e] + 1] += 1
        indptr[high[e] + 1] += 1
    for v in range(n):
        indptr[v + 1] += indptr[v]
    free, indices, edge = indptr[:-1].copy(), np.empty(2 * len(low), np.int32), np.empty(2 * len(low), np.int32)
    for source, target in ((low, high), (high, low)):  # smaller neighbours first, so that every list ascends
        for e in range(len(low)):
            p = free[target[e]]
            indices[p], edge[p] = source[e], e
            free[target[e]] += 1
    return indptr, indices, edge


def _eliminate(graph: Graph, limit: float) -> Symbolic | None:
    lists = _lists(graph)
    fits, fill, operations, order, parent, count = _analyse(lists[0], lists[1], float(limit))
    return Symbolic(graph.num_nodes, fill, operations, order, parent, count, lists) if fits else None


@jit
def _analyse(indptr, indices, limit):
    """Whether a complete elimination fits into the limit; its fill and operations, order, tree and column counts."""
    order = minimum_degree(indptr, indices, limit)
    fits = len(order) == len(indptr) - 1
    if not fits:  # numba wants arrays all the same
        indptr, indices = indptr[:1], indices[:0]
    position = tree.inverse_of(order)
    sequence, parent = tree.postordered(tree.parents(indptr, indices, order, position))
    order = order[sequence]
    position = tree.inverse_of(order)
    count = tree.column_counts(indptr, indices, order, position, parent)
    fill, operations = 0, 0.0
    for j in range(len(count)):
        fill += count[j]
        operations += count[j] * (count[j] + 1.0) / 2
    return fits, fill, operations, order, parent, count


@jit
def _gather(indptr, indices, edge, order, parent, count):
    """Workspace and supernodes of a complete elimination."""
    position, first = tree.inverse_of(order), partition(parent, count)
    pattern = structure(indptr, indices, edge, order, position, first, count)
    plan = order, first, *pattern, *permuted(indptr, indices, edge, order, position)
    return workspace(plan), plan


def _eliminate_low_degrees(graph: Graph, max_degree: int) -> PartialSymbolic:
    indptr, indices, edge = _lists(graph)
    max_reads = READS * (graph.num_nodes + 2 * graph.num_edges)
    order, eliminated, colptr, rows, operations = low_degree_first(indptr, indices, max_degree, max_reads)
    arrays = _assemble(indptr, indices, edge, order, eliminated, colptr, _in_positions(order, colptr, rows))
    plan = order, colptr, *arrays
    return PartialSymbolic(graph.num_nodes, int(eliminated), int(colptr[eliminated]), operations, plan)


def _all_columns(graph: Graph) -> PartialSymbolic:
    whole = symbolic(graph)
    assert whole is not None
    colptr, rows = _columns(whole.lists[0], whole.lists[1], whole.order, whole.count)
    plan = whole.order, colptr, *_assemble(*whole.lists, whole.order, whole.num_nodes, colptr, rows)
    return PartialSymbolic(whole.num_nodes, whole.num_nodes, whole.fill, whole.operations, plan)


@jit
def _columns(indptr, indices, order, count):
    """The columns of L without the zeros of supernodes: each column as a supernode of its own."""
    columns = np.arange(len(order) + 1).astype(np.int32)
    colptr = np.zeros(len(order) + 1, np.int64)
    for j in range(len(order)):
        colptr[j + 1] = colptr[j] + count[j]
    rows = union(indptr, indices, order, tree.inverse_of(order), columns, columns[:-1], colptr)
    return colptr, ascending(len(order), colptr, rows)


def core_graph(graph: Graph, max_degree: int) -> Graph:
    """What a partial elimination leaves, as a graph: nodes and edges in the order of its columns."""
    plan = partial_symbolic(graph, max_degree)
    first, start = plan.eliminated, plan.fill
    _, colptr, rows, *_ = plan.plan
    column = np.repeat(np.arange(plan.core_nodes), np.diff(colptr[first:]))
    edges = np.stack([column, rows[start:].astype(np.int64) - first])
    return Graph(torch.from_numpy(edges), plan.core_nodes)


@jit
def _in_positions(order, colptr, rows):
    """Columns of node numbers as sorted columns of positions."""
    n, position = len(order), tree.inverse_of(order)
    for p in range(len(rows)):
        rows[p] = position[rows[p]]
    by_row = _transpose(n, n, colptr, rows)
    return _transpose(n, n, by_row[0], by_row[1])[1]


@jit
def _assemble(indptr, indices, edge, order, eliminated, colptr, rows):
    """Sorted columns, the same by rows, J's rows, and where J's values go; all in positions."""
    n = len(order)
    position = tree.inverse_of(order)
    rowptr, rowcol, rowslot = _transpose(n, eliminated, colptr, rows)
    adjptr, adjcol, adjedge = permuted(indptr, indices, edge, order, position)
    source, slot = np.empty(len(rows), np.int32), np.empty(n, np.int64)
    for i in range(n):
        for p in range(colptr[i], colptr[i + 1]):
            slot[rows[p]], source[p] = p, -1
        for p in range(adjptr[i], adjptr[i + 1]):
            if adjcol[p] > i:
                source[slot[adjcol[p]]] = adjedge[p]
    return rows, source, rowptr, rowcol, rowslot, adjptr, adjcol, adjedge


@jit
def _transpose(n, columns, colptr, rows):
    """The first ``columns`` columns listed by rows; the columns of a row come ascending."""
    rowptr = np.zeros(n + 1, np.int64)
    for p in range(colptr[columns]):
        rowptr[rows[p] + 1] += 1
    for i in range(n):
        rowptr[i + 1] += rowptr[i]
    free = rowptr[:-1].copy()
    rowcol, rowslot = np.empty(colptr[columns], np.int32), np.empty(colptr[columns], np.int32)
    for k in range(columns):
        for p in range(colptr[k], colptr[k + 1]):
            q = free[rows[p]]
            rowcol[q], rowslot[q] = k, p
            free[rows[p]] += 1
    return rowptr, rowcol, rowslot


@jit
def permuted(indptr, indices, edge, order, position):
    """The neighbour lists of the graph in positions."""
    adjptr = np.zeros(len(indptr), np.int64)
    adjcol, adjedge = np.empty_like(indices), np.empty_like(edge)
    for i in range(len(order)):
        start, stop = indptr[order[i]], indptr[order[i] + 1]
        adjptr[i + 1] = adjptr[i] + stop - start
        for t in range(stop - start):
            adjcol[adjptr[i] + t] = position[indices[start + t]]
            adjedge[adjptr[i] + t] = edge[start + t]
    return adjptr, adjcol, adjedge
