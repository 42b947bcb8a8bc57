"""GaBP(schedule="sequential") on a CPU."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from walksum.backends.cpu.gabp_sequential import CONVERGED, DIVERGED, MAX_STEPS, NONFINITE, STALLED, solve
from walksum.backends.cpu.pointers import blank
from walksum.backends.cpu.simd import lanes_for
from walksum.backends.cpu.tiling import Own, fitting, for_blocks, rows, view
from walksum.solvers.base import Outcome, Status, status_of
from walksum.solvers.gabp.cpu import PreparedFusedGaBP

OUTCOMES = {
    CONVERGED: Status.converged,
    STALLED: Status.stalled,
    MAX_STEPS: Status.max_steps_reached,
    DIVERGED: Status.diverged,
    NONFINITE: Status.nonfinite,
}


class PreparedSequentialGaBP(PreparedFusedGaBP):
    @cached_property
    def _order(self) -> np.ndarray:
        return self.J.graph.derived(_natural_order)

    def run(self, h: Tensor) -> Outcome:
        failure = self._failure()
        if failure is not None:
            return Outcome.failed(h, failure)
        heads, G, own = self._fixed_point[0], rows(self.J.graph), Own()
        pattern, mu, H = (G.indptr, G.indices, G.edge, G.reverse), blank(h.contiguous()), view(h)
        off, diag, norm, X = view(self.J.off), view(self.J.diag), view(self.J_norm), mu.numpy()
        knobs = float(self.solver.damping), float(self.solver.tol), int(self.solver.max_steps)
        gains = [(pi.gain, 1 / pi.alpha) for pi in heads]

        def block(head: int, start: int, stop: int) -> tuple[int, int, float]:
            lanes, J = lanes_for(stop - start), (off[head], diag[head], float(norm[head]))
            work = own.scratch(2 * h.size(1) + G.indices.size, lanes.itemsize * 8, dtype=H.dtype)
            return solve(lanes, work, H[head], X[head], start, stop, self._order, pattern, gains[head], J, *knobs)

        width = fitting(2 * self.J.graph.num_edges * h.element_size())
        done = for_blocks(block, h.size(0), h.size(2), 50.0 * (h.size(1) + 2 * self.J.graph.num_edges), width)
        codes, steps, errors = zip(*done, strict=True)
        return self._outcome(mu, OUTCOMES[max(codes)], max(steps), float(np.max(errors)))

    def _failure(self) -> Status | None:
        if not self.positive:
            return Status.not_positive_definite if self.finite else Status.nonfinite
        return None if self._fixed_point[1] else Status.diverged

    def _outcome(self, mu: Tensor, status: Status, steps: int, residual: float) -> Outcome:
        if status in (Status.nonfinite, Status.diverged):
            value = mu if status is Status.diverged else torch.full_like(mu, torch.nan)
            return Outcome(value, status, steps, residual)
        return Outcome(mu, status_of(residual, self.solver.tol, status), steps, residual)


def _natural_order(graph) -> np.ndarray:
    return np.arange(graph.num_nodes, dtype=rows(graph).indices.dtype)
