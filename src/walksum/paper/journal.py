"""The history of one run while it trains, and the record made of it."""

from __future__ import annotations

import math
import platform
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch

from walksum.paper.sweep.record import RunRecord, Solves
from walksum.paper.sweep.spec import RunSpec

ROWS = 40  # of a thinned curve

# steps, residual and status of every layer's solve in one pass, forward or backward
Pass = tuple[tuple[int, float, str], ...]


@dataclass
class Journal:
    """One run: what each epoch measured, which epoch is the best so far, and when to stop.

    ``passes`` are the forward and backward solves of each epoch; runs of a batch share one list.
    """

    spec: RunSpec
    split: str
    passes: list[tuple[Pass, Pass]]
    rows: list[tuple[float, float, float, float]] = field(default_factory=list)  # losses: train, val; val, test score
    best: int = 0  # epoch number
    seconds: float = 0.0
    outcome: str = ""

    @property
    def epochs(self) -> int:
        return len(self.rows)

    @property
    def done(self) -> bool:
        return bool(self.outcome)

    def take(self, row: tuple[float, float, float, float]) -> None:
        """Note one more epoch and decide whether it was the last."""
        self.rows.append(row)
        if not all(map(math.isfinite, row[:2])):
            self.outcome = "diverged"
            return
        if not self.best or self._rank(row) > self._rank(self.rows[self.best - 1]):
            self.best = self.epochs
        if self.epochs - self.best >= self.spec.patience or self.epochs >= self.spec.max_epochs:
            self.outcome = "ok"

    def _rank(self, row: tuple[float, float, float, float]) -> tuple[float, ...]:
        _, val_loss, val_score, _ = row
        return (-val_loss,) if self.spec.select == "loss" else (val_score, -val_loss)

    @property
    def best_score(self) -> float:
        return self.rows[self.best - 1][2] if self.best else math.nan

    def record(self, **facts: Any) -> RunRecord:
        chosen = self.rows[self.best - 1] if self.best else (math.nan,) * 4
        shown = self._shown()
        return RunRecord(
            spec=self.spec,
            outcome=self.outcome,
            val_accuracy=chosen[2],
            test_accuracy=chosen[3],
            val_loss=chosen[1],
            best_epoch=self.best,
            epochs=self.epochs,
            seconds=self.seconds,
            solves=_summary(self.passes[: self.epochs]),
            curve=tuple((number, *self.rows[number - 1]) for number in shown),
            steps_by_epoch=tuple((number, *_most(self.passes[number - 1])) for number in shown if self._solved),
            split=self.split,
            **facts,
        )

    @property
    def _solved(self) -> bool:
        return any(self.passes[0]) if self.passes else False

    def _shown(self) -> list[int]:
        stride = max(1, math.ceil(self.epochs / (ROWS - 2)))
        return sorted({*range(1, self.epochs + 1, stride), self.best, self.epochs} - {0})


def _most(epoch: tuple[Pass, Pass]) -> tuple[int, int]:
    forward, backward = (max((solve[0] for solve in direction), default=0) for direction in epoch)
    return forward, backward


def _summary(passes: list[tuple[Pass, Pass]]) -> tuple[Solves, ...]:
    found = []
    for which, direction in enumerate(("forward", "backward")):
        columns = list(zip(*(epoch[which] for epoch in passes), strict=True))
        for layer, solves in enumerate(columns):
            steps = [solve[0] for solve in solves]
            worst = float(np.max([solve[1] for solve in solves]))  # NaN wins, as it should
            spread = (min(steps), float(np.median(steps)), max(steps))
            found.append(Solves(layer, direction, spread, worst, dict(Counter(solve[2] for solve in solves))))
    return tuple(found)


def place(device: torch.device) -> dict[str, Any]:
    """Where and with what a run was made, for its record."""
    from walksum import __version__

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {
        "device": name,
        "versions": {"walksum": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
