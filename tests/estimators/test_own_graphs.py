"""Estimators with a graph and labels as scikit-learn's users hold them: networkx, texts, gaps, cross-validation."""

import numpy as np
import pytest
from sklearn.base import clone

import walksum as ws


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

    assert _arcs(nx.DiGraph([("a", "b"), ("b", "c")])).tolist() == [[0, 1], [1, 2]]
    assert _arcs(nx.Graph([("a", "b"), ("b", "c")])) is None


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
