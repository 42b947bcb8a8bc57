"""What a solve in one launch found: a small tensor on the device, read when someone asks."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from walksum._torch import raw_stream
from walksum.solvers.base import Status, judge
from walksum.solvers.late import Found

REPORT = 3  # numbers a column that a solve leaves: state, steps, true backward error
STALLED, INDEFINITE, NONFINITE = 4, 6, 7  # of the states in kernels/columns.cu
FAILURES = {NONFINITE: Status.nonfinite, INDEFINITE: Status.not_positive_definite}


def current_stream(like: Tensor) -> int:
    return raw_stream(like.device.index)


class Verdict:
    """Reads the report on the stream of its launch."""

    def __init__(self, report: Tensor, tol: float):
        self.report, self.tol = report, tol
        self.stream = current_stream(report)

    def __call__(self) -> Found:
        if self.stream == current_stream(self.report):
            return self.of(self.report.cpu().numpy())
        device = self.report.device
        own = torch.cuda.ExternalStream(self.stream, device) if self.stream else torch.cuda.default_stream(device)
        with torch.cuda.stream(own):
            return self.of(self.report.cpu().numpy())

    def of(self, known: np.ndarray) -> Found:
        """Status, steps and residual from the numbers of the report."""
        state, steps, residual = known.reshape(REPORT, -1).max(1).tolist()  # NaN is the largest of all
        if state in FAILURES:
            return FAILURES[state], int(steps), math.nan
        stuck = state == STALLED  # and none exhausted, which is more
        return judge(residual, self.tol, Status.stalled if stuck else Status.max_steps_reached), int(steps), residual
