"""Inverse: J^-1 as a dense matrix, kept. For a J that is solved again and again, on a device that multiplies fast."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from walksum import backends
from walksum._checks import check_choice, check_limits
from walksum.precision import Precision
from walksum.solvers.base import Measured, Outcome, Solver, Status, exact_tol, status_of
from walksum.solvers.dense import cholesky

STORAGES = ("full", "half")


@dataclass(frozen=True)
class Inverse(Solver):
    """The explicit inverse, made once in float64: a solve is one matrix product and a look at its residual.

    O(N^3) once, O(N^2) memory. Where the residual is not at rounding level, the product is repeated on the residual.

    Args:
        storage: "full" keeps the inverse in the dtype of J; "half" in float16, which a GPU multiplies ten times
            faster, for two to four products more.
        tol: backward error up to which a solve counts as converged; by default 16 machine epsilons, and products go
            on while they improve, down to one.
        max_steps: products at most.

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> J = ws.Precision(path, torch.full((3,), 2.0), torch.full((2,), -1.0))
        >>> ws.solve(J, torch.tensor([[0.0], [1.0], [0.0]]), solver=ws.Inverse()).flatten()
        tensor([0.5000, 1.0000, 0.5000])
    """

    storage: str = "full"
    tol: float | None = None
    max_steps: int = 20

    def __post_init__(self) -> None:
        check_choice("storage", self.storage, STORAGES)
        check_limits(self.max_steps, self.tol)

    def prepare(self, J: Precision) -> PreparedInverse:
        return PreparedInverse(J, self)


class PreparedInverse(Measured):
    solver: Inverse

    def __init__(self, J: Precision, solver: Inverse):
        super().__init__(J, solver)
        self.tol = exact_tol(solver.tol, J)
        self.aim = self.tol if solver.tol is not None else torch.finfo(J.dtype).eps
        factor, self.failed = cholesky(J, torch.float64)
        inverse = torch.cholesky_inverse(factor) if not self.failed else factor
        # entries of at most 1 times columns of at most 1: a product of half precision cannot overflow
        self.size = inverse.abs().flatten(1).amax(1).view(-1, 1, 1).to(J.dtype) if J.num_nodes else inverse.new_ones(1)
        self.half = solver.storage == "half"
        # tensor cores want rows that begin at multiples of 16 bytes; an odd N is four times slower
        self.padding = -J.num_nodes % 8 if self.half else 0
        self.inverse = pad((inverse / self.size).to(torch.float16 if self.half else J.dtype), (0, self.padding))

    def run(self, h: Tensor) -> Outcome:
        if self.failed:
            return Outcome.failed(h, Status.not_positive_definite if self.finite else Status.nonfinite)
        mu = self._product(h)
        residual, steps = self._error(mu, h), 1
        while residual > self.aim and steps < self.solver.max_steps:
            better = mu + self._product(h - backends.backend(h).spmm(self.J.graph, self.J.diag, self.J.off, mu))
            error, steps = self._error(better, h), steps + 1
            if not error < residual:
                break
            stuck = error > residual / 2
            mu, residual = better, error
            if stuck and residual <= self.tol:  # rounding is all that is left
                break
        return Outcome(mu, status_of(residual, self.tol, Status.stalled), steps, residual)

    def _product(self, r: Tensor) -> Tensor:
        if not self.half:
            return (self.inverse @ r) * self.size
        scale = r.abs().amax(1, keepdim=True)
        scale = torch.where(scale > 0, scale, torch.ones_like(scale))
        half = pad((r / scale).to(torch.float16), (0, 0, 0, self.padding))
        return (self.inverse @ half).to(r.dtype) * (scale * self.size)
