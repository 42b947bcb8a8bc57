"""The long-range bench: its tasks, its implicit contestant, its records."""

import json
import runpy
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from walksum.cli import app
from walksum.paper.longrange.bench import influence, measure, measure_time, read_records, rows_of, run_bench
from walksum.paper.longrange.contestants import CAP, IGNN, MESSAGE_PASSING, make_model
from walksum.paper.longrange.tasks import SIZES, TASKS, make_task


@pytest.mark.parametrize("name", TASKS)
def test_each_asked_node_is_in_a_graph_of_its_own_and_all_classes_are_there(name):
    task = make_task(name, SIZES[name][0], 0)
    split, y = task.data.split(0), task.data.y
    size = task.data.x.size(0)
    parts = torch.zeros(size, dtype=torch.long)
    for k, nodes in enumerate((split.train, split.val, split.test)):
        parts[nodes] = k + 1
    assert int((parts > 0).sum()) == sum(nodes.numel() for nodes in (split.train, split.val, split.test))
    i, j = task.data.edges
    used = parts[i] * parts[j]
    assert set(used[(parts[i] != parts[j])].tolist()) <= {0}  # no edge joins two parts
    assert set(y[split.test].tolist()) <= set(y[split.train].tolist())


def test_a_tree_asks_for_the_value_of_the_leaf_with_the_key_of_the_root():
    task, leaves = make_task("tree", 3, 1), 8
    x, y = task.data.x.view(-1, 15, 16), task.data.y.view(-1, 15)
    for tree in range(20):
        key = x[tree, 0, :leaves].argmax()
        leaf = x[tree, 7:, :leaves].argmax(1).tolist().index(int(key))
        assert x[tree, 7 + leaf, leaves:].argmax() == y[tree, 0]


def test_one_layer_classifies_chains_of_1000():
    record = measure("chain", 1000, "Propagate(reach)", 0, epochs=30)
    assert record["test"] == record["test_nodes"] == 1
    assert record["influence"] > 0


def test_the_default_of_predict_then_propagate_reaches_100_hops():
    assert measure("chain", 101, "PredictThenPropagate", 0)["test"] == 1


@pytest.mark.parametrize("name", MESSAGE_PASSING)
def test_a_layer_for_each_hop_is_needed_and_is_enough(name):
    for hops, heard in ((9, True), (CAP + 8, False)):
        task = make_task("chain", hops + 1, 0)
        torch.manual_seed(0)
        assert (influence(make_model(name, 2, 2, hops).double(), _double(task)) > 0) == heard


def _double(task):
    object.__setattr__(task.data, "x", task.data.x.double())
    return task


def test_an_implicit_layer_has_the_gradient_of_its_fixed_point():
    torch.manual_seed(0)
    net = IGNN(3, 2, 4, tol=1e-14, steps=2000).double()
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    ring = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])
    edges = torch.cat([ring, ring.flip(0)], 1)
    assert torch.autograd.gradcheck(lambda x: net(x, edges), x, check_undefined_grad=False)
    A = torch.zeros(6, 6, dtype=torch.float64).index_put_(tuple(edges), torch.tensor(1.0).double()) + torch.eye(6)
    z, W = torch.zeros(6, 4, dtype=torch.float64), net.weight / net.weight.abs().sum(0).clamp_min(0.95) * 0.95
    for _ in range(2000):
        z = (A / 3 @ z @ W + net.inject(x)).relu()
    torch.testing.assert_close(net(x, edges), net.read(z))


def test_records_are_kept_and_a_bench_goes_on(tmp_path):
    chosen = {"tasks": ["ring"], "models": ["GCN", "Propagate(reach)"], "sizes": [10, 100], "epochs": 2}
    first = run_bench(tmp_path, **chosen, seeds=[0])
    lines = (tmp_path / "records.jsonl").read_text()
    said = []
    again = run_bench(tmp_path, **chosen, seeds=[0, 1], say=said.append)
    assert len(first) == 4
    assert len(said) == 4
    assert (tmp_path / "records.jsonl").read_text().startswith(lines)
    assert read_records(tmp_path) == again
    sizes, rows = rows_of(again, "ring")
    assert sizes == [10, 100]
    assert dict(rows)["GCN"][1] == "(20)"  # 50 hops: not trained
    page = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "pages.py"))
    assert "| GCN | " in page["long_range"](again)


def test_time_of_a_layer_is_linear_in_the_length():
    record = measure_time((30_000, 1_000_000))
    assert 0.6 < record["exponent"] < 1.6  # a million nodes leave the cache: about 1.2, on a busy machine 1.4


def test_the_command(tmp_path):
    options = ["--tasks", "chain", "--sizes", "5", "--models", "APPNP", "--seeds", "1", "--epochs", "1"]
    done = CliRunner().invoke(app, ["bench", "longrange", *options, "--store", str(tmp_path), "--json", "--quiet"])
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["records"][0]["model"] == "APPNP"
    for wrong, message in ((["--sizes", "x"], "--sizes 'x'"), (["--models", "nobody"], "nobody")):
        done = CliRunner().invoke(app, ["bench", "longrange", "--store", str(tmp_path), *wrong])
        assert done.exit_code == 2
        assert message in done.stderr
