"""The portfolio of a workflow: what it claims about the graph, its rows beside, its intervals."""

import contextlib
import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from walksum.cli import app
from walksum.data.cache import data_root
from walksum.data.edges import EdgeColumns
from walksum.data.splits import Split
from walksum.data.user_files import Columns, read_tables
from walksum.graph import Graph
from walksum.portfolio import clock
from walksum.portfolio.blend import r_squared
from walksum.portfolio.features import neighbour_mean
from walksum.portfolio.fit import ELSEWHERE, HERE, WITHOUT_EDGES, fit_portfolio
from walksum.portfolio.folds import given_validation
from walksum.portfolio.members import tasks
from walksum.portfolio.problem import Problem
from walksum.portfolio.residual import affordable
from walksum.workflow import fit_tables, open_run
from walksum.workflow.auto import output_of, portfolio_problem
from walksum.workflow.baselines import boosting, label_propagation, linear
from walksum.workflow.comparisons import Comparison, RowBudget
from walksum.workflow.fit import Job, prepare_data
from walksum.workflow.importance import importance_of_portfolio
from walksum.workflow.tables import make_job

BOUND = pytest.mark.filterwarnings("ignore:members that know the training graph alone")
FEW = ("boosting x", "boosting surroundings", "linear")


def towns(count, seed):
    """A path of towns: half of a town's rent is its size, half its place."""
    draw = np.random.default_rng(seed)
    size, place = draw.normal(size=count), np.sin(np.arange(count) / 8)
    nodes = pd.DataFrame({"id": [f"t{k}" for k in range(count)], "size": size})
    nodes["rent"] = 100 + 10 * (size + 2 * place) + draw.normal(size=count)
    nodes.loc[::15, "rent"] = None
    ends = np.arange(count - 1)
    return nodes, pd.DataFrame({"source": [f"t{k}" for k in ends], "target": [f"t{k + 1}" for k in ends]})


@pytest.fixture(scope="module")
def tables():
    return towns(150, 0)


@pytest.fixture(scope="module")
def run(tables):
    return fit_tables(*tables, "rent", budget=12)


def test_the_default_is_a_portfolio_with_its_reasons(run, tables, tmp_path):
    assert run.config["job"]["model"] == "auto"
    assert run.scores.loc["auto", "R^2"] > run.scores.loc["gradient boosting", "R^2"]
    rows = {"ridge regression", "gradient boosting", "boosting on neighbour means", "label propagation", "MLP", "mean"}
    rows |= {"boosting on neighbour means and targets", "GLT"}
    # on a busy machine the clock may leave no time for a member without edges
    assert rows | {"auto"} == set(run.scores.index) - {"auto without edges"}
    assert run.scores["R^2"].is_monotonic_decreasing
    assert set(run.metrics["method_seconds"]) == {"auto", *rows}
    graph = run.metrics["graph"]
    assert graph["verdict"] == "helped"
    alone = [name for name in run.scores.index if name in ("auto without edges", "gradient boosting", "MLP")]
    assert graph["against"] == alone[0]  # the best that reads no edge, not any of them
    assert graph["gain"] == pytest.approx(run.scores.loc["auto", "R^2"] - run.scores.loc[alone[0], "R^2"])
    assert graph["low"] < graph["gain"] < graph["high"]
    assert "the graph helped: +" in repr(run)
    frame = run.predictions
    assert frame.columns.tolist() == ["id", "split", "truth", "prediction", "low", "high"]
    assert frame["split"].value_counts().to_dict() == {"train": 84, "val": 28, "test": 28, "": 10}
    test = frame[frame["split"] == "test"]
    inside = ((test["low"] <= test["truth"]) & (test["truth"] <= test["high"])).mean()
    assert run.metrics["intervals"]["coverage"] == pytest.approx(inside)
    assert inside > 0.8
    # labelled nodes are predicted by folds that did not learn from them, so their errors are as honest as the test's
    error = (frame["truth"] - frame["prediction"]).abs().groupby(frame["split"]).mean()
    assert error["train"] > 0.4 * error["test"]


