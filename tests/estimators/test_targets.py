"""Targets as people hold them: what is no label, what is no class, rows without one, before and after fit."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge

from walksum.estimators import (
    AutoClassifier,
    AutoRegressor,
    FieldClassifier,
    FieldRegressor,
    GLTClassifier,
    GLTRegressor,
)
from walksum.estimators.inputs import as_graph_of

N = 40
RING = np.stack([np.arange(N), (np.arange(N) + 1) % N])
X = np.random.default_rng(0).normal(size=(N, 3))
CLASS = (X[:, 0] > 0).astype(int)
SOME = np.arange(N) % 4 == 0


def classifiers():
    return [
        (AutoClassifier(budget=3, members=("linear", "label"), cv=2, random_state=0), {"graph": RING}),
        (FieldClassifier(LogisticRegression(), RING, cv=2), {}),
        (GLTClassifier(max_epochs=2, random_state=0, device="cpu"), {"graph": RING}),
    ]


@pytest.mark.parametrize(("model", "graph"), classifiers())
def test_labels_of_two_kinds_and_numbers_that_are_no_classes_are_refused(model, graph):
    with pytest.raises(ValueError, match="y holds texts and also 1"):
        model.fit(X, np.array(["1" if c else 1 for c in CLASS], dtype=object), **graph)
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        model.fit(X, X[:, 0], **graph)


def regressors():
    return [
        (AutoRegressor(budget=3, members=("linear",), cv=2, random_state=0), {"graph": RING}),
        (FieldRegressor(Ridge(), RING, cv=2), {}),
        (GLTRegressor(max_epochs=2, random_state=0, device="cpu"), {"graph": RING}),
    ]


@pytest.mark.parametrize(("model", "graph"), regressors())
def test_what_is_no_number_or_overflows_is_refused(model, graph):
    for y, said in (
        (1e200 * X[:, 0], "y holds a value of size 2.*e.200, whose square overflows"),
        (X[:, :2], "1d array"),
        (X[:, 0] + 1j, "Complex data not supported"),
        (np.datetime64("2020-01-01") + np.arange(N), "y has dtype datetime64"),
    ):
        with pytest.raises(ValueError, match=said):
            model.fit(X, y, **graph)


def test_columns_whose_squares_overflow_are_refused():
    with pytest.raises(ValueError, match="X holds a value of size 2"):
        AutoClassifier(budget=3, members=("linear",)).fit(1e200 * X, CLASS, graph=RING)


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_a_sparse_matrix_of_torch_is_a_graph_of_directed_edges(layout):
    model = AutoClassifier(budget=3, members=("linear",), cv=2, random_state=0)
    matrix = torch.sparse_coo_tensor(torch.tensor(RING), torch.ones(N), (N, N)).to_sparse(layout=layout)
    found, expected = (model.fit(X, CLASS, graph=graph).label_distributions_ for graph in (matrix, RING))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("model", "graph"), classifiers())
def test_a_date_that_is_missing_is_no_class_and_a_column_is_a_vector(model, graph):
    days = np.array(["2020-01-01", "2021-01-01"], dtype="M8[D]")[CLASS]
    assert len(model.fit(X, np.where(SOME, np.datetime64("NaT"), days), **graph).classes_) == 2
    with pytest.warns(match="column-vector y"):
        assert model.fit(X, CLASS[:, None], **graph).transduction_.shape == (N,)


@pytest.mark.parametrize(("model", "graph"), classifiers())
def test_scores_count_the_rows_that_have_a_label(model, graph):
    y = np.where(SOME, -1, CLASS)
    model.fit(X, y, **graph)
    assert model.score(X, y) == (model.predict(X) == y)[~SOME].mean()


def test_a_field_says_that_it_is_not_fitted_and_scores_known_rows():
    with pytest.raises(NotFittedError):
        FieldClassifier(LogisticRegression(), RING).predict(X)
    model = FieldRegressor(Ridge(), RING)
    with pytest.raises(NotFittedError):
        model.predict(X)
    y = np.where(SOME, np.nan, X[:, 0])
    assert model.fit(X, y).score(X, y) > 0.9


def test_a_constant_target_is_predicted():
    model = AutoRegressor(budget=3, members=("linear", "label"), cv=2, random_state=0)
    model.fit(X, np.where(SOME, np.nan, 7.0), graph=RING)
    assert np.allclose(model.transduction_, 7)
    assert np.allclose(model.std_, 0)


def test_an_adjacency_matrix_means_the_same_in_every_format():
    zero = sp.coo_matrix(([1.0, 1.0, 1.0, 0.0], ([0, 0, 1, 2], [1, 1, 2, 3])), (4, 4))  # one twice, one explicit zero
    graph = as_graph_of(zero, 4)
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert graph.edge_weight.tolist() == as_graph_of(zero.toarray(), 4).edge_weight.tolist() == [2.0, 1.0]
    assert zero.nnz == 4  # the matrix of the caller is left alone


def test_an_adjacency_matrix_is_real_and_undamaged():
    matrix = sp.csc_matrix(np.ones((4, 4)))
    with pytest.raises(ValueError, match=r"graph has shape \(4, 4\), dtype complex128; expected real numbers"):
        as_graph_of(matrix * 1j, 4)
    matrix.indices[0] = 10**8
    with pytest.raises(ValueError, match="graph is a damaged csc matrix"):
        as_graph_of(matrix, 4)


@pytest.mark.parametrize(("model", "graph"), classifiers() + regressors())
def test_masks_are_refused_instead_of_dropped(model, graph):
    hidden, table = np.ma.masked_array(CLASS, mask=SOME), np.ma.masked_array(X, mask=X > 2)
    with pytest.raises(ValueError, match=r"y has 10 masked numbers; leave them out, or fill them by y.filled"):
        model.fit(X, hidden, **graph)
    with pytest.raises(ValueError, match=r"X has [0-9]+ masked numbers"):
        model.fit(table, CLASS, **graph)


@pytest.mark.filterwarnings("ignore::walksum.solvers.base.SolveWarning")
def test_a_network_that_overflows_is_an_error_of_fit():
    with pytest.raises(
        ValueError, match=r"outputs are not finite: X holds a value of size .*e\+30, lr=.*StandardScaler"
    ):
        GLTClassifier(max_epochs=2, random_state=0, device="cpu").fit(X * 1e30, CLASS)
