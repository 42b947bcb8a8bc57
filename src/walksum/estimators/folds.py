"""Folds that keep unlabelled rows in training: what transductive estimators need of a cross-validation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone, is_regressor
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import KFold, StratifiedKFold

from walksum.estimators.inputs import GraphLike, TableLike
from walksum.estimators.labels import known_labels


class TransductiveKFold:
    """Folds for scikit-learn's searches: labelled rows take turns in the test, unlabelled ones stay in training.

    scikit-learn cuts the rows of a fold out, and with them every edge to a test row. With a graph of one's own, use
    :meth:`cross_val_score`, which keeps test rows as rows without a label.

    Args:
        n_splits: number of folds.
        random_state: seed of their order.

    Example:
        >>> import networkx, numpy as np, walksum as ws
        >>> graph = networkx.disjoint_union(networkx.complete_graph(10), networkx.complete_graph(10))
        >>> X, y = np.zeros((20, 1)), np.array(["red"] * 10 + ["blue"] * 10, dtype=object)
        >>> y[3] = None
        >>> model = ws.AutoClassifier(members=("label",), cv=2, random_state=0)
        >>> ws.TransductiveKFold(3).cross_val_score(model, X, y, graph=graph).tolist()
        [1.0, 1.0, 1.0]
    """

    def __init__(self, n_splits: int = 5, random_state: int | None = 0):
        self.n_splits, self.random_state = n_splits, random_state

    def get_n_splits(
        self, X: TableLike | None = None, y: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> int:
        return self.n_splits

    def split(
        self, X: TableLike, y: ArrayLike, groups: ArrayLike | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Row numbers of training and test, one pair per fold."""
        import pandas as pd

        given = np.asarray(y)
        labels, known = known_labels(given)
        numbers = labels.dtype.kind == "f"
        hidden = np.asarray(pd.isna(given)) if numbers else ~known
        rows, rest = np.nonzero(~hidden)[0], np.nonzero(hidden)[0]
        kind = KFold if numbers else StratifiedKFold
        folds = kind(self.n_splits, shuffle=True, random_state=self.random_state)
        for train_rows, test_rows in folds.split(rows, labels[rows]):
            yield np.sort(np.concatenate([rows[train_rows], rest])), rows[test_rows]

    def cross_val_score(
        self,
        estimator: BaseEstimator,
        X: TableLike,
        y: ArrayLike,
        graph: GraphLike | None = None,
        scoring: Callable[[np.ndarray, np.ndarray], float] | None = None,
    ) -> np.ndarray:
        """One score per fold: a clone is fitted to all rows and the whole graph, test rows without their label.

        Args:
            estimator: one of this package, whose ``fit`` takes rows without a label and ``graph``.
            X, y, graph: as for its ``fit``.
            scoring: called with true and predicted values of the test rows; None: accuracy or R^2.
        """
        if isinstance(scoring, str):
            raise ValueError(
                f"scoring={scoring!r}; expected a function of true and predicted values, such as "
                "sklearn.metrics.balanced_accuracy_score"
            )
        score, scores = scoring or (r2_score if is_regressor(estimator) else accuracy_score), []
        if is_regressor(estimator):  # whole numbers are no classes of it
            labels = codes = given = np.asarray(y, dtype=np.float64)
            unknown: Any = np.nan
        else:  # and floats are classes of a classifier: codes with NaN among them
            labels, known = known_labels(np.asarray(y))
            codes = np.where(known, np.unique(labels, return_inverse=True)[1], -1)
            whole = labels.dtype.kind in "iu"
            given, unknown = labels.astype(np.int64 if whole else object), -1 if whole else None
            given[~known] = unknown
        for _, test in self.split(X, codes):
            hidden = given.copy()
            hidden[test] = unknown
            fitted = clone(estimator).fit(X, hidden, **({} if graph is None else {"graph": graph}))
            scores.append(float(score(labels[test], fitted.predict(X)[test])))
        return np.array(scores)
