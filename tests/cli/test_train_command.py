import csv
import gzip
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from customers import QUICK, Shop, answers, run, start, write
from torch_geometric.data import Data

import walksum as ws
from walksum.data import load
from walksum.data.problem import from_data
from walksum.data.problem_split import split_problem

WHOLE = ["config.json", "metrics.json", "model", "picture.png", "predictions.csv", "report.html"]
OF_TABLES = sorted([*WHOLE, "importance.csv"])
TABLES = ("--nodes", "nodes.csv", "--edges", "edges.csv")
MAKEFILE = Path(__file__).parents[2] / "Makefile"


@pytest.mark.slow
def test_digits_from_a_strangers_folder(walksum, tmp_path):
    """make demo, looked at from all sides: a fixture would train once for each process of the tests."""
    words = re.search(r"^demo:.*\n\t.*/walksum (.*)$", MAKEFILE.read_text(), flags=re.MULTILINE)[1].split()
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "runs" / "digits"
    _learned_from_ten_labels_a_class(folder, done)
    _saved_model_gives_the_written_score_and_predictions(folder)
    _report_needs_nothing_else(folder)
    _info_says_it_again(folder, walksum("info", folder, cwd=tmp_path))


def _learned_from_ten_labels_a_class(run, done):
    assert sorted(p.name for p in run.iterdir()) == WHOLE
    metrics = json.loads((run / "metrics.json").read_text())
    test = {name: record["mean"] for name, record in metrics["test"].items()}
    assert test["GLT"] > 0.95
    assert test["GLT"] > max(test["gradient boosting"], test["logistic regression"]) + 0.05
    # the MLP has as many seconds as the GLT took; the paired interval over the test images decides, not one difference
    assert (metrics["graph"]["verdict"], metrics["graph"]["against"]) == ("helped", "MLP")
    assert metrics["graph"]["low"] > 0.03
    # one draw says nothing of label propagation, which reads the same edges: tests/estimators has twenty draws
    assert test["GLT"] > test["label propagation"] - 0.01
    assert metrics["split"] == {"train": 100, "val": 200, "test": 1497}
    assert metrics["seconds"] < 600  # about a minute on two quiet cores
    assert f"{100 * test['GLT']:.1f} %" in done.stdout
    for word in ("1797 nodes", " edges, ", "homophily", "solver: ", "residual", "95 % interval", "report.html"):
        assert word in done.stdout
    assert "s left unless it improves" in done.stderr


def _saved_model_gives_the_written_score_and_predictions(run):
    problem = from_data("digits", load("digits"))
    encoding = json.loads((run / "config.json").read_text())["encoding"]
    probability = ws.load(run / "model")(problem.features, problem.edge_index).softmax(-1)
    if encoding["smoothing"]:
        probability = ws.Propagate(encoding["smoothing"])(probability, problem.edge_index)
    probability = (probability.log() / encoding["temperature"]).softmax(-1)
    split = split_problem(problem, None, 0)
    hit = (probability.argmax(1) == problem.y)[split.test].double().mean()
    metrics = json.loads((run / "metrics.json").read_text())
    assert float(hit) == pytest.approx(metrics["test"]["GLT"]["mean"])
    low, high = metrics["test"]["GLT"]["low"], metrics["test"]["GLT"]["high"]
    assert low < float(hit) < high
    rows = list(csv.DictReader((run / "predictions.csv").read_text().splitlines()))
    assert [row["prediction"] for row in rows] == [str(k) for k in probability.argmax(1).tolist()]
    written = [[float(row[f"probability_{k}"]) for k in range(10)] for row in rows]
    assert torch.allclose(torch.tensor(written), probability, atol=2e-6)
    part = {name: {int(row["id"]) for row in rows if row["split"] == name} for name in ("train", "val", "test")}
    assert part["test"] == set(split.test.tolist())
    assert [row["truth"] for row in rows] == [str(k) for k in problem.y.tolist()]


def _report_needs_nothing_else(run):
    page = (run / "report.html").read_text()
    assert len(page) < 5_000_000
    assert "<svg" in page
    assert not any(word in page for word in ("http://", "https://", "<script", "<link"))
    assert (run / "picture.png").read_bytes().startswith(b"\x89PNG")


def _info_says_it_again(run, done):
    assert done.returncode == 0
    assert "1797 nodes" in done.stdout
    assert "label propagation" in done.stdout


