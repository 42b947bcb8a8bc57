"""FieldRegressor and FieldClassifier: any estimator, and a Gaussian field of what it leaves over."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from walksum._checks import check_unmasked
from walksum.estimators.inputs import GraphLike, RandomState, TableLike, as_graph_of, warn_of_order
from walksum.estimators.labels import (
    NodeClassifier,
    NodeRegressor,
    ambiguous_row,
    class_labels,
    number_targets,
    same_rows,
)
from walksum.portfolio.residual import ResidualField, residual_field


class _FieldEstimator(MetaEstimatorMixin, BaseEstimator):
    """What both share: out-of-fold residuals, the field, and rows that must be those of ``fit``."""

    def __init__(
        self, estimator: BaseEstimator, graph: GraphLike | None = None, cv: int = 5, random_state: RandomState = 0
    ):
        self.estimator = estimator
        self.graph = graph
        self.cv = cv
        self.random_state = random_state

    def _prepare(self, X: TableLike, graph: GraphLike | None) -> Any:
        """The table that the estimator is given: a DataFrame stays one, for estimators that ask for its columns."""
        rows = self._numbers(X, reset=True)
        graph = self.graph if graph is None else graph
        if graph is None:
            raise ValueError("graph is None; give an adjacency matrix, an edge list or a walksum.Graph")
        if isinstance(self.cv, bool) or not isinstance(self.cv, int) or self.cv < 2:
            raise ValueError(f"cv={self.cv!r}; expected a number of folds, 2 or more")
        warn_of_order(graph, X)
        self.graph_ = as_graph_of(graph, len(rows))
        self.X_ = rows
        return X if hasattr(X, "iloc") else rows

    def _numbers(self, X: Any, reset: bool) -> np.ndarray:
        """Rows as numbers, by which they are found again: what is no number by its place among the words of ``fit``."""
        check_unmasked("X", X)
        if reset:
            if hasattr(X, "iloc") and not X.columns.is_unique:
                twice = X.columns[X.columns.duplicated()][0]
                raise ValueError(f"X has several columns called {twice!r}; names must be unique")
            kinds = X.dtypes.items() if hasattr(X, "iloc") else ()
            self._words = {name: X[name].astype(str).unique() for name, kind in kinds if kind.kind not in "biuf"}
        if not self._words:  # NaN is for the estimator to fill
            return validate_data(self, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan")
        if not hasattr(X, "iloc"):
            raise ValueError(
                f"X is a {type(X).__name__}; fit was given a DataFrame with columns of words: give one again"
            )
        validate_data(self, X, reset=reset, skip_check_array=True)
        coded = X.copy()
        for name, known in self._words.items():
            coded[name] = coded[name].astype(str).map({word: place for place, word in enumerate(known)})
        return coded.to_numpy(np.float64, na_value=np.nan)

    def _out_of_fold(self, X: Any, rows: np.ndarray, y: np.ndarray, classes: int) -> np.ndarray:
        """Predict every known row by a fit that did not see it; then fit ``estimator_`` on all of them."""
        if len(rows) < max(self.cv, 4):
            raise ValueError(
                f"y is known in {len(rows)} rows; cv={self.cv} folds need at least as many, and a field at least 4"
            )
        smallest = np.unique(y, return_counts=True)[1].min() if classes else 0
        kind: Any = StratifiedKFold if classes and smallest >= self.cv else KFold
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        out = np.zeros((len(rows), max(1, classes)))
        for train, test in kind(self.cv, shuffle=True, random_state=seed).split(rows, y):
            model = clone(self.estimator).fit(_safe_indexing(X, rows[train]), y[train])
            out[test] = self._answer(model, _safe_indexing(X, rows[test]), classes)
        self.estimator_ = clone(self.estimator).fit(_safe_indexing(X, rows), y)
        return out

    @staticmethod
    def _answer(model: Any, X: Any, classes: int) -> np.ndarray:
        if not classes:
            return np.asarray(model.predict(X), dtype=np.float64).reshape(len(X), 1)
        share = np.zeros((len(X), classes))
        share[:, model.classes_.astype(np.int64)] = model.predict_proba(X)
        return share

    def _rows(self, X: TableLike, values: str) -> np.ndarray:
        """The numbers of these rows in ``fit``: a field knows only the nodes it was fitted with."""
        check_is_fitted(self)
        asked = self._numbers(X, reset=False)
        same = same_rows(self.X_, asked)
        count = np.diff(same.indptr)
        if not count.all():
            raise ValueError(
                f"row {int(count.argmin())} of X is no row of fit; a field knows the nodes of its graph alone: give "
                "all rows to fit, with NaN (or -1 among class codes) as the target of those to predict"
            )
        if (row := ambiguous_row(same, getattr(self, values))) is not None:
            raise ValueError(
                f"row {row} of X equals {count[row]} rows of fit, which are different nodes; give all rows of fit in "
                "their order, or read transduction_"
            )
        return same.indices[same.indptr[:-1]]


class FieldRegressor(NodeRegressor, _FieldEstimator):
    r"""Any regressor, plus a Gaussian field of its residuals on the graph.

    .. math::
        y = f(x) + u + e,\ u \sim N\big(0, (b\,(I - a D^{-1/2} A D^{-1/2}))^{-1}\big),\ e \sim N(0, \text{noise})

    f is the estimator; the residuals are out of fold, so that a model that remembers its training rows leaves honest
    ones; a, b and the noise maximise the evidence. A prediction is f(x) plus the mean of u given all known targets.

    Transductive: ``fit`` sees all rows, with NaN as the target of those to predict.

    Args:
        estimator: a scikit-learn regressor that takes the table, or a pipeline that makes numbers of it. It is given a
            DataFrame where ``fit`` is.
        graph: an adjacency matrix, an edge list or a :class:`walksum.Graph`; may also be given to ``fit``.
        cv: folds of the residuals.
        random_state: seed of the folds.

    Attributes:
        field_: the fitted field: a, precision b, noise, calibration, and the share of the residuals it explains.
        transduction_, std_: prediction and its standard deviation for every row of ``fit``.

    Example:
        >>> import numpy as np, walksum as ws
        >>> from sklearn.linear_model import Ridge
        >>> n = np.arange(40)
        >>> path, truth = np.stack([n[:-1], n[1:]]), np.sin(n / 5)
        >>> y = np.where(n % 3 == 0, truth, np.nan)  # two of three are unknown
        >>> model = ws.FieldRegressor(Ridge(), graph=path).fit(np.zeros((40, 1)), y)
        >>> bool(np.abs(model.transduction_ - truth).mean() < 0.15)
        True
    """

    def fit(self, X: TableLike, y: ArrayLike, graph: GraphLike | None = None) -> FieldRegressor:
        """Learn from the rows whose y is not NaN."""
        table = self._prepare(X, graph)
        targets = number_targets(y, len(table))
        rows = np.nonzero(~np.isnan(targets))[0]
        guess = self._out_of_fold(table, rows, targets[rows], 0)
        left = targets[rows] - guess[:, 0]
        self.field_: ResidualField = residual_field(self.graph_, rows, left)
        mean, self.std_ = self.field_.condition(self.graph_, rows, left)
        self.transduction_ = self._answer(self.estimator_, table, 0)[:, 0] + mean[:, 0]
        return self

    def predict(self, X: TableLike, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """The values of rows of ``fit``; with ``return_std`` also their standard deviations."""
        rows = self._rows(X, "transduction_")
        return (self.transduction_[rows], self.std_[rows]) if return_std else self.transduction_[rows]


class FieldClassifier(NodeClassifier, _FieldEstimator):
    """Any classifier, plus one Gaussian field of the residuals of its probabilities, the same for all classes.

    As :class:`FieldRegressor`, with one-hot labels minus probabilities as residuals; corrected probabilities are cut at
    zero and scaled to sum to one. ``-1``, NaN or None marks a row to predict.

    Example:
        >>> import numpy as np, walksum as ws
        >>> from sklearn.linear_model import LogisticRegression
        >>> n = np.arange(40)
        >>> y = np.where(n % 4 == 0, n // 20, -1)
        >>> path = np.stack([n[:-1], n[1:]])
        >>> model = ws.FieldClassifier(LogisticRegression(), graph=path, cv=2).fit(np.zeros((40, 1)), y)
        >>> bool((model.transduction_ == n // 20).mean() > 0.9)
        True
    """

    def fit(self, X: TableLike, y: ArrayLike, graph: GraphLike | None = None) -> FieldClassifier:
        """Learn from the rows that have a label."""
        table = self._prepare(X, graph)
        if not hasattr(self.estimator, "predict_proba"):
            raise ValueError(f"estimator={self.estimator!r} has no predict_proba; calibrate it, for example with "
                             "sklearn.calibration.CalibratedClassifierCV")  # fmt: skip
        labels, known = class_labels(y, len(table))
        rows = np.nonzero(known)[0]
        self.classes_, codes = np.unique(labels[rows], return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"Classifier can't train when only one class is present: {self.classes_.tolist()}")
        guess = self._out_of_fold(table, rows, codes, len(self.classes_))
        left = np.eye(len(self.classes_))[codes] - guess
        self.field_: ResidualField = residual_field(self.graph_, rows, left)
        mean, _ = self.field_.condition(self.graph_, rows, left)
        share = np.maximum(self._answer(self.estimator_, table, len(self.classes_)) + mean, 1e-6)
        self.label_distributions_ = share / share.sum(1, keepdims=True)
        self.transduction_ = self.classes_[self.label_distributions_.argmax(1)]
        return self

    def predict_proba(self, X: TableLike) -> np.ndarray:
        """The probability of each class for rows of ``fit``."""
        rows = self._rows(X, "label_distributions_")
        return self.label_distributions_[rows]

    def predict(self, X: TableLike) -> np.ndarray:
        """The class of rows of ``fit``."""
        share = self.predict_proba(X)
        return self.classes_[share.argmax(1)]
