"""GaBP for every positive definite J: a loaded diagonal inside, a correction outside.

Johnson, Bickson and Dolev (2009), "Fixing convergence of Gaussian belief propagation".
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from walksum.precision import Precision
from walksum.solvers.base import Measured, Outcome, Status, node_sum

if TYPE_CHECKING:
    from walksum.solvers.gabp.solver import GaBP

RADIUS = 0.8  # walk-summability radius of the loaded matrix: smaller makes fewer messages and more corrections
INNER_TOL = 1e-8  # backward error of the inner solves; the outer loop forgives what is left
MAX_OUTER = 1000


class PreparedLoadedGaBP(Measured):
    r"""The double loop: GaBP solves with :math:`J + \Gamma`, an outer iteration removes what :math:`\Gamma` added.

    The published outer iteration is :math:`\mu \leftarrow (J + \Gamma)^{-1} (h + \Gamma \mu)`. It is Richardson's,
    with the loaded solve as its preconditioner; here conjugate gradients use the same preconditioner, which takes far
    fewer solves and finds out when J is indefinite.
    """

    def __init__(self, J: Precision, solver: GaBP):
        super().__init__(J, solver)
        self.tol = solver.tol
        if not self.positive:
            return
        upper = J.walk_summability()[1]
        self.loading = max(0.0, upper / RADIUS - 1) if upper >= 1 else 0.0
        loaded = Precision(J.graph, J.diag * (1 + self.loading), J.off)
        inner_tol = solver.tol if not self.loading else max(INNER_TOL, 64 * torch.finfo(J.dtype).eps)
        self.inner = replace(solver, loading=None, tol=inner_tol).prepare(loaded)

    def run(self, h: Tensor) -> Outcome:
        if (refused := self.refusal(h)) is not None:
            return refused
        if not self.loading:
            return self.inner.run(h)
        scale = self._unit(h)
        mu, status, steps = self._correct(h / scale)
        if status is Status.not_positive_definite:
            return Outcome.failed(h, status, steps)
        return self.judged(mu * scale, h, steps, status)

    def _correct(self, h: Tensor) -> tuple[Tensor, Status, int]:
        """Flexible conjugate gradients, each column with its own lengths; steps count all messages of all loops."""
        mu, r = torch.zeros_like(h), h.clone()
        z, steps = self._loaded_solve(r)
        p, rz = z, node_sum(r * z)
        for _ in range(MAX_OUTER):
            Jp = self.J @ p
            curvature = node_sum(p * Jp)
            moving = p.abs().amax(1, keepdim=True) > 0
            if bool((moving & (curvature <= 0)).any()):
                return mu, Status.not_positive_definite, steps
            length = torch.where(moving, rz / torch.where(moving, curvature, 1.0), 0.0)
            mu = mu + length * p
            before, r = r, r - length * Jp
            if self._error(mu, h) <= self.tol:
                return mu, Status.converged, steps
            z, count = self._loaded_solve(r)
            steps += count
            old = torch.where(rz != 0, rz, 1.0)
            # Polak and Ribiere's: forgives that the inner solves are not exact
            p = z + node_sum((r - before) * z) / old * p
            rz = node_sum(r * z)
        return mu, Status.max_steps_reached, steps

    def _loaded_solve(self, r: Tensor) -> tuple[Tensor, int]:
        mu, _, steps, _ = self.inner.run(r)
        return mu, steps
