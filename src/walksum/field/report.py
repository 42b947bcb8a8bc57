"""What a log-determinant, a set of variances or a sample was computed by, and how good it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from walksum.solvers.base import Status

Observer = Callable[["Report"], None]


class EstimateWarning(UserWarning):
    """The exact methods were too large, so ``method="auto"`` estimated."""


@dataclass(frozen=True)
class Report:
    """How a quantity of a Gaussian was computed.

    Attributes:
        quantity: "logdet", "marginals", "selected_inverse" or "sample".
        method: "elimination" and "dense" are exact, "estimated" has a standard error, "gabp" has a bias.
        status: how it ended, as for a solve.
        standard_error: of an estimate, of its shape; None for the other methods.
        seconds: wall-clock time of the forward pass.
        steps: iterations of an estimate, 0 for an exact method.
        note: one sentence on what the method leaves open.
    """

    quantity: str
    method: str
    status: Status
    standard_error: Tensor | None = field(default=None, repr=False)
    seconds: float = 0.0
    steps: int = 0
    note: str = ""

    @property
    def exact(self) -> bool:
        return self.method in ("elimination", "dense")


class Reporter:
    """Made when a computation begins, called when it ends; tells ``observe`` if there is one."""

    def __init__(self, quantity: str, observe: Observer | None):
        self.quantity, self.observe, self.start = quantity, observe, time.perf_counter()

    def __call__(
        self,
        method: str,
        status: Status = Status.converged,
        error: Tensor | None = None,
        steps: int = 0,
        note: str = "",
    ) -> None:
        if self.observe is not None:
            seconds = time.perf_counter() - self.start
            self.observe(Report(self.quantity, method, status, error, seconds, steps, note))
