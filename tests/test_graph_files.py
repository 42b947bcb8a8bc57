"""Graphs on disk."""

import json
from pathlib import Path

import pytest
import torch

import walksum as ws
from walksum.graph import graph as module

EDGES = torch.tensor([[0, 3, 1, 2, 4], [1, 1, 2, 4, 3]])


@pytest.mark.parametrize("weight", [None, torch.rand(5), torch.rand(5, dtype=torch.float64)])
def test_a_graph_comes_back_as_it_was(tmp_path, weight):
    graph = ws.Graph.from_edge_index(EDGES, 7, weight)
    graph.save(tmp_path / "graph")
    read = ws.Graph.load(tmp_path / "graph")
    assert torch.equal(read.edges, graph.edges)
    assert read.num_nodes == 7
    assert (read.edge_weight is None) if weight is None else torch.equal(read.edge_weight, graph.edge_weight)
    x = torch.randn(7, 2)
    assert torch.equal(ws.Propagate()(x, read), ws.Propagate()(x, graph))


def test_no_edges_come_back_too(tmp_path):
    ws.Graph.from_edge_index(torch.empty(2, 0, dtype=torch.int64), 3).save(tmp_path / "graph")
    assert ws.Graph.load(tmp_path / "graph").num_edges == 0


def test_a_loaded_graph_is_mapped_and_its_file_never_changes(tmp_path):
    ws.Graph.from_edge_index(EDGES).save(tmp_path / "graph")
    before = (tmp_path / "graph" / "edges").read_bytes()
    read = ws.Graph.load(tmp_path / "graph")
    assert str(tmp_path / "graph" / "edges") in Path("/proc/self/maps").read_text()
    read.edges[0, 0] = 99
    assert (tmp_path / "graph" / "edges").read_bytes() == before


def test_what_is_no_graph_is_refused(tmp_path):
    folder = tmp_path / "graph"
    with pytest.raises(ValueError, match=r"holds no graph .* write one with graph\.save"):
        ws.Graph.load(folder)
    ws.Graph.from_edge_index(EDGES).save(folder)
    about = json.loads((folder / "graph.json").read_text())
    (folder / "graph.json").write_text(json.dumps(about | {"version": 99}))
    with pytest.raises(ValueError, match="version 99; this is version 1"):
        ws.Graph.load(folder)
    (folder / "graph.json").write_text(json.dumps(about | {"num_edges": 6}))
    with pytest.raises(ValueError, match=r"edges has 80 bytes, graph\.json tells of 96"):
        ws.Graph.load(folder)
    (folder / "graph.json").write_text(json.dumps(about))
    (folder / "edges").write_bytes(torch.zeros(10, dtype=torch.int64).numpy().tobytes())
    with pytest.raises(ValueError, match="edges must be i < j"):
        ws.Graph.load(folder)


def test_edges_are_checked_across_the_pieces(monkeypatch):
    monkeypatch.setattr(module, "CHECKED", 2)
    good = torch.tensor([[0, 0, 1, 1, 2], [1, 2, 2, 3, 3]])
    assert ws.Graph(good, 4).num_edges == 5
    for wrong in range(4):  # one pair out of order, wherever the pieces meet
        edges = good.clone()
        edges[:, [wrong, wrong + 1]] = edges[:, [wrong + 1, wrong]]
        with pytest.raises(ValueError, match="sorted and without duplicates"):
            ws.Graph(edges, 4)