@BOUND
def test_a_saved_portfolio_predicts_with_and_without_known_targets(run, tables, tmp_path):
    run.save(tmp_path / "run")
    opened = open_run(tmp_path / "run")
    pd.testing.assert_frame_equal(opened.predictions, run.predictions, rtol=1e-5)
    nodes, edges = tables
    truth = nodes["rent"]
    known = nodes.assign(rent=truth.where(np.arange(len(nodes)) % 2 == 0))
    with_targets = opened.predict(known, edges)
    pd.testing.assert_frame_equal(with_targets, run.predict(known, edges), rtol=1e-5)
    with pytest.warns(UserWarning, match="no target is known in these tables"):
        without = opened.predict(nodes.drop(columns="rent"), edges)
    hidden = known["rent"].isna() & truth.notna()
    errors = [((found["prediction"] - truth)[hidden] ** 2).mean() for found in (with_targets, without)]
    assert errors[0] < errors[1]


def test_members_that_other_tables_do_without_are_named_with_what_they_gave(run, tables, tmp_path):
    model = run.model
    assert model.bound
    run.save(tmp_path / "run")
    for asked in (run, open_run(tmp_path / "run")):
        with pytest.warns(UserWarning, match="know the training graph alone are left out") as said:
            asked.predict(*tables)
        text = next(str(each.message) for each in said if "alone are left out" in str(each.message))
        assert repr(model.bound[0]) in text
        without, with_ = (model.score(name, run.result.prepared.scorer) for name in (ELSEWHERE, HERE))
        assert f"R^2 of validation nodes {without:.4g}, with them {with_:.4g}" in text
    tables[0].to_csv(tmp_path / "nodes.csv", index=False)
    tables[1].to_csv(tmp_path / "edges.csv", index=False)
    words = ["predict", "run", "--nodes", "nodes.csv", "--edges", "edges.csv"]
    with contextlib.chdir(tmp_path):
        shown = [CliRunner().invoke(app, [*words, *more]).stdout for more in ((), ("--json",))]
    assert f"note: {text}" in shown[0]
    assert text in json.loads(shown[1])["notes"]


def test_a_skewed_sum_of_columns_is_learned_as_it_is():
    """Of all models lines are best there, and none of them in the target's logarithm."""
    draw = np.random.default_rng(0)
    nodes = pd.DataFrame(draw.lognormal(0, 1, (200, 4)), columns=list("abcd")).assign(id=range(200))
    nodes["sum"] = nodes[list("abcd")].sum(axis=1)
    edges = pd.DataFrame({"source": range(199), "target": range(1, 200)})
    problem = read_tables(nodes, edges, Columns("sum"))
    prepared = prepare_data(Job(model="auto"), problem)
    assert prepared.encoding.target_transform == "none"
    assert any("skewed" in note and "learned as it is" in note for note in prepared.notes)


@BOUND
def test_another_graph_may_number_its_nodes_like_the_training_graph(run, tables):
    def as_they_are_and_renamed(nodes, edges):
        renamed = nodes.assign(id="x" + nodes["id"]), "x" + edges
        return run.predict(nodes, edges)["prediction"], run.predict(*renamed)["prediction"]

    same, forgotten = as_they_are_and_renamed(*tables)  # members that did not learn from a node of training judge it
    assert not np.allclose(same, forgotten)
    nodes, edges = towns(150, 9)
    assert np.allclose(*as_they_are_and_renamed(nodes.assign(rent=200 - nodes["rent"]), edges))


@BOUND
def test_targets_in_another_unit_are_said(run, tables):
    nodes, edges = tables
    said = "140 of 140 known targets lie beyond those of training"
    with pytest.warns(UserWarning, match=said):
        run.predict(nodes.assign(rent=nodes["rent"] * 1000), edges)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "[0-9]+ of [0-9]+ known targets")
        run.predict(*towns(90, 5))


def test_settings_of_networks_mean_a_network():
    assert make_job().model == "auto"
    assert make_job(hidden=8).model == "glt"
    assert make_job(3).model == "glt"
    with pytest.raises(ValueError, match="lr= is for networks; a portfolio"):
        make_job(model="auto", lr=0.1)
    with pytest.raises(ValueError, match="budget=0; expected a positive number of seconds"):
        make_job(budget=0)


def test_an_interrupt_keeps_the_members_so_far(tables):
    def stop(name, done, total, seconds):
        if done == 2:
            raise KeyboardInterrupt

    run = fit_tables(*tables, "rent", on_member=stop)
    assert run.interrupted
    assert run.metrics["portfolio"]["count"] == 3
    assert set(run.metrics["test"]) <= {"auto", "auto without edges"}


