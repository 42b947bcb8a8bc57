"""Dense: batched Cholesky of the full matrix. The oracle, and the fastest for very small graphs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from walksum.precision import Precision
from walksum.solvers.base import Prepared, Solver, Status, backward_error, default_tol, judge, norm_inf, worst


@dataclass(frozen=True)
class Dense(Solver):
    """Cholesky factorisation of J as a dense ``[H, N, N]`` matrix: exact, O(N^3) once, O(N^2) memory."""

    def prepare(self, J: Precision) -> Prepared:
        return PreparedDense(J, self.name)


class PreparedDense(Prepared):
    def __init__(self, J: Precision, name: str):
        super().__init__(J, name)
        self.J_norm = norm_inf(J)
        self.factor, info = torch.linalg.cholesky_ex(J.to_dense())
        self.failed = bool((info != 0).any())
        self.finite = bool(torch.isfinite(self.J_norm).all())

    def run(self, h: Tensor) -> tuple[Tensor, Status, int, float]:
        if self.failed:
            status = Status.not_positive_definite if self.finite else Status.nonfinite
            return torch.full_like(h, torch.nan), status, 0, torch.nan
        mu = torch.cholesky_solve(h, self.factor)
        residual = worst(backward_error(self.J, mu, h, self.J_norm))
        # backward stable: only rounding is left, which grows slowly with N
        return mu, judge(residual, default_tol(None, h.dtype) * max(1, h.size(1) ** 0.5), Status.stalled), 0, residual
