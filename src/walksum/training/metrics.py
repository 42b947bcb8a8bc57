"""Honest error estimates: intervals, what knows nothing, and how sure the model is of a node."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from torch import Tensor

Z = NormalDist().inv_cdf(0.975)
RESAMPLES = 1000


@dataclass(frozen=True)
class Score:
    """A test score (accuracy or R^2) with its 95 % interval; ``error``: mean absolute error, of a regression."""

    value: float
    low: float
    high: float
    error: float | None = None


def score_classes(prediction: Tensor, y: Tensor) -> Score:
    """Accuracy with Wilson's interval."""
    count, hits = len(y), int((prediction == y).sum())
    return Score(hits / count, *wilson(hits, count))


def wilson(hits: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share that was ``hits`` of ``count``; stays in [0, 1] and is right for few nodes."""
    share, spread = hits / count, Z**2 / count
    middle = (share + spread / 2) / (1 + spread)
    half = Z / (1 + spread) * math.sqrt(share * (1 - share) / count + spread / (4 * count))
    return max(0.0, middle - half), min(1.0, middle + half)


def score_numbers(prediction: Tensor, y: Tensor) -> Score:
    """R^2 with a bootstrap interval over the test nodes, and the mean absolute error."""
    guess, truth = prediction.double().numpy(), y.double().numpy()
    draws = np.random.default_rng(0).integers(0, len(truth), (RESAMPLES, len(truth)))
    samples = [_r_squared(guess[draw], truth[draw]) for draw in draws]
    low, high = np.quantile(samples, (0.025, 0.975))
    return Score(_r_squared(guess, truth), float(low), float(high), float(np.abs(guess - truth).mean()))


def _r_squared(guess: np.ndarray, truth: np.ndarray) -> float:
    spread = ((truth - truth.mean()) ** 2).sum()
    return float(1 - ((guess - truth) ** 2).sum() / max(spread, 1e-300))


def over_seeds(values: list[float]) -> tuple[float, float]:
    """Mean and standard deviation over seeds."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
