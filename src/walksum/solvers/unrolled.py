"""Unrolled: autograd through GaBP's iterations, for comparison with implicit differentiation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from walksum._checks import check_count, check_positive
from walksum.precision import Precision
from walksum.solvers.base import Outcome, Prepared, Solver, Status, status_of
from walksum.solvers.factor import measure
from walksum.solvers.gabp.solver import Messages


@dataclass(frozen=True)
class Unrolled(Solver):
    """A fixed number of GaBP steps, differentiated by recording them: memory grows with the steps.

    This is what implicit differentiation replaces; it exists to measure the difference.

    Args:
        steps: number of GaBP steps.
        last: record only the last so many steps (truncated back-propagation); None records all.
        damping: as in :class:`walksum.GaBP`.
        tol: the residual up to which the result counts as converged.

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> J = ws.Precision(path, torch.full((3,), 2.0), torch.full((2,), -1.0))
        >>> ws.solve(J, torch.tensor([[0.0], [1.0], [0.0]]), solver=ws.Unrolled(steps=80)).flatten()
        tensor([0.5000, 1.0000, 0.5000])
    """

    steps: int = 100
    last: int | None = None
    damping: float = 0.5
    tol: float = 1e-6

    def __post_init__(self) -> None:
        check_positive(damping=self.damping, tol=self.tol)
        check_count("steps", self.steps)
        if self.last is not None and not 0 < self.last <= self.steps:
            raise ValueError(f"last={self.last!r}; expected between 1 and steps={self.steps}")

    def prepare(self, J: Precision) -> Prepared:
        return PreparedUnrolled(J, self)


class PreparedUnrolled(Prepared):
    solver: Unrolled
    keeps_values = False

    def run(self, h: Tensor) -> Outcome:
        knobs, messages = self.solver, Messages(self.J, h)
        recorded = knobs.steps if knobs.last is None else knobs.last
        with torch.no_grad():
            for _ in range(knobs.steps - recorded):
                messages.step(knobs.damping)
        for _ in range(recorded):
            messages.step(knobs.damping)
        mu = messages.mean()
        with torch.no_grad():
            residual = measure(self.J, h, mu)
        status = status_of(residual, knobs.tol, Status.max_steps_reached)
        return Outcome(mu, status, knobs.steps, residual)
