"""AutoRegressor: a portfolio of small models and a Gaussian field of what their blend leaves over."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from walksum.estimators._residual_field import LEVEL_95, ResidualField, fit_residual_field
from walksum.estimators.auto.base import Auto, paired_gain
from walksum.estimators.auto.blend import (
    least_squares_weights,
    r_squared,
)
from walksum.estimators.auto.portfolio import Member
from walksum.estimators.auto.problem import Problem


class AutoRegressor(RegressorMixin, Auto):
    """Node regression by a portfolio of small models and a Gaussian field of their residuals.

    As :class:`AutoClassifier`; the blend minimises the squared error out of fold. Where validation rows are not given,
    the out-of-fold residuals of the blend are one draw of a Gaussian field on the graph, fitted by its evidence; its
    conditional mean is added wherever the residuals say that it helps, and its standard deviations are calibrated by
    the exact leave-one-out errors.

    Attributes:
        field_: the fitted field, or None.
        std_: standard deviation of each row's prediction.
        members_, graph_gain_, transduction_: as in :class:`AutoClassifier`.
    """

    def fit(self, X: Any, y: Any, graph: Any = None, validation: Any = None) -> AutoRegressor:
        """Learn from the rows whose y is not NaN; arguments as in :meth:`AutoClassifier.fit`."""
        start = time.monotonic()
        X = validate_data(self, X, dtype=np.float64, accept_sparse="csr")
        if self.metric not in (None, "r2"):
            raise ValueError(f"metric={self.metric!r}; a regression is judged by 'r2'")
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        y = column_or_1d(np.asarray(y), warn=True).astype(np.float64)
        if len(y) != X.shape[0]:
            raise ValueError(f"Found input variables with inconsistent numbers of samples: {[X.shape[0], len(y)]}")
        if np.isinf(y).any():
            raise ValueError("Input y contains infinity; NaN marks rows without a value")
        known = ~np.isnan(y)
        if known.sum() < 2:
            raise ValueError(f"y is known in {int(known.sum())} rows (n_samples={X.shape[0]}); at least 2 need a value")
        middle, spread = float(y[known].mean()), float(y[known].std()) or 1.0
        problem = self._problem(X, (y - middle) / spread, known, 0, graph, validation)
        self.X_ = X
        found = self._run(problem, r_squared)
        rows, truth = problem.judged, problem.y[problem.judged]
        judged = np.stack([problem.out_of_fold(member.outputs)[rows, 0] for member in found])
        scores = np.array([r_squared(each[:, None], truth) for each in judged])
        weights = least_squares_weights(judged, truth)
        self.members_ = self._table(found, weights, scores)
        mean = np.tensordot(weights, np.stack([member.outputs.mean(0)[:, 0] for member in found]), 1)
        mean, std = self._with_field(problem, mean, truth - weights @ judged, rows, validation is None)
        self.transduction_, self.std_ = middle + spread * mean, spread * std
        self.graph_gain_ = self._graph_gain(found, judged, truth, weights)
        self.seconds_ = time.monotonic() - start
        self._found, self._problem_ = found, problem
        return self

    def _with_field(
        self, problem: Problem, mean: np.ndarray, residuals: np.ndarray, rows: np.ndarray, all_judged: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        self.field_: ResidualField | None = None
        # without a field every row has the same one, such that 95 % of the residuals lie within 1.96 of it
        plain = np.full(len(mean), float(np.quantile(np.abs(residuals), 0.95, method="higher")) / LEVEL_95)
        if not all_judged or not problem.graph.num_edges or len(rows) < 20:
            return mean, plain
        try:
            field = fit_residual_field(problem.graph, rows, residuals)
        except ValueError:  # elimination fills in too much
            return mean, plain
        if field.gain <= 0:
            return mean, plain
        self.field_ = field
        return mean + field.mean[:, 0], field.std

    def _graph_gain(
        self, found: list[Member], judged: np.ndarray, y: np.ndarray, weights: np.ndarray
    ) -> tuple[float, float, float] | None:
        alone = np.array([not member.uses_graph for member in found])
        if alone.all() or not alone.any():
            return None
        mine = weights @ judged
        theirs = least_squares_weights(judged[alone], y) @ judged[alone]

        def gain(rows: np.ndarray) -> float:
            return r_squared(mine[rows, None], y[rows]) - r_squared(theirs[rows, None], y[rows])

        return paired_gain(gain, len(y))

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The value of each row; with ``return_std`` also its standard deviation."""
        check_is_fitted(self)
        value = self._rows(X, self.transduction_)
        return (value, self._rows(X, self.std_)) if return_std else value

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R^2 on the rows that have a value."""
        y = np.asarray(y, dtype=np.float64)
        known = ~np.isnan(y)
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        return float(r2_score(y[known], self.predict(X)[known], sample_weight=weight))
