"""The portfolio takes what users of scikit-learn hold: frames, sparse tables, pipelines, graphs of other libraries."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from walksum.estimators import AutoClassifier, AutoRegressor, FieldClassifier, GLTClassifier, GraphFeatures
from walksum.graph import Graph

N = 60


def quick(kind=AutoClassifier, **settings):
    return kind(budget=100, members=("linear x", "label"), cv=2, random_state=0, **settings)


@pytest.fixture(scope="module")
def table():
    """Two rings of nodes, one per class; the columns are noise, so only the graph tells the classes apart."""
    random = np.random.default_rng(0)
    y = np.arange(N) // (N // 2)
    after = np.r_[np.arange(1, N // 2), 0, np.arange(N // 2 + 1, N), N // 2]
    shown = np.where(random.random(N) < 0.5, y, -1)
    return random.normal(size=(N, 3)), y, shown, np.stack([np.arange(N), after])


@pytest.fixture(scope="module")
def known(table):
    X, _, shown, pairs = table
    return quick().fit(X, shown, pairs)


def test_a_frame_and_its_column_names(table, known):
    X, _, shown, pairs = table
    frame = pd.DataFrame(X, columns=["a", "b", "c"], index=[f"row {k}" for k in range(N)])
    model = quick().fit(frame, pd.Series(shown, index=frame.index), pairs)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(model.label_distributions_, known.label_distributions_)
    np.testing.assert_array_equal(model.predict(frame), known.transduction_)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"a": "d"}))


@pytest.mark.parametrize("device", ["gpu", "meta", 3.5])
@pytest.mark.parametrize("kind", [AutoClassifier, AutoRegressor])
def test_a_device_that_is_none_is_refused_before_anything_is_learned(table, kind, device):
    X, _, shown, pairs = table
    with pytest.raises(ValueError, match=f"device='{device}' cannot be used here; use 'cpu' or 'auto'"):
        quick(kind, device=device).fit(X, shown, pairs)
    assert quick(kind, device="auto").fit(X, shown, pairs).members_


def test_a_sparse_table(table):
    X, y, shown, pairs = table
    model = quick().fit(sp.csr_matrix(X), shown, pairs)
    assert (model.predict(sp.csr_matrix(X)) == y).mean() == 1


def test_a_damaged_sparse_table_is_refused():
    damaged = sp.csr_matrix(np.eye(9))
    damaged.indices[4] = 10**6  # which ended the process
    for call in (AutoRegressor(5).fit, GraphFeatures(np.array([[0], [1]])).fit):
        with pytest.raises(ValueError, match="X is a damaged csr matrix"):
            call(damaged, np.arange(9.0))


@pytest.mark.parametrize("kind", [AutoClassifier, AutoRegressor])
def test_a_dense_table_of_zeros_is_kept_as_a_sparse_one(table, kind):
    """18,333 x 6,805 words took a gigabyte and seconds in every product; answers are those of the sparse table."""
    _, _, shown, pairs = table
    y = shown if kind is AutoClassifier else np.where(shown < 0, np.nan, shown)
    words = (np.random.default_rng(0).random((len(shown), 250)) < 0.05).astype(float)
    dense, sparse = (quick(kind).fit(each, y, pairs) for each in (words, sp.csr_matrix(words)))
    assert sp.issparse(dense.X_)
    np.testing.assert_array_equal(dense.transduction_, sparse.transduction_)
    for asked in (words, words[7:9]):
        np.testing.assert_array_equal(dense.predict(asked), sparse.predict(asked))
    with pytest.warns(UserWarning, match="equal no row of fit"):  # a table that is not sparse
        np.testing.assert_array_equal(dense.predict(words + 1), sparse.predict(words + 1))
    np.testing.assert_array_equal(dense.predict(words[7:9]), dense.transduction_[7:9])


@pytest.mark.parametrize("kind", [AutoClassifier, AutoRegressor])
def test_empty_cells_become_medians_of_the_rows_learned_from(table, kind):
    X, _, shown, pairs = table
    y = shown if kind is AutoClassifier else np.where(shown < 0, np.nan, shown)
    empty = np.where(X > 1, np.nan, X)
    fill = np.nanmedian(empty[shown >= 0], 0)
    filled = np.where(np.isnan(empty), fill, empty)
    found, twin = quick(kind).fit(empty, y, pairs), quick(kind).fit(filled, y, pairs)
    np.testing.assert_array_equal(found.transduction_, twin.transduction_)
    np.testing.assert_array_equal(found.predict(empty), twin.predict(filled))


def forms(pairs):
    """One graph as other libraries hold it."""
    import networkx

    nodes = networkx.Graph()
    nodes.add_nodes_from(range(N))
    nodes.add_edges_from(pairs.T.tolist())
    found = {"networkx": nodes, "scipy": sp.coo_matrix((np.ones(N), tuple(pairs)), (N, N)), "edges [M, 2]": pairs.T}
    return found | {"Graph": Graph.from_edge_index(torch.from_numpy(pairs), N)}


@pytest.mark.parametrize("kind", ["networkx", "scipy", "edges [M, 2]", "Graph"])
def test_graphs_of_other_libraries(table, known, kind):
    X, _, shown, pairs = table
    model = quick().fit(X, shown, forms(pairs)[kind])
    np.testing.assert_allclose(model.label_distributions_, known.label_distributions_, atol=1e-6)


def test_a_graph_of_libpysal(table, known):
    weights = pytest.importorskip("libpysal.weights")
    X, _, shown, pairs = table
    near = {k: [] for k in range(N)}
    for a, b in pairs.T.tolist():
        near[a].append(b)
        near[b].append(a)
    model = quick().fit(X, shown, weights.W(near, silence_warnings=True))
    np.testing.assert_allclose(model.label_distributions_, known.label_distributions_, atol=1e-6)


def test_a_pipeline_passes_the_graph_on(table):
    X, y, shown, pairs = table
    pipe = make_pipeline(StandardScaler(), quick()).fit(X, shown, autoclassifier__graph=pairs)
    assert (pipe.predict(X) == y).mean() == 1
    assert pipe.predict_proba(X).shape == (N, 2)


@pytest.mark.parametrize("kind", [AutoClassifier, AutoRegressor])
def test_cross_validation_and_grid_search(kind):
    random = np.random.default_rng(1)
    X = np.r_[random.normal(size=(25, 2)), random.normal(size=(25, 2)) + 6]
    X = X[random.permutation(50)]
    y = (X[:, 0] > 3).astype(int) if kind is AutoClassifier else X.sum(1)
    assert cross_val_score(quick(kind), X, y, cv=2).min() > 0.5
    search = GridSearchCV(quick(kind), {"n_neighbors": [3, 6]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.5
    assert search.best_estimator_.score(X, y) > 0.5


@pytest.mark.parametrize("kind", [AutoClassifier, GLTClassifier, GraphFeatures])
def test_columns_of_a_frame_that_hold_no_numbers_are_named(table, kind):
    X, _, shown, pairs = table
    frame = (
        pd.DataFrame(X)
        .rename(columns=str)
        .assign(
            town=pd.Categorical(["Rome"] * N),
            sold=pd.Timestamp("2020-01-01"),
            rooms=pd.Series([3, None] * (N // 2), dtype=object),
        )
    )
    with pytest.raises(ValueError, match="something else than numbers in 'town', 'sold': encode it"):
        kind().fit(frame, shown, graph=pairs)


def test_bad_input_names_the_argument(table):
    X, y, shown, pairs = table
    with pytest.raises(ValueError, match="no label"):
        quick().fit(X, np.full(N, -1), pairs)
    with pytest.raises(ValueError, match="no label"):
        quick().fit(X, np.full(N, None), pairs)
    with pytest.raises(ValueError, match=r"only one class.*\[1\]"):
        quick().fit(X, np.where(shown == 1, 1, -1), pairs)
    for graph in (Graph.from_edge_index(torch.from_numpy(pairs), N + 1), sp.eye(N + 1, format="coo")):
        with pytest.raises(ValueError, match=rf"graph has .*{N + 1}"):
            quick().fit(X, shown, graph)
    with pytest.raises(ValueError, match=rf"{N - 1}"):
        quick().fit(X[1:], shown[1:], pairs)
    with pytest.raises(ValueError, match="infinity"):
        quick().fit(np.where(X > 2, np.inf, X), shown, pairs)
    with pytest.raises(ValueError, match="NaN"):
        quick().fit(sp.csr_matrix(np.where(X > 2, np.nan, X)), shown, pairs)
    for kind in (AutoClassifier, AutoRegressor):
        with pytest.raises(ValueError, match="budget=0"):
            kind(budget=0).fit(X, y, pairs)
    with pytest.raises(ValueError, match="predict_proba"):
        FieldClassifier(RidgeClassifier()).fit(X, shown, pairs)
