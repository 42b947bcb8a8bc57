"""walksum figures: what it writes, what it leaves out, what it refuses."""

import json
import shutil
import xml.etree.ElementTree as ET

import pytest
from customers import inside
from typer.testing import CliRunner

from walksum.cli import app
from walksum.data.datasets import digits
from walksum.data.problem import from_data
from walksum.workflow.fit import Job, Result, fit_model, predict, prepare_data
from walksum.workflow.run import run_of

GLT = [
    "learning",
    "graphical-model",
    "correlation",
    "spectral-response",
    "convergence",
    "walk-sums",
    "influence-by-hop",
]


def figures(*arguments):
    """The command without the seconds a new process takes to import torch."""
    return CliRunner().invoke(app, ["figures", *map(str, arguments)])


@pytest.fixture(scope="module")
def tables(colour_run):
    folder = colour_run[0].parent
    return ("--nodes", folder / "nodes.csv", "--edges", folder / "edges.csv")


def test_a_run_on_tables_is_drawn_in_both_themes(colour_run, tables, tmp_path):
    options = ("--format", "png,svg", "--theme", "both", "--dpi", "40", "--out", "figs", "--json")
    done = inside("figures", colour_run[0], *tables, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    names = {f"{name}{theme}.{kind}" for name in GLT for theme in ("", "-dark") for kind in ("png", "svg")}
    assert {path.name for path in (tmp_path / "figs").iterdir()} == names
    assert len(said["files"]) == len(names)
    assert any("without labels" in note for note in said["notes"])
    assert ET.parse(tmp_path / "figs" / "correlation.svg").getroot().tag.endswith("svg")


def test_a_run_that_learned_from_tables_needs_them(colour_run, tmp_path):
    done = figures(colour_run[0], "--out", tmp_path / "figs")
    assert done.exit_code == 2
    assert "--nodes and --edges are missing" in done.stderr
    assert not any(tmp_path.iterdir())


@pytest.fixture(scope="module")
def mlp_run(tmp_path_factory):
    """A run on digits, without the comparisons that 'walksum train' adds."""
    folder, job = tmp_path_factory.mktemp("mlp") / "run", Job(model="mlp", max_epochs=2, hidden=8)
    problem = from_data("digits", digits())
    prepared = prepare_data(job, problem)
    model, outcome = fit_model(job, prepared)
    output = predict(model, prepared.x, problem, prepared.encoding)
    test = prepared.split.test
    scores = {job.title: prepared.scorer.score(output[test], problem.y[test])}
    folder.mkdir()
    run_of([Result(job, prepared, model, outcome, output, scores, None, [])]).write(folder, page=False)
    return folder


def test_a_model_without_a_precision_is_drawn_as_far_as_it_goes(mlp_run):
    done = figures(mlp_run, "--format", "png", "--compare", "none")
    assert done.exit_code == 0, done.stderr
    assert "model mlp has no J to draw" in done.stdout
    assert "2 files written" in done.stdout
    assert {path.name for path in (mlp_run / "figures").iterdir()} == {"learning.png", "influence-by-hop.png"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a run folder of 'walksum train', or use --paper"),
        (("nowhere",), "nowhere is not a run of 'walksum train': it holds no config.json"),
        (("RUN", "--format", "gif"), "--format gif; known: svg, png, pdf"),
        (("RUN", "--theme", "blue"), "--theme blue; known: light, dark, both"),
        (("RUN", "--dataset", "cora"), "--dataset cora belongs to --paper"),
        (("RUN", "--compare", "gnc"), "model='gnc'; known: 'glt'"),
        (("RUN", "--paper"), "--paper were given; draw a run, or the paper's figures"),
        (("--paper", "--dataset", "corra"), "name='corra' is not a dataset"),
    ],
)
def test_wrong_use_is_told(arguments, message, mlp_run):
    done = figures(*(mlp_run if each == "RUN" else each for each in arguments), "--json")
    assert done.exit_code == 2
    assert message in done.stderr
    assert json.loads(done.stdout)["exit_code"] == 2


@pytest.mark.parametrize("broken", ["metrics.json", "model/model.safetensors", "model"])
def test_broken_runs_are_told(broken, mlp_run, tmp_path):
    folder = shutil.copytree(mlp_run, tmp_path / "run")
    if broken == "model":
        shutil.rmtree(folder / broken)
    else:
        (folder / broken).write_text("{")
    done = figures(folder, "--compare", "none")
    assert done.exit_code == 2
    assert str(folder) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_place_that_cannot_be_written_is_told(mlp_run, tmp_path):
    (tmp_path / "file").write_text("")
    done = figures(mlp_run, "--out", tmp_path / "file" / "figs", "--compare", "none")
    assert done.exit_code == 2
    assert "choose another place" in done.stderr


def test_a_graph_too_large_for_its_eigenvectors_is_told(monkeypatch):
    from walksum.analysis import spectrum

    monkeypatch.setattr(spectrum, "SPECTRUM_LIMIT", 100)
    done = figures("--paper", "--dataset", "digits")
    assert done.exit_code == 2
    assert "--dataset digits has 1797 nodes" in done.stderr
