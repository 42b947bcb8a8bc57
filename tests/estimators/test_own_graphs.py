"""Estimators with a graph and labels as scikit-learn's users hold them: networkx, texts, gaps, cross-validation."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge

import walksum as ws
from walksum.portfolio.columns import with_near_targets, with_targets


def _two_rings():
    import networkx as nx

    X = np.repeat([[0.0, 0.0], [1.0, 1.0]], 12, axis=0) + np.random.default_rng(0).normal(size=(24, 2))
    y = np.array(["red"] * 12 + ["blue"] * 12, dtype=object)
    return X, y, nx.disjoint_union(nx.complete_graph(12), nx.complete_graph(12))


@pytest.mark.parametrize("nothing", [None, np.nan])
@pytest.mark.parametrize(
    "model",
    [
        ws.AutoClassifier(members=("label", "linear"), cv=2, random_state=0),
        ws.GLTClassifier(max_epochs=40, lr=0.02, dropout=0.1, random_state=0),
    ],
    ids=["auto", "glt"],
)
def test_texts_without_a_label_and_a_networkx_graph(model, nothing):
    X, truth, graph = _two_rings()
    y = truth.copy()
    y[::3] = nothing
    fitted = clone(model).fit(X, y, graph=graph)
    assert fitted.classes_.tolist() == ["blue", "red"]
    assert (fitted.transduction_ == truth).mean() > 0.9
    assert fitted.score(X, y) > 0.9  # of the rows that have a label


def test_a_directed_networkx_graph_is_read_with_its_directions():
    import networkx as nx

    from walksum.estimators.auto.base import _arcs

    assert _arcs(nx.DiGraph([("a", "b"), ("b", "c")]))[0].tolist() == [[0, 1], [1, 2]]
    assert _arcs(nx.Graph([("a", "b"), ("b", "c")]))[0] is None


def _flows():
    draw = np.random.default_rng(0)
    pairs, amount = draw.integers(0, 150, (2, 450)), np.exp(draw.normal(2, 1, 450))
    return draw.normal(size=(150, 1)), pairs, amount, np.log1p(np.bincount(pairs[1], amount, 150))


@pytest.mark.parametrize("kind", ["csr", "dense", "torch", "networkx"])
def test_what_flows_into_a_node_is_learned_from(kind):
    import networkx as nx
    import scipy.sparse as sp
    import torch

    X, pairs, amount, y = _flows()
    matrix = sp.coo_matrix((amount, pairs), (150, 150)).tocsr()
    graph = {
        "csr": lambda: matrix,
        "dense": lambda: matrix.toarray(),
        "torch": lambda: torch.sparse_coo_tensor(pairs, amount, (150, 150), check_invariants=True),
        "networkx": lambda: nx.from_scipy_sparse_array(matrix, create_using=nx.DiGraph),
    }[kind]()
    truth = y.copy()
    y[::3] = np.nan
    model = ws.AutoRegressor(members=("linear surroundings",), cv=2, random_state=0).fit(X, y, graph=graph)
    assert np.corrcoef(model.transduction_[::3], truth[::3])[0, 1] > 0.9


def test_who_leads_to_whom_tells_classes_apart():
    draw = np.random.default_rng(0)
    truth = draw.integers(0, 4, 240)
    ends = [(i, draw.choice(np.nonzero(truth == (truth[i] + 1) % 4)[0])) for i in range(240) for _ in range(3)]
    ends += [(i, i) for i in range(240)]  # a loop leads to the own label, which is not read
    y = np.where(np.arange(240) % 3 == 0, -1, truth)
    members = ("linear surroundings + labels",)
    model = ws.AutoClassifier(members=members, cv=2, random_state=0).fit(draw.normal(size=(240, 1)), y, graph=ends)
    assert (model.transduction_ == truth)[y < 0].mean() > 0.9
    problem, train = model.portfolio_.problem, np.nonzero(y >= 0)[0]
    turned = replace(problem, y=problem.y.copy(), kept={})
    turned.y[7] = (truth[7] + 1) % 4
    for columns in (with_targets, with_near_targets):
        before, after = columns(problem, train), columns(turned, train)
        assert np.allclose(before[7], after[7])
        assert not np.allclose(before[train], after[train])


def test_test_rows_stay_in_the_graph_without_their_label():
    X, y, graph = _two_rings()
    y[5] = None
    seen = []

    class Watched(ws.AutoClassifier):
        def fit(self, X, y, graph=None, validation=None):
            seen.append((len(X), int(sum(label is None for label in y)), graph.number_of_nodes()))
            return super().fit(X, y, graph, validation)

    model = Watched(members=("label",), cv=2, random_state=0)
    scores = ws.TransductiveKFold(3).cross_val_score(model, X, y, graph=graph)
    assert scores.tolist() == [1, 1, 1]
    assert [rows for rows, _, _ in seen] == [24, 24, 24]
    assert sum(hidden - 1 for _, hidden, _ in seen) == 23
    folds = list(ws.TransductiveKFold(3).split(X, y))
    assert all(5 in train for train, _ in folds)
    assert sorted(np.concatenate([test for _, test in folds]).tolist()) == [k for k in range(24) if k != 5]


def test_cross_validation_of_numbers_hides_them():
    X, _, graph = _two_rings()
    y = np.r_[np.zeros(12), np.ones(12)] + 0.01 * np.arange(24)
    model = ws.AutoRegressor(members=("label", "linear"), cv=2, random_state=0)
    scores = ws.TransductiveKFold(2).cross_val_score(model, X, y, graph=graph)
    assert scores.shape == (2,)
    assert scores.min() > 0.5


@pytest.mark.parametrize("kind", ["auto", "glt"])
def test_rows_that_equal_several_nodes_get_their_mean_and_a_warning(kind):
    n = np.arange(40)
    path, y = np.stack([n[:-1], n[1:]]), np.where(n % 3 == 0, np.sin(n / 5), np.nan)
    X = np.repeat([[0.0], [1.0]], 20, 0)
    new = {"auto": ws.AutoRegressor(20, members=("label",), cv=2), "glt": ws.GLTRegressor(max_epochs=3)}[kind]
    model = new.set_params(random_state=0).fit(X, y, graph=path)
    assert np.array_equal(model.predict(X), model.transduction_)
    with pytest.warns(UserWarning, match="row 0 of X equals 20 rows of fit, which are different nodes"):
        assert np.allclose(model.predict(X[30:32]), model.transduction_[20:].mean())


def test_some_rows_of_a_wide_table_are_found_again():
    draw, n = np.random.default_rng(0), np.arange(60)
    X = draw.normal(100, 3, (60, 40))  # distances of so many columns are rounded: equal rows are not at distance 0
    model = ws.AutoRegressor(20, members=("label",), cv=2, random_state=0)
    model.fit(X, np.where(n % 3 == 0, np.nan, np.sin(n / 5)), graph=np.stack([n[:-1], n[1:]]))
    assert np.array_equal(model.predict(X[20:30]), model.transduction_[20:30])


def test_a_fold_of_one_class_is_refused_in_words_of_y():
    import networkx as nx

    graph, y = nx.karate_club_graph(), np.full(34, None)
    y[[0, 1, 2, 33]] = "Mr. Hi", "Mr. Hi", "Mr. Hi", "Officer"
    with pytest.raises(ValueError, match=r"fold [12] of 2 would learn from one class alone: too few rows of y"):
        ws.AutoClassifier(20, members=("linear",), cv=2, random_state=0).fit(np.eye(34), y, graph=graph)


def test_networkx_nodes_in_another_order_than_the_rows_are_said():
    import networkx as nx

    graph, X = nx.Graph([(0, 3), (3, 1), (1, 2)]), np.eye(4)
    y = np.array([0.0, 3.0, 1.0, 2.0])
    with pytest.warns(UserWarning, match=r"k-th node of graph.nodes, but these begin \[0, 3, 1, 2\]"):
        ws.GraphFeatures(graph).fit(X)
    ws.GraphFeatures(nx.to_scipy_sparse_array(graph, nodelist=range(4)), X, labels=True).fit(np.arange(4), y)


def test_whole_numbers_are_no_classes_to_a_regressor():
    X, n = np.arange(60)[:, None], np.arange(60)
    model = ws.FieldRegressor(Ridge(), graph=np.stack([n[:-1], n[1:]]))
    assert ws.TransductiveKFold(3).cross_val_score(model, X, 7 * n - 1).min() > 0.9


def test_class_codes_among_nan_are_scored_as_classes():
    X, n = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60)
    codes, path = (X[:, 0] > 0).astype(int), np.stack([n[:-1], n[1:]])
    model = ws.FieldClassifier(LogisticRegression(), graph=path)
    whole = ws.TransductiveKFold(3).cross_val_score(model, X, np.where(n % 3 == 0, -1, codes))
    gaps = np.where(n % 3 == 0, np.nan, codes)  # floats, by which R^2 was taken before
    assert ws.TransductiveKFold(3).cross_val_score(model, X, gaps).tolist() == whole.tolist()
    assert all(not (test % 3 == 0).any() for _, test in ws.TransductiveKFold(3).split(X, gaps.astype(object)))
    with pytest.raises(ValueError, match="scoring='roc_auc'; expected a function"):
        ws.TransductiveKFold(3).cross_val_score(model, X, gaps, scoring="roc_auc")


def test_unlabelled_numbers_among_objects_are_no_test_rows():
    y = np.array([None if k % 3 == 0 else k / 7 for k in range(30)], dtype=object)
    assert all(not (test % 3 == 0).any() for _, test in ws.TransductiveKFold(3).split(np.zeros((30, 1)), y))


def test_a_text_nan_is_no_class():
    y = np.array(["red", "nan", "blue"] * 4)
    with pytest.raises(ValueError, match="y holds the text 'nan', which would be a class; None or NaN marks"):
        ws.FieldClassifier(LogisticRegression(), graph=np.array([[0], [1]])).fit(np.eye(12), y)


def test_rows_that_a_cross_validation_cut_out_are_told():
    n = np.arange(40)
    model = ws.FieldRegressor(Ridge(), graph=np.stack([n[:-1], n[1:]]))
    with pytest.raises(ValueError, match=r"graph has 40 nodes but X has 30 rows.*TransductiveKFold.cross_val_score"):
        model.fit(n[:30, None], np.sin(n[:30]))


def test_a_budget_may_be_a_number_of_numpy():
    X, y, graph = _two_rings()
    ws.AutoClassifier(np.float32(20), members=("label",), cv=2, random_state=0).fit(X, y, graph=graph)


def test_names_of_rows_in_another_order_than_the_graphs_are_said():
    import networkx as nx
    import pandas as pd

    graph = nx.Graph([("a", "d"), ("d", "b"), ("b", "c")])  # as from_pandas_edgelist makes it, in the order of edges
    X = pd.DataFrame({"size": [0.0, 3.0, 1.0, 2.0]}, index=list("abcd"))
    table = nx.to_pandas_adjacency(graph)
    for given, said in ((graph, r"nodelist=X.index\)"), (table, r"graph.loc\[X.index, X.index\]")):
        with pytest.warns(UserWarning, match=r"begin \['a', 'd', 'b', 'c'\] and X.index begins \['a', 'b'.*" + said):
            ws.GraphFeatures(given).fit(X)
        with pytest.warns(UserWarning, match="row k of X"):
            ws.GLTRegressor(max_epochs=1, device="cpu").fit(X, X["size"], graph=given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ws.GraphFeatures(table.loc[X.index, X.index]).fit(X)
        ws.GraphFeatures(graph).fit(X.loc[list(graph.nodes)])
        numbered = nx.Graph([(2, 0), (0, 1), (1, 3)])
        ws.GraphFeatures(numbered).fit(X.set_index(pd.Index(numbered.nodes)))
