"""Residual by iteration of every solver, and steps by epoch: true residuals, measured from outside."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from walksum.precision import Precision
from walksum.solvers import CG, Chebyshev, GaBP, Hybrid, Prepared, SolveError, Solver, Status

DENSELY = 16  # every step up to here is measured, later ones with a growing distance
GROWTH = 1.15


@dataclass(frozen=True)
class Curve:
    """How the true residual of one solver falls.

    Attributes:
        name: of the solver and its setting.
        direction: "forward" or "backward".
        steps: iterations after which it was measured, ascending; ``[0]`` for a direct method.
        residuals: the normwise backward error after each, as :class:`walksum.Solution` reports it.
        status: how the last and longest solve ended.
    """

    name: str
    direction: str
    steps: list[int]
    residuals: list[float]
    status: Status

    @property
    def converged(self) -> bool:
        return self.status is Status.converged


def standard_solvers(tol: float = 1e-10, max_steps: int = 1000) -> dict[str, Solver]:
    """The iterative solvers of the library side by side; GaBP to the letter of Algorithm 1."""
    limits: Any = {"tol": tol, "max_steps": max_steps}
    return {
        "GaBP, damping 0.5 (the paper's)": GaBP(damping=0.5, stop="messages", **limits),
        "GaBP, undamped": GaBP(damping=1.0, stop="messages", **limits),
        "CG": CG(preconditioner="none", **limits),
        "CG, Jacobi": CG(preconditioner="jacobi", **limits),
        "CG, DIC": CG(preconditioner="dic", **limits),
        "Chebyshev": Chebyshev(**limits),
        "Hybrid": Hybrid(inner=CG(**limits)),
    }


@torch.no_grad()
def residual_curve(J: Precision, h: Tensor, solver: Solver, name: str = "", direction: str = "forward") -> Curve:
    """Solve once to the end, then again and again with fewer steps allowed. J is prepared once.

    Every point is the true residual of what the solver returns after so many steps.
    """
    prepared = solver.prepare(J.detach())
    loop = _loop(prepared)
    name = name or solver.name
    if loop is None:
        solution = prepared(h, direction)
        return Curve(name, direction, [solution.steps], [solution.residual], solution.status)
    knobs: Any = loop.solver
    _settle(loop)
    last = prepared(h, direction)  # as the solver ends when left alone
    steps, residuals = [], []
    for count in step_counts(knobs.max_steps):
        if count >= last.steps:
            break
        loop.solver = replace(knobs, max_steps=count)
        solution = prepared(h, direction)
        steps.append(solution.steps)
        residuals.append(solution.residual)
    loop.solver = knobs
    return Curve(name, direction, [*steps, last.steps], [*residuals, last.residual], last.status)


def step_counts(most: int) -> list[int]:
    """1, 2, 3, ... and then in growing strides up to ``most``."""
    counts = list(range(1, min(DENSELY, most) + 1))
    while counts[-1] < most:
        counts.append(min(most, max(counts[-1] + 1, int(counts[-1] * GROWTH))))
    return counts


def _loop(prepared: Prepared) -> Any:
    """The part that iterates: of a hybrid its core; None for a direct method."""
    inner = getattr(prepared, "core", prepared)
    return inner if hasattr(getattr(inner, "solver", None), "max_steps") else None


def _settle(loop: Any) -> None:
    """GaBP's precisions depend on J alone and count no steps where it stops by residual: settle them in full first."""
    if isinstance(loop.solver, GaBP) and loop.solver.stop == "residual":
        with contextlib.suppress(SolveError):  # not walk-summable: the solve will say so
            _ = loop.marginal_precision


def residual_curves(
    J: Precision, h: Tensor, grad: Tensor | None = None, solvers: dict[str, Solver] | None = None
) -> list[Curve]:
    """One curve a solver for J mu = h; with ``grad`` = dL/dmu also for the backward pass, J g = grad."""
    found = []
    for name, solver in (standard_solvers() if solvers is None else solvers).items():
        for direction, right in (("forward", h), ("backward", grad)):
            if right is not None:
                # GaBP's rule for messages is absolute: at the same scale the two directions can be compared
                unit = right / right.abs().max().clamp_min(torch.finfo(right.dtype).tiny)
                found.append(residual_curve(J, unit, solver, name, direction))
    return found


@dataclass(frozen=True)
class System:
    """What one layer solved in one training step: J mu = h forward, J g = grad backward; in float64."""

    J: Precision
    h: Tensor
    grad: Tensor


def layer_systems(model: Any, x: Tensor, edges: Any, loss: Any) -> list[System]:
    """The systems of every layer of a GLT for one pass; ``loss(output)`` gives the number to differentiate.

    h and grad are what J makes of the layer's own solutions, so they are exact for slightly other data than the
    layer's by as much as its residual.
    """
    model.eval()
    loss(model(x, edges)).backward()
    model.zero_grad()
    systems = []
    for J, layer in zip(model.precisions(x, edges), model.mixers, strict=True):
        exact = J.detach().to(torch.float64)
        # precisions() ran the forward pass again; the backward report is still that of the loss
        mu, g = (_as_heads(exact, each.value.double()) for each in (layer.last_solve, layer.last_backward_solve))
        systems.append(System(exact, exact @ mu, exact @ g))
    return systems


def _as_heads(J: Precision, value: Tensor) -> Tensor:
    return value if value.shape[:2] == J.diag.shape else value.reshape(1, J.num_nodes, -1)


def steps_by_epoch(history: Sequence[Any]) -> tuple[list[int], list[int]] | None:
    """Forward and backward steps of each epoch of a training, the largest over layers; None if it recorded none."""
    forward = [getattr(epoch, "forward_steps", None) for epoch in history]
    backward = [getattr(epoch, "backward_steps", None) for epoch in history]
    if not history or None in forward or None in backward:
        return None
    return [int(k) for k in forward if k is not None], [int(k) for k in backward if k is not None]
