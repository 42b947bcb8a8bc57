"""Conjugate gradients and belief propagation whose nodes lie in several processes.

Both are the iterations of :mod:`walksum.solvers` with another product, other sums and other maxima. What decides (step
lengths, errors, statuses) is the same number in every process, so all of them take the same steps.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from walksum.backends import reference
from walksum.distributed.exchange import Fill
from walksum.distributed.part import GraphPart
from walksum.distributed.rows import OwnedRows
from walksum.precision import Precision
from walksum.solvers import CG, GaBP, Prepared, Solver, Status
from walksum.solvers.base import Outcome, default_tol, relative_error, unit_of, worst
from walksum.solvers.cg.solver import RECHECK, PreparedCG, ratio
from walksum.solvers.gabp.solver import Messages, PreparedGaBP

SPREAD = 4.0  # the largest entry of a residual is about so many times its root mean square


def prepare_across(J: Precision, solver: Solver | str) -> Prepared:
    """The solver for a J on a :class:`GraphPart`; "auto" is CG."""
    if isinstance(solver, str):
        solver = {"auto": CG(), "cg": CG(), "gabp": GaBP()}.get(solver, solver)
    if isinstance(solver, CG):
        return PreparedAcrossCG(J, solver)
    if isinstance(solver, GaBP):
        return PreparedAcrossGaBP(J, solver)
    name = solver if isinstance(solver, str) else solver.name
    raise ValueError(f"solver={name!r} works in one process; across processes use 'auto', 'cg', 'gabp', CG or GaBP")


class Across(Prepared):
    """What the iterations have in common: our rows of J, and numbers over all processes."""

    keeps_values = False  # J's values are part of what is prepared, and kept with J

    def _share(self, J: Precision) -> None:
        assert isinstance(J.graph, GraphPart)
        self.rows = OwnedRows(J)
        self.exchange = J.graph.exchange
        self.J_norm = self.rows.norm_inf()
        self.finite = bool(torch.isfinite(self.J_norm).all())
        # the largest of -diag is below zero exactly if every diagonal entry of every process is above it
        self.positive = self.finite and float(self.exchange.max(-self.rows.diag.amin().view(1))) < 0

    def outcome(self, h: Tensor) -> Outcome:
        if not h.size(0) * h.size(2):
            return Outcome(torch.empty_like(h), Status.converged, 0, 0.0)
        if not self.finite or not math.isfinite(self._size(h)):
            return Outcome.failed(h, Status.nonfinite)
        if not self.positive:
            return Outcome.failed(h, Status.not_positive_definite)
        found = self.run(h)
        return found._replace(status=Status.overflow) if found.status is Status.nonfinite else found

    def _size(self, values: Tensor) -> float:
        """The largest magnitude over all processes."""
        own = values.abs().max() if values.numel() else values.new_zeros(())
        return float(self.exchange.max(own.view(1)))

    def _unit(self, h: Tensor) -> Tensor:
        return unit_of(self.exchange.max(h.abs().amax(1, keepdim=True)))

    def _error(self, mu: Tensor, h: Tensor) -> float:
        """The largest backward error of any column, over the rows of all processes."""
        owned = self.rows.part.num_owned  # belief propagation has rows of the halo behind them
        mu, h = mu[:, :owned], h[:, :owned]
        return worst(self._relative(h - self.rows(mu), mu, h))

    def _relative(self, r: Tensor, mu: Tensor, h: Tensor) -> Tensor:
        error, size, given = self._largest(r, mu, h)
        return relative_error(error, size, given, self.J_norm)

    def _largest(self, *vectors: Tensor) -> Tensor:
        """The largest magnitude of every column of each, over all processes."""
        return self.exchange.max(torch.stack([t.abs().amax(1) for t in vectors]))


class PreparedAcrossCG(Across, PreparedCG):
    """Conjugate gradients with Jacobi's preconditioner: triangular sweeps would go through all processes in turn.

    In the form of Chronopoulos and Gear (1989), which forms all inner products of a step in one sum over the processes.
    """

    def __init__(self, J: Precision, solver: CG):
        Prepared.__init__(self, J, solver)
        self._share(J)
        self.tol = default_tol(solver.tol, J.dtype)
        plain = solver.preconditioner == "none"
        self.inverse = (torch.ones_like(self.rows.diag) if plain else 1 / self.rows.diag).unsqueeze(-1)
        self.count = self.rows.part.layout.num_nodes

    def run(self, h: Tensor) -> Outcome:
        return self._plain(h)

    def _iterate(self, h: Tensor) -> tuple[Tensor, Status, int]:
        mu, r, best, seen = torch.zeros_like(h), h.clone(), math.inf, 0
        p, s = torch.zeros_like(h), torch.zeros_like(h)  # a direction and J times it
        u = self.inverse * r
        w = self.rows(u)
        rho, curvature, square = self._sums(r, u, w)
        length, turn = ratio(rho, curvature), torch.zeros_like(rho)
        scale = 1.0  # of the backward error, about; known from the first look at the true residual on
        for step in range(1, self.solver.max_steps + 1):
            if bool((curvature < 0).any()):
                return mu, Status.not_positive_definite, step
            p.mul_(turn).add_(u)
            s.mul_(turn).add_(w)
            mu.addcmul_(length, p)
            r.addcmul_(length, s, value=-1)
            near = SPREAD * float((square / self.count).max()) ** 0.5 <= self.tol * scale and step > seen + 2
            if near or step % RECHECK == 0 or step == self.solver.max_steps:
                r, seen = h - self.rows(mu), step
                error, scale = self._look(r, mu, h)
                if error <= self.tol:
                    return mu, Status.converged, step
                if step % (5 * RECHECK) == 0:
                    if error > 0.5 * best and error < 100 * self.tol:
                        return mu, Status.stalled, step
                    best = min(best, error)
            u = self.inverse * r
            w = self.rows(u)
            before = rho
            rho, curvature, square = self._sums(r, u, w)
            turn = ratio(rho, before)
            curvature = curvature - turn * ratio(rho, length)
            length = ratio(rho, curvature)
        return mu, Status.max_steps_reached, self.solver.max_steps

    def _sums(self, r: Tensor, u: Tensor, w: Tensor) -> Tensor:
        """``r.u``, ``u.w`` and ``r.r`` of every column, over all processes."""
        return self.exchange.sum(torch.stack([(a * b).sum(1, keepdim=True) for a, b in ((r, u), (u, w), (r, r))]))

    def _look(self, r: Tensor, mu: Tensor, h: Tensor) -> tuple[float, float]:
        """The largest backward error, and what the residual was divided by."""
        error, size, given = self._largest(r, mu, h)
        scale = self.J_norm.unsqueeze(1) * size + given
        smallest = float(scale[scale > 0].min()) if scale.any() else 1.0
        return worst(relative_error(error, size, given, self.J_norm)), smallest


class AcrossMessages(Messages):
    """Messages along the edges of a part; only beliefs of the halo's nodes come from other processes.

    A message out of the halo follows from its sender's belief and the message that went there, which is ours. So an
    exchange has one row per node of the halo, not one per edge.
    """

    def beliefs(self) -> tuple[Tensor, Tensor]:
        part = self.J.graph
        assert isinstance(part, GraphPart)
        alpha = self.J.diag + reference.neighbour_sum(part, self.pi)
        beta = self.h + reference.neighbour_sum(part, self.eta)
        both = torch.cat([alpha.unsqueeze(-1), beta], -1)[:, : part.num_owned]
        both = Fill.apply(both, part.exchange)
        return both[..., 0], both[..., 1:]


class PreparedAcrossGaBP(Across, PreparedGaBP):
    """Algorithm 1 with all messages at once, whatever the schedule."""

    def __init__(self, J: Precision, solver: GaBP):
        if solver.loading is not None:
            raise ValueError(f"loading={solver.loading!r} works in one process; across processes use CG")
        Prepared.__init__(self, J, replace(solver, schedule="parallel"))
        self._share(J)
        self._marginal = None

    def run(self, h: Tensor) -> Outcome:
        part = self.rows.part
        padded = torch.cat([h, h.new_zeros(h.size(0), part.num_nodes - part.num_owned, h.size(2))], 1)
        found = PreparedGaBP.run(self, padded)
        return found._replace(value=found.value[:, : part.num_owned])

    def _messages(self, h: Tensor) -> Messages:
        return AcrossMessages(self.J, h)