def test_a_table_of_strings_and_holes(colour_run):
    run, done = colour_run
    assert sorted(p.name for p in run.iterdir()) == OF_TABLES
    assert "note: 6 missing numbers in 'income': training medians were put in" in done.stdout
    assert "2 classes: blue 36, red 28" in done.stdout
    assert "8 are to be predicted" in done.stdout
    rows = list(csv.DictReader((run / "predictions.csv").read_text().splitlines()))
    assert [row["id"] for row in rows] == [f"c{k}" for k in range(72)]
    assert set(rows[0]) == {"id", "split", "truth", "prediction", "probability_blue", "probability_red"}
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["test"]["GLT"]["mean"] > metrics["test"]["majority class"]["mean"]


def test_the_encoding_knows_the_training_nodes_only(colour_run):
    run, _ = colour_run
    config = json.loads((run / "config.json").read_text())
    frame = pd.read_csv(run.parent / "nodes.csv")
    from walksum.data.user_files import Columns, read_tables

    problem = read_tables(run.parent / "nodes.csv", run.parent / "edges.csv", Columns("colour"))
    train = split_problem(problem, None, 0).train.numpy()
    income = frame["income"].to_numpy()[train]
    assert config["encoding"]["mean"] == pytest.approx([np.nanmean(income)])
    assert config["encoding"]["scale"] == pytest.approx([np.nanstd(income)])
    assert config["encoding"]["fill"] == pytest.approx([np.nanmedian(income)])
    assert config["encoding"]["categories"] == {"town": ["Bern", "Oslo", "Rome"]}


def test_a_number_is_predicted_by_regression(shop, walksum, tmp_path):
    tables = ("--nodes", shop / "nodes.csv", "--edges", shop / "edges.csv", "--target", "spent")
    done = walksum("train", *tables, "--seeds", "2", "--json", "--features", "income", "--lr", "0.02",
                   "--epochs", "150", "--dropout", "0.1", "--out", "run", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)  # one object and nothing else
    assert record["task"] == "regression"
    assert record["seeds"] == [0, 1]
    assert len(record["test"]["GLT"]["values"]) == 2
    assert record["test"]["GLT"]["mean"] > 0.3 > record["test"]["mean"]["mean"]
    assert record["test"]["MLP"]["mean_absolute_error"] < record["test"]["mean"]["mean_absolute_error"]
    assert "loss" in done.stderr
    frame = pd.read_csv(tmp_path / "run" / "predictions.csv")
    assert (frame["low"] < frame["prediction"]).all()
    assert (frame["prediction"] < frame["high"]).all()
    assert 0.3 < record["intervals"]["coverage"] <= 1  # of 14 nodes
    truth = pd.read_csv(shop / "nodes.csv")["spent"]
    assert frame["truth"].equals(truth)
    known = truth.notna()
    assert abs(frame["prediction"][known].mean() - truth[known].mean()) < truth[known].std()


def test_the_default_is_a_portfolio_that_predicts_other_tables(shop, walksum, tmp_path):
    tables = ("--nodes", shop / "nodes.csv", "--edges", shop / "edges.csv")
    done = walksum("train", *tables, "--target", "spent", "--features", "income,town", "--budget", "4", "--out", "run",
                   cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "trainings done" in done.stderr
    for words in ("members; most weight: ", "the graph ", "95 % intervals cover ", "boosting on neighbour means",
                  "ridge regression", "label propagation", "gradient boosting", "MLP"):  # fmt: skip
        assert words in done.stdout, words
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == OF_TABLES
    page = (tmp_path / "run" / "report.html").read_text()
    assert "these carry the weight" in page
    assert "he graph " in page
    frame = pd.read_csv(shop / "nodes.csv")
    frame.drop(columns=["spent", "colour"]).to_csv(tmp_path / "new.csv", index=False)
    asked = ("predict", "run", "--edges", shop / "edges.csv", "--nodes")
    known = walksum(*asked, shop / "nodes.csv", "--out", "known.csv", cwd=tmp_path)
    new = walksum(*asked, "new.csv", "--out", "new-out.csv", cwd=tmp_path)
    assert known.returncode == new.returncode == 0, known.stderr + new.stderr
    for name in ("known.csv", "new-out.csv"):
        found = pd.read_csv(tmp_path / name)
        assert found.columns.tolist() == ["id", "prediction", "low", "high"]
        right = frame["spent"].notna()
        assert np.corrcoef(found["prediction"][right], frame["spent"][right])[0, 1] > 0.8
    drawn = walksum("figures", "run", *tables, "--format", "svg", cwd=tmp_path)
    assert drawn.returncode == 0, drawn.stderr
    assert (tmp_path / "run" / "figures" / "members.svg").is_file()


def first_words(process):
    """The first line it says of its work; before, it may say that it compiles kernels."""
    said = process.stderr.readline()
    return process.stderr.readline() if "compiling kernels" in said else said


def test_ctrl_c_keeps_the_members_so_far(shop, tmp_path):
    tables = ("--nodes", shop / "nodes.csv", "--edges", shop / "edges.csv")
    process = start("train", *tables, "--target", "colour", "--budget", "600", cwd=tmp_path)
    assert "1 of " in first_words(process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert sorted(p.name for p in (tmp_path / "runs" / "nodes").iterdir()) == WHOLE
    assert "members; most weight" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--budget", "0"), "--budget 0.0; expected a positive number of seconds"),
        (("--model", "auto", "--lr", "0.1"), "--lr is for networks; a portfolio"),
        (("--model", "auto", "--search", "3"), "--search is for networks; a portfolio"),
        (("--engine", "ray"), "--engine and --workers are for trials of a search; say how many with --search"),
        (("--search", "3", "--engine", "spark"), "--engine spark; known: 'local', 'ray'"),
    ],
)
def test_options_that_do_not_fit_a_portfolio_are_refused(options, message, shop, walksum, tmp_path):
    tables = ("--nodes", shop / "nodes.csv", "--edges", shop / "edges.csv", "--target", "colour")
    done = walksum("train", *tables, *options, cwd=tmp_path)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())


