"""Tabular members: scikit-learn's models on columns, kept as plain arrays once they are fitted."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from walksum.portfolio import clock
from walksum.portfolio.arrays import Additive, Arrays, additive, below
from walksum.portfolio.columns import COLUMNS
from walksum.portfolio.problem import Problem
from walksum.portfolio.threads import few_threads

FEWEST_TREES, LARGEST_RATE = 40, 0.2  # of boosting that the clock cuts short
FIRST_CELLS = 20_000_000  # rows times columns that are read before the clock is: a second or two
FIRST_STEPS, FEWEST_STEPS = 3, 10  # of logistic regression


@dataclass
class Tabular:
    """One model per fold on one set of columns."""

    columns: str
    models: list[Additive]

    def outputs(self, problem: Problem) -> np.ndarray:
        """``[1, folds, N, C]`` for another table."""
        X = COLUMNS[self.columns](problem, problem.known)
        return np.stack([log_shares(model(X), model.codes, problem.classes) for model in self.models])[None]

    def keep(self, which: list[int]) -> Tabular:
        return self

    def state(self) -> tuple[dict[str, Any], Arrays]:
        parts = [model.state() for model in self.models]
        arrays = {f"{k}.{name}": value for k, (_, found) in enumerate(parts) for name, value in found.items()}
        return {"columns": self.columns, "models": [config for config, _ in parts]}, arrays

    @classmethod
    def of_state(cls, config: dict[str, Any], arrays: Arrays) -> Tabular:
        models = [Additive.of_state(each, below(f"{k}.", arrays)) for k, each in enumerate(config["models"])]
        return cls(config["columns"], models)


def fit_tabular(
    problem: Problem, columns: str, make: Callable[[int, int], Any], deadline: float, needed: bool = False
) -> tuple[np.ndarray, Tabular] | None:
    """Outputs ``[folds, N, C]`` (log-probabilities or numbers) and the models; None where a fold had no time left.

    What is ``needed`` ends in any case, with few and large steps where the clock has run out.
    """
    out = np.zeros((len(problem.folds), problem.num_nodes, problem.outputs))
    models = []
    for k, (train, _) in enumerate(problem.folds):
        start = clock.now()
        if start > deadline and not needed:
            return None
        if problem.classes and len(np.unique(problem.y[train])) < 2:
            raise ValueError(
                f"fold {k + 1} of {len(problem.folds)} would learn from one class alone: too few rows of y have "
                "another label; label more of them"
            )
        X = COLUMNS[columns](problem, train)
        model = make(problem.classes, problem.seed + k)
        if columns == "neighbours":  # few columns, whose products count: each split looks at all of them
            model.set_params(max_features=1.0)
        until = start + (deadline - start) / (len(problem.folds) - k)
        weight = None if problem.weight is None else problem.weight[train]
        with warnings.catch_warnings():  # that every tree would give again, of classes that the user asked for
            warnings.filterwarnings("ignore", "The number of unique classes")
            fitted = fit_in_time(model, X[train], problem.y[train], weight, until, needed, X)
        if fitted is None:
            return None
        model = additive(fitted, problem.classes)
        out[k] = log_shares(_answers(fitted, X) if model.trees else model(X), model.codes, problem.classes)
        models.append(model)
    return out, Tabular(columns, models)


def fit_in_time(
    model: Any, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None, until: float, needed: bool = False,
    asked: np.ndarray | None = None,
) -> Any:  # fmt: skip
    """The fitted model; None where there is no time for ``FEWEST_TREES`` or ``FEWEST_STEPS`` and it is not ``needed``.

    A fifth of the trees is grown first, of many classes or cells less, which tells how long the others take, with their
    answers for the rows ``asked``; they are the same as if grown at once. Where time is short, boosting takes fewer
    and larger steps, a forest has fewer trees, and a logistic regression descends less far.
    """
    from sklearn.base import is_classifier

    if hasattr(model, "steps") and is_classifier(model) and until != float("inf"):
        return _descend_in_time(model, X, y, weight, until, needed)
    grows = next((name for name in ("max_iter", "n_estimators") if hasattr(model, name)), None)
    name = f"{model.steps[-1][0]}__sample_weight" if hasattr(model, "steps") else "sample_weight"
    fit = partial(model.fit, X, y, **{} if weight is None else {name: weight})
    with few_threads(X.shape[0]):  # rows of a sparse table too
        if grows is None or until == float("inf"):
            return fit()
        whole, start = getattr(model, grows), clock.now()
        each_round = len(np.unique(y)) if grows == "max_iter" and is_classifier(model) else 1  # trees
        some = whole // 5 // (each_round if each_round > 2 else 1)
        first = max(1, min(some, FIRST_CELLS // max(1, X.shape[0] * X.shape[1])))
        model.set_params(warm_start=True, **{grows: first})
        fitted = fit()
        if asked is not None:
            _answers(fitted, asked)
        each = max((clock.now() - start) / first, 1e-9)
        more = int((until - clock.now()) / each)
        if first + more >= whole or grows == "n_estimators":
            if more <= 0:  # trees that were grown already, and no more
                return fitted
            model.set_params(**{grows: min(whole, first + more)})
            return fit()
        if more < FEWEST_TREES and not needed:
            return None
        if more < FEWEST_TREES:  # the first trees are kept, a few larger steps follow
            model.set_params(max_iter=first + max(1, first // 2, more), learning_rate=LARGEST_RATE)
            return fit()
        rate = min(LARGEST_RATE, model.learning_rate * whole / more)
        model.set_params(warm_start=False, max_iter=more, learning_rate=rate)
        return fit()


def _descend_in_time(
    model: Any, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None, until: float, needed: bool
) -> Any:
    """The same of a logistic regression on scaled columns, by the time that its first steps take."""
    from sklearn.exceptions import ConvergenceWarning

    last, start = model.steps[-1][1], clock.now()
    whole = last.max_iter
    more = {} if weight is None else {f"{model.steps[-1][0]}__sample_weight": weight}
    with few_threads(X.shape[0]), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if X.shape[0] * X.shape[1] * len(np.unique(y)) > FIRST_CELLS:
            last.set_params(max_iter=FIRST_STEPS)
            model.fit(X, y, **more)
            each = max((clock.now() - start) / FIRST_STEPS, 1e-9)
            steps = int((until - clock.now()) / each)
            if steps < FEWEST_STEPS and not needed:
                return None
            last.set_params(max_iter=min(whole, max(FEWEST_STEPS, steps)))
        return model.fit(X, y, **more)


def _answers(fitted: Any, X: np.ndarray) -> np.ndarray:
    """What a model of trees says, by scikit-learn's compiled code; its arrays say the same more slowly."""
    with few_threads(X.shape[0]):
        return fitted.predict_proba(X) if hasattr(fitted, "predict_proba") else fitted.predict(X)[:, None]


