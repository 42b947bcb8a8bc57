"""Folds that keep unlabelled rows in training: what transductive estimators need of a cross-validation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.model_selection import KFold, StratifiedKFold


class TransductiveKFold:
    """Folds for scikit-learn's searches: labelled rows take turns in the test, unlabelled ones stay in training.

    Args:
        n_splits: number of folds.
        random_state: seed of their order.
    """

    def __init__(self, n_splits: int = 5, random_state: int | None = 0):
        self.n_splits, self.random_state = n_splits, random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        return self.n_splits

    def split(self, X: Any, y: Any, groups: Any = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Row numbers of training and test, one pair per fold."""
        y = np.asarray(y)
        hidden = np.isnan(y) if y.dtype.kind == "f" else unlabelled(y)
        rows, rest = np.nonzero(~hidden)[0], np.nonzero(hidden)[0]
        kind: Any = KFold if y.dtype.kind == "f" else StratifiedKFold
        folds = kind(self.n_splits, shuffle=True, random_state=self.random_state)
        for train_rows, test_rows in folds.split(rows, y[rows]):
            yield np.sort(np.concatenate([rows[train_rows], rest])), rows[test_rows]


def unlabelled(y: np.ndarray) -> np.ndarray:
    """Rows without a class: -1 or NaN among numbers, none among texts."""
    if y.dtype.kind not in "if":
        return np.zeros(len(y), dtype=bool)
    return (y == -1) | (np.isnan(y) if y.dtype.kind == "f" else False)
