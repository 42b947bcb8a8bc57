"""Dense: batched Cholesky of the full matrix. The oracle, and the fastest for very small graphs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from walksum.precision import Precision
from walksum.solvers.base import Measured, Outcome, Prepared, Solver, Status, exact_tol


@dataclass(frozen=True)
class Dense(Solver):
    """Cholesky factorisation of J as a dense ``[H, N, N]`` matrix: exact, O(N^3) once, O(N^2) memory.

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> J = ws.Precision(path, torch.full((3,), 2.0), torch.full((2,), -1.0))
        >>> ws.solve(J, torch.tensor([[0.0], [1.0], [0.0]]), solver=ws.Dense()).flatten()
        tensor([0.5000, 1.0000, 0.5000])
    """

    def prepare(self, J: Precision) -> Prepared:
        return PreparedDense(J, self)


def cholesky(J: Precision, dtype: torch.dtype) -> tuple[Tensor, bool]:
    """The factor ``[H, N, N]``, and whether J is not positive definite.

    A pivot that is rounding alone tells that too, as it does in :class:`Direct`: a singular J can have a factor.
    """
    factor, info = torch.linalg.cholesky_ex(J.to_dense().to(dtype))
    least = 4 * torch.finfo(torch.float64).eps * J.num_nodes**0.5
    rounding = factor.diagonal(dim1=1, dim2=2).square() <= least * J.diag
    return factor, bool((info != 0).any() | rounding.any())


class PreparedDense(Measured):
    def __init__(self, J: Precision, solver: Dense):
        super().__init__(J, solver)
        self.tol = exact_tol(None, J)
        self.factor, self.failed = cholesky(J, J.dtype)

    def run(self, h: Tensor) -> Outcome:
        if self.failed:
            return Outcome.failed(h, Status.not_positive_definite if self.finite else Status.nonfinite)
        return self.judged(torch.cholesky_solve(h, self.factor), h, 0, Status.stalled)
