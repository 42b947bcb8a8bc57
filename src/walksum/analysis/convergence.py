"""The systems of a training step as they are solved, residual by iteration of every solver, and steps by epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from walksum.nn import GLT, GLTConv
from walksum.precision import Precision
from walksum.solvers import CG, Chebyshev, GaBP, Hybrid, Solver, Status


@dataclass(frozen=True)
class RecordedSystem:
    """What one layer solved in one direction of one training step: J mu = h, or J g = dL/dmu."""

    layer: int
    direction: str
    J: Precision
    h: Tensor


@contextmanager
def record_systems(model: GLT) -> Iterator[list[RecordedSystem]]:
    """Collect the systems that every mixing layer solves inside the block."""
    systems: list[RecordedSystem] = []
    handles = [hook for k, mix in enumerate(model.mixers) for hook in _record_layer(k, mix, systems)]
    try:
        yield systems
    finally:
        for handle in handles:
            handle.remove()


def _record_layer(layer: int, mix: GLTConv, systems: list[RecordedSystem]) -> list[Any]:
    def on_design(module: Any, args: tuple, J: Precision) -> None:
        plain = Precision(J.graph, J.diag.detach().clone(), J.off.detach().clone())
        systems.append(RecordedSystem(layer, "forward", plain, args[2].detach().clone().contiguous()))

    def on_output(module: Any, args: tuple, out: Tensor) -> None:
        J = next(s.J for s in reversed(systems) if s.layer == layer)

        def on_gradient(grad: Tensor) -> None:
            g = grad.view(-1, mix.heads, mix.out_channels).transpose(0, 1)
            systems.append(RecordedSystem(layer, "backward", J, g.detach().clone().contiguous()))

        out.register_hook(on_gradient)

    return [mix.design.register_forward_hook(on_design), mix.register_forward_hook(on_output)]


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
    """Solve once to the end, then again and again with fewer steps allowed.

    Every point is the true residual of what the solver returns when it is allowed so many steps.
    """
    J, name = J.detach(), name or solver.name
    last = solver.prepare(J)(h, direction)  # as the solver ends when left alone
    steps, residuals = [], []
    most: int = getattr(getattr(solver, "inner", solver), "max_steps", 0)  # 0 for a direct method
    for count in step_counts(most):
        if count >= last.steps:
            break
        solution = with_most_steps(solver, count).prepare(J)(h, direction)
        steps.append(solution.steps)
        residuals.append(solution.residual)
    return Curve(name, direction, [*steps, last.steps], [*residuals, last.residual], last.status)


def with_most_steps(solver: Solver, count: int) -> Solver:
    """The same solver with another limit; of a hybrid, that of the part that iterates."""
    settings: Any = solver
    if isinstance(solver, Hybrid):
        return replace(settings, inner=with_most_steps(settings.inner, count))
    return replace(settings, max_steps=count)


def step_counts(most: int) -> list[int]:
    """1, 2, 3, ... and then in growing strides up to ``most``."""
    counts = list(range(1, min(DENSELY, most) + 1))
    while counts and counts[-1] < most:
        counts.append(min(most, max(counts[-1] + 1, int(counts[-1] * GROWTH))))
    return counts


def residual_curves(
    J: Precision, h: Tensor, grad: Tensor | None = None, solvers: dict[str, Solver] | None = None
) -> list[Curve]:
    """One curve per solver for J mu = h; with ``grad`` = dL/dmu also for the backward pass, J g = grad."""
    found = []
    for name, solver in (standard_solvers() if solvers is None else solvers).items():
        for direction, right in (("forward", h), ("backward", grad)):
            if right is not None:
                # GaBP's rule for messages is absolute: at the same scale the two directions can be compared
                unit = right / right.abs().max().clamp_min(torch.finfo(right.dtype).tiny)
                found.append(residual_curve(J, unit, solver, name, direction))
    return found


def layer_systems(model: Any, x: Tensor, edges: Any, loss: Any) -> list[tuple[Precision, Tensor, Tensor]]:
    """J, h and dL/dmu of every layer of a GLT for one pass, in float64; ``loss(output)`` is differentiated."""
    model.eval()
    with record_systems(model) as recorded:
        loss(model(x, edges)).backward()
    model.zero_grad()
    found = {(each.layer, each.direction): each for each in recorded}
    systems = []
    for layer in range(len(model.mixers)):
        forward, backward = found[layer, "forward"], found[layer, "backward"]
        J = forward.J.to(torch.float64)
        systems.append((J, _as_heads(J, forward.h.double()), _as_heads(J, backward.h.double())))
    return systems


def _as_heads(J: Precision, value: Tensor) -> Tensor:
    """``[H, N, F]`` for the heads of J: all heads of the layer side by side where they share one J."""
    return value if value.size(0) == J.heads else value.transpose(0, 1).reshape(1, J.num_nodes, -1)


def steps_by_epoch(history: Sequence[Any]) -> tuple[list[int], list[int]] | None:
    """Forward and backward steps of each epoch of a training, the largest over layers; None if it recorded none."""
    forward = [getattr(epoch, "forward_steps", None) for epoch in history]
    backward = [getattr(epoch, "backward_steps", None) for epoch in history]
    if not history or None in forward or None in backward:
        return None
    return [int(k) for k in forward if k is not None], [int(k) for k in backward if k is not None]
