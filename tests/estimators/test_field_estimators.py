"""Residual fields: exact against dense formulas, calibrated, and better than the estimator alone."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

from walksum.estimators import FieldClassifier, FieldRegressor
from walksum.estimators._residual_field import _Evidence, fit_residual_field
from walksum.graph import Graph

SIDE = 15
N = SIDE * SIDE


@pytest.fixture
def grid() -> Graph:
    at = np.arange(N).reshape(SIDE, SIDE)
    pairs = np.concatenate(
        [np.stack([at[:, :-1].ravel(), at[:, 1:].ravel()]), np.stack([at[:-1].ravel(), at[1:].ravel()])], 1
    )
    return Graph.from_edge_index(torch.from_numpy(pairs), N)


def laplacian(graph: Graph, a: float) -> np.ndarray:
    A = np.zeros((N, N))
    i, j = graph.edges.numpy()
    A[i, j] = A[j, i] = 1
    root = 1 / np.sqrt(A.sum(1))
    return np.eye(N) - a * root[:, None] * A * root


def draw(graph: Graph, a: float = 0.97, nugget: float = 0.2, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    u = np.linalg.solve(np.linalg.cholesky(laplacian(graph, a)).T, random.normal(size=N))
    return u + np.sqrt(nugget) * random.normal(size=N)


def test_evidence_mean_and_leave_one_out_equal_the_dense_formulas(grid):
    r, nodes, a, t = draw(grid), np.arange(0, N, 2), 0.9, 3.0
    found = _Evidence(grid, nodes, r[nodes, None])
    K = np.linalg.inv(laplacian(grid, a))
    S = K[np.ix_(nodes, nodes)] + np.eye(len(nodes)) / t
    quadratic = r[nodes] @ np.linalg.solve(S, r[nodes])
    expected = 0.5 * np.linalg.slogdet(S)[1] + 0.5 * len(nodes) * np.log(quadratic / len(nodes))
    assert found.loss(np.array([np.log(a / (1 - a)), np.log(t)])) == pytest.approx(expected, rel=1e-9)
    field = found.condition(a, t)
    assert np.allclose(field.mean[:, 0], K[:, nodes] @ np.linalg.solve(S, r[nodes]))
    rest = nodes != nodes[7]
    other = np.linalg.solve(S[np.ix_(rest, rest)], r[nodes][rest])
    assert field.held_out[7, 0] == pytest.approx(float(S[7, rest] @ other))
    variance = np.diag(K) - np.einsum("ij,ji->i", K[:, nodes], np.linalg.solve(S, K[nodes]))
    c = len(nodes) / quadratic
    assert np.allclose(field.std, field.calibration * np.sqrt((variance + 1 / t) / c))


def test_intervals_cover_what_they_promise(grid):
    inside = []
    for seed in range(6):
        r = draw(grid, seed=seed)
        known = np.random.default_rng(seed).permutation(N)[: N * 6 // 10]
        field = fit_residual_field(grid, known, r[known])
        rest = np.setdiff1d(np.arange(N), known)
        inside.append(np.abs(r[rest] - field.mean[rest, 0]) <= 1.96 * field.std[rest])
    assert 0.9 < np.mean(inside) < 0.99


def test_regressor_uses_the_known_targets_of_neighbours(grid):
    random = np.random.default_rng(0)
    X = random.normal(size=(N, 2))
    y = X @ [1.0, -1.0] + draw(grid, nugget=0.05)
    shown = np.where(random.random(N) < 0.6, y, np.nan)
    model = FieldRegressor(Ridge(), graph=grid).fit(X, shown)
    hidden = np.isnan(shown)
    alone = Ridge().fit(X[~hidden], y[~hidden]).predict(X)
    error = np.mean((model.transduction_ - y)[hidden] ** 2)
    assert error < 0.7 * np.mean((alone - y)[hidden] ** 2)
    value, std = model.predict(X[:5], return_std=True)
    assert np.array_equal(value, model.transduction_[:5])
    assert (std > 0).all()


def test_classifier_uses_the_known_labels_of_neighbours(grid):
    random = np.random.default_rng(0)
    truth = np.where(draw(grid, nugget=0.0, a=0.995) > 0, "up", "down").astype(object)
    X, y = random.normal(size=(N, 2)), truth.copy()
    hidden = random.random(N) < 0.5
    y[hidden] = None
    model = FieldClassifier(LogisticRegression(), graph=grid).fit(X, y)
    assert (model.transduction_ == truth)[hidden].mean() > 0.7
    assert np.allclose(model.predict_proba(X).sum(1), 1)
    assert set(model.predict(X[:3])) <= {"up", "down"}


def test_bad_input(grid):
    X, y = np.random.default_rng(0).normal(size=(N, 2)), np.zeros(N)
    with pytest.raises(ValueError, match="graph is None"):
        FieldRegressor(Ridge()).fit(X, y)
    with pytest.raises(ValueError, match="cv=1"):
        FieldRegressor(Ridge(), graph=grid, cv=1).fit(X, y)
    with pytest.raises(ValueError, match="known in 0 rows"):
        FieldRegressor(Ridge(), graph=grid).fit(X, np.full(N, np.nan))
    with pytest.raises(ValueError, match="inconsistent"):
        FieldRegressor(Ridge(), graph=grid).fit(X, y[:4])
    with pytest.raises(ValueError, match="no predict_proba"):
        FieldClassifier(LinearSVC(), graph=grid).fit(X, y)
    with pytest.raises(ValueError, match="only one class"):
        FieldClassifier(LogisticRegression(), graph=grid).fit(X, y)
    model = FieldRegressor(Ridge(), graph=grid).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="no row of fit"):
        model.predict(X + 1)
