"""Deep networks on words: what they read of labels, how they are kept, and where the portfolio tries them."""

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from walksum.graph import Graph
from walksum.portfolio.blend import METRICS, accuracy, fit_blends
from walksum.portfolio.deep import DeepBanks, fit_deep, fit_words
from walksum.portfolio.members import tasks
from walksum.portfolio.problem import Problem

N, SHOWN = 80, 60


def words(n=N, train=40, judged=20, columns=30, edges=200, classes=2):
    random = np.random.default_rng(0)
    X = sp.csr_matrix((random.random((n, columns)) < 0.1).astype(float))
    graph = Graph.from_edge_index(torch.from_numpy(random.integers(0, n, (2, edges))), n)
    folds = [(np.arange(train), np.arange(train, train + judged))]
    return Problem(X, graph, random.integers(0, classes, n).astype(float), classes, folds)


def other_label(problem, node):
    y = problem.y.copy()
    y[node] = 1 - y[node]
    return replace(problem, y=y)


@pytest.fixture(scope="module")
def trained():
    problem = words()
    out, model, whole = fit_words(problem, 0.5, accuracy, np.inf, seeds=2, epochs=[12, 12], width=8)
    assert whole
    return problem, out, model


def test_no_node_reads_its_own_label_and_others_do(trained):
    problem, out, model = trained
    np.testing.assert_allclose(model.outputs(problem)[0], out, atol=1e-6)
    assert np.allclose(np.exp(out).sum(-1), 1)  # the mean of two networks
    for node in (0, 7):
        moved = model.outputs(other_label(problem, node))[0, 0]
        np.testing.assert_allclose(moved[node], out[0, node], atol=1e-6)
        assert np.abs(moved - out[0]).max() > 1e-4
    # what judges is not told
    np.testing.assert_allclose(model.outputs(other_label(problem, 50))[0], out, atol=1e-6)


def test_a_label_that_is_told_is_not_learned_from():
    """Without words and edges a network could only copy what it is told, were it asked for it."""
    problem = replace(words(edges=0), X=sp.csr_matrix((N, 30)))
    _, model, _ = fit_words(problem, 0.5, accuracy, np.inf, seeds=1, epochs=[150], width=8)
    train = problem.folds[0][0]
    told = torch.nn.functional.one_hot(torch.from_numpy(problem.y).long()).float()
    with torch.no_grad():
        out = model.models[0].eval()(model.read(problem), problem.graph, told).numpy()
    assert accuracy(out[train], problem.y[train]) < 0.8


def test_state_without_pickle_and_of_older_runs(trained):
    problem, out, model = trained
    config, arrays = model.state()
    arrays = {name: np.ascontiguousarray(value) for name, value in arrays.items()}  # as the file has them
    again = DeepBanks.of_state(json.loads(json.dumps(config)), arrays)
    np.testing.assert_allclose(again.outputs(problem)[0], out, atol=1e-6)
    narrow = replace(words(), X=np.random.default_rng(1).normal(size=(N, 4)), wide=False)
    out, model, _ = fit_deep(narrow, 2, accuracy, np.inf, epochs=4, width=8)
    config, arrays = model.state()
    older = {name: config[name] for name in ("layers", "width", "folds")}
    np.testing.assert_allclose(DeepBanks.of_state(older, arrays).outputs(narrow)[0], out, atol=1e-6)


def test_words_of_a_middle_graph_have_trees_and_deep_networks_before_the_stacks():
    problem = words(700, 350, 100, 250, 2000)
    names = [task.name for task in tasks(problem, accuracy)]
    wanted = ["linear x", "extra trees surroundings + labels", "deep bank words", "deep bank words + labels",
              "boosting surroundings", "smooth raw", "boosting surroundings + labels", "boosting x", "hidden raw",
              "mlp rows"]  # fmt: skip
    places = [names.index(name) for name in wanted]
    assert places == sorted(places)
    by_name = {task.name: task for task in tasks(problem, accuracy)}
    assert [by_name[f"deep bank words{end}"].uses_targets for end in ("", " + labels")] == [False, True]
    few = [task.name for task in tasks(words(700, 200, 100, 250, 2000), accuracy)]  # as Cora and WebKB
    assert not any(name.startswith("deep") for name in few)
    first = ["label propagation", "linear x", "smooth raw", "mlp raw", "extra trees x", "bank raw"]
    assert [name for name in few if name in first] == first
    others = {"deep bank words", "deep bank words + labels", "twice raw"}  # the last as "twice raw consistent" there
    assert set(few) | others >= set(names)


def test_refit_learns_validation_labels_for_the_chosen_epochs(monkeypatch):
    problem = words(520, 310, 60, 210, 1500)
    by_name = {task.name: task for task in tasks(problem, accuracy, ("deep bank words",))}
    monkeypatch.setattr("walksum.portfolio.deep.EPOCHS_OF_WORDS", 1)
    found = by_name["deep bank words + labels"].run(np.inf)
    assert found.complete
    assert found.model.epochs == [1, 1]
    again = found.refit([0])
    assert again.shape == found.outputs[:, 0].shape
    mistaken = other_label(problem, 330)  # a row that judges
    [task] = tasks(mistaken, accuracy, ("deep bank words + labels",))
    assert np.abs(task.run(np.inf).refit([0]) - again).max() > 1e-6


def test_a_metric_that_is_not_defined_leaves_the_choice_to_the_likelihood():
    """The ROC AUC of validation rows of one class: no network stays as it was drawn, and blends have weights."""
    problem = words()
    problem.y[problem.folds[0][1]] = 1.0
    narrow = replace(problem, X=np.random.default_rng(1).normal(size=(N, 4)), wide=False)
    auc, y = METRICS["roc_auc"], problem.y[problem.judged]
    assert np.isnan(auc(np.zeros((len(y), 2)), y))
    _, many, _ = fit_words(problem, 0.0, auc, np.inf, seeds=1, width=8)
    out, deep, _ = fit_deep(narrow, 2, auc, np.inf, epochs=10, width=8)
    assert many.epochs[0] < 400
    assert deep.epochs[0] < 10
    (blend,) = fit_blends(np.stack([out[0], -out[0]])[:, problem.judged], y, 2, auc, [np.ones(2, bool)])
    assert blend.weights.sum() == pytest.approx(1)
