"""Residual fields: exact against dense formulas, calibrated, and better than the estimator alone."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import LinearSVC

from walksum.estimators import FieldClassifier, FieldRegressor
from walksum.graph import Graph
from walksum.portfolio.residual import ResidualField, residual_field

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


def test_mean_and_deviation_equal_the_dense_formulas(grid):
    r, nodes, a, b, noise = draw(grid), np.arange(0, N, 2), 0.9, 2.0, 0.3
    mean, std = ResidualField(a, b, noise, 1.5, 0.0).condition(grid, nodes, r[nodes])
    K = np.linalg.inv(b * laplacian(grid, a))
    S = K[np.ix_(nodes, nodes)] + noise * np.eye(len(nodes))
    assert np.allclose(mean[:, 0], K[:, nodes] @ np.linalg.solve(S, r[nodes]))
    variance = np.diag(K) - np.einsum("ij,ji->i", K[:, nodes], np.linalg.solve(S, K[nodes]))
    assert np.allclose(std, 1.5 * np.sqrt(variance + noise))


def test_columns_that_share_a_field_are_fitted_by_their_joint_evidence(grid):
    nodes, both = np.arange(0, N, 2), np.stack([draw(grid, seed=1), draw(grid, seed=2)], 1)
    found = residual_field(grid, nodes, both[nodes])

    def evidence(a, b, noise):
        S = np.linalg.inv(b * laplacian(grid, a))[np.ix_(nodes, nodes)] + noise * np.eye(len(nodes))
        return -np.linalg.slogdet(S)[1] - 0.5 * (both[nodes] * np.linalg.solve(S, both[nodes])).sum()

    best = evidence(found.a, found.precision, found.noise)
    for other in ((0.97, 1.0, 0.2), (found.a - 0.01, found.precision, found.noise)):
        assert best >= evidence(*other) - 1e-6
    assert best >= evidence(found.a, 1.05 * found.precision, found.noise)
    assert 0 < found.gain < 1


def test_intervals_cover_what_they_promise(grid):
    inside = []
    for seed in range(6):
        r = draw(grid, seed=seed)
        known = np.random.default_rng(seed).permutation(N)[: N * 6 // 10]
        mean, std = residual_field(grid, known, r[known]).condition(grid, known, r[known])
        rest = np.setdiff1d(np.arange(N), known)
        inside.append(np.abs(r[rest] - mean[rest, 0]) <= 1.96 * std[rest])
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


def test_rows_that_equal_several_nodes_are_refused(grid):
    X, y = np.zeros((N, 1)), draw(grid)
    model = FieldRegressor(Ridge(), graph=grid).fit(X, np.where(np.arange(N) % 2, y, np.nan))
    assert np.array_equal(model.predict(X), model.transduction_)
    with pytest.raises(ValueError, match="row 0 of X equals 225 rows of fit, which are different nodes"):
        model.predict(X[100:103])


def test_minus_one_marks_unknown_rows_also_among_objects(grid):
    codes = np.where(np.arange(N) % 2, draw(grid) > 0, -1).astype(object)
    assert FieldClassifier(LogisticRegression(), graph=grid).fit(np.ones((N, 1)), codes).classes_.tolist() == [0, 1]


def test_a_field_of_three_values_is_refused_in_words_of_y(grid):
    y = np.full(N, np.nan)
    y[:3] = 0, 1, 2
    with pytest.raises(ValueError, match=r"y is known in 3 rows; .* a field at least 4"):
        FieldRegressor(Ridge(), graph=grid, cv=2).fit(np.ones((N, 1)), y)


def test_what_is_missing_in_x_is_the_estimators_business(grid):
    X, y = np.random.default_rng(0).normal(size=(N, 2)), draw(grid)
    X[3, 1] = np.nan
    shown = np.where(np.arange(N) % 2, y, np.nan)
    model = FieldRegressor(make_pipeline(SimpleImputer(), Ridge()), graph=grid).fit(X, shown)
    assert np.array_equal(model.predict(X[2:5]), model.transduction_[2:5])
    with pytest.raises(ValueError, match="contains NaN"):
        FieldRegressor(Ridge(), graph=grid).fit(X, shown)


@pytest.mark.parametrize("classes", [False, True])
def test_an_estimator_is_given_the_columns_of_a_frame_by_name(grid, classes):
    random = np.random.default_rng(0)
    kind = np.array(["wood", "field", None], dtype=object)[random.integers(0, 3, N)]
    frame = pd.DataFrame({"height": random.normal(size=N), "kind": kind}, index=np.arange(N)[::-1])
    truth = draw(grid) + 2 * (kind == "wood")
    columns = make_column_transformer((OneHotEncoder(), ["kind"]), ("passthrough", ["height"]))
    if classes:
        y = np.where(np.arange(N) % 2 == 0, (truth > 1).astype(int), -1)
        model = FieldClassifier(make_pipeline(columns, LogisticRegression()), graph=grid).fit(frame, y)
    else:
        y = np.where(np.arange(N) % 2 == 0, truth, np.nan)
        model = FieldRegressor(make_pipeline(columns, Ridge()), graph=grid).fit(frame, y)
        unknown = np.isnan(y)
        assert np.corrcoef(model.transduction_[unknown], truth[unknown])[0, 1] > 0.8
    assert (model.predict(frame.iloc[[7, 3]]) == model.transduction_[[7, 3]]).all()
    assert list(model.feature_names_in_) == ["height", "kind"]
    with pytest.raises(ValueError, match="row 0 of X is no row of fit"):
        model.predict(frame.iloc[:1].assign(kind="sea"))
    with pytest.raises(ValueError, match="X is a ndarray; fit was given a DataFrame with columns of words"):
        model.predict(frame.to_numpy())


def test_words_of_a_frame_are_not_taken_for_their_codes(grid):
    frame = pd.DataFrame({"id": [f"{k + 1}" for k in range(N)]})  # "1" is the first word, whose code is 0
    columns = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["id"]))
    model = FieldRegressor(make_pipeline(columns, Ridge()), graph=grid).fit(frame, draw(grid))
    as_numbers = frame.iloc[[1, 4]].astype(int)
    assert (model.predict(as_numbers) == model.transduction_[[1, 4]]).all()


def test_two_columns_of_one_name_are_refused(grid):
    X = pd.DataFrame([["a", 1.0, "b"]] * N, columns=["town", "size", "town"])
    with pytest.raises(ValueError, match="X has several columns called 'town'; names must be unique"):
        FieldRegressor(Ridge(), grid).fit(X, draw(grid))
