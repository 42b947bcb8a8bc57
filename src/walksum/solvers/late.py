"""Verdicts that are read later: a solve that was only launched, and whoever keeps book of such solves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from walksum.solvers.base import Solution, Status

Found = tuple[Status, int, float]


class Verdict(Protocol):
    """Status, steps and residual, once the device knows them."""

    report: Tensor  # on the device

    def __call__(self) -> Found: ...

    def of(self, known: np.ndarray) -> Found: ...


class LateSolution(Solution):
    """A Solution whose status, steps and residual are read from the device when first asked for."""

    def __init__(
        self,
        value: Tensor,
        status: Status | None = None,
        steps: int = 0,
        residual: float = 0.0,
        solver: str = "",
        direction: str = "forward",
        verdict: Verdict | None = None,
        captured: bool = False,
    ):
        found = None if status is None else (status, steps, residual)
        self.__dict__.update(
            value=value, solver=solver, direction=direction, verdict=verdict, captured=captured, found=found
        )

    def settle(self, found: Found) -> None:
        self.__dict__["found"] = found

    def _found(self) -> Found:
        found = self.__dict__["found"]
        if found is None:
            found = self.__dict__["verdict"]()
            if not self.__dict__["captured"]:  # each replay of a captured solve finds something else
                self.settle(found)
        return found

    @property
    def status(self) -> Status:
        return self._found()[0]

    @property
    def steps(self) -> int:
        return self._found()[1]

    @property
    def residual(self) -> float:
        return self._found()[2]

    def __reduce__(self) -> tuple:  # copied and stored as what it found
        return Solution, (self.value, *self._found(), self.solver, self.direction)


class Book:
    """The solves on one CUDA stream while it is open: those that were launched, and whether any could not be."""

    def __init__(self, stream: torch.cuda.Stream):
        self.stream = stream
        self.entries: list[tuple[LateSolution, Callable[[Solution], None]]] = []
        self.refusals: list[str] = []

    @contextmanager
    def opened(self) -> Any:
        _open.append(self)
        try:
            yield self
        finally:
            _open.remove(self)

    @property
    def reports(self) -> list[Tensor]:
        return [entry[0].__dict__["verdict"].report for entry in self.entries]

    def settle(self, known: np.ndarray) -> None:
        """Hand every solve its part of what was read from the device, and say so to those who observe it."""
        first = 0
        for solution, tell in self.entries:
            verdict = solution.__dict__["verdict"]
            size = verdict.report.numel()
            solution.settle(verdict.of(known[first : first + size].reshape(verdict.report.shape)))
            first += size
            tell(solution)


_open: list[Book] = []  # backward passes run on other threads, so the stream tells whose book a solve belongs in


def books(device: torch.device) -> list[Book]:
    """The open books that solves on the current stream belong in; none, nearly always."""
    if not _open or device.type != "cuda":
        return []
    stream = torch.cuda.current_stream(device)
    return [book for book in _open if book.stream == stream]


def capturing(tensor: Tensor) -> bool:
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()
