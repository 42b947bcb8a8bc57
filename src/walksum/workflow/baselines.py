"""Simpler methods to compare with, each a function of the data and the nodes to learn from.

They give probabilities ``[N, C]`` or numbers ``[N]`` in the target's units for all nodes. A regression learns the same
transformed target as the model they stand beside.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import torch
from torch import Tensor

from walksum.portfolio import clock
from walksum.portfolio.features import neighbour_mean, propagated
from walksum.portfolio.tabular import fit_in_time
from walksum.workflow.prepare import PreparedData, as_table, for_trees

SCALES: list[dict[str, Any]] = [{"scale": s} for s in (0.9, 0.5, 0.99, 0.8, 0.95, 0.2)]
PENALTIES: list[dict[str, Any]] = [{"strength": c} for c in (1.0, 0.1, 0.01, 10.0)]


def _boosting_settings() -> list[dict[str, Any]]:
    """scikit-learn's defaults first, then draws of a search that are the same every time."""
    random = np.random.default_rng(0)
    found: list[dict[str, Any]] = [{}]
    choices = {
        "learning_rate": (0.03, 0.06, 0.1),
        "max_iter": (100, 200, 400),
        "max_leaf_nodes": (7, 15, 31),
        "min_samples_leaf": (5, 10, 20, 40),
        "l2_regularization": (0.0, 1.0, 10.0),
        "max_features": (0.3, 0.6, 1.0),
    }
    for _ in range(99):
        found.append({name: random.choice(values).item() for name, values in choices.items()})
    return found


BOOSTING = _boosting_settings()


def constant(data: PreparedData, learn: Tensor) -> Tensor:
    """The mean, or the shares of the classes."""
    known = data.problem.y[learn]
    if data.problem.regression:
        return known.double().mean().expand(data.problem.num_nodes).float()
    shares = torch.bincount(known, minlength=len(data.problem.classes)).float() / len(known)
    return shares.expand(data.problem.num_nodes, -1)


def linear(data: PreparedData, learn: Tensor, strength: float = 1.0) -> Tensor:
    """Ridge regression, its penalty chosen by cross-validation, or logistic regression."""
    from sklearn.linear_model import LogisticRegression, RidgeCV

    if data.problem.regression:
        return _answer(RidgeCV(np.logspace(-3, 4, 15)), data.x.double().numpy(), data, learn)
    return _answer(LogisticRegression(C=strength, max_iter=300), as_table(data.x), data, learn)


def boosting(data: PreparedData, learn: Tensor, columns: str = "own", seconds: float = inf, **setting: Any) -> Tensor:
    """scikit-learn's gradient boosting.

    Args:
        columns: "own": a node's columns; "means": also the means of its neighbours' columns and their number;
            "targets": also the mean of their known targets, or the share of each class.
        seconds: with fewer than it takes, there are fewer and larger steps.
        **setting: of scikit-learn's estimator.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    X = for_trees(data.x)
    if columns != "own":
        graph = data.problem.graph
        mean = neighbour_mean(graph)
        parts = [X, mean @ X, np.log1p(graph.degree.numpy())[:, None]]
        X = np.concatenate(parts + [_neighbours_targets(data, learn, mean)] * (columns == "targets"), 1)
        X = X[:, ~np.isnan(X[learn.numpy()]).all(0)]  # few known targets may have no neighbour among themselves
    kind = HistGradientBoostingRegressor if data.problem.regression else HistGradientBoostingClassifier
    return _answer(kind(random_state=0, **setting), X, data, learn, clock.now() + seconds)


def _neighbours_targets(data: PreparedData, learn: Tensor, mean: Any) -> np.ndarray:
    """The mean of the neighbours' known targets, by column of a one-hot target; NaN without such a neighbour."""
    problem, nodes = data.problem, learn.numpy()
    y = data.y.numpy()[nodes]
    known = np.zeros((problem.num_nodes, 1 + (1 if problem.regression else len(problem.classes))))
    known[nodes, 0] = 1
    known[nodes, 1:] = y[:, None] if problem.regression else np.eye(len(problem.classes))[y]
    around = mean @ known
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(around[:, :1] > 0, around[:, 1:] / around[:, :1], np.nan)


def label_propagation(data: PreparedData, learn: Tensor, scale: float = 0.9) -> Tensor:
    """``(I - s D^-1/2 A D^-1/2)^-1 Y`` of the known targets by one solve, divided by the same of ones."""
    problem, nodes = data.problem, learn.numpy()
    y = data.y.numpy()[nodes]
    full = np.zeros((problem.num_nodes, 2 if problem.regression else len(problem.classes)))
    if problem.regression:
        full[nodes] = np.stack([y, np.ones(len(nodes))], 1)
    else:
        full[nodes, y] = 1
    spread = propagated(problem.graph, full, scale)
    if problem.regression:
        near = np.abs(spread[:, 1]) > 1e-9
        guess = np.where(near, spread[:, 0] / np.where(near, spread[:, 1], 1), y.mean())
        return torch.from_numpy(data.encoding.in_units(guess)).float()
    mass = np.maximum(spread, 0) + 1e-6 * full.sum(0) / len(nodes)  # far from all labels: the shares of the classes
    return torch.from_numpy(mass / mass.sum(1, keepdims=True)).float()


def _answer(model: Any, X: Any, data: PreparedData, learn: Tensor, until: float = inf) -> Tensor:
    nodes, problem = learn.numpy(), data.problem
    model = fit_in_time(model, X[nodes], data.y.numpy()[nodes], None, until, needed=True)
    if problem.regression:
        return torch.from_numpy(data.encoding.in_units(model.predict(X))).float()
    shares = np.zeros((problem.num_nodes, len(problem.classes)))
    shares[:, model.classes_] = model.predict_proba(X)
    return torch.from_numpy(shares).float()
