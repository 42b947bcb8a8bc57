"""Direct: sparse elimination, complete. Exact, and the fastest where it fills in little."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from walksum._checks import check_positive
from walksum.backends.cpu.ldl.symbolic import Symbolic, all_columns
from walksum.precision import Precision
from walksum.solvers.base import Outcome, Prepared, Solver, Status, exact_tol, status_of
from walksum.solvers.column_factor import ColumnFactor
from walksum.solvers.factor import FAILURE, Factor, measure, pattern_of, residual


@dataclass(frozen=True)
class Direct(Solver):
    r"""Sparse elimination, :math:`P J P^\top = L L^\top`, for every positive definite J.

    The order of elimination and the pattern of L belong to the graph and are made once. Supernodes make dense blocks of
    it, except where those would be small: there L is made column by column, eight heads at once. The factor is made in
    float64; solves run in the dtype of h. Citation graphs fill in little; graphs that are large and well connected fill
    in beyond use, which :func:`walksum.backends.cpu.ldl.symbolic.symbolic` finds out early. Runs on the CPU.

    Args:
        refine: rounds of iterative refinement, each with a residual in float64.
        tol: the backward error up to which a solve counts as converged; by default 16 machine epsilons,
            or the square root of the number of nodes if that is more.
        max_operations: refuse graphs whose factorisation takes more multiply-adds than this.

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> J = ws.Precision(path, torch.full((3,), 2.0), torch.full((2,), -1.0))
        >>> ws.solve(J, torch.tensor([[0.0], [1.0], [0.0]]), solver=ws.Direct()).flatten()
        tensor([0.5000, 1.0000, 0.5000])
    """

    refine: int = 0
    tol: float | None = None
    max_operations: float = field(default=1e10, compare=False)  # one factor serves every limit that allows it

    def __post_init__(self) -> None:
        check_positive(max_operations=self.max_operations, **({} if self.tol is None else {"tol": self.tol}))
        if self.refine != int(self.refine) or self.refine < 0:
            raise ValueError(f"refine={self.refine!r}; expected a number of rounds, 0 or more")

    def prepare(self, J: Precision) -> PreparedDirect:
        return PreparedDirect(J, self, pattern_of(J.graph, self.max_operations))


class PreparedDirect(Prepared):
    def __init__(self, J: Precision, solver: Direct, pattern: Symbolic):
        super().__init__(J, solver)
        self.factor: Factor | ColumnFactor
        if pattern.by_columns:
            self.factor = ColumnFactor(self.copied(), all_columns(J.graph))
        else:
            self.factor = Factor(self.copied(), pattern)
        self.refine = solver.refine
        self.tol = exact_tol(solver.tol, J)

    def reads(self, h: Tensor) -> bool:
        return h.is_contiguous() or self.factor.reads(h)

    def run(self, h: Tensor) -> Outcome:
        mu, error = self.factor.solve(h)
        if self.factor.outcome:  # numeric.OK is 0
            return Outcome.failed(h, FAILURE[self.factor.outcome])
        if not h.is_cpu:
            mu = mu.to(h.device)
        if self.refine:
            mu, error = self._refined(h, mu)
        return Outcome(mu, status_of(error, self.tol, Status.stalled), 0, error)

    def run_backward(self, grad: Tensor, mu: Tensor) -> tuple[Outcome, Tensor, Tensor] | None:
        if self.refine or not grad.numel() or not isinstance(self.factor, ColumnFactor):
            return None
        found = self.factor.solve_and_dot(grad, mu)
        if found is None or not found[1] <= self.tol:  # run() tells why it was not solved
            return None
        g, error, d_diag, d_off = found
        return Outcome(g, Status.converged, 0, error), d_diag, d_off

    def _refined(self, h: Tensor, mu: Tensor) -> tuple[Tensor, float]:
        total = mu.double()
        for _ in range(self.refine):
            correction, _ = self.factor.solve(residual(self.J, h, total).to(h.dtype))
            total = total + correction.to(h.device)
        mu = total.to(h.dtype)
        return mu, measure(self.J, h, mu)

    @cached_property
    def supernodal(self) -> Factor:
        """A factor in float64 that also knows samples and the inverse on the pattern of J."""
        if isinstance(self.factor, Factor) and self.J.dtype == torch.float64:
            return self.factor
        return Factor.of(self.J.to(torch.float64))

    @property
    def marginal_variance(self) -> Tensor:
        r""":math:`(J^{-1})_{ii}` of every node, ``[H, N]``, without the rest of the inverse."""
        return self.supernodal.selected_inverse()[0].to(self.J.diag)