def test_the_shortest_budget_still_has_a_member_that_learns_from_columns():
    job = make_job(budget=0.001)
    prepared = prepare_data(job, read_tables(*towns(600, 0), Columns("rent")))
    found = fit_portfolio(portfolio_problem(job, prepared)[0], prepared.scorer, job.budget)
    assert not found.complete
    scores = {row["member"]: row["validation"] for row in found.table(prepared.scorer)}
    assert scores["boosting x"] > 0.15  # of size, which explains a third
    assert "boosting surroundings" not in scores


def test_no_field_is_fitted_where_elimination_would_take_minutes():
    import networkx as nx

    tangled, path = nx.random_regular_graph(6, 2500, seed=0), nx.path_graph(2500)
    graphs = [Graph.from_edge_index(torch.tensor([*graph.edges]).t(), 2500) for graph in (tangled, path)]
    assert [affordable(graph) for graph in graphs] == [False, True]
    y = np.random.default_rng(0).normal(size=2500)
    for graph, count in zip(graphs, (0, 1), strict=True):
        rows = np.arange(2500)
        problem = Problem(y[:, None], graph, y, 0, given_validation(rows, rows[::3]))
        assert sum(task.name.startswith("joint") for task in tasks(problem, r_squared, ("joint",))) == count


def test_a_product_with_a_neighbour_mean_is_found_among_few_columns():
    import networkx as nx

    graph = Graph.from_edge_index(torch.tensor([*nx.random_labeled_tree(900, seed=7).edges]).t(), 900)
    X = np.random.default_rng(0).normal(size=(900, 3))
    near = neighbour_mean(graph) @ X
    y = near[:, 0] + X[:, 1] * near[:, 2]
    problem = Problem(X, graph, y / y.std(), 0, given_validation(np.arange(900), np.arange(0, 900, 3)))
    found = fit_portfolio(problem, r_squared, 600, ("boosting neighbours", "boosting surroundings"))
    scores = {row["member"]: row["validation"] for row in found.table(r_squared)}
    assert scores["boosting neighbours"] > scores["boosting surroundings"] + 0.03


def test_tables_without_edges_say_so(tables):
    nodes, edges = tables
    run = fit_tables(nodes, edges[:0], "rent", budget=1)
    assert "edges joins no nodes: each is predicted by its own columns alone" in run.notes
    assert run.metrics["graph"] is None
    assert "there are no edges" in str(run)


def test_counts_that_look_like_per_cent_are_noted():
    notes = prepare_data(make_job(split="60,20,20"), read_tables(*towns(400, 0), Columns("rent"))).notes
    assert "the split 60,20,20 counts nodes: 100 of 373 are used; write 0.6,0.2,0.2 for per cent" in notes


def test_label_propagation_reads_weights(tables):
    nodes, edges = tables
    found = []
    for weight in (np.ones(len(edges)), np.linspace(0.01, 5, len(edges))):
        columns = Columns("rent", edges=EdgeColumns(None, None, "w"))
        prepared = prepare_data(Job(), read_tables(nodes, edges.assign(w=weight), columns))
        found.append(label_propagation(prepared, prepared.split.train))
    assert not torch.allclose(*found)


def test_the_blend_is_ahead_of_every_row_beside_it():
    """In each of three draws of 400 towns, 224 of them test nodes: 28 cannot rank methods. No clock decides here."""
    for seed in range(3):
        job = Job(model="auto", seed=seed, split="0.25,0.15,0.6")
        prepared = prepare_data(job, read_tables(*towns(400, 10 + seed), Columns("rent")))
        asked, learn, _ = portfolio_problem(job, prepared)
        found = fit_portfolio(asked, prepared.scorer, 600, ("linear", "label", "boosting surroundings + labels"))
        assert found.complete
        rows = Comparison.of(job, prepared, output_of(found.here(), prepared.encoding, True).output)
        rows.add("ridge", linear(prepared, learn), True)
        rows.add("label propagation", label_propagation(prepared, learn), False)
        for columns in ("own", "means", "targets"):
            rows.add(f"boosting {columns}", boosting(prepared, learn, columns), columns == "own")
        scores = {name: score.value for name, score in rows.scores.items()}
        assert scores.pop("auto") > max(scores.values()) + 0.2, scores


