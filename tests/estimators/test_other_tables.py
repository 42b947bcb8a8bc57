"""A portfolio asked about other tables, and kept in a folder without pickle."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from walksum.graph import Graph
from walksum.portfolio.arrays import Additive, additive
from walksum.portfolio.blend import accuracy, r_squared
from walksum.portfolio.fit import ELSEWHERE, fit_portfolio
from walksum.portfolio.folds import cross_validation, given_validation
from walksum.portfolio.problem import Problem, mean_weight
from walksum.portfolio.store import load_portfolio, save_portfolio

N = 90
SOME = ("label", "linear", "extra trees surroundings", "boosting x", "bank", "mlp surr", "hidden")


def world(seed=0):
    """A ring whose smooth signal, beside two columns, makes the target."""
    random = np.random.default_rng(seed)
    pairs = np.stack([np.arange(N), (np.arange(N) + 1) % N])
    X = random.normal(size=(N, 3))
    y = X[:, 0] + 2 * np.sin(np.arange(N) / 7) + 0.1 * random.normal(size=N)
    return X, Graph.from_edge_index(torch.from_numpy(pairs), N), y


def portfolio_of(classes, members=SOME, folds=None):
    X, graph, y = world()
    target = (y > 0).astype(float) if classes else y / y.std()
    rows = np.arange(0, N, 2)
    folds = folds or cross_validation(target, rows, classes, 2, 0)
    target = np.where(np.isin(np.arange(N), rows), target, np.nan)
    return fit_portfolio(Problem(X, graph, target, classes, folds), accuracy if classes else r_squared, 60, members)


@pytest.mark.parametrize("classes", [0, 2])
def test_a_kept_portfolio_answers_as_the_fitted_one(classes, tmp_path, monkeypatch):
    monkeypatch.setattr("walksum.portfolio.blend.LEAST", 0.0)  # keep every kind of member
    found = portfolio_of(classes)
    save_portfolio(found, tmp_path)
    again = load_portfolio(tmp_path)
    X, graph, y = world(seed=1)
    known = np.where(np.arange(N) % 3 == 0, (y > 0) if classes else y, np.nan).astype(float)
    for targets in (known, None):
        asked = [p.ask(p.problem.other(X, graph, targets)) for p in (found, again)]
        assert np.allclose(asked[0].value, asked[1].value, atol=1e-5)
        assert asked[0].notes == asked[1].notes
        assert bool(asked[0].notes) == (targets is None)
    assert not list(tmp_path.glob("*.pkl"))
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-40])
    with pytest.raises(ValueError, match="does not hold a complete walksum portfolio"):
        load_portfolio(tmp_path)


@pytest.mark.parametrize("directed", [False, True])
def test_sums_of_weights_are_read_in_other_tables_in_the_unit_of_training(directed, tmp_path):
    X, graph, _ = world()
    draw = np.random.default_rng(0)
    graph = Graph(graph.edges, N, torch.from_numpy(np.exp(draw.normal(size=graph.num_edges))))
    i, j = arcs = graph.edges.numpy()
    weight, arcs = graph.edge_weight.numpy(), arcs if directed else None
    y = np.log(np.bincount(j, weight, N) + (0 if directed else np.bincount(i, weight, N)) + 0.5)
    train, rest = np.arange(0, N, 2), np.arange(1, N, 2)
    target = np.where(np.isin(np.arange(N), train), y, np.nan)
    problem = Problem(X, graph, target, 0, cross_validation(target, train, 0, 2, 0), arcs=arcs, arc_weight=weight,
                      unit=mean_weight(graph))  # fmt: skip
    found = fit_portfolio(problem, r_squared, 60, ("linear surroundings", "boosting neighbours"))
    save_portfolio(found, tmp_path)
    again = load_portfolio(tmp_path)
    assert again.problem.arc_targets
    asked = [p.ask(p.problem.other(X, graph, None, arcs, arc_weight=weight)).value for p in (found, again)]
    assert np.allclose(*asked, atol=1e-5)
    assert np.corrcoef(asked[1][rest], y[rest])[0, 1] > 0.8
    twice = again.problem.other(X, graph.with_weight(2 * graph.edge_weight), None, arcs, arc_weight=2 * weight)
    assert again.ask(twice).value.mean() > asked[1].mean() + 0.1


@pytest.mark.parametrize(("classes", "value", "words"), [(2, 1.0, "one class"), (0, 9.0, "one number")])
def test_a_single_known_target_is_not_all_that_others_are_told(classes, value, words):
    found = portfolio_of(classes, ("label", "linear x"))
    X, graph, _ = world(seed=1)
    one = np.full(N, np.nan)
    one[3] = value
    asked, alone = (found.ask(found.problem.other(X, graph, targets)) for targets in (one, None))
    assert np.array_equal(asked.value, alone.value)
    assert asked.notes[0].startswith(f"only {words} is known in these tables: members that read")


def test_a_class_that_is_known_nowhere_keeps_its_share():
    """Two known nodes of two classes say nothing of the third."""
    X, graph, y = world()
    target = np.digitize(y, np.quantile(y, [1 / 3, 2 / 3])).astype(float)
    found = fit_portfolio(Problem(X, graph, target, 3, cross_validation(target, np.arange(N), 3, 2, 0)),
                          accuracy, 60, ("label",))  # fmt: skip
    known = np.full(N, np.nan)
    known[[0, N // 2]] = 0, 1
    share = found.ask(found.problem.other(X, graph, known)).value[:, 2]
    assert share[N // 4] > 0.1
    assert share[1] < share[N // 4]


def test_the_same_table_gives_what_training_gave():
    """One fold, so that the known targets are those of training in both cases."""
    rows = np.arange(0, N, 2)
    found = portfolio_of(2, ("linear", "bank", "extra trees x", "label"), given_validation(rows, rows[::3]))
    X, graph, _ = world()
    train = np.isin(np.arange(N), found.problem.folds[0][0])
    asked = found.ask(found.problem.other(X, graph, np.where(train, found.problem.y, np.nan)))
    assert np.allclose(asked.value, found.here(ELSEWHERE).value, atol=1e-5)


def test_a_single_row_of_a_wide_table_is_read_by_the_directions_of_the_training():
    X, graph, y = world()
    wide = np.concatenate([X, np.random.default_rng(0).normal(size=(N, 300))], 1)
    problem = Problem(wide, graph, y / y.std(), 0, cross_validation(y, np.arange(N), 0, 2, 0))
    found = fit_portfolio(problem, r_squared, 60, ("linear x", "extra trees x", "directed near"))
    alone = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.long), 2)
    two = found.ask(problem.other(wide[:2], alone)).value
    one = found.ask(problem.other(wide[:1], Graph(alone.edges, 1))).value
    assert one == pytest.approx(two[:1])


def test_known_targets_of_other_tables_help():
    found = portfolio_of(0, ("linear", "label"))
    X, graph, y = world(seed=2)
    y = y / world()[2].std()
    hidden = np.arange(N) % 2 == 1
    errors = []
    for targets in (np.where(hidden, np.nan, y), None):
        value = found.ask(found.problem.other(X, graph, targets)).value
        errors.append(((value - y)[hidden] ** 2).mean())
    assert errors[0] < errors[1]


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_trees_and_lines_as_arrays_predict_as_scikit_learn(classes):
    random = np.random.default_rng(0)
    X = random.normal(size=(150, 4))
    y = (X[:, 0] + random.normal(size=150) > 0).astype(int) + (classes == 3) * (X[:, 1] > 0.5) if classes else X[:, 0]
    models = (
        [
            HistGradientBoostingClassifier(max_iter=20),
            ExtraTreesClassifier(20, min_samples_leaf=2),
            make_pipeline(StandardScaler(), LogisticRegression()),
        ]
        if classes
        else [
            HistGradientBoostingRegressor(max_iter=20),
            ExtraTreesRegressor(20),
            make_pipeline(StandardScaler(), Ridge()),
        ]
    )
    for model in models:
        found = additive(model.fit(X, y), classes)
        new = random.normal(size=(60, 4))
        expected = model.predict_proba(new) if classes else model.predict(new)[:, None]
        assert np.allclose(found(new), expected, atol=1e-6)
        assert np.allclose(Additive.of_state(*found.state())(new), expected, atol=1e-6)


def test_a_graph_of_other_degrees_does_not_carry_numbers_away(tmp_path):
    """Columns that hardly vary over a grid, as means of many neighbours, do on a path."""
    side, random = 10, np.random.default_rng(0)
    k = np.arange(side**2).reshape(side, side)
    pairs = np.c_[[k[:, :-1].ravel(), k[:, 1:].ravel()], [k[:-1].ravel(), k[1:].ravel()]]
    X, n = random.normal(size=(side**2, 3)), side**2
    y = X[:, 0] + np.sin(np.arange(n) // side / 3)
    y = (y - y.mean()) / y.std()
    graph = Graph.from_edge_index(torch.from_numpy(pairs), n)
    problem = Problem(X, graph, y, 0, cross_validation(y, np.arange(n), 0, 2, 0))
    found = fit_portfolio(problem, r_squared, 60, ("linear",))
    save_portfolio(found, tmp_path)
    path, new = np.stack([np.arange(29), np.arange(1, 30)]), random.normal(size=(30, 3))
    other = Graph.from_edge_index(torch.from_numpy(path), 30)
    for each in (found, load_portfolio(tmp_path)):
        answer = each.ask(each.problem.other(new, other))
        room = 0.1 * (y.max() - y.min())
        assert y.min() - room <= answer.value.min()
        assert answer.value.max() <= y.max() + room
        assert answer.std.max() > 1.2 * each.widths["without targets"]
        assert any("of 30 nodes have columns" in note for note in answer.notes)
    same = found.ask(problem.other(X, graph))
    found.limits = {}
    assert np.array_equal(same.value, found.ask(problem.other(X, graph)).value)
    assert not any("have columns" in note for note in same.notes)
    assert np.allclose(same.std, found.widths["without targets"])
