"""Gaussian Belief Propagation: the paper's Algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from walksum import kernels
from walksum.kernels import reference
from walksum.precision import Precision
from walksum.solvers.base import (
    Prepared,
    Solver,
    Status,
    backward_error,
    check_choice,
    check_positive,
    judge,
    norm_inf,
    worst,
)

BLOW_UP = 1e30  # messages beyond this never come back


@dataclass(frozen=True)
class GaBP(Solver):
    r"""Gaussian Belief Propagation with damping (Algorithm 1 of the paper).

    .. math::
        \pi_{i \to j} = -J_{ij}^2 / \alpha_{i \setminus j}, \qquad
        \eta_{i \to j} = -J_{ij} \beta_{i \setminus j} / \alpha_{i \setminus j}

    Converges for every walk-summable J; on a tree it is exact after as many undamped steps as the
    diameter. ``prepare(J).marginal_precision`` holds :math:`\pi_i = J_{ii} + \sum_k \pi_{k \to i}`.

    Args:
        damping: weight :math:`\lambda` of the new message, in (0, 1]; 1 is undamped.
        tol: the tolerance of the stop rule.
        max_steps: give up after this many steps.
        stop: "residual", the backward error of the solution; or "messages", the paper's rule: the largest
            absolute change of any message. The latter depends on the scale of h; the status is "converged"
            only if the residual is below tol too.
    """

    damping: float = 0.5
    tol: float = 1e-6
    max_steps: int = 1000
    stop: str = "residual"

    def __post_init__(self) -> None:
        check_positive(tol=self.tol, max_steps=self.max_steps)
        check_choice("stop", self.stop, ("residual", "messages"))
        if not 0 < self.damping <= 1:
            raise ValueError(f"damping={self.damping!r}; expected a weight in (0, 1], where 1 is undamped")

    def prepare(self, J: Precision) -> Prepared:
        if kernels.uses_triton(J.diag):
            from walksum.solvers.cuda_gabp import PreparedCudaGaBP

            return PreparedCudaGaBP(J, self)
        return PreparedGaBP(J, self)


class Messages:
    """The messages of one solve: slot e of row i holds what neighbour k = indices[e] sent to i."""

    def __init__(self, J: Precision, h: Tensor):
        self.J, self.h = J, h
        self.reverse = J.graph.csr.reverse
        self.row = J.graph.csr.row
        self.coupling = J.off[:, J.graph.csr.edge]
        self.pi = torch.zeros_like(self.coupling)
        self.eta = h.new_zeros(*self.coupling.shape, h.size(-1))

    def step(self, damping: float) -> tuple[Tensor, Tensor]:
        """One synchronous update of all messages; returns the undamped changes of pi and eta."""
        alpha, beta = self.beliefs()
        alpha_cavity = alpha[:, self.row] - self.pi
        beta_cavity = beta[:, self.row] - self.eta
        gain = -self.coupling / alpha_cavity
        # what row i sends to k is filed where k receives it: the reverse slot
        d_pi = (self.coupling * gain)[:, self.reverse] - self.pi
        d_eta = (gain.unsqueeze(-1) * beta_cavity)[:, self.reverse] - self.eta
        self.pi = self.pi + damping * d_pi
        self.eta = self.eta + damping * d_eta
        return d_pi, d_eta

    def beliefs(self) -> tuple[Tensor, Tensor]:
        """Marginal precision ``[H, N]`` and information ``[H, N, F]``."""
        alpha = self.J.diag + reference.neighbour_sum(self.J.graph, self.pi)
        beta = self.h + reference.neighbour_sum(self.J.graph, self.eta)
        return alpha, beta

    def mean(self) -> Tensor:
        alpha, beta = self.beliefs()
        return beta / alpha.unsqueeze(-1)


class PreparedGaBP(Prepared):
    def __init__(self, J: Precision, solver: GaBP):
        super().__init__(J, solver.name)
        self.solver = solver
        self.J_norm = norm_inf(J)
        self._marginal: Tensor | None = None

    @property
    def marginal_precision(self) -> Tensor:
        """pi_i of every node, ``[H, N]``; exact on trees."""
        if self._marginal is None:
            self.run(torch.zeros_like(self.J.diag).unsqueeze(-1))
        assert self._marginal is not None
        return self._marginal

    def run(self, h: Tensor) -> tuple[Tensor, Status, int, float]:
        knobs, messages = self.solver, Messages(self.J, h)
        outcome, steps = Status.max_steps_reached, 0
        for steps in range(1, knobs.max_steps + 1):
            d_pi, d_eta = messages.step(knobs.damping)
            change_pi, change_eta = (float(d.abs().max()) if d.numel() else 0.0 for d in (d_pi, d_eta))
            if not change_pi + change_eta < BLOW_UP:
                outcome = Status.diverged
                break
            # the residual is measured only once the precisions have settled: before, it means nothing
            settled = change_pi <= knobs.tol
            if knobs.stop == "messages" and settled and change_eta <= knobs.tol:
                outcome = Status.stalled
                break
            if knobs.stop == "residual" and settled and self._residual(messages, h) <= knobs.tol:
                break
        self._marginal = messages.beliefs()[0]
        return self._verdict(messages, h, outcome, steps)

    def _residual(self, messages: Messages, h: Tensor) -> float:
        return worst(backward_error(self.J, messages.mean(), h, self.J_norm))

    def _verdict(self, messages: Messages, h: Tensor, outcome: Status, steps: int) -> tuple:
        residual = self._residual(messages, h)
        if not bool(torch.isfinite(h).all() & torch.isfinite(self.J_norm).all()):
            outcome = Status.nonfinite
        elif outcome is not Status.diverged:
            outcome = judge(residual, self.solver.tol, outcome)
        return messages.mean(), outcome, steps, residual