def _other_shapes(shop, folder):
    """The shop as TSV, gzip, Parquet, GraphML: the same graph each time."""
    import networkx as nx

    nodes, edges = (pd.read_csv(shop / name, dtype=object) for name in ("nodes.csv", "edges.csv"))
    nodes.to_csv(folder / "nodes.tsv", sep="\t", index=False)
    edges.to_parquet(folder / "edges.parquet")
    with gzip.open(folder / "nodes.csv.gz", "wt") as file:
        nodes.to_csv(file, index=False)
    edges.to_csv(folder / "edges.csv", sep=";", index=False)
    graph = nx.MultiGraph()
    for row in nodes.to_dict("records"):
        graph.add_node(row.pop("id"), **{name: value for name, value in row.items() if isinstance(value, str)})
    graph.add_edges_from(edges.itertuples(index=False, name=None))
    nx.write_graphml(graph, folder / "shop.graphml")


def test_every_format_gives_the_same_problem(shop, tmp_path):
    from walksum.data.user_files import Columns, read_graph, read_tables
    from walksum.workflow.fit import Job, prepare_data

    _other_shapes(shop, tmp_path)
    columns = Columns("colour", features=("income", "town"))
    expected = prepare_data(Job(), read_tables(shop / "nodes.csv", shop / "edges.csv", columns))
    others = [
        read_tables(tmp_path / "nodes.tsv", tmp_path / "edges.parquet", columns),
        read_tables(tmp_path / "nodes.csv.gz", tmp_path / "edges.csv", columns),
        read_graph(tmp_path / "shop.graphml", columns),
    ]
    for problem in others:
        prepared = prepare_data(Job(), problem)
        assert torch.equal(prepared.x, expected.x)
        assert torch.equal(prepared.y, expected.y)
        assert torch.equal(problem.graph.edges, expected.problem.graph.edges)