@pytest.mark.slow
@pytest.mark.data
def test_shuffled_edges_are_not_said_to_help():
    """In nine of ten draws; the real borders of the counties help."""
    folder = data_root(None) / "counties"
    real = read_tables(folder / "nodes.csv", folder / "edges.csv", Columns("unemployment_rate", id="fips"))
    random = np.random.default_rng(0)

    def verdict(problem, seed):
        job = Job(model="auto", seed=seed)
        prepared = prepare_data(job, problem)
        asked, _, _ = portfolio_problem(job, prepared)
        rows = np.concatenate([prepared.split.train, prepared.split.val])
        asked = replace(asked, folds=given_validation(np.sort(rows), prepared.split.val.numpy()))
        found = fit_portfolio(asked, prepared.scorer, 60, FEW)
        outputs = [output_of(found.here(which), prepared.encoding, True).output for which in (HERE, WITHOUT_EDGES)]
        compared = Comparison.of(job, prepared, outputs[0])
        compared.add("auto without edges", outputs[1], True)
        compared.add("gradient boosting", boosting(prepared, torch.from_numpy(np.sort(rows))), True)
        return compared.graph()["verdict"]

    assert verdict(real, 0) == "helped"
    said = []
    for seed in range(10):
        place = torch.from_numpy(random.permutation(real.num_nodes))
        said.append(verdict(replace(real, edge_index=place[real.edge_index]), seed))
    assert said.count("helped") <= 1, said


def test_members_that_know_the_graph_by_its_eigenvectors_can_be_asked_for_importance(tables):
    job = Job(model="auto")
    nodes, edges = tables
    nodes = nodes.assign(noise=np.random.default_rng(5).normal(size=len(nodes)))
    prepared = prepare_data(job, read_tables(nodes, edges, Columns("rent")))
    asked, _, _ = portfolio_problem(job, prepared)
    found = fit_portfolio(asked, prepared.scorer, 600, ("boosting place",))
    assert [member.model for member in found.members] == [None]
    record = importance_of_portfolio(job, prepared, found)
    assert [row["column"] for row in record["columns"]] == ["size", "noise"]
    size, noise = (row["importance"] for row in record["columns"])
    assert size > 0.1
    assert abs(noise) < 0.3 * size
    assert "of the weight" not in record["how"]["on"]  # all of it can be asked


def test_negative_weights_are_refused_with_the_options_that_take_them(tables):
    nodes, edges = tables
    with pytest.raises(ValueError, match=r"some edge weights are negative.* leave out weight=.*design='diagonally"):
        fit_tables(nodes, edges.assign(w=-1.0), target="rent", weight="w", budget=5)


@BOUND
def test_a_class_that_training_did_not_know_is_named(tmp_path):
    nodes, edges = towns(40, 1)
    nodes["kind"] = np.where(nodes.pop("rent").fillna(0) > 100, "dear", "cheap")
    run = fit_tables(nodes, edges, "kind", budget=2)
    asked = nodes.assign(kind=["dear", "cheap", "odd"] + [None] * 37)
    with pytest.warns(UserWarning, match=r"1 cells of 'kind' hold classes .*'odd' of 't2'.*read as empty"):
        run.predict(asked, edges)


def test_a_network_that_the_clock_stopped_before_it_learned_is_no_row():
    prepared = prepare_data(Job(), read_tables(*towns(200, 0), Columns("rent")))
    far = replace(prepared, x=-1000 * prepared.x)  # the first epoch says less than the mean
    row = RowBudget(far, prepared.split.train, clock.now() - 1, 8)
    with pytest.raises(ValueError, match=r"stopped after .* s, before it did better than the same answer for all"):
        row.trained([Job(model="glt", dropout=0.0)], None)


def test_nodes_of_a_single_one_per_class_judge_in_no_turns():
    """Of eight known nodes of six classes, four classes have one: the split's validation nodes judge."""
    names = ["a", "a", "b", "b", "c", "d", "e", "f"]
    nodes = pd.DataFrame({"id": range(20), "x": np.arange(20.0), "kind": [*names, "a", "b", *[None] * 10]})
    edges = pd.DataFrame({"source": range(19), "target": range(1, 20)})
    prepared = prepare_data(Job(model="auto"), read_tables(nodes, edges, Columns("kind")))
    split = Split(torch.tensor([0, 2, 4, 5, 6, 7]), torch.tensor([1, 3]), torch.tensor([8, 9]))
    asked, learn, notes = portfolio_problem(Job(model="auto"), replace(prepared, split=split))
    assert [part.tolist() for part in asked.folds[0]] == [split.train.tolist(), split.val.tolist()]
    assert torch.equal(learn, split.train)
    assert not asked.unjudged
    assert not any("turns" in note for note in notes)
