"""Runs that are no GLT: portfolios with fields and known targets, and models without a J; in a real browser too."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from towns import opened, towns

from walksum.explore.answer import Session, as_json, rows
from walksum.explore.answer_panel import _rank, added, without_bound
from walksum.explore.page import _model, _seed
from walksum.explore.server import make_app
from walksum.explore.view import View, first_view
from walksum.explore.whatif import Changes, WhatIf
from walksum.explore.whole_panel import _bar_table
from walksum.portfolio.features import other_targets, propagated
from walksum.portfolio.fit import ELSEWHERE
from walksum.portfolio.residual import residual_field
from walksum.workflow.auto import ask
from walksum.workflow.figures import Listener, of_run
from walksum.workflow.problem import Source, problem_of_run, read_node_table
from walksum.workflow.trained_run import open_trained_run

pytest.importorskip("dash_cytoscape")


def with_field(trained):
    """The same run as if its members had left a wave along the coast over."""
    rows = known_rows(trained)
    left = np.full(trained.num_nodes, np.nan)
    left[rows] = np.sin(rows / 6) + 0.1 * np.random.default_rng(1).normal(size=len(rows))
    model = replace(trained.model, fields={ELSEWHERE: residual_field(trained.graph, rows, left[rows])})
    return replace(trained, model=model, residuals=left)


def layer_of(trained, words):
    return next(k for k, each in enumerate(trained.operators, 1) if each.name == words)


def known_rows(trained):
    y = trained.known_y.double().numpy()
    return np.flatnonzero(~np.isnan(y) if trained.problem.regression else y >= 0)


def test_predictions_are_those_of_the_run_and_its_split_is_known(numbers):
    run, trained = numbers
    assert np.allclose(trained.prediction, run.predictions["prediction"], rtol=1e-6)
    assert len(trained.training) == (run.predictions["split"] == "train").sum()
    width = run.predictions["high"] - run.predictions["low"]
    assert np.allclose(trained.deviation, width / (2 * 1.959964))
    worst = int(run.predictions.query("split != 'train'").eval("abs(prediction - truth)").idxmax())
    assert first_view(trained).node == f"t{worst}"


def test_the_known_targets_add_up_to_label_propagation(numbers):
    trained = numbers[1]
    layer = layer_of(trained, "known targets, scale 0.9")
    rows = known_rows(trained)
    y = trained.known_y.double().numpy()[rows, None]
    expected = other_targets(trained.graph, rows, y, (0.9,), ratio=True)[:, 0]
    for node in (rows[3], 0, 44):  # one with a known target, and two without
        answer = Session(trained).answer(View(f"t{node}", layer))
        assert answer.adds.sum() == pytest.approx(expected[node], rel=1e-9)
        assert answer.adds[node] == 0


def test_the_known_residuals_add_up_to_the_fields_mean(numbers):
    trained = with_field(numbers[1])
    field, scale = trained.model.fields[ELSEWHERE], trained.encoding.target_scale
    rows = np.flatnonzero(~np.isnan(trained.residuals))
    mean, _ = field.predict(trained.graph, rows, trained.residuals[rows])
    layer = layer_of(trained, "residual field")
    for node in (rows[3], 0, 44):
        answer = Session(trained).answer(View(f"t{node}", layer))
        assert answer.adds.sum() == pytest.approx(scale * mean[node], rel=1e-8)


def test_labels_of_classes_carry_weights_that_sum_to_one(classes):
    layer = layer_of(classes, classes.operators[0].name)
    answer = Session(classes).answer(View("t44", layer))
    assert answer.adds.sum() == pytest.approx(1)
    assert sum(share for _, share in answer.by_label) == pytest.approx(1)
    assert {name for name, share in answer.by_label} <= {"yes", "no"}


def test_rows_of_a_propagation_are_those_of_its_operator(numbers):
    trained = numbers[1]
    layer = layer_of(trained, "propagation, scale -0.9")
    unit = np.zeros((trained.num_nodes, 1))
    unit[7] = 1
    row = propagated(trained.graph, unit, -0.9)[:, 0]
    assert np.allclose(Session(trained).answer(View("t7", layer)).influence.value, row, atol=1e-10)


def test_what_if_asks_the_portfolio(numbers):
    trained = numbers[1]
    imagine = WhatIf(trained)
    changes = Changes().with_value(trained, "t44", "size", "3").with_value(trained, "t44", "kind", "port")
    before, after = imagine.before(changes), imagine.output(changes)
    assert float(after[44]) > float(before[44]) + 3
    assert torch.allclose(after[100:], before[100:], atol=1.0)
    hidden = trained.known_y.clone()
    hidden[44] = torch.nan
    x = trained.x.clone()
    row = trained.problem.features.iloc[[44]].assign(size=3.0, kind="port")
    x[44] = trained.encoding.encode(row)[0]
    direct = ask(trained.model, replace(trained.problem, y=hidden), x, trained.encoding, trained.residuals)
    expected = direct.value[44] * trained.encoding.target_scale + trained.encoding.target_mean
    assert float(after[44]) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match=r"size takes a number, not 'big'\."):
        changes.with_value(trained, "t44", "size", "big")
    with pytest.raises(ValueError, match=r"kind has no 'prot' among the training nodes; it takes 'inland', 'port'\."):
        changes.with_value(trained, "t44", "kind", "prot")
    with pytest.raises(ValueError, match=r"Only the J of a GLT"):
        changes.with_edge(trained, "t4", "t5", "flip")


def test_an_edge_less_leaves_the_directions_of_the_others(numbers):
    """The members read where edges lead: with all of them turned, every town would move."""
    trained = numbers[1]
    turned = replace(trained, problem=replace(trained.problem, edge_index=trained.problem.edge_index.flip(0)))
    for each in (trained, turned):
        changes = Changes().with_edge(each, "t4", "t5", "drop")
        kept = replace(each.problem, edge_index=each.problem.edge_index[:, torch.arange(149) != 4])
        expected = each.answer(each.x, kept, changes.nodes)
        assert torch.equal(WhatIf(each).output(changes), expected)


def test_a_map_is_drawn_where_columns_are_coordinates(numbers):
    from walksum.explore.drawing import draw

    trained = numbers[1]
    spots = [each["position"] for each in draw(trained, None).elements if "position" in each]
    x, y = np.array([[spot["x"], spot["y"]] for spot in spots]).T
    assert (np.diff(x) > 0).all()  # from west to east
    assert np.corrcoef(y, trained.table["lat"])[0, 1] == pytest.approx(-1, abs=1e-3)  # north is above


def test_a_model_without_a_J_is_explored_by_the_graph_alone(tmp_path):
    trained = opened(tmp_path / "run", "dear", model="mlp", max_epochs=3, budget=3)[1]
    assert trained.operators == []
    view = first_view(trained)
    assert view.design == "laplacian"
    assert Session(trained).answer(view).influence.share.sum() == pytest.approx(1)
    assert make_app(trained)


def test_figures_of_a_portfolio(numbers):
    run, trained = numbers
    notes = []
    names = [each.name for each in of_run(run, trained.problem, listener=Listener(note=notes.append))]
    assert names == ["members", "graphical-model", "correlation", "spectral-response", "walk-sums"]
    assert f"operator {trained.operators[0].name!r}" in notes[0]


def test_the_rank_of_a_value_among_all_nodes():
    trained = SimpleNamespace(table=pd.DataFrame({"size": [*map(float, range(400)), None]}))
    assert _rank(trained, "size", 399.0) == "the largest"
    assert _rank(trained, "size", 398.5) == "above 99 %"  # never "above 100 %" beside a larger one
    assert _rank(trained, "size", 100.0) == "above 25 %"
    assert _rank(trained, "size", float("nan")) == _rank(trained, "name", "red") == ""


def test_the_page_of_a_regression_by_a_portfolio(driver, numbers):
    from browser import Page
    from village import Served

    trained, served = with_field(numbers[1]), None
    try:
        served = Served(trained)
        page = Page(driver, served).open("")
        worst = trained.suggestions[0][1]
        page.shows(trained.title_of(worst))
        assert page.text("h1") == "Why did this node get this value?"
        assert page.text("#fact-error") == f"{trained.error[worst]:+.4g}"
        assert page.text("#fact-deviation") == f"{trained.deviation[worst]:.4g}"
        answer = Session(trained).answer(first_view(trained))
        shown = page.js(
            "return Array.from(document.querySelectorAll('#sources tbody tr')).map(row => "
            "[row.dataset.source, row.cells[5].innerText])"
        )
        assert shown == [[trained.name(k), added(trained, float(answer.adds[k]))] for k in answer.listed]
        assert f"{answer.adds.sum():+.4g} here" in page.text("#adds-total")
        assert page.texts("#columns tbody tr")[0].split("\t")[:2] == ["size", f"{trained.table['size'][worst]:.6g}"]
        page.choose("layer", str(layer_of(trained, "known targets, scale 0.9")))
        page.wait(lambda: "known targets of other nodes" in page.text("#hint"), "the operator to change")
        page.choose("colour", "deviation")
        page.wait(lambda: page.text("#legend").startswith("standard deviation:"), "the colours")
        page.search("Town <77>")
        page.shows(trained.title_of(77))
        page.search("Town <8")
        page.wait(lambda: page.texts("#matches button"), "several towns")
        assert page.texts("#matches button")[0] == trained.title_of(8)
        assert not page.find("#if-flip").is_displayed()
        page.panel("model")
        test = trained.metrics["test"]["auto"]["mean"]
        assert f"{test:.3f}" in page.text("#model-scores")
        severe = [entry for entry in page.driver.get_log("browser") if entry["level"] == "SEVERE"]
        assert severe == []
    finally:
        if served is not None:
            served.close()


@pytest.mark.parametrize("kind", ["numbers", "class_run"])
@pytest.mark.parametrize("change", ["other towns", "an edge less"])
def test_another_graph_of_the_same_ids_is_not_shown_what_was_kept_of_the_first(request, kind, change):
    run, trained = request.getfixturevalue(kind)
    nodes, edges = towns()
    if change == "other towns":
        own = ["size", "kind", "rent", "dear"]
        nodes[own] = nodes[own].to_numpy(object)[::-1]
    problem = problem_of_run(run, Source(nodes=nodes, edges=edges[int(change == "an edge less") :]), labels=True)
    other = open_trained_run(run, problem, "others")
    assert trained.stored is not None
    assert other.stored is None
    assert bool(other.hidden) == (change == "an edge less")
    assert other.output.tolist() == other.answer(other.x, problem).tolist()


def test_a_table_without_ids_is_read_row_by_row():
    nodes = pd.DataFrame(
        {"size": ["1,5", "2,5", None], "name": ["Ulm", "Au", "Bonn"], "lon": [1, 2, 3], "lat": [4, 5, 7]}
    )
    run = SimpleNamespace(config={"columns": {"id": None, "numerals": {"size": ",", "gone": ","}}})
    problem = SimpleNamespace(num_nodes=4, ids=list("0123"))  # one more, that edges alone name
    table = read_node_table(run, Source(nodes=nodes), problem)
    assert table["name"].tolist()[:3] == ["Ulm", "Au", "Bonn"]
    assert table["size"].tolist()[:2] == [1.5, 2.5]
    assert len(table) == 4


def test_an_id_may_begin_with_a_space(numbers):
    problem = replace(numbers[1].problem, ids=np.array([f" t{k} " for k in range(150)], dtype=object))
    trained = replace(numbers[1], problem=problem)
    assert (trained.node(" t5 "), trained.search(" t5 ")) == (5, [5])
    assert trained.search("t14")[:2] == [14, 140]
    with pytest.raises(ValueError, match="No node has the id 'x'"):
        trained.node(" x ")


def test_saved_data_are_not_rounded_for_reading(numbers):
    trained = numbers[1]
    answer = Session(trained).answer(View("t7"))
    saved = {row["id"]: row for row in rows(trained, answer)}
    for node in (1, 15):  # the second without a target
        assert saved[f"t{node}"]["prediction"] == pytest.approx(float(trained.prediction[node]), rel=1e-6)
    assert saved["t1"]["label"] == pytest.approx(float(trained.problem.y[1]), rel=1e-6)
    assert saved["t15"]["label"] is None
    assert json.loads(as_json(trained, answer))["prediction"] == saved["t7"]["prediction"]


def test_scores_below_zero_have_no_bar():
    table = _bar_table("Test R²", "scores", [("a", -0.2, "-0.200"), ("b", -0.5, "-0.500")])
    cells = [row.children[-1].children[0].style["width"] for row in table.children[1].children]
    assert cells == ["0.0%", "0.0%"]


def test_the_header_says_which_seed_and_how_many_members(numbers):
    run, trained = numbers
    assert str(run.metrics["portfolio"]["count"]) in _model(trained)
    assert _seed(trained) == ""
    many = replace(trained, metrics=run.metrics | {"seeds": [3, 4], "kept_seed": 4})
    assert _seed(many) == ", seed 4: of 2 the best on validation nodes"
    bound = replace(trained, model=replace(trained.model, bound=["process"]))
    assert "without 1 member that" in without_bound(bound)
    assert without_bound(trained) == ""
