"""Rows with and without a target, scores over those that have one, and rows of ``fit`` found again by their columns."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from walksum._checks import check_real_matrix, check_unmasked
from walksum.data.frames import name_list
from walksum.estimators.inputs import TableLike

LARGEST = 1e140  # its square, times a million rows and ratios of variances, is still a float64


def class_labels(y: ArrayLike, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Check labels, one per row; also return which rows have one."""
    given = _one_per_row(y, num_rows)
    if given.dtype.kind == "f" and np.isinf(given).any():
        raise ValueError("Input y contains infinity; -1, NaN and None mark rows without a label")
    labels, known = known_labels(given)
    if not known.any():
        raise ValueError("y has no label; -1, NaN and None mark rows without one")
    check_classification_targets(labels[known])
    if labels.dtype.kind == "U" and (labels == "nan").any():  # numpy and pandas make it of NaN among texts
        raise ValueError("y holds the text 'nan', which would be a class; None or NaN marks rows without a label")
    return labels, known


def number_targets(y: ArrayLike, num_rows: int) -> np.ndarray:
    """Check numeric targets, one per row; NaN marks rows without one."""
    given = _one_per_row(y, num_rows)
    if given.dtype.kind in "cmM":
        raise ValueError(f"y has dtype {given.dtype}; expected real numbers (Complex data not supported)")
    found = check_array(given, ensure_2d=False, ensure_all_finite="allow-nan", dtype=np.float64, input_name="y")
    check_squares("y", found)
    return found


@contextmanager
def columns_of_words_named(X: Any) -> Iterator[None]:
    """Name what of a DataFrame holds no numbers: scikit-learn's error names neither the column nor a remedy.

    A mask is refused: numpy drops it, and the numbers below it would be learned from. So is a damaged sparse matrix.
    """
    if sp.issparse(X):
        check_real_matrix("X", X)
    check_unmasked("X", X)
    try:
        yield
    except (TypeError, ValueError) as error:
        names = [name for name, cells in X.items() if not _holds_numbers(cells)] if hasattr(X, "iloc") else []
        if not names:
            raise
        raise ValueError(
            f"X holds something else than numbers in {name_list(names)}: encode it, for example by OneHotEncoder in a "
            "Pipeline, or give the table to walksum.fit_tables, which reads words and dates"
        ) from error


def _holds_numbers(cells: Any) -> bool:
    import pandas as pd

    plain = pd.to_numeric(cells.astype(object), errors="coerce")
    return cells.dtype.kind not in "mM" and not bool((plain.isna() & cells.notna()).any())


def _one_per_row(y: ArrayLike, num_rows: int) -> np.ndarray:
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    check_unmasked("y", y)
    found = column_or_1d(np.asarray(y), warn=True)
    check_consistent_length(range(num_rows), found)
    return found


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

    def score(self, X: TableLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy on the rows that have a label."""
        guess = self.predict(X)
        labels, known = class_labels(y, len(guess))
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        return float(accuracy_score(labels[known], guess[known], sample_weight=weight))


class NodeRegressor(RegressorMixin):
    """A regressor whose score counts the rows that have a value."""

    def score(self, X: TableLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """R^2 on the rows that have a value."""
        truth = np.asarray(y, dtype=np.float64)
        known = ~np.isnan(truth)
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        return float(r2_score(truth[known], self.predict(X)[known], sample_weight=weight))


def same_rows(fitted: Any, X: Any) -> sp.csr_matrix:
    """``[rows of X, of fit]``: 1 where a row of X equals one of ``fit``, dense or both sparse; all of them by place."""
    if sp.issparse(X):
        if X.shape == fitted.shape and not (fitted != X).nnz:
            return sp.identity(X.shape[0], format="csr")
        X, fitted = X.toarray(), fitted.toarray()
    if X.shape == fitted.shape and np.array_equal(X, fitted, equal_nan=True):
        return sp.identity(len(X), format="csr")
    both = np.nan_to_num(np.concatenate([fitted, X]), nan=np.finfo(np.float64).max)  # what is missing equals itself
    _, code = np.unique(both, axis=0, return_inverse=True)
    mine, asked = np.split(code.reshape(-1), [len(fitted)])
    ones, place = np.ones(len(mine)), np.arange(len(mine))
    return sp.csr_matrix((ones, (mine, place)), (int(code.max(initial=-1)) + 1, len(mine)))[asked]


def ambiguous_row(same: sp.csr_matrix, values: np.ndarray) -> int | None:
    """The first row that equals several rows of ``fit`` whose values differ; None if there is none."""
    for k in np.nonzero(np.diff(same.indptr) > 1)[0]:
        each = values[same.indices[same.indptr[k] : same.indptr[k + 1]]]
        if not np.allclose(each, each[0], rtol=1e-6, atol=0):
            return int(k)
    return None


def mean_of_same(same: sp.csr_matrix, values: np.ndarray, own_graph: bool) -> np.ndarray:
    """The value of the row of ``fit`` that each row equals; of several their mean, of none 0.

    Both are warned of on a given graph: nearness of columns, by which new rows are answered, says nothing of its edges.
    """
    count = np.diff(same.indptr)
    if own_graph and (count == 0).any():
        warnings.warn(
            f"{(count == 0).sum()} of {len(count)} rows of X equal no row of fit to the last digit, so the graph says "
            "nothing of them and their nearest rows answer: give all rows to fit, those to predict without a target",
            stacklevel=4,
        )
    row = ambiguous_row(same, values) if own_graph else None
    if row is not None:
        warnings.warn(
            f"row {row} of X equals {int(same[row].nnz)} rows of fit, which are different nodes: it gets the mean of "
            "their predictions; give all rows of fit in their order, or read transduction_",
            stacklevel=4,
        )
    return (same @ values) / np.maximum(count, 1).reshape(-1, *[1] * (values.ndim - 1))
