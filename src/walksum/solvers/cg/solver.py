"""Conjugate gradients, all heads and columns at once, each column with its own step length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from walksum import backends
from walksum._checks import check_choice, check_limits
from walksum.precision import Precision
from walksum.solvers.base import (
    Measured,
    Outcome,
    Prepared,
    Solver,
    Status,
    default_tol,
    node_sum,
    relative_error,
    status_of,
    worst,
)

RECHECK = 10  # steps between looks at the true residual: CG's own recursion drifts from it


# outcomes of the kernel
OUTCOMES = (Status.converged, Status.max_steps_reached, Status.stalled, Status.not_positive_definite, Status.nonfinite)


@dataclass(frozen=True)
class CG(Solver):
    """Preconditioned conjugate gradients: converges for every positive definite J, walk-summable or not.

    Args:
        tol: backward error to reach; by default 16 machine epsilons, except for "dic" in float32: one epsilon (rounding
            the exact mu may cost half of it), and steps go on while they improve, down to a quarter. On a GPU, too,
            steps go on below the default, which is then only what the true residual must meet.
        max_steps: give up after this many steps.
        preconditioner: "dic" (diagonal incomplete Cholesky, two to three times fewer steps), "jacobi" or "none".
            DIC exists for every walk-summable J; for another J, and on devices without its sweeps, "dic" falls
            back to "jacobi".

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> J = ws.Precision(path, torch.full((3,), 2.0), torch.full((2,), -1.0))
        >>> ws.solve(J, torch.tensor([[0.0], [1.0], [0.0]]), solver=ws.CG()).flatten()
        tensor([0.5000, 1.0000, 0.5000])
    """

    tol: float | None = None
    max_steps: int = 1000
    preconditioner: str = "dic"

    def __post_init__(self) -> None:
        check_limits(self.max_steps, self.tol)
        check_choice("preconditioner", self.preconditioner, ("dic", "jacobi", "none"))

    def prepare(self, J: Precision) -> Prepared:
        if backends.uses_triton(J.diag):
            from walksum.solvers.cg.cuda import PreparedCudaCG

            return PreparedCudaCG(J, self)
        return PreparedCG(J, self)


class PreparedCG(Measured):
    solver: CG

    def __init__(self, J: Precision, solver: CG):
        super().__init__(J, solver)
        self.dic = self._factor() if self.positive and solver.preconditioner == "dic" else None
        self.tol = self.aim = default_tol(solver.tol, J.dtype)
        if self.dic is not None and solver.tol is None and J.dtype == torch.float32:
            # a forward error is this times the condition number, so it pays to go where float64 residuals lead
            self.tol, self.aim = torch.finfo(J.dtype).eps, torch.finfo(J.dtype).eps / 4
        plain = solver.preconditioner == "none"
        self.inverse = (torch.ones_like(J.diag) if plain else 1 / J.diag).unsqueeze(-1)

    def _factor(self) -> Any:
        DIC = backends.find(self.J.diag, "DIC")
        factor = None if DIC is None else DIC(self.J.graph, self.J.diag, self.J.off)
        return factor if factor is not None and factor.positive else None

    def run(self, h: Tensor) -> Outcome:
        if self.finite and self.dic is not None:
            mu, outcome, steps, residual = self.dic.solve(h, self.J_norm, self.aim, self.solver.max_steps)
            if OUTCOMES[outcome] is not Status.nonfinite:
                return Outcome(mu, status_of(residual, self.tol, OUTCOMES[outcome]), steps, residual)
        return self.refusal(h) or self._plain(h)

    def _plain(self, h: Tensor) -> Outcome:
        # unit columns: the squares inside the dot products of float32 overflow from 1e19 on
        scale = self._unit(h)
        mu, outcome, steps = self._iterate(h / scale)
        return self.judged(mu * scale, h, steps, outcome)

    def _iterate(self, h: Tensor) -> tuple[Tensor, Status, int]:
        mu, best = torch.zeros_like(h), torch.inf
        r, p = h.clone(), self._precondition(h)
        rho = node_sum(r * p)
        for step in range(1, self.solver.max_steps + 1):
            q = self._apply(p)
            curvature = node_sum(p * q)
            if bool((curvature < 0).any()):
                return mu, Status.not_positive_definite, step
            length = ratio(rho, curvature)
            mu.addcmul_(length, p)
            r.addcmul_(length, q, value=-1)
            if step % RECHECK == 0 or bool((self._relative(r, mu, h) <= self.tol).all()):
                r = h - self._apply(mu)
                error = worst(self._relative(r, mu, h))
                if error <= self.tol:
                    return mu, Status.converged, step
                if step % (5 * RECHECK) == 0:
                    if error > 0.5 * best and error < 100 * self.tol:
                        return mu, Status.stalled, step
                    best = min(best, error)
            z = self._precondition(r)
            rho, before = node_sum(r * z), rho
            p.mul_(ratio(rho, before)).add_(z)
        return mu, Status.max_steps_reached, self.solver.max_steps

    def _apply(self, x: Tensor) -> Tensor:
        return backends.backend(x).spmm(self.J.graph, self.J.diag, self.J.off, x)

    def _precondition(self, r: Tensor) -> Tensor:
        return self.inverse * r

    def _relative(self, r: Tensor, mu: Tensor, h: Tensor) -> Tensor:
        """The backward error of every column for a residual r, ``[H, F]``."""
        return relative_error(r.abs().amax(1), mu.abs().amax(1), h.abs().amax(1), self.J_norm)


def ratio(a: Tensor, b: Tensor) -> Tensor:
    """a / b, and 0 where a column has already converged to b = 0."""
    return torch.where(b > 0, a / b, torch.zeros_like(a))
