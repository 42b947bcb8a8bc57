"""Gaussian Belief Propagation: the paper's Algorithm 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from walksum import backends
from walksum._checks import check_choice, check_count, check_positive
from walksum.backends import reference
from walksum.precision import Precision
from walksum.solvers.base import Measured, Outcome, Prepared, SolveError, Solver, Status, status_of

BLOW_UP = 1e30  # messages that grew by this factor never come back
GENTLEST = 0.1  # adaptive damping goes no further down


@dataclass(frozen=True)
class GaBP(Solver):
    r"""Gaussian Belief Propagation with damping (Algorithm 1 of the paper).

    .. math::
        \pi_{i \to j} = -J_{ij}^2 / \alpha_{i \setminus j}, \qquad
        \eta_{i \to j} = -J_{ij} \beta_{i \setminus j} / \alpha_{i \setminus j}

    Converges for every walk-summable J; on a tree it is exact after as many undamped steps as the
    diameter. ``prepare(J).marginal_precision`` holds :math:`\pi_i = J_{ii} + \sum_k \pi_{k \to i}`.

    The precisions :math:`\pi` do not depend on h. On a CPU they are settled once for J, and steps count the
    updates of :math:`\eta`. Only ``stop="messages"`` updates both together from zero, to the letter of Algorithm 1.

    Args:
        damping: weight :math:`\lambda` of the new message, in (0, 1]; 1 is undamped. "adaptive" starts undamped and
            lowers the weight whenever the messages oscillate or grow.
        tol: the tolerance of the stop rule.
        max_steps: give up after this many steps.
        stop: "residual", the backward error of the solution; or "messages", the paper's rule: the largest
            absolute change of any message. The latter depends on the scale of h; the status is "converged"
            only if the residual is below tol too.
        schedule: "parallel", Algorithm 1: all messages of a step follow from those of the step before; or
            "sequential": node after node, forward and backward in turn, each message from the newest ones. It converges
            whenever J is walk-summable, in about half the steps; for ``stop="residual"`` and a fixed damping. On other
            devices than a CPU it is "parallel".
        loading: None, or "auto" for a J that is positive definite but not walk-summable: messages run on a J with a
            larger diagonal, and an outer loop removes its effect (Johnson, Bickson and Dolev 2009).

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> J = ws.Precision(path, torch.full((3,), 2.0), torch.full((2,), -1.0))
        >>> ws.solve(J, torch.tensor([[0.0], [1.0], [0.0]]), solver=ws.GaBP(damping=1.0)).flatten()
        tensor([0.5000, 1.0000, 0.5000])
    """

    damping: float | str = 0.5
    tol: float = 1e-6
    max_steps: int = 1000
    stop: str = "residual"
    schedule: str = "parallel"
    loading: str | None = None

    def __post_init__(self) -> None:
        check_positive(tol=self.tol)
        check_count("max_steps", self.max_steps)
        check_choice("stop", self.stop, ("residual", "messages"))
        check_choice("schedule", self.schedule, ("parallel", "sequential"))
        if self.loading is not None:
            check_choice("loading", self.loading, ("auto",))
            if self.stop == "messages":
                raise ValueError("loading='auto' with stop='messages'; the outer loop watches the residual")
        if self.damping != "adaptive" and not (isinstance(self.damping, int | float) and 0 < self.damping <= 1):
            raise ValueError(
                f"damping={self.damping!r}; expected 'adaptive' or a weight in (0, 1], where 1 is undamped"
            )
        if self.schedule == "sequential" and (self.damping == "adaptive" or self.stop == "messages"):
            raise ValueError(
                f"schedule='sequential' with damping={self.damping!r} and stop={self.stop!r}; it takes a number for "
                "damping and stop='residual', or use schedule='parallel'"
            )

    def prepare(self, J: Precision) -> Prepared:
        if self.loading is not None:
            from walksum.solvers.gabp.loading import PreparedLoadedGaBP

            return PreparedLoadedGaBP(J, self)
        if backends.uses_triton(J.diag) and self.damping != "adaptive":
            from walksum.solvers.gabp.cuda import PreparedCudaGaBP

            return PreparedCudaGaBP(J, self)
        if backends.find(J.diag, "PrecisionMessages") is None:
            return PreparedGaBP(J, self)
        from walksum.solvers.gabp.cpu import PreparedFusedGaBP, PreparedSequentialGaBP  # needs numba

        return (PreparedSequentialGaBP if self.schedule == "sequential" else PreparedFusedGaBP)(J, self)


class Damping:
    """The weight of new messages from step to step."""

    def __init__(self, damping: float | str):
        self.adaptive = damping == "adaptive"
        self.weight = 1.0 if self.adaptive else float(damping)
        self.last = math.inf

    def watch(self, change: float, two_steps: float) -> None:
        """Undamped changes over one and two steps: where the latter is smaller, messages go to and fro."""
        if self.adaptive and (change > self.last or two_steps < 0.5 * change):
            self.weight = max(0.8 * self.weight, GENTLEST)
        self.last = change


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


class PreparedGaBP(Measured):
    """Algorithm 1 in torch, for every device and dtype."""

    solver: GaBP

    def __init__(self, J: Precision, solver: GaBP):
        super().__init__(J, solver)
        self._marginal: Tensor | None = None

    @property
    def marginal_precision(self) -> Tensor:
        """pi_i of every node, ``[H, N]``; exact on trees. :class:`SolveError` if messages do not converge."""
        if not self.is_current():
            return self.solver.prepare(self.J).marginal_precision  # type: ignore[attr-defined]
        if self._marginal is None:
            self._marginal = check_precisions(*self._precisions())
        return self._marginal

    def _precisions(self) -> tuple[Tensor, bool]:
        """pi_i of every node, and whether the messages converged."""
        messages = Messages(self.J, torch.zeros_like(self.J.diag).unsqueeze(-1))
        met = (
            self._messages_rule(messages, 4 * torch.finfo(self.J.dtype).eps * self._size(self.J.diag))[0]
            is Status.stalled
        )
        return messages.beliefs()[0], met and bool((messages.pi <= 0).all())  # as from positive cavities

    def run(self, h: Tensor) -> Outcome:
        if (refused := self.refusal(h)) is not None:
            return refused
        if self.solver.stop == "messages":
            mu, outcome, steps = self._by_messages(h)
        else:
            scale = self._unit(h)  # the rule is relative: unit columns cannot overflow
            mu, outcome, steps = self._by_residual(h / scale)
            mu = mu * scale
        residual = self._error(mu, h)
        rule_unmet = self.solver.stop == "messages" and outcome is Status.max_steps_reached and math.isfinite(residual)
        if outcome is not Status.diverged and not rule_unmet:
            outcome = status_of(residual, self.solver.tol, outcome)
        return Outcome(mu, outcome, steps, residual)

    def _messages(self, h: Tensor) -> Messages:
        return Messages(self.J, h)

    def _size(self, values: Tensor) -> float:
        """The largest absolute value; NaN if any is NaN."""
        return float(values.abs().max()) if values.numel() else 0.0

    def _by_messages(self, h: Tensor) -> tuple[Tensor, Status, int]:
        messages = self._messages(h)
        outcome, steps = self._messages_rule(messages, self.solver.tol)
        return messages.mean(), outcome, steps

    def _messages_rule(self, messages: Any, tol: float) -> tuple[Status, int]:
        """The paper's rule; ``stalled`` until the residual shows that the result is good."""
        damping, limit = Damping(self.solver.damping), BLOW_UP * max(1.0, self._size(messages.h))
        for step in range(1, self.solver.max_steps + 1):
            change_pi, change_eta = map(self._size, messages.step(damping.weight))
            if not change_pi + change_eta < limit:
                return Status.diverged, step
            if change_pi <= tol and change_eta <= tol:
                return Status.stalled, step
            damping.watch(change_pi + change_eta, math.inf)
        return Status.max_steps_reached, self.solver.max_steps

    def _by_residual(self, h: Tensor) -> tuple[Tensor, Status, int]:
        knobs, messages, damping = self.solver, self._messages(h), Damping(self.solver.damping)
        for step in range(1, knobs.max_steps + 1):
            change_pi, change_eta = map(self._size, messages.step(damping.weight))
            if not change_pi + change_eta < BLOW_UP:
                return messages.mean(), Status.diverged, step
            # the residual is measured only once the precisions have settled: before, it means nothing
            settled = change_pi <= knobs.tol * self._size(self.J.diag)
            if settled and self._error(messages.mean(), h) <= knobs.tol:
                return messages.mean(), Status.converged, step
            damping.watch(change_pi + change_eta, math.inf)
        return messages.mean(), Status.max_steps_reached, knobs.max_steps


def check_precisions(alpha: Tensor, converged: bool) -> Tensor:
    """alpha, where its messages converged to a Gaussian; else :class:`SolveError`."""
    if converged and bool((alpha > 0).all()):
        return alpha
    raise SolveError(
        "GaBP's precisions have no valid fixed point, or did not reach it in the allowed steps: J is probably not "
        "walk-summable (see J.walk_summability()). If J is positive definite, Direct().prepare(J).marginal_variance is "
        "exact; if it is walk-summable, raise max_steps"
    )
