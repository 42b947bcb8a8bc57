"""A few known nodes per class: label propagation, and portfolios whose rows are too few to judge."""

import networkx as nx
import numpy as np
import pytest
import torch

from walksum.estimators import AutoClassifier
from walksum.graph import Graph
from walksum.portfolio.blend import accuracy, even_weights, fit_blends
from walksum.portfolio.features import class_gains, operator_diagonal
from walksum.portfolio.labels import LabelPropagation, _spread
from walksum.portfolio.problem import Problem


def blocks(inside: float, outside: float, size: int = 60, classes: int = 4, seed: int = 0) -> tuple[Graph, np.ndarray]:
    random = np.random.default_rng(seed)
    y = np.repeat(np.arange(classes), size)
    chance = np.where(y[:, None] == y, inside, outside)
    edges = np.stack(np.nonzero(np.triu(random.random(chance.shape) < chance, 1)))
    return Graph.from_edge_index(torch.from_numpy(edges), len(y)), y


def problem_of(graph: Graph, y: np.ndarray, known: np.ndarray) -> Problem:
    shown = np.full(len(y), np.nan)
    shown[known] = y[known]
    rest = np.setdiff1d(np.arange(len(y)), known)
    return Problem(np.zeros((len(y), 1)), graph, shown, int(y.max()) + 1, [(known, rest)])


def right(problem: Problem, y: np.ndarray, scale: float) -> tuple[float, float]:
    train, rest = problem.folds[0]
    out, power = _spread(problem, train, scale)
    return float((out[rest].argmax(1) == y[rest]).mean()), power


def test_gains_are_shares_of_what_all_get_and_know_nothing_of_a_node_itself():
    graph, y = blocks(0.4, 0.15, size=12, classes=3)
    known = np.arange(0, 36, 2)
    S = np.zeros((36, 36))
    i, j = graph.edges.numpy()
    root = 1 / np.sqrt(graph.degree.numpy())
    S[i, j] = S[j, i] = root[i] * root[j]
    P = 0.1 * np.linalg.inv(np.eye(36) - 0.9 * S)
    found = class_gains(graph, known, np.eye(3)[y[known]], 0.9)
    for node in range(36):
        others = known[known != node]
        got = np.array([P[node, others[y[others] == k]].sum() / P[others[y[others] == k]].sum() for k in range(3)])
        np.testing.assert_allclose(found[node], got / got.sum(), rtol=1e-3)
    assert np.allclose(P.diagonal(), operator_diagonal(graph, 0.9))
    changed = y.copy()
    changed[known[0]] = 2 - y[known[0]]
    again = class_gains(graph, known, np.eye(3)[changed[known]], 0.9)
    np.testing.assert_allclose(again[known[0]], found[known[0]], rtol=1e-9)
    assert not np.allclose(again[known[1]], found[known[1]], rtol=1e-3)


@pytest.mark.parametrize("scale", [0.9, 0.99])
def test_labels_of_unequal_reach_are_spread_by_their_gain(scale):
    """What is spread far is nearly the same everywhere: its sum alone chose one class for most nodes."""
    graph, y = blocks(0.15, 0.02)
    known = np.concatenate([np.arange(60 * k, 60 * k + count) for k, count in enumerate((3, 4, 5, 6))])
    share, power = right(problem_of(graph, y, known), y, scale)
    assert share > 0.75
    assert power >= 1


def test_neighbours_that_are_unlike_are_found_where_enough_are_known():
    graph, y = blocks(0.01, 0.06, size=120, classes=2)
    enough = np.random.default_rng(0).permutation(240)[:120]
    share, power = right(problem_of(graph, y, enough), y, 0.9)
    assert share > 0.75
    assert power < 0
    assert right(problem_of(graph, y, enough[:20]), y, 0.9)[1] > 0  # so few say little of the sign


def test_asked_about_another_graph_labels_keep_the_power_of_training():
    kept = LabelPropagation([0.9], [0.5, 0.5], [-16.0])
    other, truth = blocks(0.01, 0.06, size=80, classes=2, seed=1)
    few = problem_of(other, truth, np.r_[0:20, 80:100])
    model = LabelPropagation.of_state(*kept.state())
    assert (model.outputs(few)[0, 0, 20:80].argmax(1) == truth[20:80]).mean() > 0.6


def test_one_label_per_class_is_enough_for_an_answer():
    club = nx.karate_club_graph()
    y = np.array([club.nodes[k]["club"] == "Officer" for k in range(34)]).astype(int)
    shown = np.full(34, -1)
    shown[[0, 33]] = y[[0, 33]]
    model = AutoClassifier(budget=10, random_state=0)
    with pytest.warns(UserWarning, match="one labelled row for most of its 2 classes: nothing can judge members"):
        model.fit(np.ones((34, 1)), shown, club)
    assert (model.transduction_ == y).mean() > 0.9
    assert model.graph_gain_ is None
    assert all(np.isnan(row["validation"]) for row in model.members_)
    families: dict[str, float] = {}
    for row in model.members_:
        families[row["member"].split()[0]] = families.get(row["member"].split()[0], 0.0) + row["weight"]
    assert np.allclose(list(families.values()), 1 / len(families))


def test_a_few_rows_leave_some_weight_with_every_family():
    random = np.random.default_rng(0)
    even = even_weights(["smooth"] * 8 + ["place", "label"])
    assert np.allclose(even, [1 / 24] * 8 + [1 / 3] * 2)
    y = np.tile([0, 1], 200)
    outputs = random.normal(size=(10, 400, 2))
    outputs[0, np.arange(400), y] += 9.0  # one member knows all
    for rows, least in ((2, 0.4), (6, 0.15)):
        (blend,) = fit_blends(outputs[:, :rows], y[:rows], 2, accuracy, [np.ones(10, bool)], even)
        assert least < blend.weights[1:].sum() < 0.7
    (many,) = fit_blends(outputs, y, 2, accuracy, [np.ones(10, bool)], even)
    assert many.weights[0] > 0.99
