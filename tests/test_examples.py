"""Every example runs, is short, and shows what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"
MOST_LINES = 60
SHARE = r"{}: (\d+(?:\.\d+)?) ?%"


def run(name, *arguments, cwd=None):
    code = [sys.executable, str(FOLDER / name), *map(str, arguments)]
    done = subprocess.run(code, capture_output=True, text=True, timeout=120, cwd=cwd, env=os.environ)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "SolveWarning" not in done.stderr
    return done.stdout


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


@pytest.mark.parametrize("seed", [0, 1, 2])
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
def test_counties_field(tmp_path):
    counties = Path(os.environ["WALKSUM_DATA"]) / "counties"
    text = run("counties_field.py", counties, "unemployment_rate", tmp_path / "map.png")
    assert "the intervals cover" in text
    assert (tmp_path / "map.png").exists()
