"""The symbolic side of elimination: order and pattern of L, once per graph.

Everything below counts in positions of the elimination order. Columns of L lie one after the other with their rows
ascending; ``rowptr, rowcol, rowslot`` list the same entries by rows. In a partial elimination the columns from
``eliminated`` on hold the core, the Schur complement of what was eliminated.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.ldl import ordering
from walksum.graph import Graph

UNBOUNDED = 2**62
READS = 8  # list entries the search for an order may read, for each node and each end of an edge


@dataclass(frozen=True, eq=False)
class Symbolic:
    """The pattern of an elimination, complete or partial, and what it costs.

    Attributes:
        num_nodes: N.
        eliminated: number of nodes that go; all of them in a complete elimination.
        fill: entries of L below the diagonal, the size of a factor; a solve takes ``2 fill`` multiply-adds a column.
        operations: multiply-adds of the numeric factorisation, for each head.
        tail: the columns from here on are full: a dense triangle.
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
    tail: int
    plan: tuple[np.ndarray, ...]
    rooms: dict = field(default_factory=dict, repr=False)

    def room(self, heads: int, dtype: torch.dtype) -> torch.Tensor:
        """Memory for the numbers of a factor, see :func:`walksum.backends.cpu.ldl.numeric.opened`; not filled."""
        like = self.rooms.get((heads, dtype))
        if like is None:  # to be imitated; never touched, so it takes no memory
            doubles = 2 * heads * (self.num_nodes + 1)  # in float32 they take two places each
            like = torch.empty(doubles + heads * (len(self.plan[2]) + self.eliminated), dtype=dtype)
            self.rooms[heads, dtype] = like
        return torch.empty_like(like)

    @cached_property
    def book(self) -> np.ndarray:
        """Addresses and lengths of the arrays of the plan, see :func:`walksum.backends.cpu.ldl.fused_small.read`."""
        assert [a.dtype.itemsize for a in self.plan] == [4, 8, 4, 4, 8, 4, 4, 8, 4, 4]
        return np.array([(a.ctypes.data, len(a)) for a in self.plan], np.int64).ravel()

    @cached_property
    def book_address(self) -> int:
        return self.book.ctypes.data

    @cached_property
    def entries(self) -> int:
        """Multiply-adds of a solve and its residual, for each column of a head."""
        return 2 * self.fill + len(self.plan[8]) + self.num_nodes

    @property
    def core_nodes(self) -> int:
        return self.num_nodes - self.eliminated

    @property
    def core_edges(self) -> int:
        return len(self.plan[2]) - self.fill


def symbolic(graph: Graph, max_operations: float = math.inf) -> Symbolic | None:
    """The complete elimination of a graph, or None where it takes more than ``max_operations`` a head.

    Made once per graph. The search for the order stops as soon as the limit is passed, or when the search itself would
    take longer than so many operations; it is not tried again below that limit.
    """
    return graph.derived(_Complete).within(graph, max_operations)


def partial_symbolic(graph: Graph, max_degree: int) -> Symbolic:
    """The elimination of nodes as long as there are some with at most ``max_degree`` neighbours."""
    found = graph.derived(_eliminate, max_degree, math.inf)
    assert found is not None
    return found


class _Complete:
    """The complete elimination of a graph, or how far it was tried in vain."""

    def __init__(self, graph: Graph):
        self.found: Symbolic | None = None
        self.tried = -1.0
        self.lock = threading.Lock()

    def within(self, graph: Graph, limit: float) -> Symbolic | None:
        if self.found is None:
            with self.lock:
                if self.found is None and limit > self.tried:
                    self.found, self.tried = _eliminate(graph, UNBOUNDED, limit), limit
        return self.found if self.found is not None and self.found.operations <= limit else None


def _eliminate(graph: Graph, max_degree: int, limit: float) -> Symbolic | None:
    csr = graph.csr.to("cpu")
    indptr, indices = csr.indptr.numpy(), csr.indices.numpy().astype(np.int32, copy=False)
    edge = csr.edge.numpy().astype(np.int32, copy=False)
    max_reads = READS * (graph.num_nodes + 2 * graph.num_edges) + (4 * limit if max_degree == UNBOUNDED else 0.0)
    found = ordering.minimum_degree(indptr, indices, max_degree, float(limit), float(max_reads))
    outcome, order, eliminated, colptr, rows, operations = found
    if outcome == ordering.OVER_LIMIT:
        return None
    arrays = _assemble(indptr, indices, edge, order, eliminated, colptr, rows)
    fill, tail = int(colptr[eliminated]), _dense_tail(graph.num_nodes, int(eliminated), colptr)
    return Symbolic(graph.num_nodes, int(eliminated), fill, operations, tail, (order, colptr, *arrays))


def _dense_tail(n: int, eliminated: int, colptr: np.ndarray) -> int:
    full = np.diff(colptr)[::-1] == np.arange(n)
    return n - (n if full.all() else int(full.argmin())) if eliminated == n else n


def core_graph(graph: Graph, max_degree: int) -> Graph:
    """What a partial elimination leaves, as a graph: nodes and edges in the order of its columns."""
    plan = partial_symbolic(graph, max_degree)
    first, start = plan.eliminated, plan.fill
    _, colptr, rows, *_ = plan.plan
    column = np.repeat(np.arange(plan.core_nodes), np.diff(colptr[first:]))
    edges = np.stack([column, rows[start:].astype(np.int64) - first])
    return Graph(torch.from_numpy(edges), plan.core_nodes)


@jit
def _assemble(indptr, indices, edge, order, eliminated, colptr, rows):
    """From node numbers to positions: sorted columns, the same by rows, J's rows, and where J's values go."""
    n = len(order)
    position = np.empty(n, np.int32)
    for i in range(n):
        position[order[i]] = i
    for p in range(len(rows)):
        rows[p] = position[rows[p]]
    by_row = _transpose(n, n, colptr, rows)
    rows = _transpose(n, n, by_row[0], by_row[1])[1]
    rowptr, rowcol, rowslot = _transpose(n, eliminated, colptr, rows)
    adjptr, adjcol, adjedge = _permute(indptr, indices, edge, order, position)
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
def _permute(indptr, indices, edge, order, position):
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
