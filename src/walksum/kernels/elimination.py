"""The symbolic side of elimination: order and pattern of L, once per graph.

Everything below counts in positions of the elimination order. Columns of L lie one after the other with their rows
ascending; ``rowptr, rowcol, rowslot`` list the same entries by rows. In a partial elimination the columns from
``eliminated`` on hold the core, the Schur complement of what was eliminated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numba import njit

from walksum.graph import Graph
from walksum.kernels import ordering
from walksum.kernels.numba_settings import SETTINGS

UNBOUNDED = 2**62


@dataclass(frozen=True, eq=False)
class Symbolic:
    """The pattern of an elimination, complete or partial, and what it costs.

    Attributes:
        num_nodes: N.
        eliminated: number of nodes that go; all of them in a complete elimination.
        fill: entries of L below the diagonal, the size of a factor; a solve takes ``2 fill`` multiply-adds a column.
        operations: multiply-adds of the numeric factorisation, for each head.
    """

    num_nodes: int
    eliminated: int
    fill: int
    operations: float
    order: np.ndarray  # [N] node at each position
    colptr: np.ndarray  # [N + 1]
    rows: np.ndarray  # [nnz]
    source: np.ndarray  # [nnz] the edge whose value starts in this entry, -1 for fill
    rowptr: np.ndarray  # [N + 1]
    rowcol: np.ndarray  # [fill]
    rowslot: np.ndarray  # [fill] where in the columns this entry lies
    adjptr: np.ndarray  # [N + 1] rows of J itself
    adjcol: np.ndarray  # [2 E]
    adjedge: np.ndarray  # [2 E]

    @property
    def core_nodes(self) -> int:
        return self.num_nodes - self.eliminated

    @property
    def core_edges(self) -> int:
        return len(self.rows) - self.fill

    @property
    def pattern(self) -> tuple[np.ndarray, ...]:
        """What the numeric step reads."""
        return self.order, self.colptr, self.rows, self.source, self.rowptr, self.rowcol, self.rowslot

    @property
    def sweeps(self) -> tuple[np.ndarray, ...]:
        """What the triangular sweeps read."""
        return self.order, self.colptr, self.rows, self.rowptr, self.rowcol, self.rowslot

    @property
    def matrix(self) -> tuple[np.ndarray, ...]:
        """What the residual reads."""
        return self.adjptr, self.adjcol, self.adjedge


def symbolic(graph: Graph, budget: float = np.inf) -> Symbolic | None:
    """The complete elimination of a graph, or None where it takes more than ``budget`` multiply-adds a head."""
    known = graph.derived(_known_symbolic)
    if not known and budget > graph.derived(_known_cost)[0]:
        _try(graph, budget)
    return known[0] if known and known[0].operations <= budget else None


def partial_symbolic(graph: Graph, max_degree: int) -> Symbolic:
    """The elimination of nodes as long as there are some with at most ``max_degree`` neighbours."""
    found = graph.derived(_eliminate, max_degree, np.inf)
    assert found is not None
    return found


def _known_symbolic(graph: Graph) -> list[Symbolic]:
    return []


def _known_cost(graph: Graph) -> list[float]:
    """The largest budget that was tried in vain, so that it is not tried twice."""
    return [-1.0]


def _try(graph: Graph, budget: float) -> None:
    with graph._lock:
        found = _eliminate(graph, UNBOUNDED, budget)
        if found is None:
            graph.derived(_known_cost)[0] = budget
        else:
            graph.derived(_known_symbolic).append(found)


def _eliminate(graph: Graph, max_degree: int, budget: float) -> Symbolic | None:
    csr = graph.csr.to("cpu")
    indptr, indices = csr.indptr.numpy(), csr.indices.numpy().astype(np.int32, copy=False)
    edge = csr.edge.numpy().astype(np.int32, copy=False)
    found = ordering.minimum_degree(indptr, indices, max_degree, float(budget))
    outcome, order, eliminated, colptr, rows, operations = found
    if outcome == ordering.OVER_BUDGET:
        return None
    arrays = _assemble(indptr, indices, edge, order, eliminated, colptr, rows)
    fill = int(colptr[eliminated])
    return Symbolic(graph.num_nodes, int(eliminated), fill, float(operations), order, colptr, *arrays)


def core_graph(graph: Graph, max_degree: int) -> Graph:
    """What a partial elimination leaves, as a graph: nodes and edges in the order of its columns."""
    plan = partial_symbolic(graph, max_degree)
    first, start = plan.eliminated, plan.fill
    column = np.repeat(np.arange(plan.core_nodes), np.diff(plan.colptr[first:]))
    edges = np.stack([column, plan.rows[start:].astype(np.int64) - first])
    return Graph(torch.from_numpy(edges).to(graph.device), plan.core_nodes)


@njit(**SETTINGS)
def _assemble(indptr, indices, edge, order, eliminated, colptr, rows):
    """From node numbers to positions: sorted columns, the same by rows, J's rows, and where J's values go."""
    n = len(order)
    position = np.empty(n, np.int32)
    position[order] = np.arange(n)
    by_row = _transpose(n, n, colptr, position[rows])
    sorted_rows = _transpose(n, n, by_row[0], by_row[1])[1]
    rowptr, rowcol, rowslot = _transpose(n, eliminated, colptr, sorted_rows)
    adjptr, adjcol, adjedge = _permute(indptr, indices, edge, order, position)
    source = np.full(len(rows), -1, np.int32)
    for i in range(n):
        for p in range(adjptr[i], adjptr[i + 1]):
            if adjcol[p] > i:
                column = sorted_rows[colptr[i] : colptr[i + 1]]
                source[colptr[i] + np.searchsorted(column, adjcol[p])] = adjedge[p]
    return sorted_rows, source, rowptr, rowcol, rowslot, adjptr, adjcol, adjedge


@njit(**SETTINGS)
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


@njit(**SETTINGS)
def _permute(indptr, indices, edge, order, position):
    """The neighbour lists of the graph in positions."""
    adjptr = np.zeros(len(indptr), np.int64)
    adjcol, adjedge = np.empty_like(indices), np.empty_like(edge)
    for i in range(len(order)):
        start, stop = indptr[order[i]], indptr[order[i] + 1]
        adjptr[i + 1] = adjptr[i] + stop - start
        adjcol[adjptr[i] : adjptr[i + 1]] = position[indices[start:stop]]
        adjedge[adjptr[i] : adjptr[i + 1]] = edge[start:stop]
    return adjptr, adjcol, adjedge
