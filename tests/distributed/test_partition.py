"""Who owns which node, without any process."""

import doctest
import sys

import pytest
import torch

import walksum as ws
from walksum.distributed import GraphPart, Partition, joined, load_part, partition
from walksum.distributed import partition as make_partition
from walksum.distributed.__main__ import main


def grid(side):
    node = torch.arange(side * side).view(side, side)
    pairs = [torch.stack(p).flatten(1) for p in ((node[:, :-1], node[:, 1:]), (node[:-1], node[1:]))]
    return ws.Graph.from_edge_index(torch.cat(pairs, 1), side * side)


@pytest.mark.parametrize("method", ["metis", "stream"])
@pytest.mark.parametrize("parts", [2, 5])
def test_parts_are_of_about_equal_size_and_cut_little(method, parts):
    graph = grid(40)
    shares = partition(graph, parts, method)
    assert max(shares.sizes) <= 1.06 * graph.num_nodes / parts
    assert shares.cut(graph) <= 0.12 * graph.num_edges  # of a random assignment: 0.5 and 0.8


def test_rows_to_send_are_counted_from_the_edges():
    path = ws.Graph.from_edge_index(torch.tensor([[0, 1, 2, 0], [1, 2, 3, 3]]))  # a ring of four
    shares = Partition(torch.tensor([0, 0, 1, 1]), 2)
    assert shares.sent_rows(path).tolist() == [[0, 2], [2, 0]]
    assert shares.exchange_bytes(path, 3) == [24, 24]
    star = ws.Graph.from_edge_index(torch.tensor([[0, 0, 0], [1, 2, 3]]))
    assert Partition(torch.tensor([0, 1, 1, 2]), 3).sent_rows(star).tolist() == [[0, 1, 1], [2, 0, 0], [1, 0, 0]]


def test_tiny_graphs_have_no_empty_part():
    graph = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 5)
    for method in ("metis", "stream"):
        assert min(partition(graph, 5, method).sizes) == 1


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (lambda g: partition(g, 26), "parts=26 for .* at most one process per node"),
        (lambda g: partition(g, 2, "random"), "method='random'; known: 'metis', 'stream'"),
        (lambda g: partition(g, 0), "parts=0; expected a positive whole number"),
        (lambda g: Partition(torch.tensor([0, 2]), 2), "holds 0 to 2; expected parts from 0 to 1"),
        (lambda g: Partition(torch.tensor([0, 0]), 2), r"leaves parts \[1\] of 2 without a node"),
        (lambda g: Partition(torch.tensor([0.0]), 1), "expected one part per node, int64"),
        (lambda g: GraphPart.of(g, Partition(torch.zeros(3, dtype=torch.int64), 1)), "partition has 3 nodes but Graph"),
        (lambda g: GraphPart.of(g, partition(g, 2), 0), "cut into 2 parts but there are 1 processes"),
        (lambda g: load_part("nowhere", 0), "holds no parts; write them with save_parts"),
    ],
)
def test_wrong_use_is_told(attempt, words):
    with pytest.raises(ValueError, match=words):
        attempt(grid(5))


def test_one_part_is_the_graph_itself():
    graph = grid(6)
    part = GraphPart.of(graph, partition(graph, 1))
    x = torch.randn(36, 3, dtype=torch.float64)
    model = ws.GLTConv(3, 2).double()
    assert torch.allclose(model(x, part), model(x, graph), atol=1e-10)


def test_the_example_of_partition():
    assert doctest.testmod(sys.modules[make_partition.__module__]).failed == 0


def test_the_command_says_what_is_missing(tmp_path, capsys):
    assert main(["cut", "--parts", "2", "--out", str(tmp_path)]) == 2
    assert "give either --dataset, or --nodes, --edges and --target" in capsys.readouterr().err


def test_own_tables_are_cut_and_kept(tmp_path, capsys):
    nodes = "id,a,kind\n" + "\n".join(f"n{k},{k % 3},{'even' if k % 2 == 0 else 'odd'}" for k in range(20))
    edges = "source,target\n" + "\n".join(f"n{k},n{(k + 1) % 20}" for k in range(20))
    (tmp_path / "nodes.csv").write_text(nodes)
    (tmp_path / "edges.csv").write_text(edges)
    given = ["cut", "--parts", "2", "--nodes", str(tmp_path / "nodes.csv"), "--edges", str(tmp_path / "edges.csv")]
    given += ["--out", str(tmp_path / "out")]
    assert main([*given, "--target", "kind"]) == 0
    assert main([*given, "--target", "kind"]) == 0  # finds them
    assert main([*given, "--target", "a"]) == 2
    assert "holds parts of something else (target='kind' there, 'a' now)" in capsys.readouterr().err


def test_training_without_torchrun_says_how_to_start(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ValueError, match="start with torchrun --nproc-per-node 4"), joined():
        pass
