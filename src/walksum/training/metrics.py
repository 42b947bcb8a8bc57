"""Scores of predictions, for one run or many at once, and their 95 % intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

Z = NormalDist().inv_cdf(0.975)


def accuracy(output: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
    """The share of nodes whose largest output stands at their class.

    Sums are divided, not terms: as a sum of n-ths, equal counts would differ in their last bits, and a tie between
    epochs would be broken by them.

    Shapes: output ``[..., n, C]``, y and weight ``[..., n]`` -> ``[...]``.
    """
    weight = torch.ones_like(y, dtype=output.dtype) if weight is None else weight
    return ((output.argmax(-1) == y) * weight).sum(-1) / weight.sum(-1)


def r_squared(output: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
    """1 - (squared error) / (squared deviation from the mean): 1 is perfect, 0 as good as the mean, or y all the same.

    Shapes: output ``[..., n, 1]``, y and weight ``[..., n]`` -> ``[...]``.
    """
    guess, y = output.squeeze(-1).double(), y.double()
    weight = torch.ones_like(y) if weight is None else weight.double()
    mean = (y * weight).sum(-1, keepdim=True) / weight.sum(-1, keepdim=True)
    spread, error = (((y - each).square() * weight).sum(-1) for each in (mean, guess))
    same = spread <= 1e-30 * (y.square() * weight).sum(-1)  # what rounding leaves of equal numbers
    return torch.where(same, (error <= spread).double(), 1 - error / spread.masked_fill(same, 1.0))


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


def over_seeds(values: list[float]) -> tuple[float, float]:
    """Mean and standard deviation over seeds."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