def test_a_pyg_file_trains_without_unpickling(walksum, tmp_path):
    y = torch.arange(60) % 3
    index = torch.cat([torch.stack([torch.arange(57), torch.arange(57) + 3])], 1)
    torch.save(Data(x=torch.randn(60, 4), edge_index=index, y=y), tmp_path / "graph.pt")
    done = walksum("train", "--graph", "graph.pt", "--model", "gcn", "--epochs", "5", "-q", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "runs" / "graph"
    assert sorted(p.name for p in run.iterdir()) == WHOLE
    again = walksum("predict", run, "--graph", "graph.pt", "--out", "p.csv", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "p.csv").read_text() == answers(run / "predictions.csv")


def test_weights_and_a_split_column_are_used(shop, walksum, tmp_path):
    frame = pd.read_csv(shop / "nodes.csv", dtype=object)
    frame["part"] = np.array(["train", "val", "test", ""])[np.arange(80) // 2 % 4]
    frame.to_csv(tmp_path / "nodes.csv", index=False)
    edges = pd.read_csv(shop / "edges.csv")
    edges["weight"] = np.linspace(0.1, 2, len(edges))
    edges.to_csv(tmp_path / "edges.csv", index=False)
    done = walksum("train", *TABLES, "--target", "colour", "--weight", "weight", "--split", "part",
                   "--features", "income", "--solver", "cg", "--tensorboard", "--json", *QUICK,
                   cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["data"]["weighted"]
    assert record["solver"]["name"] == "CG"
    labelled = frame["colour"].notna()
    assert record["split"]["train"] == int((labelled & (frame["part"] == "train")).sum())
    assert list((tmp_path / "runs" / "nodes" / "tensorboard").rglob("events.out.tfevents*"))


def test_a_search_is_compared_on_validation(shop, walksum, tmp_path):
    tables = ("--nodes", shop / "nodes.csv", "--edges", shop / "edges.csv", "--target", "colour")
    done = walksum("train", *tables, "--search", "4", "--workers", "2", "--epochs", "8", "--json", "-q", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.sub("walksum: compiling kernels.*\n", "", done.stderr) == ""
    record = json.loads(done.stdout)
    trials = record["search"]["trials"]
    assert record["search"]["by"] == "TPE (Optuna)"
    assert len(trials) == 4
    assert record["best_epoch"]["val_score"] == max(trial["val_score"] for trial in trials)
    assert not any("test" in name for name in trials[0])


def test_ctrl_c_keeps_the_best_weights_so_far(shop, tmp_path):
    tables = ("--nodes", shop / "nodes.csv", "--edges", shop / "edges.csv", "--target", "colour", "--hidden", "8")
    process = start("train", *tables, "--epochs", "100000", "--patience", "100000", cwd=tmp_path)
    assert "epoch 1:" in first_words(process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "interrupted: these are the best weights so far" in err
    run = tmp_path / "runs" / "nodes"
    assert sorted(p.name for p in run.iterdir()) == WHOLE
    assert json.loads((run / "metrics.json").read_text())["interrupted"]
    assert "written to" in out
    ws.load(run / "model")


def test_a_large_file_is_streamed_with_progress(shop, walksum, tmp_path):
    body = (shop / "edges.csv").read_bytes().split(b"\n", 1)[1].replace(b"\r", b"")
    with (tmp_path / "edges.csv").open("wb") as file:
        file.write(b"source,target\n" + body * (17 * 2**20 // len(body)))
    done = walksum("train", "--nodes", shop / "nodes.csv", "--edges", "edges.csv", "--target", "colour",
                   "--model", "mlp", "--epochs", "2", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "reading edges.csv: " in done.stderr
    assert " of 17 MB" in done.stderr


@pytest.mark.slow
@pytest.mark.data
def test_texas_from_tables_is_texas_to_the_last_bit(walksum, tmp_path):
    data = load("texas")
    words = [f"w{k}" for k in range(data.num_features)]
    rows = (
        [f"n{k}", *map(int, x), label]
        for k, (x, label) in enumerate(zip(data.x.tolist(), data.y.tolist(), strict=True))
    )
    write(tmp_path / "nodes.csv", ["id", *words, "label"], rows)
    write(tmp_path / "edges.csv", ["source", "target"], [(f"n{i}", f"n{j}") for i, j in data.edge_index.t().tolist()])
    same = ("--learned", "--seed", "3", "--epochs", "40", "-q", "--json")
    named = walksum("train", "--dataset", "texas", "--out", "named", *same, cwd=tmp_path)
    own = walksum("train", *TABLES, "--target", "label", "--split", "87,59,37", "--keep-rare", "--out", "own", *same,
                  cwd=tmp_path)  # fmt: skip
    assert named.returncode == own.returncode == 0, named.stderr + own.stderr
    assert json.loads(named.stdout)["test"] == json.loads(own.stdout)["test"]
    weights = [(tmp_path / run / "model" / "model.safetensors").read_bytes() for run in ("named", "own")]
    assert weights[0] == weights[1]


def test_the_shell_completes(tmp_path):
    for words, expected in (("walksum tr", "train"), ("walksum train --design lap", "laplacian")):
        asked = {"_WALKSUM_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        environment = {**os.environ, "PYTHONPATH": str(ws.__path__[0]) + "/..", **asked}
        done = subprocess.run(
            [sys.executable, "-m", "walksum"], env=environment, capture_output=True, text=True, check=False
        )
        assert done.stdout.split() == [expected], done.stderr


def test_help_has_an_example_for_each_command():
    from typer.testing import CliRunner

    from walksum.cli import app

    runner = CliRunner()
    commands = ("train", "predict", "info", "datasets", "solve", "doctor")
    listed = runner.invoke(app, ["--help"]).output
    for command in commands:
        assert command in listed
        assert f"walksum {command}" in runner.invoke(app, [command, "--help"]).output
    lines = runner.invoke(app, ["datasets"]).output.splitlines()
    assert lines[0].split()[:7] == ["cora", "2,708", "nodes", "1,433", "columns", "7", "classes"]
    assert lines[-1].endswith("10 classes  on disk")  # the digits come with scikit-learn


def test_shop_is_what_the_tests_think():
    assert len(Shop().edges) > 200
