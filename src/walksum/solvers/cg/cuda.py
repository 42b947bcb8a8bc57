"""Conjugate gradients on the GPU: every decision falls on the device, the host looks once in a while.

Each column has its own step length and its own state (see backends/cuda/triton/scalars.py). A column that CG's
recursion claims to be converged freezes; when all columns of a block have, the true residual decides, and those it
refutes go on from it. Steps launched ahead cost nothing once a block is closed, so nothing is lost by looking seldom.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from walksum.backends.cuda.triton import cg
from walksum.backends.cuda.triton.edges import slot_values
from walksum.backends.cuda.triton.matrix import Control, Matrix
from walksum.backends.cuda.triton.plan import small_tile
from walksum.backends.cuda.triton.scalars import (
    CLOSED,
    CURVATURE,
    ERROR,
    EXHAUSTED,
    INDEFINITE,
    LOWEST,
    NORM,
    SCALE,
    STALLED,
    STATE,
    STEPS,
    VERIFY,
)
from walksum.graph import Graph
from walksum.precision import Precision
from walksum.solvers.base import Outcome, Prepared, Status, default_tol, status_of
from walksum.solvers.cg.cuda_columns import column_launch
from walksum.solvers.cg.cuda_replay import SMALL, Replay
from walksum.solvers.deferred import DeferredOutcome

if TYPE_CHECKING:
    from walksum.solvers.cg.solver import CG

AIM = 2**-28  # a thirty-second of float32's epsilon: see PreparedCudaCG
STEPS_AHEAD = 12  # between two looks of the host; even, so that two buffers in turn are back in place


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
        h = h.contiguous()
        if 2 * self.J.graph.num_edges * h.size(0) * h.size(2) > SMALL:
            system = System(Matrix.of(self.J.graph, self.J.diag, self.J.off, look=True), self.jacobi)
            loop = Loop(system, h, self.tol, self.aim, self.solver.max_steps)
            loop.take_J()
            return loop.solve()
        # buffers and captured launches serve every J on this graph, whose values are copied in
        small = self.J.graph.derived(_small_loop, h.shape, self.tol, self.aim, self.solver.max_steps, self.jacobi)
        with small.lock:
            return small.solve_for(self.J, h)


class System:
    """What CG needs to know of J: its layout, its norm, its preconditioner."""

    def __init__(self, matrix: Matrix, jacobi: bool):
        self.matrix = matrix
        self.jacobi = jacobi
        self.J_norm = torch.empty_like(matrix.diag[:, 0])
        self.lowest = torch.empty_like(self.J_norm)  # the smallest diagonal entry of each head
        self.inverse = torch.ones_like(matrix.diag)
        self.refresh()

    def refresh(self) -> None:
        self.matrix.norm_inf(out=self.J_norm)
        torch.amin(self.matrix.diag, 1, out=self.lowest)
        if self.jacobi:
            torch.reciprocal(self.matrix.diag, out=self.inverse)


class Loop:
    """The iteration and its vectors for one shape of h."""

    def __init__(self, system: System, h: Tensor, tol: float, aim: float, max_steps: int):
        self.system, self.h = system, h
        matrix = system.matrix
        programs = max(matrix.programs(h.size(2)), cg.update_programs(h.size(1), h.size(2))[0])
        self.control = Control.for_shape(h.shape, programs, system.J_norm, tol, max_steps, aim)
        self.scale = self.control.scalars[SCALE.value].unsqueeze(1)
        self.mu, self.r, self.p, self.q = (torch.empty_like(h) for _ in range(4))

    def take_J(self) -> None:
        """Put what the status depends on beside the scalars, to be read back with them."""
        self.control.scalars[NORM.value] = self.system.J_norm.unsqueeze(1)
        self.control.scalars[LOWEST.value] = self.system.lowest.unsqueeze(1)

    def start(self) -> None:
        cg.start(self.control, self.h, self.mu, self.r, self.p, self.system.inverse)
        self.advance()

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
        return Outcome(self.mu * self.scale, status_of(residual, self.control.tol, otherwise), steps, residual)

    def _failure(self, known: np.ndarray) -> Status | None:
        refuted = bool((known[STATE.value] == INDEFINITE.value).any())
        if not np.isfinite(known[NORM.value]).all():
            return Status.nonfinite
        if refuted and not bool(torch.isfinite(self.h).all()):
            return Status.nonfinite
        if refuted or not (known[LOWEST.value] > 0).all():
            return Status.not_positive_definite
        return None


class SmallLoop(Loop):
    """A loop whose launches are captured once and replayed for every J and h of this shape.

    A step is two launches: the product makes the new direction of every neighbour on its way.
    """

    def __init__(
        self,
        graph: Graph,
        shape: torch.Size,
        tol: float,
        aim: float,
        max_steps: int,
        jacobi: bool,
    ):
        heads, num_nodes, columns = shape
        self.lock = threading.Lock()
        self.diag = torch.ones(heads, num_nodes, device=graph.device)
        self.off = torch.zeros(heads, graph.num_edges, device=graph.device)
        tile = small_tile(columns, heads * num_nodes)
        matrix = Matrix(graph, self.diag, slot_values(graph, self.off), by_length=True, tile=tile)
        h = torch.zeros(shape, device=graph.device)
        super().__init__(System(matrix, jacobi), h, tol, aim, max_steps)
        self.old = torch.zeros_like(self.p)
        self.begin = Replay(self._start_with_J, graph.device)
        self.go_on = Replay(self.advance, graph.device)
        self.rounds = 0  # beyond the first that the last solve took

    def solve_for(self, J: Precision, h: Tensor) -> Outcome:
        self.h.copy_(h)
        self.diag.copy_(J.diag)
        self.off.copy_(J.off)
        self.begin()
        for _ in range(self.rounds):  # solves resemble each other: look only when this one should be done
            self.go_on()
        known = self._look()
        while not known[CLOSED.value].all():
            self.go_on()
            known = self._look()
        self.rounds = max(0, math.ceil(float(known[STEPS.value].max()) / STEPS_AHEAD) - 1)
        return self._outcome(known)

    def _start_with_J(self) -> None:
        slot_values(self.system.matrix.graph, self.off, out=self.system.matrix.values)
        self.system.refresh()
        self.take_J()
        self.start()

    def _step(self) -> None:
        control, inverse = self.control, self.system.inverse
        self.old, self.p = self.p, self.old  # STEPS_AHEAD is even: a replay finds them as it left them
        self.system.matrix.product(
            self.r, self.q, CURVATURE.value, control, inverse=inverse, direction=self.p, old=self.old
        )
        cg.update(control, self.mu, self.r, self.p, self.q, inverse)


def _small_loop(graph: Graph, *key: object) -> SmallLoop:
    return SmallLoop(graph, *key)  # type: ignore[arg-type]
