"""Entries of J^-1 from its factor: the Takahashi equations."""

from __future__ import annotations

import numpy as np

from walksum.backends.cpu.compile import jit


@jit
def inverse_diagonal(factor, pivots, plan, out):
    """The diagonal of ``J^-1`` for one head, from L and D in float64, into ``out`` in the order of the nodes.

    From the last column back, on the pattern of L: ``Z_ij = delta_ij / D_i - sum_{k > i} L_ki Z_kj``. Rows of one
    column are neighbours of each other in the pattern, so every Z_kj that is needed is there.
    """
    order, colptr, rows = plan[0], plan[1], plan[2]
    n = len(order)
    Z, Z_diag = np.empty(len(rows)), np.empty(n)
    place, total = np.full(n, -1), np.empty(n)
    for i in range(n - 1, -1, -1):
        start, stop = colptr[i], colptr[i + 1]
        for p in range(start, stop):
            place[rows[p]], total[p - start] = p - start, 0.0
        for p in range(start, stop):
            j = rows[p]
            total[p - start] += factor[p] * Z_diag[j]
            for q in range(colptr[j], colptr[j + 1]):
                t = place[rows[q]]
                if t >= 0:  # Z_kj with both k and j in column i serves both
                    total[t] += factor[p] * Z[q]
                    total[p - start] += factor[start + t] * Z[q]
        own = 1 / pivots[i]
        for p in range(start, stop):
            Z[p] = -total[p - start]
            own -= factor[p] * Z[p]
            place[rows[p]] = -1
        Z_diag[i] = out[order[i]] = own
