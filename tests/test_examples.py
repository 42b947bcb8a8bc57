"""Every example runs, is short, and shows what it says."""

import contextlib
import io
import os
import re
import runpy
import sys
import warnings
from pathlib import Path

import pytest
from matplotlib import pyplot as plt

from walksum.solvers import SolveWarning

pytestmark = pytest.mark.usefixtures("in_small_trainings")
FOLDER = Path(__file__).parent.parent / "examples"
MOST_LINES = 60
SHARE = r"{}: (\d+(?:\.\d+)?) ?%"


def forget_generated_code():
    """PyG writes the code of a Sequential into a module named by a random number, and of a class into one named by it:
    a program that sets the seed, or a second ``__main__``, would be given the code of another."""
    for name in [n for n in sys.modules if n.startswith(("torch_geometric.nn.sequential_", "__main___"))]:
        del sys.modules[name]


def run(name, *arguments, cwd="."):
    """What an example prints, in this process: a new one would take seconds to import torch."""
    printed, before = io.StringIO(), sys.argv
    sys.argv = [name, *map(str, arguments)]
    forget_generated_code()
    try:
        with contextlib.chdir(cwd), contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as a user runs it; but a solve that failed is an error here
            warnings.simplefilter("error", SolveWarning)
            sys.path.insert(0, str(FOLDER))  # as python does: PyG imports the file that a Sequential is made in
            runpy.run_path(str(FOLDER / name), run_name="__main__")
    finally:
        sys.argv = before
        sys.path.remove(str(FOLDER))
        forget_generated_code()
        plt.close("all")
    return printed.getvalue()


def percent(text, name):
    return float(re.search(SHARE.format(name), text)[1])


def test_examples_are_short_and_each_has_a_test():
    names = {path.name for path in FOLDER.glob("*.py")}
    assert all(f'"{name}"' in Path(__file__).read_text() for name in names)
    assert {n: k for n in names if (k := len((FOLDER / n).read_text().splitlines())) > MOST_LINES} == {}


def test_pyg_layer():
    text = run("pyg_layer.py")
    assert percent(text, "GLTConv, fixed") > percent(text, "GCNConv")
    assert percent(text, "GLTConv, learned") > 60
    assert "converged" in text


@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2))])
def test_graph_classification(seed):
    text = run("graph_classification.py", seed)
    assert percent(text, "GLT, 2 layers") > 95
    for depth in (2, 12):  # neither hears both marks at any node: what is left is chance
        assert percent(text, f"GCN, {depth} layers") < 60


def test_long_range():
    text = run("long_range.py")
    assert percent(text, "GLT") == 100
    assert percent(text, "GCN") < 80


def test_new_design():
    text = run("new_design.py")
    error, raw = map(float, re.search(r"error (\S+) on .*raw (\S+)\)", text).groups())
    assert "walk-summable: True" in text
    assert error < 0.6 * raw


def test_new_solver():
    text = run("new_solver.py")
    difference = float(re.search(r"solution: (\S+),", text)[1])
    assert difference < 1e-4
    assert text.count("Status.converged") == 2


def test_graph_features():
    text = run("graph_features.py")
    assert percent(text, "with the graph") > percent(text, "columns alone") + 10


def test_explain_node():
    text = run("explain_node.py")
    node, truth, said = re.match(r"node (\d+) is a (\d); the model says (\d)", text).groups()
    assert truth != said
    assert text.count(f"node {node} (a {truth})") == 2  # it has a share of both itself
    assert "strongest walk from" in text


def test_own_tables(tmp_path):
    assert "price" in run("own_tables.py", cwd=tmp_path)


@pytest.mark.data
def test_link_prediction():
    text = run("link_prediction.py")
    found = dict(re.findall(r"^(.*): test AUC (\S+)$", text, re.MULTILINE))
    assert float(found["linear, Propagate(0.8)"]) > max(0.9, float(found["two GLT layers with norm"]))


@pytest.mark.data
@pytest.mark.parametrize("target", ["election_margin", pytest.param("unemployment_rate", marks=pytest.mark.slow)])
def test_counties_field(target, tmp_path):
    counties = Path(os.environ["WALKSUM_DATA"]) / "counties"
    text = run("counties_field.py", counties, target, tmp_path / "map.png")
    rows = re.findall(r"^ +\d +([\d.]+) +([\d.]+) +([\d.]+)% ", text, flags=re.MULTILINE)
    assert len(rows) == 10
    for alone, both, covered in rows:
        assert float(both) > float(alone) + (0.3 if target == "election_margin" else 0)
        assert 93 <= float(covered) <= 97
    assert "the intervals cover" in text
    assert (tmp_path / "map.png").stat().st_size > 10_000
