"""Which rows members learn from and which judge them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from walksum.portfolio.problem import Fold

MOST_TURNS = 4000  # labelled rows up to which they take turns in learning and judging, which costs five trainings


def given_validation(rows: np.ndarray, validation: Any) -> list[Fold]:
    """One fold: the labelled ``rows`` without ``validation`` (numbers or a mask), and those."""
    valid = np.asarray(validation)
    if valid.ndim != 1 or (valid.size and valid.dtype.kind not in "bui"):
        raise ValueError(f"validation={validation!r}; expected numbers of rows, or a mask with True or False per row")
    valid = np.nonzero(valid)[0] if valid.dtype == bool else valid.astype(np.int64)
    train = np.setdiff1d(rows, valid)
    if not len(valid) or not len(train) or not np.isin(valid, rows).all():
        raise ValueError(
            f"validation names {len(valid)} rows and leaves {len(train)} for training; name some of the labelled rows"
        )
    return [(train, valid)]


def cross_validation(
    y: np.ndarray, rows: np.ndarray, classes: int, cv: int, seed: int, groups: np.ndarray | None = None
) -> list[Fold]:
    """The labelled ``rows`` take turns; whole ``groups`` of them, or by class where every class has two or more.

    Where most classes have a single row nothing can judge: one fold learns from all, see :attr:`Problem.unjudged`.
    """
    from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold

    if isinstance(cv, bool) or not isinstance(cv, int) or cv < 2:
        raise ValueError(f"cv={cv!r}; expected a number of folds, 2 or more")
    folds = min(cv, len(rows))
    if folds < 2:
        raise ValueError(f"n_samples={len(rows)} labelled rows; a portfolio needs 2 or more to choose by")
    if groups is not None and (count := len(np.unique(groups[rows]))) > 1:
        cut = GroupKFold(min(folds, count), shuffle=True, random_state=seed).split(rows, groups=groups[rows])
        return [(rows[a], rows[b]) for a, b in cut]
    counts = np.unique(y[rows], return_counts=True)[1] if classes else np.zeros(1)
    if classes and (counts == 1).mean() > 0.5:  # most would be judged by what had not met their class
        return [(rows, rows)]
    # a class of two is parted, or a fold would learn from the other classes alone
    kind: Any = StratifiedKFold if counts.min() > 1 and counts.max() >= folds else KFold
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class")
        cut = list(kind(folds, shuffle=True, random_state=seed).split(rows, y[rows]))
    return [(rows[a], rows[b]) for a, b in cut]