def log_shares(found: np.ndarray, codes: np.ndarray, classes: int) -> np.ndarray:
    """Log-probabilities of all classes, a little above zero for those a model did not meet; numbers as they are."""
    if not classes:
        return found
    share = np.full((len(found), classes), 1e-4)
    share[:, codes] += found
    return np.log(share / share.sum(1, keepdims=True))


def boosting(classes: int, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    rounds, rate = (150, 0.06) if classes else (250, 0.05)
    return kind(
        max_iter=rounds, learning_rate=rate, max_leaf_nodes=15, min_samples_leaf=10, l2_regularization=1.0,
        max_features=0.3, early_stopping=False, random_state=seed,
    )  # fmt: skip


def extra_trees(classes: int, seed: int) -> Any:
    from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

    kind = ExtraTreesClassifier if classes else ExtraTreesRegressor
    features = "sqrt" if classes else 1.0
    return kind(
        n_estimators=300 if classes else 100, min_samples_leaf=2, max_features=features, random_state=seed, n_jobs=1
    )


def linear(classes: int, seed: int, strength: float = 0.02) -> Any:
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if classes:
        return make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=300))
    return make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 4, 13)))


def directed(strength: float, classes: int, seed: int) -> Any:
    """Of rows of length one, whose directions count by how much they vary: held less tightly, and not rescaled."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if not classes:
        return linear(classes, seed)
    return make_pipeline(StandardScaler(with_mean=False, with_std=False), LogisticRegression(C=strength, max_iter=300))


MODELS = {"boosting": boosting, "extra trees": extra_trees, "linear": linear}


def strengths(classes: int) -> tuple[float, ...]:
    """Of linear models on directions: among many classes each has few of the rows, and is held by the same penalty."""
    more = max(1.0, classes / 10)
    return (3.0 * more, 30.0 * more) if classes else (3.0,)
