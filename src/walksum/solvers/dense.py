"""Dense: batched Cholesky of the full matrix. The oracle, and the fastest for very small graphs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from walksum.precision import Precision
from walksum.solvers.base import (
    Outcome,
    Prepared,
    Solver,
    Status,
    backward_error,
    exact_tol,
    norm_inf,
    status_of,
    worst,
)


@dataclass(frozen=True)
class Dense(Solver):
    """Cholesky factorisation of J as a dense ``[H, N, N]`` matrix: exact, O(N^3) once, O(N^2) memory."""

    def prepare(self, J: Precision) -> Prepared:
        return PreparedDense(J, self)


class PreparedDense(Prepared):
    def __init__(self, J: Precision, solver: Dense):
        super().__init__(J, solver)
        self.tol = exact_tol(None, J)
        self.J_norm = norm_inf(J)
        self.factor, info = torch.linalg.cholesky_ex(J.to_dense())
        self.failed = bool((info != 0).any())
        self.finite = bool(torch.isfinite(self.J_norm).all())

    def run(self, h: Tensor) -> Outcome:
        if self.failed:
            return Outcome.failed(h, Status.not_positive_definite if self.finite else Status.nonfinite)
        mu = torch.cholesky_solve(h, self.factor)
        residual = worst(backward_error(self.J, mu, h, self.J_norm))
        return Outcome(mu, status_of(residual, self.tol, Status.stalled), 0, residual)
