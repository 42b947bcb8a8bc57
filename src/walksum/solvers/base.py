"""The contract of every solver: ``solver.prepare(J)(h) -> Solution``."""

from __future__ import annotations

import enum
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from walksum import backends
from walksum._torch import outside_transforms
from walksum.precision import Precision


class Status(enum.Enum):
    """How a solve ended. The value is advice to the reader.

    Example:
        >>> import torch, walksum as ws
        >>> ws.Status.converged
        <Status.converged: 'reached its tolerance'>
        >>> print(ws.Status.max_steps_reached.value)
        did not reach its tolerance in the allowed steps; raise max_steps, or use solver='auto' or 'direct'
    """

    converged = "reached its tolerance"
    max_steps_reached = (
        "did not reach its tolerance in the allowed steps; raise max_steps, or use solver='auto' or 'direct'"
    )
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
    overflow = "found a mu beyond the range of its dtype, for finite J and h; use float64, or scale h down or J up"


class SolveError(RuntimeError):
    """A solve that did not converge, where the caller asked for an error.

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> J = ws.Precision(path, torch.full((3,), 2.0), torch.full((2,), -1.0))
        >>> ws.solve(J, torch.ones(3, 1), solver=ws.CG(max_steps=1, preconditioner="none"), on_nonconverged="raise")
        Traceback (most recent call last):
            ...
        walksum.solvers.base.SolveError: CG did not reach its tolerance ... (forward pass, 1 steps, residual 1.4e-01)
    """


class SolveWarning(UserWarning):
    """A solve that did not converge, where the caller asked for a warning.

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> J = ws.Precision(path, torch.full((3,), 2.0), torch.full((2,), -1.0))
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as said:
        ...     warnings.simplefilter("always")
        ...     mu = ws.solve(J, torch.ones(3, 1), solver=ws.GaBP(max_steps=1))
        >>> said[0].category.__name__
        'SolveWarning'
    """


# The value of a report that keeps none. This module may be imported inside of a transform, or under another device.
NOTHING = outside_transforms(lambda: torch.empty(0, device="cpu"))


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

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> J = ws.Precision(path, torch.full((3,), 2.0), torch.full((2,), -1.0))
        >>> found = ws.CG().prepare(J)(torch.tensor([[[0.0], [1.0], [0.0]]]))
        >>> found.value.flatten(), found.status, found.residual < 1e-6
        (tensor([0.5000, 1.0000, 0.5000]), <Status.converged: 'reached its tolerance'>, True)
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

    def without_value(self) -> Solution:
        """The report alone: it keeps no tensor of the size of the nodes alive."""
        return Solution(NOTHING, self.status, self.steps, self.residual, self.solver, self.direction)

    def check(self) -> Solution:
        """Return itself if converged, raise :class:`SolveError` with advice otherwise."""
        if not self.converged:
            raise SolveError(self.describe())
        return self


class Outcome(NamedTuple):
    """What one run of a solver gives; see :class:`Solution` for its fields."""

    value: Tensor
    status: Status
    steps: int
    residual: float

    @classmethod
    def failed(cls, h: Tensor, status: Status, steps: int = 0) -> Outcome:
        """No mu at all: NaN of the shape of h."""
        return cls(torch.full_like(h, torch.nan), status, steps, math.nan)


