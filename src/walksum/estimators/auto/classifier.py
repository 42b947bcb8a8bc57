"""AutoClassifier: a portfolio of small models on one graph, blended by validation."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import check_is_fitted

from walksum.estimators.auto.base import Auto
from walksum.estimators.inputs import warn_of_order
from walksum.estimators.labels import NodeClassifier, class_labels
from walksum.portfolio.blend import METRICS, Metric
from walksum.training.scoring import METRICS as SCORES
from walksum.training.scoring import names_for

CLASSIFIER_METRICS = tuple(names_for("classification"))


class AutoClassifier(NodeClassifier, Auto):
    """Node classification by a portfolio of small models, blended by validation.

    Members: networks whose predictions or hidden layers are propagated by one exact operator or a bank of attractive
    and repulsive ones, networks without edges, trees and linear models on a node's own columns and on those of its
    surroundings (with the labels of other nodes), label propagation, and deep banks. Members of one shape
    train as one computation.

    Transductive: ``fit`` sees all rows and the labels of some. Without ``validation``, the labelled rows take turns
    (``cv`` folds), members are judged out of fold, and the prediction is the mean over folds. With it, those rows
    choose epochs and weights and nothing is learned from them, unless ``refit``. The result depends on ``random_state``
    alone as long as ``complete_`` is True, which says that the clock cut nothing short.

    Args:
        budget: seconds for the whole portfolio. Ctrl-C keeps the members that are done.
        metric: what validation compares: "accuracy" (default), "balanced_accuracy", "macro_f1", "roc_auc",
            "average_precision" or "log_loss".
        members: prefixes of member names to try; None: all.
        cv: number of folds where no validation rows are given; of more than 4,000 labelled rows the first fold judges
            alone, so that the time of one training is not spent on ``cv``.
        n_neighbors: of the nearest-neighbour graph made from X when ``fit`` gets no graph, and of new rows.
        device: where networks train.
        random_state: seed.
        callback: called as ``callback(name, done, total, seconds)`` after each training.
        class_weight: None; "balanced": a row gets the class whose probability is largest in relation to its share of
            the labelled rows; or a weight per class, {label: weight}, that probabilities are multiplied by before the
            largest is chosen. Probabilities stay as they are, so that every member serves.
        refit: with given ``validation`` rows: train the weighted members once more, from all labelled rows and for as
            many epochs as validation chose. Rows with a label keep their answer from before.

    Attributes:
        members_: one entry per member: weight, validation score, whether it uses edges, seconds.
        graph_gain_: gain in ``metric`` over the members that see no edge, blended likewise, with a paired 95 %
            interval over the validation rows, each blended by weights from the other half of them: (gain, low, high).
        label_distributions_, transduction_: of all rows; of a labelled one that judges by members that did not learn
            from it, so ``transduction_`` may differ from its label.
        ignoring_weights_: names of members that could not read ``sample_weight``.

    Example:
        >>> import numpy as np, walksum as ws
        >>> X = np.repeat([[0.0, 0.0], [5.0, 5.0]], 20, axis=0) + np.random.default_rng(0).normal(size=(40, 2))
        >>> y = np.repeat([0, 1], 20)
        >>> y[::2] = -1
        >>> model = ws.AutoClassifier(budget=20, members=("linear", "label"), cv=2, random_state=0).fit(X, y)
        >>> model.transduction_.tolist() == [0] * 20 + [1] * 20
        True
    """

    def __init__(
        self,
        budget: float = 60.0,
        metric: str | None = None,
        members: tuple[str, ...] | None = None,
        cv: int = 5,
        n_neighbors: int = 8,
        device: str = "cpu",
        random_state: Any = None,
        callback: Callable[..., None] | None = None,
        refit: bool = False,
        class_weight: Any = None,
    ):
        super().__init__(budget, metric, members, cv, n_neighbors, device, random_state, callback)
        self.refit = refit
        self.class_weight = class_weight

    def fit(
        self, X: Any, y: Any, graph: Any = None, validation: Any = None, sample_weight: Any = None
    ) -> AutoClassifier:
        """Learn from the rows whose label is known.

        Args:
            X: features ``[N, F]``, dense or sparse; NaN in a dense one becomes the median of the labelled rows.
            y: labels ``[N]``; -1, NaN or None marks a row without one.
            graph: an adjacency matrix, an edge list, a :class:`walksum.Graph` or one of networkx; directed edges are
                read as such by the tabular members. Without one, the nearest rows of X are joined.
            validation: labelled rows (numbers or a mask) that choose and are not learned from.
            sample_weight: how much each row counts ``[N]`` in what members learn and in how they are blended; a row of
                weight zero counts as one without a label. Label propagation counts all rows the same.
        """
        start = time.monotonic()
        warn_of_order(graph, X)
        X = self._table(X, reset=True)
        metric_name = self.metric or "accuracy"
        if metric_name not in CLASSIFIER_METRICS:
            raise ValueError(f"metric={metric_name!r}; choose one of {', '.join(CLASSIFIER_METRICS)}")
        y, known = class_labels(y, X.shape[0])
        weight, known = self._weighted_rows(sample_weight, known)
        X = self._filled(X, known)
        self.classes_, codes = np.unique(y[known], return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"Classifier can't train when only one class is present: {self.classes_.tolist()}; -1, NaN and None "
                "mark rows without a label"
            )
        self.class_weight_ = _class_weights(self.class_weight, self.classes_, codes)
        metric = _deciding(metric_name, self.class_weight_)
        target = np.full(X.shape[0], np.nan)
        target[known] = codes
        problem = self._problem(X, target, known, len(self.classes_), graph, validation, weight)
        self.X_ = X
        if problem.unjudged:
            warnings.warn(
                f"y has one labelled row for most of its {len(self.classes_)} classes: nothing can judge members, and "
                "the mean of label propagation, lines and smooth networks answers; label a second row per class",
                stacklevel=2,
            )
        found = self._fit(problem, metric)
        self.label_distributions_ = found.here().value
        if self.refit and validation is not None and not found.interrupted:
            with suppress(KeyboardInterrupt):  # the answer from before is there
                self.label_distributions_ = found.refit()
        self.transduction_ = self.classes_[(self.label_distributions_ * self.class_weight_).argmax(1)]
        self.seconds_ = time.monotonic() - start
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, ``[N, classes]``."""
        check_is_fitted(self)
        return self._rows(X, self.label_distributions_)

    def predict(self, X: Any) -> np.ndarray:
        """The class of each row."""
        share = self.predict_proba(X)
        return self.classes_[(share * self.class_weight_).argmax(1)]


def _class_weights(asked: Any, classes: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """What the probability of each class is multiplied by before the largest is chosen."""
    try:
        if isinstance(asked, dict):
            found = np.array([float(asked[label]) for label in classes.tolist()])
        else:
            found = compute_class_weight(asked, classes=np.arange(len(classes)), y=codes)
        if not (np.isfinite(found).all() and (found > 0).all()):
            raise ValueError("a weight is not positive")
    except (KeyError, TypeError, ValueError) as error:
        names = ", ".join(map(repr, classes.tolist()))
        raise ValueError(
            f"class_weight={asked!r}; expected None, 'balanced' or a positive weight for each of {names}"
        ) from error
    return found


def _deciding(name: str, weights: np.ndarray) -> Metric:
    """The metric; where it counts decisions, of classes chosen with these weights."""
    if not SCORES[name].decides or (weights == weights[0]).all():
        return METRICS[name]
    return lambda outputs, y: METRICS[name](outputs + np.log(weights), y)
