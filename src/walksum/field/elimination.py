"""The quantities of a Gaussian from its sparse factor: the one place where the field touches the elimination."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from walksum.backends.cpu.compile import jit
from walksum.solvers.base import Status
from walksum.solvers.direct import PreparedDirect


class EliminationFactor:
    """``P J P^T = L D L^T`` in float64 on the CPU, as :class:`walksum.field.factors.GaussianFactor` wants it."""

    def __init__(self, prepared: PreparedDirect):
        self.factor = prepared.factor
        self.graph = prepared.J.graph

    @property
    def failure(self) -> Status | None:
        return self.factor.failure

    def logdet(self) -> Tensor:
        return self.factor.pivots.log().sum(1)

    def selected_inverse(self) -> tuple[Tensor, Tensor]:
        factor, pivots = self.factor.factor, self.factor.pivots
        diag = torch.empty_like(pivots)
        off = torch.empty(len(pivots), self.graph.num_edges, dtype=torch.float64)
        for head in range(len(pivots)):
            arrays = factor[head].numpy(), pivots[head].numpy(), self.factor.plan
            _selected_inverse(*arrays, diag[head].numpy(), off[head].numpy())
        return diag, off

    def half_solve(self, z: Tensor) -> Tensor:
        """``P^T L^-T D^-1/2 z``, whose covariance is J^-1 for standard normal z ``[H, N, F]``."""
        factor, pivots = self.factor.factor, self.factor.pivots
        out = torch.empty(z.shape, dtype=torch.float64)
        for head, columns in enumerate(z.detach().contiguous().numpy()):
            _half_solve(factor[head].numpy(), pivots[head].numpy(), self.factor.plan, columns.copy(), out[head].numpy())
        return out


@jit
def _selected_inverse(factor, pivots, plan, diag, off):
    """Takahashi's equations, from the last column back: ``Z_ij = delta_ij / D_i - sum_{k > i} L_ki Z_kj``.

    Rows of one column are neighbours of each other in the pattern of L, so every Z_kj that is needed is there.
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
def _half_solve(factor, pivots, plan, z, out):
    order, colptr, rows = plan[0], plan[1], plan[2]
    for i in range(len(order) - 1, -1, -1):
        root = 1 / np.sqrt(pivots[i])
        for c in range(z.shape[1]):
            z[i, c] *= root
        for p in range(colptr[i], colptr[i + 1]):
            for c in range(z.shape[1]):
                z[i, c] -= factor[p] * z[rows[p], c]
        for c in range(z.shape[1]):
            out[order[i], c] = z[i, c]