class NotCopied:
    """Refuses to be copied or pickled: it holds addresses of memory that a copy would not own."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} cannot be copied or pickled, as it holds addresses of memory of this process; "
            "copy or pickle J and prepare it again with solver.prepare(J)"
        )


class Prepared(NotCopied, ABC):
    """A solver that has done for J what depends on J alone. Forward and backward share it."""

    keeps_values = True  # whether anything made of J's values outlives a run

    def __init__(self, J: Precision, solver: Solver):
        self.J, self.solver, self.name = J, solver, solver.name
        self._values = (_copy(J.diag), _copy(J.off)) if self.keeps_values else None

    def __call__(self, h: Tensor, direction: str = "forward") -> Solution:
        if h.dim() == 2 and self.J.heads == 1:
            solution = self(h.unsqueeze(0), direction)
            return replace(solution, value=solution.value.squeeze(0))
        check_h(self.J, h)
        current = self if self.is_current() else self.solver.prepare(self.J)
        return Solution(*current.outcome(h), self.name, direction)

    def copied(self) -> Precision:
        """J with the values that were prepared, whatever becomes of the tensors they came from."""
        assert self._values is not None
        return Precision.trusted(self.J.graph, *self._values)

    def is_current(self) -> bool:
        """Whether J still has the values that were prepared.

        Compared number by number, since changes through numpy or ``.data`` leave no trace in a tensor's version.
        """
        if self._values is None:
            return True
        (diag, off), J = self._values, self.J
        same_values = backends.find(diag, "same_values")
        if same_values is not None:
            return same_values(J.diag, J.off, diag, off)
        return torch.equal(diag, J.diag) and torch.equal(off, J.off)

    def outcome(self, h: Tensor) -> Outcome:
        """As :meth:`run`, also for an h without elements; tells overflow from numbers that were never finite."""
        if not h.numel():
            return Outcome(torch.empty_like(h), Status.converged, 0, 0.0)
        found = self.run(h)
        if found.status in (Status.nonfinite, Status.overflow):  # the second of a part of J, whose own h may be finite
            finite = all(bool(t.isfinite().all()) for t in (self.J.diag, self.J.off, h))
            return found._replace(status=Status.overflow if finite else Status.nonfinite)
        return found

    def reads(self, h: Tensor) -> bool:
        """Whether :meth:`run` takes h as it lies; contiguous it takes every h."""
        return h.is_contiguous()

    def run_deferred(self, h: Tensor) -> Any:
        """A :class:`walksum.solvers.deferred.DeferredOutcome`, launched but not waited for; None where a solver has to
        look at numbers on its way."""
        return None

    def run_backward(self, grad: Tensor, mu: Tensor) -> tuple[Outcome, Tensor, Tensor] | None:
        """The outcome for ``grad`` and the gradients of diag and off, where both are quicker at once; else None."""
        return None

    @abstractmethod
    def run(self, h: Tensor) -> Outcome:
        """mu and how the solve ended, for ``h [H, N, F]`` with at least one element."""


class Measured(Prepared):
    """A prepared solver that looks at J first and at the true residual last.

    Attributes:
        J_norm: ``|J|_inf`` of each head.
        finite, positive: whether J is, and whether its diagonal is.
        tol: the backward error up to which a solve counts as converged; set by the solver.
    """

    tol: float

    def __init__(self, J: Precision, solver: Solver):
        super().__init__(J, solver)
        self.J_norm = norm_inf(J)
        self.finite = bool(torch.isfinite(self.J_norm).all())
        self.positive = self.finite and bool((J.diag > 0).all())

    def refusal(self, h: Tensor) -> Outcome | None:
        """The outcome where J or h cannot be solved for; None where they can."""
        if not self.finite or not bool(torch.isfinite(h).all()):
            return Outcome.failed(h, Status.nonfinite)
        return None if self.positive else Outcome.failed(h, Status.not_positive_definite)

    def judged(self, mu: Tensor, h: Tensor, steps: int, otherwise: Status) -> Outcome:
        """mu by its true residual: converged if that is at most tol, else ``otherwise`` or what the residual tells."""
        residual = self._error(mu, h)
        return Outcome(mu, status_of(residual, self.tol, otherwise), steps, residual)

    # what spans several processes has another unit and another maximum: walksum.distributed

    def _unit(self, h: Tensor) -> Tensor:
        return unit_of(h)

    def _error(self, mu: Tensor, h: Tensor) -> float:
        return worst(backward_error(self.J, mu, h, self.J_norm))


@dataclass(frozen=True)
class Solver(ABC):
    """A frozen record of a method's knobs, checked at construction.

    Example:
        >>> import torch, walksum as ws
        >>> solver = ws.CG(max_steps=50)
        >>> solver
        CG(tol=None, max_steps=50, preconditioner='dic')
        >>> isinstance(solver, ws.Solver)
        True
    """

    @property
    def name(self) -> str:
        return type(self).__name__

    @abstractmethod
    def prepare(self, J: Precision) -> Prepared:
        """Do what depends on J alone."""


def _copy(values: Tensor) -> Tensor:
    return values.detach().clone() if torch.is_grad_enabled() else values.clone()


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
    """A tolerance that the backward error of an iteration can reach in this dtype."""
    return tol if tol is not None else DEFAULT_TOL.get(dtype) or 16 * torch.finfo(dtype).eps


def exact_tol(tol: float | None, J: Precision) -> float:
    """The same for elimination, whose rounding errors add up like a random walk: they grow with the root of N."""
    return tol if tol is not None else default_tol(None, J.dtype) * max(1.0, J.graph.num_nodes**0.5 / 16)


def norm_inf(J: Precision) -> Tensor:
    """``|J|_inf`` of each head, ``[H]``."""
    return backends.backend(J.diag).norm_inf(J.graph, J.diag, J.off)


def backward_error(J: Precision, mu: Tensor, h: Tensor, J_norm: Tensor) -> Tensor:
    """Normwise backward error of every column, ``[H, F]``; 0 / 0 counts as 0, NaN stays NaN."""
    return backends.backend(mu).backward_error(J.graph, J.diag, J.off, mu, h, J_norm)


def relative_error(residual: Tensor, mu: Tensor, h: Tensor, J_norm: Tensor) -> Tensor:
    """The backward error ``[H, F]`` of columns whose residual, mu and h have these largest magnitudes."""
    return torch.where(residual == 0, residual, residual / (J_norm.unsqueeze(1) * mu + h))


def unit_of(h: Tensor) -> Tensor:
    """The power of two just below the largest of each column, ``[H, 1, F]``: to scale by it and back costs no bit."""
    size = h.abs().amax(1, keepdim=True)
    return torch.where(size > 0, size / (2 * torch.frexp(size).mantissa), torch.ones_like(size))


def node_sum(values: Tensor) -> Tensor:
    """The sum over dimension 1, which stays, with the same bits at any number of threads.

    A sum with a single result torch cuts into as many parts as there are threads; with two results it does not.
    """
    if not values.is_cpu or values.numel() > values.size(1):
        return values.sum(1, keepdim=True)
    return values.unsqueeze(-1).expand(*values.shape, 2).sum(1, keepdim=True)[..., 0]


def worst(errors: Tensor) -> float:
    """The largest value; NaN if any is NaN (Python's max would lose it)."""
    return float(errors.max()) if errors.numel() else 0.0


def status_of_scaled(mu: Tensor, status: Status) -> Status:
    """``status``, or ``nonfinite`` where a converged mu left the range of its dtype when it was scaled back."""
    return Status.nonfinite if status is Status.converged and not bool(mu.isfinite().all()) else status


def status_of(residual: float, tol: float, otherwise: Status) -> Status:
    """``converged`` if and only if the residual is at most tol; else ``otherwise``, or what the residual tells."""
    if residual <= tol:
        return Status.converged
    if not math.isfinite(residual):
        return Status.nonfinite
    return Status.stalled if otherwise is Status.converged else otherwise
