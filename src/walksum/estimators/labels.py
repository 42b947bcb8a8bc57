"""Targets of some rows: which rows have one, and scores that count these alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

LARGEST = 1e140  # its square, times a million rows and ratios of variances, is still a float64


def class_labels(y: Any, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels, one per row, and which rows have one; what is no class is refused."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    y = column_or_1d(np.asarray(y), warn=True)
    if len(y) != num_rows:
        raise ValueError(f"Found input variables with inconsistent numbers of samples: {[num_rows, len(y)]}")
    if y.dtype.kind == "f" and np.isinf(y).any():
        raise ValueError("Input y contains infinity; -1, NaN and None mark rows without a label")
    y, known = known_labels(y)
    if not known.any():
        raise ValueError("y has no label; -1, NaN and None mark rows without one")
    check_classification_targets(y[known])
    return y, known


def numbers(y: Any, num_rows: int) -> np.ndarray:
    """Values in float64, one per row; NaN marks a row without one. What is no number is refused."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    y = column_or_1d(np.asarray(y), warn=True)
    if y.dtype.kind in "cmM":
        raise ValueError(f"y has dtype {y.dtype}; expected real numbers (Complex data not supported)")
    y = y.astype(np.float64)
    if len(y) != num_rows:
        raise ValueError(f"Found input variables with inconsistent numbers of samples: {[num_rows, len(y)]}")
    if np.isinf(y).any():
        raise ValueError("Input y contains infinity; NaN marks rows without a value")
    check_squares("y", y)
    return y


def check_squares(name: str, values: np.ndarray) -> None:
    """Variances and distances are sums of squares, which must not overflow."""
    largest = float(np.nanmax(np.abs(values), initial=0.0))
    if largest > LARGEST:
        raise ValueError(f"{name} holds a value of size {largest:g}, whose square overflows; give it in another unit")


def known_labels(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Labels in an array of one kind, and which rows have one: not None, NaN, NA, nor -1 among numbers."""
    if y.dtype.kind != "O":
        return y, ~_unlabelled(y)
    import pandas as pd

    missing = np.asarray(pd.isna(y))
    values = y[~missing].tolist() or [0]
    plain = np.array(values)
    if plain.ndim != 1:  # not one label per row: scikit-learn says so better
        return y, ~missing
    other = next((v for v in values if not isinstance(v, str)), None) if plain.dtype.kind == "U" else None
    if other is not None:  # numpy would make texts of all, and one class of 1 and "1"
        raise ValueError(f"y holds texts and also {other!r}; make all labels of one kind, for example texts")
    filled = np.empty(len(y), dtype=plain.dtype)
    filled[missing] = plain[0]
    filled[~missing] = plain
    return filled, ~missing & ~_unlabelled(filled)


def _unlabelled(y: np.ndarray) -> np.ndarray:
    """Rows without a class: -1 or NaN among numbers, NaT among dates, none among texts."""
    if y.dtype.kind not in "ifM":
        return np.zeros(len(y), dtype=bool)
    return np.asarray(np.isnat(y) if y.dtype.kind == "M" else (y == -1) | np.isnan(y))


class NodeClassifier(ClassifierMixin):
    """A classifier whose score counts the rows that have a label."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy on the rows that have a label."""
        guess = self.predict(X)
        y, known = class_labels(y, len(guess))
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        return float(accuracy_score(y[known], guess[known], sample_weight=weight))


class NodeRegressor(RegressorMixin):
    """A regressor whose score counts the rows that have a value."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R^2 on the rows that have a value."""
        y = np.asarray(y, dtype=np.float64)
        known = ~np.isnan(y)
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        return float(r2_score(y[known], self.predict(X)[known], sample_weight=weight))
