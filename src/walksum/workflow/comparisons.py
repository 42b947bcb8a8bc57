"""What simpler methods reach with the same labels: the rows beside the trained model, each with its seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from walksum.portfolio.features import neighbour_mean, propagated, reduce_columns
from walksum.portfolio.problem import WIDE
from walksum.training.metrics import Score, score_classes, score_numbers
from walksum.workflow.fit import Job, OnEpoch, PreparedData, fit_model, predict

SCALES = (0.2, 0.5, 0.8, 0.9, 0.95, 0.99)
COMPONENTS = 64  # of wide tables, for trees
NARROW_DROPOUT, NARROW_LR = 0.2, 5e-3  # of the MLP; dropping most of a few columns leaves nothing to learn from


def compare(
    job: Job, prepared: PreparedData, on_epoch: OnEpoch | None = None, learn: Tensor | None = None
) -> tuple[dict[str, Score], dict[str, float], list[str]]:
    """Test scores and seconds by method, and notes.

    Args:
        learn: the nodes to learn from, the same as the model's own; None: the training nodes. Validation nodes choose
            where there is something to choose.
    """
    learn = prepared.split.train if learn is None else learn
    scores, seconds, notes = {}, {}, []
    start, left_out = time.monotonic(), []
    for name, method in _methods(job, prepared, on_epoch):
        began = time.monotonic()
        if began - start > job.budget:
            left_out.append(name)
            continue
        guess = method(prepared, learn)
        seconds[name] = time.monotonic() - began
        test, y = prepared.split.test, prepared.problem.y
        judge = score_numbers if prepared.problem.regression else score_classes
        scores[name] = judge(guess[test], y[test])
    if left_out:
        notes.append(f"not compared, since the budget of {job.budget:g} s was spent: {', '.join(left_out)}")
    return scores, seconds, notes


Method = Callable[[PreparedData, Tensor], Tensor]  # data, nodes to learn from -> classes or numbers of all nodes


def _methods(job: Job, prepared: PreparedData, on_epoch: OnEpoch | None) -> list[tuple[str, Method]]:
    regression, edges = prepared.problem.regression, prepared.problem.graph.num_edges
    found: list[tuple[str, Method]] = [("mean" if regression else "majority class", constant)]
    found.append(("ridge regression" if regression else "logistic regression", linear))
    if edges:
        found.append(("label propagation", label_propagation))
    found.append(("gradient boosting", lambda data, learn: boosting(data, learn, False)))
    if edges:
        found.append(("boosting on neighbour means", lambda data, learn: boosting(data, learn, True)))
    if job.model != "mlp":
        found.append(("MLP", lambda data, learn: _mlp(job, data, on_epoch)))
    return found


def constant(data: PreparedData, learn: Tensor) -> Tensor:
    """The mean, or the most frequent class."""
    known = data.problem.y[learn]
    value = known.mean() if data.problem.regression else torch.bincount(known).argmax()
    return value.expand(data.problem.num_nodes)


def linear(data: PreparedData, learn: Tensor) -> Tensor:
    """Ridge or logistic regression, its penalty chosen by cross-validation or on the validation nodes."""
    from sklearn.linear_model import LogisticRegression, RidgeCV

    X, y = data.x.double().numpy(), data.problem.y.numpy()
    if data.problem.regression:
        return _answer(RidgeCV(np.logspace(-3, 4, 15)).fit(X[learn], y[learn]), X)
    val = data.split.val.numpy()
    train = data.split.train.numpy()
    strengths = (0.01, 0.1, 1.0, 10.0)
    models = [LogisticRegression(C=c, max_iter=300).fit(X[train], y[train]) for c in strengths]
    best = strengths[int(np.argmax([model.score(X[val], y[val]) for model in models]))]
    return _answer(LogisticRegression(C=best, max_iter=300).fit(X[learn], y[learn]), X)


def boosting(data: PreparedData, learn: Tensor, neighbours: bool) -> Tensor:
    """scikit-learn's gradient boosting with its defaults, on a node's columns or also on what its neighbours have.

    That is the means of their columns, their number, and the mean of their known targets (or the share of each class).
    """
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    X, y = data.x.double().numpy(), data.problem.y.numpy()
    X = reduce_columns(X, COMPONENTS) if X.shape[1] > WIDE else X
    if neighbours:
        graph = data.problem.graph
        mean, degree = neighbour_mean(graph), np.log1p(graph.degree.numpy())[:, None]
        X = np.concatenate([X, mean @ X, degree, _neighbours_targets(data, learn, mean)], 1)
        X = X[:, ~np.isnan(X[learn]).all(0)]  # few known targets may have no neighbour among themselves
    kind = HistGradientBoostingRegressor if data.problem.regression else HistGradientBoostingClassifier
    return _answer(kind(random_state=0).fit(X[learn], y[learn]), X)


def _neighbours_targets(data: PreparedData, learn: Tensor, mean: Any) -> np.ndarray:
    """The mean of the neighbours' known targets, by column of a one-hot target; NaN without such a neighbour."""
    problem, nodes = data.problem, learn.numpy()
    y = problem.y.numpy()[nodes]
    known = np.zeros((problem.num_nodes, 1 + (1 if problem.regression else len(problem.classes))))
    known[nodes, 0] = 1
    known[nodes, 1:] = y[:, None] if problem.regression else np.eye(len(problem.classes))[y]
    around = mean @ known
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(around[:, :1] > 0, around[:, 1:] / around[:, :1], np.nan)


def label_propagation(data: PreparedData, learn: Tensor) -> Tensor:
    """``(I - s D^-1/2 A D^-1/2)^-1 Y`` of the known targets by one solve, s chosen on the validation nodes."""
    y, val, train = data.problem.y, data.split.val, data.split.train
    guesses = [_spread(data, train, scale) for scale in SCALES]
    if data.problem.regression:
        fits = [-float((guess[val] - y[val]).square().mean()) for guess in guesses]
    else:
        fits = [float((guess[val] == y[val]).double().mean()) for guess in guesses]
    return _spread(data, learn, SCALES[int(np.argmax(fits))])


def _spread(data: PreparedData, known: Tensor, scale: float) -> Tensor:
    problem = data.problem
    y, nodes = problem.y.numpy(), known.numpy()
    full = np.zeros((problem.num_nodes, 2 if problem.regression else len(problem.classes)))
    if problem.regression:
        full[nodes] = np.stack([y[nodes], np.ones(len(nodes))], 1)
    else:
        full[nodes, y[nodes]] = 1
    spread = propagated(problem.graph, full, scale)
    if problem.regression:
        near = spread[:, 1] > 1e-9
        return torch.from_numpy(np.where(near, spread[:, 0] / np.where(near, spread[:, 1], 1), y[nodes].mean())).float()
    return torch.from_numpy((spread + 1e-9 * full.sum(0)).argmax(1))


def _mlp(job: Job, data: PreparedData, on_epoch: OnEpoch | None) -> Tensor:
    mlp = replace(job, model="mlp", lr=None, patience=None)
    if data.x.size(1) <= WIDE:
        mlp = replace(mlp, dropout=NARROW_DROPOUT, lr=NARROW_LR)
    model, outcome = fit_model(mlp, data, on_epoch)
    if outcome.interrupted:
        raise KeyboardInterrupt
    output = predict(model, data.x, data.problem, data.encoding)
    return output if data.problem.regression else output.argmax(1)


def _answer(model: Any, X: np.ndarray) -> Tensor:
    return torch.from_numpy(model.predict(X))
