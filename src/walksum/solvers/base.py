"""The contract of every solver: ``solver.prepare(J)(h) -> Solution``."""

from __future__ import annotations

import enum
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from walksum import backends
from walksum.precision import Precision


class Status(enum.Enum):
    """How a solve ended. The value is advice to the reader."""

    converged = "reached its tolerance"
    max_steps_reached = "did not reach its tolerance in the allowed steps; raise max_steps or use solver='auto'"
    stalled = (
        "stopped improving above its tolerance, at the accuracy this dtype or stop rule allows; "
        "use float64, raise tol, or use stop='residual'"
    )
    diverged = (
        "grew without bound; J is probably not walk-summable (see J.walk_summability()): "
        "use solver='dense' or 'cg' if J is positive definite, or scale the couplings down"
    )
    not_positive_definite = (
        "found that J is not positive definite, so mu = J^-1 h is no mean of a Gaussian; "
        "check the design that made J, or enlarge its diagonal"
    )
    nonfinite = "met NaN or infinity in J or h; check the features, the weights and the learning rate"


class SolveError(RuntimeError):
    """A solve that did not converge, where the caller asked for an error."""


class SolveWarning(UserWarning):
    """A solve that did not converge, where the caller asked for a warning."""


@dataclass(frozen=True, init=False)
class Solution:
    """What a solver found.

    Attributes:
        value: mu, of the shape of h.
        status: how it ended.
        steps: iterations taken (0 for a direct method).
        residual: the true normwise backward error, the largest over heads and columns of
            ``|h - J mu|_inf / (|J|_inf |mu|_inf + |h|_inf)``, measured alike for every solver.
        solver: the solver's name, for messages.
        direction: "forward", or "backward" for the solve of the gradient.
    """

    value: Tensor = field(repr=False)
    status: Status
    steps: int
    residual: float
    solver: str = ""
    direction: str = "forward"

    def __init__(
        self, value: Tensor, status: Status, steps: int, residual: float, solver: str = "", direction: str = "forward"
    ):
        # at once, where the one that dataclass writes sets field after field
        self.__dict__.update(
            value=value, status=status, steps=steps, residual=residual, solver=solver, direction=direction
        )

    @property
    def converged(self) -> bool:
        return self.status is Status.converged

    def describe(self) -> str:
        return (
            f"{self.solver} {self.status.value} "
            f"({self.direction} pass, {self.steps} steps, residual {self.residual:.1e})"
        )

    def check(self) -> Solution:
        """Return itself if converged, raise :class:`SolveError` with advice otherwise."""
        if not self.converged:
            raise SolveError(self.describe())
        return self


class Prepared(ABC):
    """A solver that has done for J what depends on J alone. Forward and backward share it."""

    def __init__(self, J: Precision, name: str):
        self.J = J
        self.name = name

    def __call__(self, h: Tensor, direction: str = "forward") -> Solution:
        if h.dim() == 2 and self.J.heads == 1:
            solution = self(h.unsqueeze(0), direction)
            return replace(solution, value=solution.value.squeeze(0))
        check_h(self.J, h)
        return Solution(*self.outcome(h), self.name, direction)

    def outcome(self, h: Tensor) -> tuple[Tensor, Status, int, float]:
        """As :meth:`run`, also for an h without elements."""
        return self.run(h) if h.numel() else (torch.empty_like(h), Status.converged, 0, 0.0)

    def later(self, h: Tensor) -> tuple[Tensor, Any] | None:
        """mu, launched but not waited for, and its verdict (see late.py); None for a solver that looks on its way."""
        return None

    def run_backward(self, grad: Tensor, mu: Tensor) -> tuple[tuple[Tensor, Status, int, float], Tensor, Tensor] | None:
        """What :meth:`run` gives for ``grad``, with the gradients of diag and off, where both are quicker at once."""
        return None

    @abstractmethod
    def run(self, h: Tensor) -> tuple[Tensor, Status, int, float]:
        """Value, status, steps and residual for ``h [H, N, F]`` with at least one element."""


@dataclass(frozen=True)
class Solver(ABC):
    """A frozen record of a method's knobs, checked at construction."""

    @property
    def name(self) -> str:
        return type(self).__name__

    @abstractmethod
    def prepare(self, J: Precision) -> Prepared:
        """Do what depends on J alone."""


DEFAULT_TOL = {dtype: 16 * torch.finfo(dtype).eps for dtype in (torch.float32, torch.float64)}


def check_h(J: Precision, h: Tensor) -> None:
    """Raise a ValueError that names what is wrong with h."""
    if h.dim() != 3 or h.shape[:2] != J.diag.shape:
        expected = f"[{J.heads}, {J.num_nodes}, F]" + (f" or [{J.num_nodes}, F]" if J.heads == 1 else "")
        raise ValueError(f"h has shape {tuple(h.shape)}; {J} takes {expected}")
    if h.dtype != J.dtype:
        raise ValueError(f"h is {h.dtype} but J is {J.dtype}; use h.to(J.dtype)")
    if h.device != J.device:
        raise ValueError(f"h is on {h.device} but J on {J.device}; use h.to(J.device)")


def default_tol(tol: float | None, dtype: torch.dtype) -> float:
    """A tolerance a backward error can reach in this dtype."""
    return tol if tol is not None else DEFAULT_TOL.get(dtype) or 16 * torch.finfo(dtype).eps


def norm_inf(J: Precision) -> Tensor:
    """``|J|_inf`` of each head, ``[H]``."""
    return backends.backend(J.diag).norm_inf(J.graph, J.diag, J.off)


def backward_error(J: Precision, mu: Tensor, h: Tensor, J_norm: Tensor) -> Tensor:
    """Normwise backward error of every column, ``[H, F]``; 0 / 0 counts as 0, NaN stays NaN."""
    return backends.backend(mu).backward_error(J.graph, J.diag, J.off, mu, h, J_norm)


def unit_of(h: Tensor) -> Tensor:
    """The power of two just below the largest of each column, ``[H, 1, F]``: to scale by it and back costs no bit."""
    size = h.abs().amax(1, keepdim=True)
    return torch.where(size > 0, size / (2 * torch.frexp(size).mantissa), torch.ones_like(size))


def worst(errors: Tensor) -> float:
    """The largest value; NaN if any is NaN (Python's max would lose it)."""
    return float(errors.max()) if errors.numel() else 0.0


def judge(residual: float, tol: float, otherwise: Status) -> Status:
    """Never 'converged' with a residual above tol."""
    if residual <= tol:
        return Status.converged
    if not math.isfinite(residual):
        return Status.nonfinite
    return Status.stalled if otherwise is Status.converged else otherwise
