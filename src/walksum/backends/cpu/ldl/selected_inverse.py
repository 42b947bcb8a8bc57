"""Entries of J^-1 from its factor: the Takahashi equations."""

from __future__ import annotations

import numpy as np

from walksum.backends.cpu.compile import jit


@jit
def selected_inverse(factor, pivots, plan, diag, off):
    """``J^-1`` on the pattern of J for one head, from L and D in float64, into ``diag [N]`` and ``off [E]``.

    From the last column back, on the pattern of L: ``Z_ij = delta_ij / D_i - sum_{k > i} L_ki Z_kj``. Rows of one
    column are neighbours of each other in the pattern, so every Z_kj that is needed is there.
    """
    order, colptr, rows, source = plan[0], plan[1], plan[2], plan[3]
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
            if source[p] >= 0:
                off[source[p]] = Z[p]
        Z_diag[i] = diag[order[i]] = own


@jit
def half_solve(factor, pivots, plan, z, out):
    """``L^-T D^-1/2 z`` of one head, ``[N, F]`` in the order of the nodes: of covariance ``J^-1`` for white noise z."""
    order, colptr, rows = plan[0], plan[1], plan[2]
    for k in range(len(order) - 1, -1, -1):
        v, scale = order[k], 1 / np.sqrt(pivots[k])
        for f in range(z.shape[1]):
            out[v, f] = scale * z[v, f]
        for p in range(colptr[k], colptr[k + 1]):
            u = order[rows[p]]
            for f in range(z.shape[1]):
                out[v, f] -= factor[p] * out[u, f]
