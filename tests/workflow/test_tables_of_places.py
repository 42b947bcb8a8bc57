"""Points without edges: the number of neighbours, kriging, and predictions for other tables."""

import numpy as np
import pandas as pd
import pytest
import torch

from walksum.graph import Graph
from walksum.portfolio.kriging import Kriging, fit_kriging
from walksum.portfolio.problem import Problem
from walksum.workflow import fit_tables, open_run


def matern(a, b, length=0.2):
    r = np.sqrt(3) * np.linalg.norm(a[:, None] - b[None], axis=2) / length
    return (1 + r) * np.exp(-r)


@pytest.fixture(scope="module")
def field():
    """A draw of a field at 300 places, with noise; its covariance is known."""
    draw = np.random.default_rng(1)
    place = draw.uniform(size=(300, 2))
    K = matern(place, place)
    value = np.linalg.cholesky(K + 1e-10 * np.eye(300)) @ draw.normal(size=300) + 0.3 * draw.normal(size=300)
    return place, value


def kriging_problem(place, y, train):
    position = (place - place.mean(0)) / place.std(0).max()
    graph = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.long), len(y))
    return Problem(np.zeros((len(y), 1)), graph, y, 0, [(train, np.setdiff1d(np.arange(len(y)), train))],
                   position=position)  # fmt: skip


def test_kriging_is_near_the_best_predictor(field):
    place, value = field
    train = np.arange(200)
    y = (value - value[train].mean()) / value[train].std()
    out, model = fit_kriging(kriging_problem(place, y, train), "none", np.inf)
    K = matern(place[train], place[train]) + 0.09 * np.eye(200)
    best = matern(place, place[train]) @ np.linalg.solve(K, value[train])
    mine = out[0, :, 0] * value[train].std() + value[train].mean()
    rmse = [np.sqrt(((guess - value)[200:] ** 2).mean()) for guess in (mine, best)]
    assert rmse[0] < 1.04 * rmse[1]
    assert model.smoothness in (0.5, 1.5, 2.5)


def test_a_known_place_is_predicted_from_all_others(field):
    place, value = field
    y = (value - value.mean()) / value.std()
    theta = np.log([[0.3, 1.0, 0.5]])
    model = Kriging("none", 1.5, theta)
    everything = model._predict(kriging_problem(place, y, np.arange(300)), np.arange(300), 0)
    for node in (0, 17):
        others = np.delete(np.arange(300), node)
        alone = model._predict(kriging_problem(place, y, others), others, 0)
        assert everything[node, 0] == pytest.approx(alone[node, 0], abs=1e-9)


def test_the_nearest_places_say_nearly_all(field, monkeypatch):
    place, value = field
    y = (value - value.mean()) / value.std()
    model, train = Kriging("none", 1.5, np.log([[0.3, 1.0, 0.5]])), np.arange(250)
    exact = model._predict(kriging_problem(place, y, train), train, 0)
    monkeypatch.setattr("walksum.portfolio.kriging.EXACT", 100)
    near = model._predict(kriging_problem(place, y, train), train, 0)
    off = np.abs(near - exact)
    assert off.mean() < 0.01
    assert off.max() < 0.25


@pytest.fixture(scope="module")
def run(field):
    place, value = field
    nodes = pd.DataFrame({"x": place[:, 0], "y": place[:, 1], "value": value})

    def stop(name, done, total, seconds):
        if name == "kriging place + x":  # what comes later is tested elsewhere
            raise KeyboardInterrupt

    return nodes, fit_tables(nodes, target="value", coordinates="x,y", budget=600, on_member=stop)


def test_the_number_of_neighbours_is_chosen_and_said(run):
    _, run = run
    places = run.config["columns"]["places"]
    assert places["neighbours"] in (4, 8, 16, "delaunay")
    assert any("chosen on the validation nodes among 4, 8, 16, delaunay" in note for note in run.notes)
    assert any(row["member"].startswith("kriging") for row in run.metrics["portfolio"]["members"])


def test_a_saved_run_joins_new_tables_the_same_way(run, tmp_path):
    nodes, run = run
    run.save(tmp_path / "run")
    opened = open_run(tmp_path / "run")
    new = pd.concat([nodes, pd.DataFrame({"x": [0.5], "y": [0.5], "value": [None]})], ignore_index=True)
    found = opened.predict(new)
    assert len(found) == 301
    near = np.linalg.norm(nodes[["x", "y"]].to_numpy() - 0.5, axis=1).argsort()[:3]
    assert abs(found["prediction"].iloc[300] - nodes["value"][near].mean()) < 1
    with pytest.raises(ValueError, match="nodes has no column 'x'"):
        opened.predict(new.drop(columns="x"))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({}, "join near rows by coordinates='lon,lat' or knn='a,b'"),
        ({"neighbours": 4}, "neighbours= is for nodes that lie somewhere; name coordinates= or knn="),
        ({"coordinates": "x,y", "neighbours": "many"}, "neighbours='many'; expected a whole number"),
        ({"coordinates": "x,y", "time_column": "x", "group_column": "y"}, "say different things about the split"),
        ({"coordinates": "x,y", "time_column": "x", "split": "spatial"}, "say different things about the split"),
    ],
)
def test_bad_places_are_refused(more, message):
    nodes = pd.DataFrame({"x": np.arange(9.0), "y": np.arange(9.0) % 4, "value": np.arange(9) / 2})
    with pytest.raises(ValueError, match=message):
        fit_tables(nodes, target="value", **more)


def test_edges_alone_say_nothing_to_learn():
    with pytest.raises(ValueError, match="edges have no column of nodes to learn from"):
        fit_tables(None, pd.DataFrame({"a": [1], "b": [2]}), "value")


def test_places_on_one_line_are_joined_without_triangles():
    draw, place = np.random.default_rng(0), np.arange(60.0)
    nodes = pd.DataFrame({"x": place, "y": 0.0, "size": draw.normal(size=60), "rent": np.sin(place / 6)})
    run = fit_tables(nodes, None, "rent", coordinates="x,y", model="glt", max_epochs=2)
    assert any("chosen on the validation nodes among 4, 8, 16)" in note for note in run.notes)
