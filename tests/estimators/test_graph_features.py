"""GraphFeatures: the columns are what they say, and no row depends on its own target."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from walksum.estimators import GraphFeatures
from walksum.graph import Graph
from walksum.portfolio.features import diagonal_at, neighbour_targets, operator_diagonal, other_targets

N = 30


@pytest.fixture
def graph() -> Graph:
    random = np.random.default_rng(0)
    pairs = np.concatenate([np.stack([np.arange(N - 2), np.arange(1, N - 1)]), random.integers(0, N - 1, (2, 15))], 1)
    return Graph.from_edge_index(torch.from_numpy(pairs), N)  # the last node has no edges


def dense_operator(graph: Graph, scale: float) -> np.ndarray:
    A = np.zeros((N, N))
    i, j = graph.edges.numpy()
    A[i, j] = A[j, i] = 1
    root = 1 / np.sqrt(np.maximum(A.sum(1), 1))
    return (1 - abs(scale)) * np.linalg.inv(np.eye(N) - scale * root[:, None] * A * root)


def test_columns_are_what_their_names_say(graph):
    X = np.random.default_rng(1).normal(size=(N, 2))
    model = GraphFeatures(graph, scales=(0.9, -0.5), hops=1).fit(X)
    found = dict(zip(model.get_feature_names_out(), model.transform(X).T, strict=True))
    assert np.allclose(found["x, 1"], X[:, 1])
    assert np.allclose(found["log degree, 0"], np.log1p(graph.degree.numpy()))
    assert np.allclose(found["propagated, s=0.9, 0"], dense_operator(graph, 0.9) @ X[:, 0])
    assert np.allclose(found["propagated, s=-0.5, 1"], dense_operator(graph, -0.5) @ X[:, 1])
    i, j = graph.edges.numpy()
    neighbours = np.r_[j[i == 3], i[j == 3]]
    assert np.isclose(found["mean at 1 hops, 0"][3], X[neighbours, 0].mean())


@pytest.mark.parametrize("scale", [0.5, 0.99, -0.9])
def test_diagonal_by_both_ways(graph, scale, monkeypatch):
    expected = np.diag(dense_operator(graph, scale))
    assert np.allclose(operator_diagonal(graph, scale), expected)
    monkeypatch.setattr("walksum.portfolio.features.DENSE", 0)
    fresh = Graph(graph.edges, N)
    assert np.allclose(operator_diagonal(fresh, scale), expected)
    monkeypatch.setattr("walksum.portfolio.features.RATE", 0.0)  # a factor takes for ever: one solve per node
    monkeypatch.setattr("walksum.portfolio.features.operator_diagonal", None)
    some = np.arange(0, N, 3)
    assert np.allclose(diagonal_at(fresh, some, scale), expected[some])


def test_targets_of_others_are_the_row_without_its_diagonal(graph):
    nodes, Y = np.arange(0, N, 2), np.random.default_rng(2).normal(size=(15, 2))
    full = np.zeros((N, 2))
    full[nodes] = Y
    P = dense_operator(graph, 0.9)
    assert np.allclose(other_targets(graph, nodes, Y, (0.9,)), (P - np.diag(np.diag(P))) @ full)
    other = Y.copy()
    other[3] += 1.0
    near = [neighbour_targets(graph, nodes, each, hops=2)[nodes[3]] for each in (Y, other)]
    assert np.array_equal(*(each[:3] for each in near))
    np.testing.assert_allclose(*near, atol=1e-12)


def test_targets_at_two_hops_leave_ways_back_out(graph):
    random, nodes = np.random.default_rng(1), np.arange(0, graph.num_nodes, 2)
    Y = random.normal(size=(len(nodes), 2))
    A = np.zeros((graph.num_nodes, graph.num_nodes))
    i, j = graph.edges.numpy()
    A[i, j] = A[j, i] = 1 if graph.edge_weight is None else graph.edge_weight.numpy()
    mean = A / np.maximum(A.sum(1, keepdims=True), 1e-300)
    two = mean @ mean
    np.fill_diagonal(two, 0)
    two = two[:, nodes]
    found = neighbour_targets(graph, nodes, Y, hops=2)[:, 3:]
    np.testing.assert_allclose(found[:, 2], two.sum(1), atol=1e-12)
    some = two.sum(1) > 1e-6
    np.testing.assert_allclose(found[some, :2], (two @ Y)[some] / two.sum(1, keepdims=True)[some], atol=1e-9)


def test_nodes_without_others_near_do_not_tell_their_target_apart():
    y, nodes = np.random.default_rng(0).normal(size=(30, 1)), np.arange(30)
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 2], [1, 2, 3]]), 30)
    far, near = other_targets(graph, nodes, y, (0.9,), ratio=True), neighbour_targets(graph, nodes, y)
    for found in (far, near):
        np.testing.assert_allclose(found[4:, 0], y[:4].mean(), rtol=1e-12)
    alone = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.long), 30)
    np.testing.assert_allclose(other_targets(alone, nodes, y, (0.9,), ratio=True), y.mean(), rtol=1e-12)


@pytest.mark.parametrize("size", [3, 4])
@pytest.mark.parametrize("numbers", [False, True])
def test_not_even_the_last_digits_tell_the_own_target(size, numbers):
    """In many equal components trees tell sums apart that differ by rounding alone."""
    nodes = np.arange(60 * size)
    first = torch.from_numpy(nodes[::size])
    stars = Graph.from_edge_index(torch.cat([torch.stack([first, first + k]) for k in range(1, size)], 1), len(nodes))
    codes = np.random.default_rng(0).integers(0, 2, len(nodes))
    scales = (0.5, 0.9) if numbers else (0.5, 0.9, -0.5)
    for k in range(0, len(nodes), 7):
        found = []
        for own in (0, 1):
            codes[k] = own
            Y = codes[:, None] - 0.3 if numbers else np.eye(2)[codes]
            far, near = other_targets(stars, nodes, Y, scales, numbers), neighbour_targets(stars, nodes, Y, hops=2)
            found.append(np.r_[far[k], near[k]])
        assert np.array_equal(*found)


def test_one_large_target_costs_nodes_far_from_it_no_digits():
    graph = Graph.from_edge_index(torch.tensor([[0, 2, 3], [1, 3, 4]]), N)
    y = np.random.default_rng(0).normal(size=(N, 1))
    y[0] = 1e12
    P = dense_operator(graph, 0.9)
    np.fill_diagonal(P, 0)
    assert np.allclose(other_targets(graph, np.arange(N), y, (0.9,))[2:], (P @ y)[2:], rtol=1e-9, atol=0)


@pytest.mark.parametrize("task", ["classes", "numbers"])
def test_no_row_depends_on_its_own_target(graph, task):
    random = np.random.default_rng(3)
    table, nodes = random.normal(size=(N, 2)), np.arange(0, N, 2)
    y = random.integers(0, 3, len(nodes)) if task == "classes" else random.normal(size=len(nodes))
    before = GraphFeatures(graph, table, labels=True).fit(nodes, y).transform(nodes)
    for k in range(len(nodes)):
        other = y.copy()
        other[k] = (y[k] + 1) % 3 if task == "classes" else y[k] + 5.0
        if task == "classes" and len(np.unique(other)) < 3:
            continue
        after = GraphFeatures(graph, table, labels=True).fit(nodes, other).transform(nodes)
        assert np.allclose(after[k], before[k], atol=1e-10)
        assert not np.allclose(after, before)  # others do see it


def test_in_a_pipeline_with_cross_validation(graph):
    table = np.random.default_rng(4).normal(size=(N, 2))
    y = (table[:, 0] > 0).astype(int)
    model = make_pipeline(GraphFeatures(graph, table, labels=True), LogisticRegression())
    scores = cross_val_score(model, np.arange(N), y, cv=3)
    assert scores.mean() > 0.7


def test_the_table_itself_and_wide_sparse_tables(graph):
    wide = sp.random(N, 300, 0.05, random_state=0, format="csr")
    model = GraphFeatures(graph, scales=(0.9,), hops=1, components=5).fit(wide)
    assert model.transform(wide).shape == (N, 5 + 1 + 5 + 5)
    y = np.full(N, np.nan)
    y[:10] = np.linspace(0, 1, 10)
    X = np.ones((N, 1))
    assert GraphFeatures(graph, labels=True).fit(X, y).transform(X).shape[0] == N
    make_pipeline(GraphFeatures(graph), Ridge()).fit(X, np.arange(N))


def test_bad_input(graph):
    X = np.ones((N, 2))
    with pytest.raises(ValueError, match="graph is None"):
        GraphFeatures().fit(X)
    with pytest.raises(ValueError, match="y is None"):
        GraphFeatures(graph, labels=True).fit(X)
    with pytest.raises(ValueError, match="node numbers"):
        GraphFeatures(graph, X).fit(X)
    with pytest.raises(ValueError, match="names node 30"):
        GraphFeatures(graph, X).fit([0, 30])
    with pytest.raises(ValueError, match="3 rows"):
        GraphFeatures(graph).fit(X).transform(X[:3])
    with pytest.raises(ValueError, match="nodes but X has"):
        GraphFeatures(graph).fit(X[:5])
    with pytest.raises(ValueError, match="no known target"):
        GraphFeatures(graph, labels=True).fit(X, np.full(N, -1))


def test_texts_with_gaps_are_labels():
    n = np.arange(6)
    y = np.array(["a", "a", None, "b", np.nan, "b"], dtype=object)
    found = GraphFeatures(np.stack([n[:-1], n[1:]]), n[:, None] / 6, scales=(0.5,), labels=True).fit(n, y)
    assert [name for name in found.get_feature_names_out() if "target" in name] == [
        "target of others, s=0.5, a",
        "target of others, s=0.5, b",
    ]


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_another_table_is_not_answered_with_the_columns_of_fit(kind):
    X, ring = np.random.default_rng(0).normal(size=(8, 2)), np.stack([np.arange(8), (np.arange(8) + 1) % 8])
    features = GraphFeatures(ring, components=None).fit(kind(X))
    assert features.transform(kind(X * (1 + 1e-12))).shape == features.features_.shape
    for other in (X[::-1], X + 1, X[:, :1]):
        with pytest.raises(ValueError, match="X is not the table of fit"):
            features.transform(kind(other))


def test_whole_numbers_are_numbers_where_that_is_said():
    n = np.arange(40)
    path, table, y = np.stack([n[:-1], n[1:]]), np.zeros((40, 1)), 3 * n
    with pytest.warns(UserWarning, match="y holds 40 different whole numbers, which are taken as classes; labels="):
        assert len(GraphFeatures(path, table, labels=True).fit(n, y).names_) > 200
    found = GraphFeatures(path, table, scales=(0.5,), labels="numbers").fit(n, y)
    assert found.names_[-1] == "target of others, s=0.5"
    half = GraphFeatures(path, table, scales=(0.5,), labels=True).fit(n, y / 2)  # fractions are numbers anyway
    assert np.allclose(found.features_[:, -1], 2 * half.features_[:, -1])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"hops": -1}, "hops=-1; expected a whole number from 0 on"),
        ({"components": 0}, "components=0; expected a positive whole number"),
        ({"scales": 0.5}, "scales=0.5; expected a sequence of numbers"),
        ({"labels": "class"}, "labels='class'; known: 'numbers', 'classes', True, False"),
        ({"scales": (), "hops": 0, "degrees": False, "columns": False}, "leave no column"),
    ],
)
def test_settings_that_mean_nothing_are_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        GraphFeatures(np.array([[0, 1], [1, 2]]), np.eye(3), **setting).fit(np.arange(3))


def test_several_rows_of_one_node_count_by_their_mean(graph):
    table, nodes, y = np.zeros((N, 1)), np.array([2, 9, 4, 2]), np.array([1.0, 5.5, 2.5, 4.0])
    once = GraphFeatures(graph, table, labels="numbers").fit(nodes[:3], np.r_[2.5, y[1:3]])
    twice = GraphFeatures(graph, table, labels="numbers").fit(nodes, y)
    np.testing.assert_allclose(twice.transform(np.arange(N)), once.transform(np.arange(N)))
    shares = GraphFeatures(graph, table, labels=True).fit(nodes, ["a", "b", "b", "b"]).transform([3])
    swapped = GraphFeatures(graph, table, labels=True).fit(nodes[::-1], ["b", "b", "b", "a"]).transform([3])
    np.testing.assert_allclose(shares, swapped)


def test_targets_and_scales_that_cannot_be_used_are_refused(graph):
    table, nodes, y = np.zeros((N, 1)), np.arange(N), np.arange(N) / 7
    with pytest.raises(ValueError, match=r"1d array"):
        GraphFeatures(graph, table, labels=True).fit(nodes, np.stack([y, y], 1))
    with pytest.raises(ValueError, match="y has 30 masked numbers"):
        GraphFeatures(graph, table, labels=True).fit(nodes, np.ma.masked_all(N))
    with pytest.raises(ValueError, match="X has 1 masked numbers"):
        GraphFeatures(graph).fit(np.ma.masked_equal(y[:, None], 0))
    for scales in ((0.5, "a"), (1.0,), (float("nan"),)):
        with pytest.raises(ValueError, match=r"scales=.*expected numbers between -1 and 1"):
            GraphFeatures(graph, table, scales=scales).fit(nodes)
    with pytest.raises(ValueError, match=r"scales=\(-0.5,\) holds none above 0"):
        GraphFeatures(graph, table, scales=(-0.5,), labels="numbers").fit(nodes, y)
    with pytest.raises(ValueError, match=r"GraphFeatures.graph, table=X. takes node numbers as rows"):
        GraphFeatures(graph).fit(table[1:])
