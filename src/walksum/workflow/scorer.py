"""Scorer: how the predictions of one problem are scored, chosen by, compared and calibrated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from walksum.data.encoding import Encoding
from walksum.data.problem import Problem
from walksum.data.splits import Split
from walksum.portfolio.blend import softmax
from walksum.training.scoring import METRICS as ALL
from walksum.training.scoring import (
    Metric,
    Score,
    expected_calibration_error,
    log_loss,
    metric_for,
    names_for,
    paired_difference,
    reliability,
    score_classes,
    scored,
)

PARTS = ("train", "val", "test")
FEWEST = 20  # nodes that a temperature is fitted to
HESITATION = 0.5  # deviation of log-temperature that is expected before any node is seen


@dataclass(frozen=True)
class Scorer:
    """The metric of a job, in the units of a problem.

    Args:
        metric: what chooses epochs and members and sorts the comparison.
        encoding: how numbers come back into their units, and which weights classes have.
        regression: whether numbers are predicted.
        rare: the class of the fewest labelled nodes; None of a regression.
    """

    metric: Metric
    encoding: Encoding
    regression: bool
    rare: int | None = None

    @classmethod
    def of(cls, metric: str | None, problem: Problem, encoding: Encoding) -> Scorer:
        rare = None
        if not problem.regression:
            counts = torch.bincount(problem.y[problem.labelled], minlength=len(problem.classes))
            rare = int(torch.where(counts > 0, counts, counts.max() + 1).argmin())
        return cls(metric_for(metric, problem.task), encoding, problem.regression, rare)

    @property
    def is_default(self) -> bool:
        """Whether it is what networks choose their epoch by anyway: accuracy or a squared error."""
        return self.metric.name in ("accuracy", "r2", "rmse") and not self.encoding.class_weight

    def __call__(self, outputs: np.ndarray, y: np.ndarray) -> float:
        """Score a model's outputs ``[n, C]`` against its targets ``[n]``; larger is better."""
        if self.regression:
            return self.metric.gain(self.encoding.in_units(outputs[:, 0]), self.encoding.in_units(y))
        return self.metric.gain(self.read(softmax(outputs)), y.astype(np.int64))

    def read(self, output: np.ndarray, metric: Metric | None = None) -> np.ndarray:
        """What a metric reads: weighted probabilities where it decides for a class."""
        return self.encoding.weighed(output) if (metric or self.metric).decides else output

    def score(self, output: Tensor, y: Tensor) -> Score:
        """Score probabilities, or numbers in their units, with a 95 % interval over these nodes."""
        guess, truth = output.double().numpy(), y.numpy()
        if self.metric.name == "accuracy":
            return score_classes(torch.from_numpy(self.read(guess).argmax(1)), y)
        found = scored(self.metric, self.read(guess), truth)
        if not self.regression:
            return found
        return Score(found.value, found.low, found.high, ALL["mae"].of(guess, truth))

    def difference(self, mine: Tensor, theirs: Tensor, y: Tensor) -> Score:
        """By how much ``mine`` is better than ``theirs``, with a paired interval over these nodes."""
        a, b = (self.read(each.double().numpy()) for each in (mine, theirs))
        return paired_difference(self.metric, a, b, y.numpy())

    def every(self, output: Tensor, y: Tensor) -> dict[str, float]:
        """All metrics of the task; of classes also recall and precision of the rarest and the calibration error."""
        guess, truth = output.double().numpy(), y.numpy()
        if not len(truth):
            return {}
        names = names_for("regression" if self.regression else "classification")
        found = {name: ALL[name].of(self.read(guess, ALL[name]), truth) for name in names}
        if self.regression:
            return found
        chosen, is_rare = self.encoding.weighed(guess).argmax(1) == self.rare, truth == self.rare
        hits = float((chosen & is_rare).sum())
        found["rare_recall"] = hits / is_rare.sum() if is_rare.any() else float("nan")
        found["rare_precision"] = hits / chosen.sum() if chosen.any() else float("nan")
        return found | {"calibration_error": expected_calibration_error(guess, truth)}

    def parts(self, outputs: dict[str, Tensor], problem: Problem, split: Split) -> dict[str, dict[str, Any]]:
        """``every`` by part of the split and method."""
        return {
            part: {
                name: self.every(each[getattr(split, part)], problem.y[getattr(split, part)])
                for name, each in outputs.items()
            }
            for part in PARTS
        }


def fitted_temperature(shares: np.ndarray, y: np.ndarray) -> float:
    """The T with which ``p^(1/T)``, summing to one, makes these classes most likely; 1 for few nodes."""
    from scipy.optimize import minimize_scalar

    if len(y) < FEWEST:
        return 1.0

    def loss(log_t: float) -> float:
        return len(y) * log_loss(tempered(shares, float(np.exp(log_t))), y) + 0.5 * (log_t / HESITATION) ** 2

    return float(np.exp(minimize_scalar(loss, bounds=(-1.5, 1.5), method="bounded").x))


def tempered(shares: np.ndarray, temperature: float) -> np.ndarray:
    if temperature == 1:
        return shares
    return softmax(np.log(np.maximum(shares, 1e-12)) / temperature)


def calibration_record(before: Tensor, after: Tensor, scorer: Scorer, problem: Problem, test: Tensor) -> dict[str, Any]:
    """The calibration of the test nodes' probabilities, as metrics.json holds it."""
    from scipy.stats import spearmanr

    y = problem.y[test].numpy()
    old, new = (each[test].double().numpy() for each in (before, after))
    right, sure = new.argmax(1) == y, new.max(1)
    tracks = float(spearmanr(sure, right)[0]) if right.any() and not right.all() and np.ptp(sure) > 0 else None
    return {
        "smoothing": scorer.encoding.smoothing,
        "temperature": scorer.encoding.temperature,
        "error": {"before": expected_calibration_error(old, y), "after": expected_calibration_error(new, y)},
        "log_loss": {"before": log_loss(old, y), "after": log_loss(new, y)},
        "bins": [{"share": a, "probability": b, "right": c} for a, b, c in reliability(new, y)],
        "spearman_with_right": tracks,
    }
