"""Solves that are launched and not waited for: their status is read from the device later.

A solve in one launch on a GPU leaves a small report on the device. :class:`DeferredOutcome` reads it when someone asks;
:class:`CaptureLog` collects all such solves of a stream, so that a CUDA graph of a whole training step reads them with
its loss.
"""

from __future__ import annotations

import atexit
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from walksum._torch import raw_stream
from walksum.backends import cuda
from walksum.solvers.base import NOTHING, Solution, Status, status_of

REPORT = 3  # numbers per column that a solve leaves: state, steps, true backward error
FAILURES = {
    cuda.NONFINITE: Status.nonfinite,
    cuda.OVERFLOW: Status.overflow,
    cuda.INDEFINITE: Status.not_positive_definite,
}


class Ending(NamedTuple):
    """How a solve ended."""

    status: Status
    steps: int
    residual: float


class DeferredOutcome:
    """mu, launched, and how its solve will have ended.

    Attributes:
        value: mu.
        report: ``[REPORT, H, F]`` on the device, written by the launch.
        tol: the backward error up to which the solve counts as converged.
    """

    def __init__(self, value: Tensor, report: Tensor, tol: float):
        self.value, self.report, self.tol = value, report, tol
        self.stream = raw_stream(report.device.index) if report.is_cuda else 0

    def read(self) -> Ending:
        """Wait for the launch, on its own stream."""
        return self.ending(_fetch([self.report], self.stream))

    def ending(self, report: np.ndarray) -> Ending:
        """What the numbers of a report mean."""
        state, steps, residual = report.reshape(REPORT, -1).max(1).tolist()  # NaN is the largest of all
        if state in FAILURES:
            return Ending(FAILURES[state], int(steps), math.nan)
        stalled = state == cuda.STALLED  # and no column ran out of steps, which is a larger state
        otherwise = Status.stalled if stalled else Status.max_steps_reached
        return Ending(status_of(residual, self.tol, otherwise), int(steps), residual)


def _fetch(reports: list[Tensor], stream: int) -> np.ndarray:
    """The reports that launches on one stream write, one after the other: a single wait, on that stream."""
    device = reports[0].device
    if device.type != "cuda" or stream == raw_stream(device.index):
        return torch.cat([report.reshape(-1) for report in reports]).cpu().numpy()
    own = torch.cuda.ExternalStream(stream, device) if stream else torch.cuda.default_stream(device)
    with torch.cuda.stream(own):
        return torch.cat([report.reshape(-1) for report in reports]).cpu().numpy()


class DeferredSolution(Solution):
    """A Solution whose status, steps and residual are read from the device when first asked for.

    Args:
        outcome: the solve.
        solver: its name.
        direction: "forward" or "backward".
        captured: the solve belongs to a CUDA graph, so each replay may end otherwise: what was read is not kept.
    """

    outcome: DeferredOutcome
    captured: bool
    known: Ending | None

    def __init__(self, outcome: DeferredOutcome, solver: str, direction: str, captured: bool = False):
        vars(self).update(value=outcome.value.detach(), solver=solver, direction=direction)
        vars(self).update(outcome=outcome, captured=captured, known=None)

    def set_ending(self, ending: Ending) -> None:
        """What was read for this solve together with others."""
        vars(self)["known"] = ending  # Solution is frozen

    def _ending(self) -> Ending:
        if self.known is not None:
            return self.known
        ending = self.outcome.read()
        if not self.captured:
            self.set_ending(ending)
        return ending

    @property
    def status(self) -> Status:
        return self._ending().status

    @property
    def steps(self) -> int:
        return self._ending().steps

    @property
    def residual(self) -> float:
        return self._ending().residual

    def without_value(self) -> DeferredSolution:
        outcome = copy(self.outcome)
        outcome.value = NOTHING
        report = DeferredSolution(outcome, self.solver, self.direction, self.captured)
        vars(report)["known"] = self.known
        return report

    def __reduce__(self) -> tuple:  # copied and pickled as what it found
        return Solution, (self.value, *self._ending(), self.solver, self.direction)


Entry: TypeAlias = tuple[DeferredSolution, Callable[[Solution], None]]


class CaptureLog:
    """The solves on one CUDA stream while the log is open, and those that a CUDA graph could not record.

    Attributes:
        entries: each deferred solve, and whom to tell how it ended.
        obstacles: why a solve cannot be captured.
    """

    def __init__(self, stream: torch.cuda.Stream | None):
        self.stream = stream
        self.entries: list[Entry] = []
        self.obstacles: list[str] = []

    @contextmanager
    def opened(self) -> Iterator[CaptureLog]:
        _open.append(self)
        try:
            yield self
        finally:
            _open.remove(self)

    @property
    def reports(self) -> list[Tensor]:
        return [solution.outcome.report for solution, _ in self.entries]

    def read(self, known: np.ndarray) -> None:
        """Hand every solve its part of ``known``, the reports one after the other, and tell its observers."""
        first = 0
        for solution, tell in self.entries:
            size = solution.outcome.report.numel()
            solution.set_ending(solution.outcome.ending(known[first : first + size]))
            first += size
            tell(solution)


_unread: list[Entry] = []
_reading = threading.Lock()
UNREAD = 64  # solves at most


def read_later(solution: DeferredSolution, tell: Callable[[Solution], None]) -> None:
    """Keep the report of a solve in a training pass until the pass is over: waiting for it would leave the device idle.

    They are read when the first solve after a backward pass begins, by :func:`read_unread`, or when Python ends.
    """
    over = any(each.direction == "backward" for each, _ in _unread) and solution.direction == "forward"
    if over or len(_unread) >= UNREAD:
        read_unread()
    _unread.append((solution.without_value(), tell))


@atexit.register
def read_unread() -> None:
    """Read all reports that were kept, those of each stream at once, and tell how their solves ended."""
    with _reading:  # threads may end passes of their own at one time
        entries = _unread[:]
        del _unread[: len(entries)]
    for key in dict.fromkeys((each.outcome.report.device, each.outcome.stream) for each, _ in entries):
        log = CaptureLog(None)
        log.entries = [e for e in entries if (e[0].outcome.report.device, e[0].outcome.stream) == key]
        log.read(_fetch(log.reports, key[1]))


_open: list[CaptureLog] = []  # backward passes run on other threads, so the stream tells which log a solve belongs to


def open_logs(device: torch.device) -> list[CaptureLog]:
    """The open logs of the current stream; none, nearly always."""
    if not _open or device.type != "cuda":
        return []
    stream = torch.cuda.current_stream(device)
    return [log for log in _open if log.stream == stream]


def capturing(tensor: Tensor) -> bool:
    """Whether launches on the current stream are being recorded into a CUDA graph."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()
