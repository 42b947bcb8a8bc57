"""Transforms of a skewed target: a model learns log or normal scores, predictions come back in the target's units."""

from __future__ import annotations

from typing import Any

import numpy as np

NONE, LOG, QUANTILE = "none", "log", "quantile"
TRANSFORMS = (NONE, LOG, QUANTILE)
KNOTS = 200
FARTHEST = 10.0  # times the largest known value: no prediction through a logarithm goes beyond


def fit_knots(kind: str, y: np.ndarray) -> list[float]:
    """What a transform keeps of the training targets: unit and largest of a logarithm, quantiles of normal scores."""
    if kind == NONE:
        return []
    if kind == QUANTILE:
        return np.quantile(y, (np.arange(KNOTS) + 0.5) / KNOTS).tolist()
    if y.min() < 0:
        raise ValueError(
            f"transform='log' needs targets of at least 0; the smallest training one is {y.min():g}; "
            "take transform='quantile' or 'auto'"
        )
    positive = y[y > 0]
    unit = float(np.quantile(positive, 0.05)) if len(positive) else 1.0
    return [unit, float(y.max())]


def transformed(kind: str, knots: list[float], y: Any) -> np.ndarray:
    """``y``, ``log(1 + y / unit)``, or the normal score of y among the training targets; NaN stays NaN."""
    y = np.asarray(y, dtype=np.float64)
    if kind == LOG:
        return np.log1p(np.maximum(y, 0) / knots[0])
    return np.interp(y, *_scores(knots)) if kind == QUANTILE else y


def in_target_units(kind: str, knots: list[float], value: Any) -> np.ndarray:
    """The other way; stays within 0 and ten times the largest training target, or within all training targets."""
    value = np.asarray(value, dtype=np.float64)
    if kind == LOG:
        unit, largest = knots
        return unit * np.expm1(np.clip(value, 0, np.log1p(FARTHEST * largest / unit)))
    return np.interp(value, *reversed(_scores(knots))) if kind == QUANTILE else value


def _scores(knots: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Different quantiles and the normal scores of each; of equal ones the mean score."""
    from scipy.special import ndtri

    value, place, count = np.unique(knots, return_inverse=True, return_counts=True)
    return value, np.bincount(place, ndtri((np.arange(len(knots)) + 0.5) / len(knots))) / count
