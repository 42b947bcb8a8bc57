"""Direct: minimum-degree sparse LDL^T. Exact, and the fastest where elimination fills in little."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from walksum._checks import check_positive
from walksum.backends.cpu.ldl import symbolic as elimination
from walksum.backends.cpu.ldl.numeric import FINE
from walksum.precision import Precision
from walksum.solvers.base import Outcome, Prepared, Solver, Status, exact_tol, status_of
from walksum.solvers.factor import FAILURE, Factor


@dataclass(frozen=True)
class Direct(Solver):
    r"""Sparse elimination, :math:`P J P^\top = L D L^\top`, for every positive definite J.

    The order of elimination and the pattern of L belong to the graph and are made once. The factor is made in float64;
    solves run in the dtype of h. Citation graphs fill in little; graphs that are large and well connected fill in
    beyond use, which :func:`walksum.backends.cpu.ldl.symbolic.symbolic` finds out early. Runs on the CPU.

    Args:
        refine: rounds of iterative refinement, each with a residual in float64.
        tol: the backward error up to which a solve counts as converged; by default 16 machine epsilons, or the
            root of N of them where that is more.
        max_operations: refuse graphs whose factorisation takes more multiply-adds than this.
    """

    refine: int = 0
    tol: float | None = None
    max_operations: float = 1e10

    def __post_init__(self) -> None:
        check_positive(max_operations=self.max_operations, **({} if self.tol is None else {"tol": self.tol}))
        if self.refine != int(self.refine) or self.refine < 0:
            raise ValueError(f"refine={self.refine!r}; expected a number of rounds, 0 or more")

    def prepare(self, J: Precision) -> PreparedDirect:
        symbolic = elimination.symbolic(J.graph, self.max_operations)
        if symbolic is None:
            raise ValueError(
                f"max_operations={self.max_operations:g}; eliminating {J.graph} takes more. "
                "Raise it, or use an iterative solver such as solver='cg'"
            )
        return PreparedDirect(J, self, Factor(J, symbolic))


class PreparedDirect(Prepared):
    def __init__(self, J: Precision, solver: Direct, factor: Factor):
        super().__init__(J, solver)
        self.factor = factor
        self.refine = solver.refine
        self.tol = exact_tol(solver.tol, J)

    def run(self, h: Tensor) -> Outcome:
        mu, residual = self.factor.solve(h)
        if self.factor.outcome != FINE:
            return Outcome.failed(h, FAILURE[self.factor.outcome])
        if self.refine:
            mu, residual = self._refined(h, mu)
        mu = mu if h.is_cpu else mu.to(h.device)
        return Outcome(mu, status_of(residual, self.tol, Status.stalled), 0, residual)

    def run_backward(self, grad: Tensor, mu: Tensor) -> tuple[Outcome, Tensor, Tensor] | None:
        if self.refine or not grad.is_cpu or not self.factor.can_dot(grad):
            return None
        g, residual, d_diag, d_off = self.factor.solve_and_dot(grad, mu)
        return Outcome(g, status_of(residual, self.tol, Status.stalled), 0, residual), d_diag, d_off

    def _refined(self, h: Tensor, mu: Tensor) -> tuple[Tensor, float]:
        total = mu.double()
        for _ in range(self.refine):
            correction, _ = self.factor.solve(self.factor.residual(h, total).to(h.dtype))
            total = total + correction
        mu = total.to(h.dtype)
        return mu, self.factor.measure(h, mu)

    @property
    def log_determinant(self) -> Tensor:
        r""":math:`\log \det J = \sum_i \log D_i` of every head, ``[H]``; NaN if J is not positive definite."""
        if self.factor.failure is not None:
            return torch.full_like(self.J.diag[:, 0], torch.nan)
        return self.factor.pivots.log().sum(1).to(self.J.diag)

    @property
    def marginal_variance(self) -> Tensor:
        r""":math:`(J^{-1})_{ii}` of every node, ``[H, N]``, without the rest of the inverse."""
        if self.factor.failure is not None:
            return torch.full_like(self.J.diag, torch.nan)
        exact = self.factor if self.J.dtype == torch.float64 else Factor(self.J.to(torch.float64), self.factor.symbolic)
        return exact.inverse_diagonal().to(self.J.diag)
