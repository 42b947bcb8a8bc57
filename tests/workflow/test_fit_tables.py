"""The workflow of tables in Python: DataFrames or files in, a run out."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from walksum.data.node_table import Columns
from walksum.workflow import fit_tables, open_run
from walksum.workflow.problem import Source, problem_of_run, read_node_table
from walksum.workflow.runs import open_runs
from walksum.workflow.search import SearchPlan
from walksum.workflow.tables import fit_problem, make_job, read_problem

QUICK = {"max_epochs": 12, "hidden": 8, "layers": 1, "lr": 0.02, "dropout": 0.1}


@pytest.fixture(scope="module")
def tables():
    """Two colours of customers who buy beside their own kind; every tenth has no colour."""
    draw, count = np.random.default_rng(0), 60
    kind = np.arange(count) % 2
    nodes = pd.DataFrame(
        {
            "id": [f"c{k}" for k in range(count)],
            "income": draw.normal(size=count) + kind,
            "town": draw.choice(["Rome", "Oslo"], count),
            "colour": np.where(kind, "red", "blue"),
            "spent": draw.normal(size=count) + 2.5 * kind,
        }
    )
    nodes.loc[::10, ["colour", "spent"]] = None
    ends = draw.integers(0, count // 2, (3 * count, 2)) * 2 + draw.integers(0, 2, (3 * count, 1))
    return nodes, pd.DataFrame({"source": [f"c{i}" for i, _ in ends], "target": [f"c{j}" for _, j in ends]})


@pytest.fixture(scope="module")
def run(tables):
    return fit_tables(*tables, "colour", features=["income", "town"], **QUICK)


def test_frames_and_files_give_the_same_run(tables, run, tmp_path):
    for frame, name in zip(tables, ("nodes.csv", "edges.csv"), strict=True):
        frame.to_csv(tmp_path / name, index=False)
    again = fit_tables(
        tmp_path / "nodes.csv", str(tmp_path / "edges.csv"), target="colour", features=["income", "town"], **QUICK
    )
    pd.testing.assert_frame_equal(again.predictions, run.predictions)
    assert again.scores.equals(run.scores)


def test_a_run_adds_again_what_it_added_in_training(tables, tmp_path):
    nodes, edges = tables
    edges = pd.concat([edges, pd.DataFrame({"source": ["c1"], "target": ["guest"]})])
    fit_tables(nodes, edges, "colour", features=["income"], add_unknown=True, **QUICK).save(tmp_path / "run")
    run, source = open_run(tmp_path / "run"), Source(nodes=nodes, edges=edges)
    problem = problem_of_run(run, source, labels=True)
    assert problem.ids.tolist() == run.predictions["id"].tolist() == [*(f"c{k}" for k in range(60)), "guest"]
    assert len(read_node_table(run, source, problem)) == 61
    assert len(problem_of_run(run, source, drop_unknown=True).ids) == 60


def test_the_targets_of_a_graphml_file_are_read_again(tables, tmp_path):
    nx = pytest.importorskip("networkx")
    nodes, edges = tables
    graph = nx.from_pandas_edgelist(edges)
    for row in nodes.to_dict("records"):
        graph.add_node(row["id"], income=row["income"], name=f"Ms {row['id']}")
        if row["colour"]:
            graph.nodes[row["id"]]["colour"] = row["colour"]
    nx.write_graphml(graph, tmp_path / "shop.graphml")
    source = Source(graph=tmp_path / "shop.graphml")
    problem = read_problem(source, Columns("colour", features=("income",)))
    fit_problem(problem, make_job(**QUICK)).save(tmp_path / "run")
    run = open_run(tmp_path / "run")
    again = problem_of_run(run, source, labels=True)
    assert torch.equal(again.y, problem.y)
    assert len(again.labelled) == 54
    assert read_node_table(run, source, again)["name"].tolist() == [f"Ms {name}" for name in again.ids]


def test_a_split_that_is_no_text_is_refused(tables):
    with pytest.raises(ValueError, match=r"split=\[0.6, 0.2, 0.2\]; expected text, such as '0.6,0.2,0.2'"):
        fit_tables(*tables, "colour", split=[0.6, 0.2, 0.2], **QUICK)


def test_a_run_says_what_it_is(run):
    assert run.scores["accuracy"].is_monotonic_decreasing
    assert {"accuracy", "low", "high"} <= set(run.scores.columns)
    assert run.predictions["id"].tolist() == [f"c{k}" for k in range(60)]
    assert not run.interrupted
    told = repr(run)
    for words in ("GLT predicts 'colour' of nodes", "60 nodes", "test accuracy: GLT ", "MLP ", "not saved yet"):
        assert words in told


def test_a_saved_run_is_the_run(tables, run, tmp_path):
    assert run.save(tmp_path / "run") is run
    assert f"in {tmp_path / 'run'}" in repr(run)
    opened = open_run(tmp_path / "run")
    pd.testing.assert_frame_equal(opened.predictions, run.predictions, atol=1e-5)
    pd.testing.assert_frame_equal(opened.predict(), opened.predictions)
    pd.testing.assert_frame_equal(opened.predict(*tables), run.predictions.drop(columns=["split", "truth"]))
    assert opened.scores.equals(run.scores)
    assert opened.report() == (tmp_path / "run" / "report.html").read_text()
    opened.save(tmp_path / "copy")
    assert (tmp_path / "copy" / "model" / "model.safetensors").is_file()
    with pytest.raises(ValueError, match="already exists; name a new folder"):
        run.save(tmp_path / "run")


def test_the_report_is_written_where_it_is_wanted(run, tmp_path):
    page = run.report(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == page
    assert "<h1>colour in the table" in page
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_new_nodes_are_predicted_with_a_warning_of_what_was_filled_in(run):
    nodes = pd.DataFrame({"id": ["a", "b"], "income": [1.0, None], "town": ["Lima", "Rome"]})
    edges = pd.DataFrame({"source": ["a"], "target": ["b"]})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = run.predict(nodes, edges)
    assert found["id"].tolist() == ["a", "b"]
    told = " ".join(str(each.message) for each in caught)
    assert "1 missing numbers in 'income'" in told
    assert "('Lima')" in told
    with pytest.raises(ValueError, match="nodes has no column 'town'"):
        run.predict(nodes.drop(columns="town"), edges)
    with pytest.raises(ValueError, match=r"nodes= and edges= belong together.*its header line alone"):
        run.predict(nodes)  # which has no coordinates= to join them by


def test_several_seeds_give_a_spread(tables):
    run = fit_tables(*tables, "spent", seeds=2, features=["income"], **QUICK)
    assert run.metrics["seeds"] == [0, 1]
    assert run.scores.loc["GLT", "seeds"] == 2
    assert "± " in repr(run)
    assert run.config["task"] == "regression"


def test_a_search_is_told_trial_by_trial(tables):
    trials, stages = [], []
    job = make_job(max_epochs=3, hidden=8)
    run = fit_tables(*tables, "colour", search=2, on_trial=lambda number, trial: trials.append(number), **QUICK)
    assert trials == [1, 2]
    assert len(run.metrics["search"]["trials"]) == 2
    fit_problem(run.result.problem, job, search=SearchPlan(2), on_stage=stages.append)
    assert stages == ["trial 1 of 2", "trial 2 of 2", ""]


def test_an_interrupt_keeps_the_best_so_far(tables):
    def stop(name, epoch, best, recipe):
        if epoch.number == 3:
            raise KeyboardInterrupt

    run = fit_tables(*tables, "colour", on_epoch=stop, **QUICK)
    assert run.interrupted
    assert run.metrics["epochs"] == 3
    assert "interrupted" in repr(run)


def test_threads_are_as_before_after_a_training(tables, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before, seen = torch.get_num_threads(), []
    torch.set_num_threads(2)
    try:
        fit_tables(*tables, "colour", on_epoch=lambda *_: seen.append(torch.get_num_threads()), **QUICK)
        assert set(seen) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_split_column_is_recorded(tables):
    nodes, edges = tables
    nodes = nodes.assign(part=np.array(["train", "val", "test"])[np.arange(60) // 2 % 3])
    run = fit_tables(nodes, edges, "colour", split="part", features=["income"], **QUICK)
    assert run.config["columns"]["split"] == "part"
    assert run.used_settings["split"] == "part"
    assert run.used_settings["patience"] == 100


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": "color"}, r"nodes has no column 'color'; did you mean 'colour'\?"),
        ({"lr": 0.0}, "lr=0.0; expected a positive number"),
        ({"dropout": 1}, r"dropout=1; expected a rate in \[0, 1\)"),
        ({"device": "tpu"}, "device='tpu'; known: 'auto', 'cpu', 'cuda'"),
        ({"split": "1,2,3,4"}, "split='1,2,3,4'; expected three counts"),
        ({"split": "0.6,0.2,0.3"}, r"split='0.6,0.2,0.3'; the fractions sum to 1.1, more than 1"),
        ({"model": "gnn"}, "model='gnn'; known: 'auto', 'glt'"),
        ({"seed": -1}, "seed=-1; expected a whole number from 0 on"),
        ({"seed": 1.5}, r"seed=1.5; expected a whole number from 0 on"),
        ({"seeds": 0}, "seeds=0; expected a positive whole number"),
        ({"nodes": [1, 2]}, "nodes is a list; expected a pandas DataFrame or the path of a file"),
    ],
)
def test_errors_name_arguments(tables, changes, message):
    given = {"nodes": tables[0], "edges": tables[1], "target": "colour", **QUICK, **changes}
    with pytest.raises(ValueError, match=message):
        fit_tables(**given)


def test_a_setting_that_does_not_exist_is_refused(tables):
    with pytest.raises(TypeError, match=r"'learning_rate' is no setting of a training; known: model, design"):
        fit_tables(*tables, "colour", learning_rate=1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_told(tables):
    with pytest.raises(ValueError, match="device='cuda'; torch finds no CUDA device here, use device='cpu'"):
        fit_tables(*tables, "colour", device="cuda")


@pytest.mark.gpu
def test_a_gpu_gives_a_run_that_predicts_anywhere(tables, tmp_path):
    run = fit_tables(*tables, "colour", features=["income", "town"], device="cuda", **QUICK)
    assert run.metrics["device"] == "cuda"
    assert next(run.model.parameters()).device.type == "cpu"
    on_gpu, on_cpu = (run.predict(*tables, device=device) for device in ("cuda", "cpu"))
    assert np.allclose(on_gpu["probability_red"], on_cpu["probability_red"], atol=1e-4)


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"is not a run of 'walksum train': it holds no config.json"):
        open_run(tmp_path)
    (tmp_path / "config.json").write_text("[" * 100_000)
    (tmp_path / "metrics.json").write_text("{}")
    with pytest.raises(ValueError, match=r"config.json is damaged"):
        open_run(tmp_path)


def test_columns_may_be_named_by_numbers_and_tables_be_of_arrow(tables):
    arrow = pytest.importorskip("pyarrow").Table
    nodes, edges = tables
    numbered = nodes.set_axis(range(5), axis=1)
    run = fit_tables(numbered, edges, 3, id=0, features=pd.Index([1]), **QUICK)
    assert (run.config["target"], run.encoding.columns) == ("3", ["1"])
    again = run.predict(arrow.from_pandas(numbered.rename(columns=str)), arrow.from_pandas(edges))
    assert again["prediction"].equals(run.predictions["prediction"])


def test_a_run_of_booleans_reads_them_from_a_text_file(tables, tmp_path):
    nodes, edges = tables
    nodes = nodes.assign(member=nodes["income"] > 0)
    run = fit_tables(nodes, edges, "colour", features=["income", "member"], **QUICK)
    nodes.to_csv(tmp_path / "nodes.csv", index=False)
    again = run.predict(tmp_path / "nodes.csv", edges)
    assert again["probability_red"].equals(run.predictions["probability_red"])


def test_runs_of_several_targets_are_saved_again_and_know_their_folders(tables, tmp_path):
    runs = fit_tables(*tables, ["colour", "spent"], **QUICK).save(tmp_path / "both")
    assert runs["colour"].folder == tmp_path / "both" / "colour"
    again = open_runs(tmp_path / "both").save(tmp_path / "copy")
    assert again["spent"].folder == tmp_path / "copy" / "spent"
    assert open_runs(tmp_path / "copy").predictions.equals(open_runs(tmp_path / "both").predictions)
    with pytest.raises(ValueError, match=r"path=.*both already exists"):
        runs.save(tmp_path / "both")


def test_no_prediction_or_interval_of_a_share_leaves_its_ends(tables, tmp_path):
    nodes, edges = tables
    nodes = nodes.assign(share=(50 + 60 * (nodes["income"] - nodes["income"].mean())).clip(0, 100))
    run = fit_tables(nodes, edges, "share", features=["income"], **QUICK).save(tmp_path / "run")
    free = fit_tables(nodes, edges, "share", features=["income"], transform="none", **QUICK)
    assert any("'share' ends at 0 for" in note and "and at 100 for" in note for note in run.notes)
    for frame in (run.predictions, open_run(tmp_path / "run").predict(nodes, edges)):
        numbers = frame[["prediction", "low", "high"]]
        assert numbers.min().min() == 0
        assert numbers.max().max() == 100
    assert free.predictions["low"].min() < 0
    assert free.predictions["high"].max() > 100


def test_a_table_of_another_kind_is_refused_by_predict(tables, run):
    with pytest.raises(ValueError, match="nodes is a list; expected a pandas DataFrame"):
        run.predict(tables[0].to_dict("records"), tables[1])


@pytest.mark.parametrize("target", ["colour", "spent"])
def test_a_column_that_says_the_target_again_is_named(tables, target):
    nodes, edges = tables
    again = {"hue": nodes["colour"].str.upper(), "double": 2 * nodes["spent"] + 1}
    run = fit_tables(nodes.assign(**again), edges, target, features=["income", "hue", "double"], **QUICK)
    told = [note for note in run.notes if "the target follows from" in note]
    assert len(told) == 1
    assert ("'hue' almost exactly" if target == "colour" else "'double' almost exactly") in told[0]
