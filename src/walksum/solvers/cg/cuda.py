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

from walksum.backends.cuda.triton import cg
from walksum.backends.cuda.triton.matrix import Control, Matrix
from walksum.backends.cuda.triton.scalars import (
    CLOSED,
    CURVATURE,
    ERROR,
    EXHAUSTED,
    INDEFINITE,
    LOWEST,
    NORM,
    RHO,
    SCALE,
    STALLED,
    STATE,
    STEPS,
    VERIFY,
)
from walksum.precision import Precision
from walksum.solvers.base import Outcome, Prepared, Status, default_tol, status_of
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
        system = System(Matrix.of(self.J.graph, self.J.diag, self.J.off, look=True), self.jacobi)
        return Loop(system, h.contiguous(), self.tol, self.aim, self.solver.max_steps).solve()


class System:
    """What CG needs to know of J: its layout, its norm, its preconditioner."""

    def __init__(self, matrix: Matrix, jacobi: bool):
        self.matrix = matrix
        self.J_norm = matrix.norm_inf()
        self.lowest = matrix.diag.amin(1)  # the smallest diagonal entry of each head
        self.inverse = matrix.diag.reciprocal() if jacobi else torch.ones_like(matrix.diag)


class Loop:
    """The iteration and its vectors for one shape of h."""

    def __init__(self, system: System, h: Tensor, tol: float, aim: float, max_steps: int):
        self.system, self.h = system, h
        matrix = system.matrix
        programs = max(matrix.programs(h.size(2)), cg.update_programs(h.size(1), h.size(2))[0])
        self.control = Control.for_shape(h.shape, programs, system.J_norm, tol, max_steps, aim)
        self.scale = self.control.scalars[SCALE.value].unsqueeze(1)
        self.mu, self.r, self.q = (torch.empty_like(h) for _ in range(3))
        self.p = torch.empty_like(h, dtype=_direction_dtype(h))
        # what the status depends on stands beside the scalars, to be read back with them
        self.control.scalars[NORM.value] = system.J_norm.unsqueeze(1)
        self.control.scalars[LOWEST.value] = system.lowest.unsqueeze(1)

    def start(self) -> None:
        cg.start(self.control, self.h, self.mu, self.r, self.p, self.system.inverse)
        self._start_smooth()
        self.advance()

    def _start_smooth(self) -> None:
        """Begin with the best multiple of the smoothest vector, whose eigenvalue would cost two or three steps.

        v = 1 - D^-1 J 1 is about 1 where rows are dominant and about the root of the degree where J is normalised.
        """
        system, scratch = self.system, self.q
        v = (1 - system.matrix.row_sums() / system.matrix.diag).unsqueeze(2)
        Jv = system.matrix.product(v)
        c = torch.mul(self.r, v, out=scratch).sum(1, keepdim=True) / (v * Jv).sum(1, keepdim=True)
        c = torch.where(torch.isfinite(c), c, 0.0)
        self.mu.addcmul_(v, c)
        self.r.addcmul_(Jv, c, value=-1)
        self.p.copy_(torch.mul(self.r, system.inverse.unsqueeze(2), out=scratch))
        self.control.scalars[RHO.value] = scratch.mul_(self.r).sum(1)

    def advance(self) -> None:
        """Some steps, and the true residual of blocks that claim to be done."""
        matrix, control, inverse = self.system.matrix, self.control, self.system.inverse
        for _ in range(STEPS_AHEAD):
            self._step()
        matrix.product(self.mu, self.r, VERIFY.value, control, self.h, inverse, self.p)

    def _step(self) -> None:
        control, inverse = self.control, self.system.inverse
        self.system.matrix.product(self.p, self.q, CURVATURE.value, control)
        cg.update(control, self.mu, self.r, self.p, self.q, inverse)
        cg.direction(control, self.p, self.r, inverse)

    def solve(self) -> Outcome:
        self.start()
        known = self._look()
        while not known[CLOSED.value].all():
            self.advance()
            known = self._look()
        return self._outcome(known)

    def _look(self) -> np.ndarray:
        """The scalars, on the host: the one point where it waits."""
        return self.control.scalars.cpu().numpy()

    def _outcome(self, known: np.ndarray) -> Outcome:
        status, steps = self._failure(known), int(known[STEPS.value].max())
        if status is not None:
            return Outcome.failed(self.mu, status, steps)
        residual, state = float(known[ERROR.value].max()), known[STATE.value]
        stuck = (state == STALLED.value).any() and not (state == EXHAUSTED.value).any()
        otherwise = Status.stalled if stuck else Status.max_steps_reached
        return Outcome(self.mu.mul_(self.scale), status_of(residual, self.control.tol, otherwise), steps, residual)

    def _failure(self, known: np.ndarray) -> Status | None:
        refuted = bool((known[STATE.value] == INDEFINITE.value).any())
        if not np.isfinite(known[NORM.value]).all():
            return Status.nonfinite
        if refuted and not bool(torch.isfinite(self.h).all()):
            return Status.nonfinite
        if refuted or not (known[LOWEST.value] > 0).all():
            return Status.not_positive_definite
        return None


def _direction_dtype(h: Tensor) -> torch.dtype:
    """bfloat16 where rows of the direction come from memory, whose reads are most of a step's time.

    mu and r advance along the direction as it is stored, so that r stays the residual of mu and nothing is lost in
    accuracy; directions that are conjugate to three digits alone cost up to a quarter more steps of half the reads.
    """
    large = h.numel() * h.element_size() > CACHE
    return torch.bfloat16 if large and torch.cuda.is_bf16_supported(including_emulation=False) else h.dtype
