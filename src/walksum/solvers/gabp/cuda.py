"""Belief propagation on the GPU: pi to its fixed point first, then eta, whose iteration is linear from there on.

The paper's stop rule (stop="messages") counts steps in which pi and eta move together, so there they do.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from walksum.backends.cuda.triton.gabp import Precisions, Stepper, messages_rule
from walksum.backends.cuda.triton.matrix import Control, Matrix
from walksum.backends.cuda.triton.scalars import ERROR, RESIDUAL, SCALE, SIZE
from walksum.graph import Graph
from walksum.precision import Precision
from walksum.solvers.base import Measured, Outcome, Prepared, Status, status_of, status_of_scaled
from walksum.solvers.gabp.solver import check_precisions

if TYPE_CHECKING:
    from walksum.solvers.gabp.solver import GaBP

ROUND = 10  # steps between two looks of the host; even, so that the buffers return to their places
LONGEST = 40  # the same where the rate so far tells when the next look will be worth its product
BLOW_UP = 1e30  # messages beyond this never come back


class PreparedCudaGaBP(Measured):
    """The ``Prepared`` of :class:`walksum.GaBP` for a J on the GPU in float32."""

    solver: GaBP

    def __init__(self, J: Precision, solver: GaBP):
        Prepared.__init__(self, J, solver)
        self.matrix = Matrix.of(J.graph, J.diag, J.off)
        self.J_norm = self.matrix.norm_inf()
        self.finite = bool(torch.isfinite(self.J_norm).all())
        self.positive = bool((J.diag > 0).all())

    @cached_property
    def fixed_point(self) -> tuple[Precisions, bool]:
        """The fixed point of pi, or as near as max_steps brings it, and whether it arrived."""
        assert self.matrix.values is not None
        return converge_precisions(self.J.graph, self.matrix.diag, self.matrix.values, self.solver)

    @property
    def marginal_precision(self) -> Tensor:
        """pi_i of every node, ``[H, N]``; exact on trees. :class:`SolveError` if messages do not converge."""
        if not self.is_current():
            return PreparedCudaGaBP(self.J, self.solver).marginal_precision
        found, converged = self.fixed_point
        return check_precisions(found.alpha, converged)

    def run(self, h: Tensor) -> Outcome:
        kind = JointLoop if self.solver.stop == "messages" else Loop
        return self.refusal(h) or kind(self, h.contiguous()).solve()


def converge_precisions(graph: Graph, diag: Tensor, coupling: Tensor, solver: GaBP) -> tuple[Precisions, bool]:
    """pi as near to its fixed point as max_steps bring it, and whether it arrived with all precisions positive."""
    precisions = Precisions(graph, diag, coupling)
    for _ in range(0, solver.max_steps, ROUND):
        for _ in range(ROUND):
            precisions.step(float(solver.damping))
        change, size = torch.stack([precisions.change.max(), precisions.alpha.abs().max()]).tolist()
        if not change > 4 * torch.finfo(diag.dtype).eps * size:  # NaN ends it too
            positive = bool((precisions.pi <= 0).all()) and bool((precisions.alpha > 0).all())  # of positive cavities
            return precisions, change == change and positive
    return precisions, False


class Loop:
    """The iteration of eta for one h, with pi at its fixed point; stops by the true residual."""

    absolute = False  # whether the stop rule depends on the size of h

    def __init__(self, prepared: PreparedCudaGaBP, h: Tensor):
        self.solver, self.matrix, graph = prepared.solver, prepared.matrix, prepared.J.graph
        self.damping = float(self.solver.damping)  # "adaptive" is served elsewhere
        heads, _, columns = h.shape
        self.stepper = Stepper(graph, heads, columns)
        size = h.abs().amax(1)
        # columns of h are scaled to one, so that no size of h overflows or underflows
        scale = torch.ones_like(size) if self.absolute else torch.where(size > 0, size, 1.0)
        self.scale = scale.unsqueeze(1)
        self.h, self.mu = h / self.scale, torch.empty_like(h)
        self.eta = h.new_zeros(heads, 2 * graph.num_edges, columns)
        self.new_eta = torch.empty_like(self.eta)
        limits = self.solver.tol, self.solver.max_steps
        self.control = Control.for_shape(h.shape, self.matrix.programs(columns), prepared.J_norm, *limits)
        self.control.scalars[SCALE.value] = 1.0
        self.control.scalars[SIZE.value] = size / scale
        self._take_precisions(prepared)

    def _take_precisions(self, prepared: PreparedCudaGaBP) -> None:
        self.precisions, _ = prepared.fixed_point

    def advance(self, steps: int = ROUND) -> None:
        """Steps, an even number, and the residual."""
        a, b = self.eta, self.new_eta
        for _ in range(steps - 1):
            self.stepper.step(self.precisions.gain, self.h, a, b, self.damping)
            a, b = b, a
        known = self.precisions
        self.stepper.step(known.gain, self.h, a, b, self.damping, alpha=known.alpha, mu=self.mu)
        self._measure()

    def _measure(self) -> None:
        self.matrix.product(self.mu, None, RESIDUAL.value, self.control, h=self.h)

    def _residual(self) -> float:
        return float(self.control.scalars[ERROR.value].max())

    def solve(self) -> Outcome:
        outcome, steps, residual, ahead = Status.max_steps_reached, 0, math.inf, ROUND
        while steps < self.solver.max_steps:
            self.advance(ahead)
            before, residual, steps = residual, self._residual(), steps + ahead
            if not math.isfinite(residual):
                return Outcome(self.mu * self.scale, Status.diverged, steps, residual)
            if residual <= self.solver.tol:
                break
            ahead = min(steps_ahead(before, residual, self.solver.tol, ahead), even(self.solver.max_steps - steps))
        mu = self.mu * self.scale
        return Outcome(mu, status_of_scaled(mu, status_of(residual, self.solver.tol, outcome)), steps, residual)


def steps_ahead(before: float, residual: float, tol: float, taken: int) -> int:
    """Until the next look, if ``taken`` steps brought the residual from ``before`` to what it is."""
    if not 0 < residual < before < math.inf:
        return ROUND
    missing = taken * math.log(tol / residual) / math.log(residual / before)
    return even(min(max(missing, 2), LONGEST))


def even(steps: float) -> int:
    return max(2, 2 * math.ceil(steps / 2))


class JointLoop(Loop):
    """pi and eta together, until no message changes by more than tol: the paper's rule, and its count of steps."""

    absolute = True

    def _take_precisions(self, prepared: PreparedCudaGaBP) -> None:
        assert self.matrix.values is not None
        self.precisions = Precisions(prepared.J.graph, self.matrix.diag, self.matrix.values)
        self.pi = (self.precisions.pi, self.precisions.new_pi)
        self.done = torch.zeros(2, dtype=torch.int32, device=self.h.device)
        self.change = self.h.new_zeros(max(1, self.stepper.num_changes))

    def advance(self, steps: int = ROUND) -> None:
        """Steps, an even number."""
        a, b = self.eta, self.new_eta
        for _ in range(steps):
            self.precisions.step(self.damping, self.done)
            self.stepper.step(self.precisions.gain, self.h, a, b, self.damping, change=self.change, done=self.done)
            messages_rule(self.precisions.change, self.change, self.done, self.solver.tol, BLOW_UP)
            a, b = b, a

    def solve(self) -> Outcome:
        state = steps = 0
        for _ in range(0, self.solver.max_steps, ROUND):
            self.advance()
            state, steps = self.done.tolist()
            if state:
                break
        eta = (self.eta, self.new_eta)[steps % 2]
        self.precisions.pi, self.precisions.new_pi = self.pi[steps % 2], self.pi[1 - steps % 2]
        self.precisions.step(1.0)  # for alpha of the last pi
        self.stepper.step(self.precisions.gain, self.h, eta, eta, alpha=self.precisions.alpha, mu=self.mu, send=False)
        self._measure()
        residual = self._residual()
        if state == 2 or not math.isfinite(residual):
            return Outcome(self.mu, Status.diverged, steps, residual)
        if not state:  # the rule was not met, whatever the residual
            return Outcome(self.mu, Status.max_steps_reached, steps, residual)
        return Outcome(self.mu, status_of(residual, self.solver.tol, Status.stalled), steps, residual)
