"""Rows of ``fit`` found again by their columns: nodes that no column tells apart are said, not guessed."""

from __future__ import annotations

import warnings

import numpy as np
import scipy.sparse as sp


def same_rows(fitted: np.ndarray, X: np.ndarray) -> sp.csr_matrix:
    """``[len(X), len(fitted)]``: 1 where a row of X equals a row of ``fit``; where X is all of them, by place."""
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
    """The value of the row of ``fit`` that each row equals; of several their mean, with a warning on a given graph."""
    row = ambiguous_row(same, values) if own_graph else None
    if row is not None:
        warnings.warn(
            f"row {row} of X equals {int(same[row].nnz)} rows of fit, which are different nodes: it gets the mean of "
            "their predictions; give all rows of fit in their order, or read transduction_",
            stacklevel=4,
        )
    return (same @ values) / np.maximum(np.diff(same.indptr), 1).reshape(-1, *[1] * (values.ndim - 1))
