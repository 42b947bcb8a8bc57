"""AutoRegressor: a portfolio of small models and a Gaussian field of what their blend leaves over."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from walksum.estimators.auto.base import Auto
from walksum.estimators.inputs import warn_of_order
from walksum.estimators.labels import NodeRegressor, number_targets
from walksum.portfolio.blend import METRICS
from walksum.portfolio.fit import HERE
from walksum.portfolio.residual import ResidualField
from walksum.training.scoring import names_for


class AutoRegressor(NodeRegressor, Auto):
    """Node regression by a portfolio of small models and a Gaussian field of their residuals.

    As :class:`AutoClassifier`; the blend minimises the squared error out of fold, or the absolute error where
    ``metric`` ("r2", "rmse" or "mae") prefers it. The residuals of the rows that judge are one draw of a Gaussian field
    on the graph, fitted by its evidence; its conditional mean is added wherever the residuals say that it helps, and
    its standard deviations are calibrated by the exact leave-one-out errors.

    Attributes:
        field_: the fitted field, or None.
        std_: standard deviation of each row's prediction.
        members_, graph_gain_, transduction_, ignoring_weights_: as in :class:`AutoClassifier`.

    Example:
        >>> import numpy as np, walksum as ws
        >>> n = np.arange(60)
        >>> y = np.where(n % 3 == 0, np.nan, np.sin(n / 9))
        >>> model = ws.AutoRegressor(budget=20, members=("linear", "label"), cv=2, random_state=0)
        >>> model = model.fit(n[:, None] / 60, y, graph=np.stack([n[:-1], n[1:]]))
        >>> bool(np.abs(model.transduction_ - np.sin(n / 9)).max() < 0.5)
        True
    """

    def fit(
        self, X: Any, y: Any, graph: Any = None, validation: Any = None, sample_weight: Any = None
    ) -> AutoRegressor:
        """Learn from the rows whose y is not NaN; arguments as in :meth:`AutoClassifier.fit`."""
        start = time.monotonic()
        warn_of_order(graph, X)
        X = self._table(X, reset=True)
        metric_name = self.metric or "r2"
        if metric_name not in names_for("regression"):
            raise ValueError(f"metric={self.metric!r}; choose one of {', '.join(names_for('regression'))}")
        y = number_targets(y, X.shape[0])
        weight, known = self._weighted_rows(sample_weight, ~np.isnan(y))
        if known.sum() < 2:
            raise ValueError(f"y is known in {int(known.sum())} rows (n_samples={X.shape[0]}); at least 2 need a value")
        X = self._filled(X, known)
        middle, spread = float(y[known].mean()), float(y[known].std()) or 1.0
        problem = self._problem(X, (y - middle) / spread, known, 0, graph, validation, weight)
        self.X_ = X
        found = self._fit(problem, METRICS[metric_name])
        answer = found.here()
        assert answer.std is not None
        self.field_: ResidualField | None = found.fields.get(HERE)
        self.transduction_, self.std_ = middle + spread * answer.value, spread * answer.std
        self.seconds_ = time.monotonic() - start
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The value of each row; with ``return_std`` also its standard deviation."""
        check_is_fitted(self)
        value = self._rows(X, self.transduction_)
        return (value, self._rows(X, self.std_)) if return_std else value
