"""Weights of rows and classes in a portfolio, networks that stop by the asked metric, and budgets that are kept."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.metrics import recall_score

from walksum.backends.cpu.compile import compiling_seconds
from walksum.backends.cpu.numba_api import numba
from walksum.estimators import AutoClassifier, AutoRegressor
from walksum.graph import Graph
from walksum.portfolio import clock
from walksum.portfolio.arrays import Additive, additive
from walksum.portfolio.blend import METRICS, is_default, least_squares_weights, paired_gain
from walksum.portfolio.input import Input
from walksum.portfolio.networks import StackRecipe
from walksum.portfolio.problem import Problem
from walksum.portfolio.spread import Operator
from walksum.portfolio.stack import Config, Stack
from walksum.portfolio.tabular import boosting, fit_in_time, linear

N = 160
ALONE = (Operator(0.0),)


@pytest.fixture
def rare():
    """One row in five is of class 1; its column says so faintly. A path joins the rows."""
    random = np.random.default_rng(0)
    y = (np.arange(N) % 5 == 0).astype(int)
    X = random.normal(size=(N, 3))
    X[:, 0] += 1.0 * y
    return X, y, np.stack([np.arange(N - 1), np.arange(1, N)])


@pytest.mark.parametrize("member", ["linear x", "boosting x", "extra trees x", "mlp x", "bank x"])
def test_members_learn_more_from_rows_that_weigh_more(rare, member):
    """Every row stands there twice, with both labels; the weights say which is meant."""
    X, y, _ = rare
    X, both = np.r_[X, X], np.r_[y, 1 - y]
    pairs = np.stack([np.arange(len(X) - 1), np.arange(1, len(X))])
    options = {"members": (member,), "cv": 2, "random_state": 0, "metric": "log_loss"}
    found = []
    for weight in (np.r_[np.full(N, 9.0), np.ones(N)], np.r_[np.ones(N), np.full(N, 9.0)]):
        model = AutoClassifier(**options).fit(X, both, pairs, sample_weight=weight)
        found.append(model.label_distributions_[:, 1].mean())
        assert model.ignoring_weights_ == []
    assert found[0] < 0.42
    assert found[1] > 0.58


def test_what_ignores_weights_is_named_and_weight_zero_is_no_label(rare):
    X, y, pairs = rare
    weight = np.where(np.arange(N) % 2, 1.0, 0.0)
    model = AutoClassifier(members=("linear x", "label"), cv=2, random_state=0)
    found = model.fit(X, y, pairs, sample_weight=weight).label_distributions_
    assert model.ignoring_weights_ == ["label propagation 0.9", "label propagation 0.99"]
    hidden = model.fit(X, np.where(weight > 0, y, -1), pairs).label_distributions_
    assert np.allclose(found, hidden, atol=1e-6)
    assert model.ignoring_weights_ == []
    with pytest.raises(ValueError, match="sample_weight of shape"):
        model.fit(X, y, pairs, sample_weight=weight[:5])
    with pytest.raises(ValueError, match="sample_weight='balanced'; expected one number"):
        model.fit(X, y, pairs, sample_weight="balanced")
    number = AutoRegressor(members=("linear x",), cv=2, random_state=0)
    assert np.allclose(
        number.fit(X, X[:, 1], pairs, sample_weight=weight).predict(X),
        number.fit(X, np.where(weight > 0, X[:, 1], np.nan), pairs).predict(X),
    )


def test_class_weights_move_decisions_and_not_probabilities(rare):
    X, y, pairs = rare
    options = {"members": ("linear x",), "cv": 2, "random_state": 0, "metric": "balanced_accuracy"}
    plain, balanced = (AutoClassifier(class_weight=w, **options).fit(X, y, pairs) for w in (None, "balanced"))
    assert np.allclose(plain.label_distributions_, balanced.label_distributions_)
    recall = [recall_score(y, model.transduction_) for model in (plain, balanced)]
    assert recall[1] > recall[0] + 0.2
    assert np.array_equal(balanced.predict(X), balanced.transduction_)
    assert balanced.members_[0]["validation"] > plain.members_[0]["validation"] + 0.1
    same = AutoClassifier(class_weight={0: 1.0, 1: (y == 0).sum() / (y == 1).sum()}, **options).fit(X, y, pairs)
    assert np.array_equal(same.transduction_, balanced.transduction_)
    for wrong in ("even", {0: 1.0}, {0: 1.0, 1: -2.0}):
        with pytest.raises(ValueError, match=r"class_weight=.*expected None, 'balanced' or a positive weight for each"):
            AutoClassifier(class_weight=wrong, **options).fit(X, y, pairs)


def test_networks_stop_by_the_metric(rare):
    X, y, pairs = rare
    rows = np.random.default_rng(1).permutation(N)
    graph = Graph.from_edge_index(torch.from_numpy(pairs), N)
    valid = np.sort(rows[:60])
    problem = Problem(X, graph, y.astype(float), 2, [(np.sort(rows[60:]), valid)])
    seen = []

    def metric(outputs, truth):
        seen.append(METRICS["roc_auc"](outputs, truth))
        return seen[-1]

    configs = [Config("a", ALONE, 1e-4)]
    found = Stack(problem, Input(X, "cpu"), graph, configs, StackRecipe(epochs=60), metric=metric).train()
    assert len(seen) == 30
    # ties of the AUC are told apart by the loss, so that the kept epoch is one of the best
    assert METRICS["roc_auc"](found.outputs[0, 0][valid], y[valid]) == pytest.approx(max(seen), abs=2e-3)
    assert seen[found.epochs[0] // 2 - 1] == pytest.approx(max(seen), abs=2e-3)
    assert is_default(METRICS["accuracy"])
    assert not is_default(METRICS["roc_auc"])


def test_the_clock_of_budgets_stands_still_while_kernels_are_compiled():
    before, real = clock.now(), compiling_seconds()
    numba.njit(lambda x: x + 1)(np.arange(3))
    compiled = compiling_seconds() - real
    assert compiled > 0
    assert clock.now() - before < compiled


def test_trees_are_grown_as_time_allows(rare):
    X, y, _ = rare

    def new():
        return HistGradientBoostingRegressor(max_iter=50, max_features=0.5, early_stopping=False, random_state=0)

    whole = fit_in_time(new(), X, y, None, clock.now() + 60)
    assert np.array_equal(whole.predict(X), new().fit(X, y).predict(X))  # two steps grow the same trees as one
    assert fit_in_time(new(), X, y, None, clock.now()) is None
    forest = ExtraTreesRegressor(50, random_state=0)
    assert len(fit_in_time(forest, X, y, None, clock.now()).estimators_) == 10  # those that tell how long others take


def test_boosting_takes_larger_steps_where_time_is_short(rare, monkeypatch):
    X, y, _ = rare
    times = iter([0.0, 10.0, 10.0])  # a fifth of the trees took ten seconds
    monkeypatch.setattr(clock, "now", lambda: next(times))
    model = HistGradientBoostingRegressor(max_iter=250, learning_rate=0.05, early_stopping=False, random_state=0)
    short = fit_in_time(model, X, y, None, 22.5)
    assert short.n_iter_ == 62
    assert short.learning_rate == pytest.approx(0.05 * 250 / 62, abs=1e-2)


def test_a_column_that_hardly_varied_in_training_carries_a_linear_model_nowhere():
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 2))
    X[:, 1] = 1 + 1e-9 * X[:, 1]
    y = X[:, 0] + 0.1 * random.normal(size=60)
    model = additive(linear(0, 0).fit(X, y), 0)
    far = np.array([[0.5, 3.0], [0.5, 1.0]])
    assert np.abs(model(far)[:, 0] - 0.5).max() < 1
    assert np.abs(linear(0, 0).fit(X, y).predict(far)[0]) > 1e3  # what scikit-learn says there
    again = Additive.of_state(*model.state())
    assert np.array_equal(again(far), model(far))


def test_members_that_cancel_each_other_get_no_weight():
    random = np.random.default_rng(0)
    y = random.normal(size=80)
    wild = 50 * random.normal(size=80)
    good = y + 0.3 * random.normal(size=80)
    outputs = np.stack([y + wild, y - wild, good])
    assert least_squares_weights(outputs, y).tolist() == [0, 0, 1]


def test_boosting_of_many_classes_looks_at_the_clock_before_it_grew_hundreds_of_trees():
    random = np.random.default_rng(0)
    X, y = random.normal(size=(120, 2)), np.arange(120) % 30
    model = fit_in_time(boosting(30, 0), X, y, None, clock.now() - 1, needed=True)
    assert sum(len(each) for each in model._predictors) <= 60


def test_the_gain_of_a_rank_metric_has_an_interval_where_a_draw_holds_one_class_alone():
    """Two rows of forty are of class 1, so that every seventh draw has none of them."""
    y, random = np.arange(40) // 38, np.random.default_rng(0)
    outputs = random.normal(size=(40, 2))
    found = paired_gain(lambda rows: METRICS["roc_auc"](outputs[rows], y[rows]), 40)
    assert np.isfinite(found).all()
    assert found[1] <= found[0] <= found[2]
