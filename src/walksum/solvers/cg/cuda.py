"""Conjugate gradients on the GPU: every decision falls on the device, the host looks once in a while.

Each column has its own step length and its own state (see backends/cuda/triton/scalars.py). A column that CG's
recursion claims to be converged freezes; when all columns of a block have, the true residual decides, and those it
refutes go on from it. Steps launched ahead cost nothing once a block is closed, so nothing is lost by looking seldom.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from walksum.backends.cuda.triton import cg, scalars
from walksum.backends.cuda.triton.matrix import Control, Matrix
from walksum.precision import Precision
from walksum.solvers.base import Outcome, Prepared, Status, default_tol, status_of, status_of_scaled
from walksum.solvers.cg.cuda_columns import column_launch
from walksum.solvers.deferred import DeferredOutcome

if TYPE_CHECKING:
    from walksum.solvers.cg.solver import CG

AIM = 2**-28  # a thirty-second of float32's epsilon: see PreparedCudaCG
STEPS_AHEAD = 12  # between two looks of the host
CACHE = 2**26  # bytes of a vector that a GPU's cache about holds


class PreparedCudaCG(Prepared):
    """The ``Prepared`` of :class:`walksum.CG` for a J on the GPU in float32. Every run reads J's live values."""

    solver: CG
    keeps_values = False

    def __init__(self, J: Precision, solver: CG):
        super().__init__(J, solver)
        self.tol = default_tol(solver.tol, J.dtype)
        # a backward error of 16 epsilons may hide a forward error a hundred times larger; a few steps more do not
        self.aim = self.tol if solver.tol is not None else AIM
        self.jacobi = solver.preconditioner != "none"  # triangular sweeps are serial: not for a GPU

    def run_deferred(self, h: Tensor) -> DeferredOutcome | None:
        if not self.jacobi or not h.numel():
            return None
        columns = self.J.graph.derived(column_launch, h.size(0), h.size(2), self.solver.max_steps, self.tol, self.aim)
        return None if columns is None else columns.start(self.J, h)

    def run(self, h: Tensor) -> Outcome:
        launched = self.run_deferred(h)
        if launched is not None:
            return Outcome(launched.value, *launched.read())
        matrix = Matrix.of(self.J.graph, self.J.diag, self.J.off, look=True)
        return Loop(matrix, self.jacobi, h.contiguous(), self.tol, self.aim, self.solver.max_steps).solve()


class Loop:
    """The iteration and its vectors for one J and h."""

    def __init__(self, matrix: Matrix, jacobi: bool, h: Tensor, tol: float, aim: float, max_steps: int):
        self.matrix, self.h = matrix, h
        self.inverse = matrix.diag.reciprocal() if jacobi else torch.ones_like(matrix.diag)
        programs = max(matrix.programs(h.size(2)), cg.update_programs(h.size(1), h.size(2))[0])
        self.control = Control.for_shape(h.shape, programs, matrix.norm_inf(), tol, max_steps, aim)
        self.mu, self.r, self.q = (torch.empty_like(h) for _ in range(3))
        self.p = torch.empty_like(h, dtype=_direction_dtype(h))
        # what the status depends on stands beside the scalars, to be read back with them
        self.control.scalars[scalars.NORM.value] = self.control.J_norm.unsqueeze(1)
        self.control.scalars[scalars.LOWEST.value] = matrix.diag.amin(1).unsqueeze(1)

    def advance(self) -> np.ndarray:
        """Some steps, and the true residual of blocks that claim to be done; the scalars, for which the host waits."""
        control, inverse = self.control, self.inverse
        for _ in range(STEPS_AHEAD):
            self.matrix.product(self.p, self.q, scalars.CURVATURE.value, control)
            cg.update(control, self.mu, self.r, self.p, self.q, inverse)
            cg.direction(control, self.p, self.r, inverse)
        self.matrix.product(self.mu, self.r, scalars.VERIFY.value, control, self.h, inverse, self.p)
        return control.scalars.cpu().numpy()

    def solve(self) -> Outcome:
        cg.start(self.control, self.h, self.mu, self.r, self.p, self.inverse)
        known = self.advance()
        while not known[scalars.CLOSED.value].all():
            known = self.advance()
        state, steps = known[scalars.STATE.value], int(known[scalars.STEPS.value].max())
        status = self._failure(state, known[scalars.NORM.value], known[scalars.LOWEST.value])
        if status is not None:
            return Outcome.failed(self.mu, status, steps)
        residual = float(known[scalars.ERROR.value].max())
        stuck = (state == scalars.STALLED.value).any() and not (state == scalars.EXHAUSTED.value).any()
        status = status_of(residual, self.control.tol, Status.stalled if stuck else Status.max_steps_reached)
        scale = self.control.scalars[scalars.SCALE.value].unsqueeze(1)
        mu = self.mu.mul_(scale)
        return Outcome(mu, status_of_scaled(mu, status), steps, residual)

    def _failure(self, state: np.ndarray, norm: np.ndarray, lowest: np.ndarray) -> Status | None:
        refuted = bool((state == scalars.INDEFINITE.value).any())
        if not np.isfinite(norm).all() or (refuted and not bool(torch.isfinite(self.h).all())):
            return Status.nonfinite
        return Status.not_positive_definite if refuted or not (lowest > 0).all() else None


def _direction_dtype(h: Tensor) -> torch.dtype:
    """bfloat16 where rows of the direction come from memory, whose reads are most of a step's time.

    mu and r advance along the direction as it is stored, so that r stays the residual of mu and nothing is lost in
    accuracy; directions that are conjugate to three digits alone cost up to a quarter more steps of half the reads.
    """
    large = h.numel() * h.element_size() > CACHE
    return torch.bfloat16 if large and torch.cuda.is_bf16_supported(including_emulation=False) else h.dtype
