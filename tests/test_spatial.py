"""Neighbours from libpysal, .gal and .gwt files and networkx."""

import warnings
from contextlib import closing

import networkx
import numpy as np
import pytest
import torch

import walksum as ws
from walksum.graph.spatial import spatial_graph

GAL = """0 4 nothing id
1 2
2 3
2 1
1
3 1
1
4 0

"""


@pytest.fixture
def pysal():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("libpysal")
        import libpysal.graph
        import libpysal.weights

        yield libpysal


def test_gal_and_gwt_files(tmp_path):
    gal = tmp_path / "a.gal"
    gal.write_text(GAL)
    graph, ids = spatial_graph(gal)
    assert ids == [1, 2, 3, 4]
    assert graph.edges.tolist() == [[0, 0], [1, 2]]
    assert graph.num_nodes == 4
    assert graph.edge_weight is None
    gwt = tmp_path / "a.gwt"
    gwt.write_text("0 3 nothing id\nb a 0.5\na b 1.5\nb c 2.0\n")
    graph, ids = spatial_graph(str(gwt))
    assert ids == ["b", "a", "c"]
    assert graph.edge_weight.tolist() == [1.0, 2.0]  # b-a is the mean of both directions
    assert spatial_graph(gwt, ids=["a", "b", "c", "lonely"]).graph.num_nodes == 4


def test_networkx():
    graph, ids = spatial_graph(networkx.karate_club_graph())
    assert (graph.num_nodes, graph.num_edges) == (34, 78)
    assert ids == list(range(34))
    assert graph.edge_weight is not None
    assert spatial_graph(networkx.path_graph(3, create_using=networkx.DiGraph)).graph.edge_weight is None


def test_libpysal_graph_and_weights(pysal):
    path = pysal.examples.get_path("columbus.gal")
    wanted = spatial_graph(path).graph
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with closing(pysal.io.open(path)) as file:
            W = file.read()
        G = pysal.graph.Graph.from_W(W)
        band = pysal.weights.KNN.from_array(torch.rand(30, 2).numpy(), k=3)
        standardised = G.transform("r")
        W.transform = "r"
    for source in (W, G, standardised):
        found = spatial_graph(source).graph
        assert torch.equal(found.edges, wanted.edges)
        assert found.edge_weight is None
    assert spatial_graph(band).graph.num_nodes == 30
    alone = pysal.graph.Graph.from_arrays([0, 1, 2], [1, 0, 2], [1, 1, 0])  # 2 has no neighbours
    assert spatial_graph(alone).graph.num_nodes == 3
    weighted = pysal.graph.Graph.from_arrays([0, 0, 1, 2], [1, 2, 0, 0], [1.0, 3.0, 1.0, 3.0])
    assert spatial_graph(weighted).graph.edge_weight.tolist() == [1.0, 3.0]
    with pytest.raises(ValueError, match="original weights are lost"):
        spatial_graph(weighted.transform("r"))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "", "neither a .gal nor a .gwt"),
        ("a.gal", "", "expected the number of nodes"),
        ("a.gal", "0 2 f id\n1 1\n2\n", "announces 2 nodes and names 1"),
        ("a.gal", "0 2 f id\nodd line here\n", "line 2.*expected a node and its number"),
        ("a.gal", "0 1 f id\n1 3\n2\n", "announces 3 neighbours and has 1"),
        ("a.gwt", "0 2 f id\n1 2\n", "line 2.*two nodes and a weight"),
        ("a.gwt", "0 5 f id\n1 2 1.0\n", "announces 5 nodes and names 2"),
    ],
)
def test_bad_files(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        spatial_graph(tmp_path / name)


def test_bad_sources(tmp_path):
    with pytest.raises(ValueError, match="does not exist"):
        spatial_graph(tmp_path / "missing.gal")
    with pytest.raises(ValueError, match="source is a int"):
        spatial_graph(3)
    with pytest.raises(ValueError, match="names the node 'b'"):
        spatial_graph(networkx.Graph([("a", "b")]), ids=["a"])
    with pytest.raises(ValueError, match="a name twice"):
        spatial_graph(networkx.Graph([("a", "b")]), ids=["a", "b", "a"])
    mixed = networkx.Graph([("a", "b")])
    mixed.add_edge("b", "c", weight=2.0)
    with pytest.raises(ValueError, match="has no weight while others"):
        spatial_graph(mixed)


def test_rows_of_a_table_take_graphs_of_networkx_and_libpysal():
    from walksum.estimators.inputs import as_graph_of

    ring = networkx.cycle_graph(6)
    expected = as_graph_of(np.array([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 5, 5]]), 6)
    assert torch.equal(as_graph_of(ring, 6).edges, expected.edges)
    with pytest.raises(ValueError, match="graph has 6 nodes but X has 5 rows"):
        as_graph_of(ring, 5)
    weights = pytest.importorskip("libpysal.weights")
    w = weights.W({k: [(k - 1) % 6, (k + 1) % 6] for k in range(6)}, silence_warnings=True)
    assert torch.equal(as_graph_of(w, 6).edges, expected.edges)


def test_graph_takes_them_as_they_come(tmp_path):
    named = networkx.Graph([("a", "b"), ("b", "c")])
    (tmp_path / "map.gal").write_text("3\na 1\nb\nb 2\na c\nc 1\nb\n")
    for source in (named, tmp_path / "map.gal", str(tmp_path / "map.gal")):
        graph = ws.Graph.from_edge_index(source)
        assert graph.edges.tolist() == [[0, 1], [1, 2]]
        assert ws.GLTConv(4, 2)(torch.ones(3, 4), source).shape == (3, 2)
    with pytest.raises(ValueError, match="num_nodes=4 was given beside"):
        ws.Graph.from_edge_index(named, 4)
