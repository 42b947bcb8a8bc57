"""The budget is kept where one step takes long: work moves the clock here, so that nothing depends on the machine."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import ExtraTreesClassifier

from walksum.graph import Graph
from walksum.portfolio import clock, stack, stacked, tabular
from walksum.portfolio.blend import accuracy, fit_blends, r_squared
from walksum.portfolio.deep import DeepBank, WordBank, fit_deep, fit_words
from walksum.portfolio.fit import fit_portfolio
from walksum.portfolio.folds import cross_validation
from walksum.portfolio.members import tasks
from walksum.portfolio.networks import Networks
from walksum.portfolio.problem import Problem
from walksum.portfolio.process import fit_process
from walksum.portfolio.tabular import fit_in_time, linear

N = 120


@pytest.fixture
def problem():
    random = np.random.default_rng(0)
    y = np.arange(N, dtype=float) % 2
    X = random.normal(size=(N, 3)) + y[:, None]
    graph = Graph.from_edge_index(torch.from_numpy(random.integers(0, N, (2, 2 * N))), N)
    known = np.arange(N)[: N // 2]
    return Problem(X, graph, y, 2, cross_validation(y, known, 2, 5, 0))


@pytest.fixture
def seconds(monkeypatch):
    """A list whose only number is the time."""
    now = [100.0]
    monkeypatch.setattr(clock, "now", lambda: now[0])
    return now


def slow_networks(monkeypatch, seconds, each, all_together=0.0):
    forward = Networks.forward

    def slow(self, x, graph, recipe=None):
        seconds[0] += all_together + each * len(self.uses)
        return forward(self, x, graph, recipe)

    monkeypatch.setattr(Networks, "forward", slow)


@pytest.mark.parametrize("each", [0.0001, 0.01, 0.1])
def test_stacks_are_as_large_as_their_time_allows(problem, seconds, monkeypatch, each):
    """Networks of each seconds, five folds: all of them, some, or none have time for a few looks."""
    slow_networks(monkeypatch, seconds, each)
    found = fit_portfolio(problem, accuracy, 20.0, ("label", "bank x", "mlp x", "hidden x"))
    assert seconds[0] - 100 <= 1.2 * 20
    trained = [member.name for member in found.members if not member.name.startswith("label")]
    assert bool(trained) == (each < 0.1)
    assert found.complete == (each < 0.01)


def test_it_is_the_look_at_the_clock_before_a_stack_begins_that_keeps_the_budget(problem, seconds, monkeypatch):
    slow_networks(monkeypatch, seconds, 0.5)
    monkeypatch.setattr(stack, "FEWEST_LOOKS", 0.0)
    fit_portfolio(problem, accuracy, 20.0, ("label", "bank x", "mlp x", "hidden x"))
    assert seconds[0] - 100 > 1.2 * 20


def test_some_configs_of_a_stack_are_spread_over_all(problem, seconds, monkeypatch):
    slow_networks(monkeypatch, seconds, 0.01)
    found = fit_portfolio(problem, accuracy, 10.0, ("bank x",))
    assert [member.name for member in found.members] == ["bank x, decay 0.0001, seed 0", "bank x, decay 0.001, seed 0"]


def test_the_step_of_several_configs_tells_what_each_further_one_takes(problem, seconds, monkeypatch):
    """By the step of one alone, a stack of four would take more than the time there is."""
    slow_networks(monkeypatch, seconds, 1e-5, all_together=0.1)
    found = fit_portfolio(problem, accuracy, 20.0, ("bank x",))
    assert len(found.members) == 4


def test_a_deep_bank_begins_only_with_time_for_a_few_looks(problem, seconds, monkeypatch):
    forward = DeepBank.forward

    def slow(self, x, graph):
        seconds[0] += 0.1 * len(self.mix)
        return forward(self, x, graph)

    monkeypatch.setattr(DeepBank, "forward", slow)
    assert fit_deep(problem, 2, accuracy, seconds[0] + 20, width=8) is None
    assert seconds[0] <= 100.21
    assert fit_deep(problem, 2, accuracy, seconds[0] + 60, width=8, epochs=4) is not None


def test_networks_on_words_begin_only_with_time_for_a_few_looks(problem, seconds, monkeypatch):
    """And one whose looks take longer than expected is no member: a few epochs of it are worth less than nothing."""
    forward, slower = WordBank.forward, [1.0]

    def slow(self, x, graph, told=None):
        seconds[0] += 0.1 * len(self.norms) * (slower[0] if self.training else 1)
        return forward(self, x, graph, told)

    monkeypatch.setattr(WordBank, "forward", slow)
    monkeypatch.setattr("walksum.portfolio.deep.EPOCHS_OF_WORDS", 4)
    assert fit_words(problem, 0.5, accuracy, seconds[0] + 20, seeds=1, width=8) is None
    assert seconds[0] <= 100.21
    assert fit_words(problem, 0.5, accuracy, seconds[0] + 60, seeds=1, width=8) is not None
    slower[0], start = 20.0, seconds[0]
    assert fit_words(problem, 0.5, accuracy, start + 60, seeds=1, width=8) is None
    assert seconds[0] <= start + 60


def test_trees_on_many_cells_look_at_the_clock_after_the_first(monkeypatch):
    random = np.random.default_rng(0)
    X, y = random.normal(size=(50, 4)), np.arange(50) % 2
    monkeypatch.setattr(tabular, "FIRST_CELLS", 400)
    assert len(fit_in_time(ExtraTreesClassifier(50), X, y, None, clock.now()).estimators_) == 2


def test_logistic_regression_descends_as_far_as_time_allows(seconds, monkeypatch):
    from sklearn.linear_model import LogisticRegression

    random = np.random.default_rng(0)
    X = random.normal(size=(300, 4))
    y = (X[:, 0] > 0).astype(int)
    fit, asked = LogisticRegression.fit, []

    def slow(self, X, y, sample_weight=None):
        asked.append(self.max_iter)
        seconds[0] += self.max_iter
        return fit(self, X, y, sample_weight)

    monkeypatch.setattr(LogisticRegression, "fit", slow)
    monkeypatch.setattr(tabular, "FIRST_CELLS", 100)
    assert fit_in_time(linear(2, 0), X, y, None, seconds[0] + 12) is None
    for time, steps in ((103, 100), (900, 300)):
        assert fit_in_time(linear(2, 0), X, y, None, seconds[0] + time) is not None
        assert asked[-1] == steps
    monkeypatch.setattr(tabular, "FIRST_CELLS", 10_000)  # a moment, whatever the clock says
    fit_in_time(linear(2, 0), X, y, None, seconds[0])
    assert asked[-1] == 300


def test_a_process_without_time_is_not_begun(problem, monkeypatch):
    random = np.random.default_rng(0)
    numbers = Problem(problem.X, problem.graph, random.normal(size=N), 0, problem.folds)
    assert fit_process(numbers, "surroundings", clock.now() - 1) is None


def test_blends_of_several_sets_are_those_of_each_alone():
    random = np.random.default_rng(0)
    outputs, y = random.normal(size=(4, 50, 3)), random.integers(0, 3, 50).astype(float)
    sets = [np.ones(4, bool), np.array([True, False, True, False])]
    both = fit_blends(outputs, y, 3, accuracy, sets)
    for who, blend in zip(sets, both, strict=True):
        (alone,) = fit_blends(outputs[who], y, 3, accuracy, [np.ones(who.sum(), bool)])
        assert np.allclose(blend(outputs, 3), alone(outputs[who], 3))


def test_a_process_that_has_little_time_keeps_what_it_found(seconds, monkeypatch):
    """A fit that would take 100 s has 40: each fold ends its descent early, and none of that time is thrown away."""
    random = np.random.default_rng(0)
    X, ring = random.normal(size=(80, 2)), np.stack([np.arange(80), np.roll(np.arange(80), 1)])
    y = X[:, 0] + 0.1 * random.normal(size=80)
    problem = Problem(
        X, Graph.from_edge_index(torch.from_numpy(ring), 80), y, 0, cross_validation(y, np.arange(60), 0, 5, 0)
    )
    backward = torch.Tensor.backward

    def slow(self, *args, **more):
        seconds[0] += 1
        return backward(self, *args, **more)

    monkeypatch.setattr(torch.Tensor, "backward", slow)
    start = seconds[0]
    out, whole = fit_process(problem, "neighbours", start + 40)
    assert not whole
    assert seconds[0] - start <= 46  # one evaluation per fold is over
    error = (out.mean(0)[60:, 0] - y[60:]).std()
    assert error < 0.7 * y[60:].std()


def test_what_is_quick_on_few_rows_comes_before_networks_and_fields_without_time_are_not_fitted(seconds, monkeypatch):
    """Five fields of 10 s each in a share of 12 s: after the first the joint networks are left out."""
    random = np.random.default_rng(0)
    ring, y = np.stack([np.arange(80), np.roll(np.arange(80), 1)]), random.normal(size=80)
    graph, folds = Graph.from_edge_index(torch.from_numpy(ring), 80), cross_validation(y, np.arange(60), 0, 5, 0)
    problem = Problem(random.normal(size=(80, 2)), graph, y, 0, folds)
    found = {task.name: task for task in tasks(problem, r_squared)}
    names = list(found)
    assert names.index("extra trees x") < names.index("mlp x") < len(names)
    fitted = []

    def slow(*_):
        seconds[0] += 10
        fitted.append(seconds[0])

    monkeypatch.setattr(stacked, "_field", slow)
    assert not found["joint surroundings"].run(seconds[0] + 12).names
    assert len(fitted) == 1
