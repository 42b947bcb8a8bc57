"""Influence against the dense inverse, distances against networkx, paths against all walks."""

import itertools

import networkx
import numpy as np
import pytest
import torch

import walksum as ws
from walksum.analysis.influence import Walks, influence, longest_only


def random_graph(nodes, edges, seed=0):
    draw = np.random.default_rng(seed)
    pairs = torch.from_numpy(draw.integers(0, nodes, (2, edges)))
    return ws.Graph.from_edge_index(pairs, nodes)


@pytest.fixture(scope="module")
def J():
    """Couplings of both signs, a node without edges (the last) and two parts."""
    graph = random_graph(40, 60)
    graph = ws.Graph.from_edge_index(torch.cat([graph.edges, torch.tensor([[40], [41]])], 1), 43)
    draw = torch.Generator().manual_seed(1)
    off = torch.rand(graph.num_edges, generator=draw, dtype=torch.float64) * 2 - 1
    around = torch.zeros(43, dtype=torch.float64).index_add(0, graph.edges.flatten(), off.abs().repeat(2))
    return ws.Precision(graph, 0.5 + around, off)


@pytest.mark.parametrize("solver", ["auto", "direct", "cg", ws.Dense()])
def test_influence_is_a_row_of_the_inverse(J, solver):
    inverse = torch.linalg.inv(J.to_dense()[0]).numpy()
    for node in (0, 7, 40, 42):
        found = influence(J, node, solver)
        assert np.allclose(found.value, inverse[node], rtol=0, atol=1e-12)
        assert np.allclose(found.share, np.abs(inverse[node]) / np.abs(inverse[node]).sum(), atol=1e-12)
        assert found.variance == pytest.approx(inverse[node, node])
        assert found.solution.converged


def test_a_prepared_solver_is_used_as_it_is(J):
    prepared = ws.Direct().prepare(J)
    assert np.array_equal(influence(J, 3, prepared).value, influence(J, 3, "direct").value)


def test_ranking_falls_and_shares_by_hop_add_up(J):
    found = influence(J, 7)
    order = found.ranked()
    assert sorted(order) == list(range(43))
    assert (np.diff(np.abs(found.value[order])) <= 0).all()
    assert list(found.ranked(5)) == list(order[:5])
    by_hop = found.share_by_hop()
    assert by_hop.sum() == pytest.approx(1)
    assert by_hop[1] == pytest.approx(found.share[found.hops == 1].sum())


def test_a_node_alone_has_all_the_influence_on_itself(J):
    found = influence(J, 42)
    assert found.ranked(1).tolist() == [42]
    assert found.share_by_hop().tolist() == [1.0]
    assert set(found.hops) == {-1, 0}


def test_hops_are_shortest_path_lengths(J):
    graph = networkx.Graph(J.graph.edges.t().tolist())
    graph.add_nodes_from(range(43))
    for node in (0, 40, 42):
        expected = np.full(43, -1)
        for other, length in networkx.single_source_shortest_path_length(graph, node).items():
            expected[other] = length
        assert np.array_equal(J.graph.hop_distances([node])[0], expected)


def test_the_strongest_path_beats_every_other_simple_path():
    graph = random_graph(8, 14, seed=3)
    draw = torch.Generator().manual_seed(2)
    off = torch.rand(graph.num_edges, generator=draw, dtype=torch.float64) - 0.5
    J = ws.Precision(graph, torch.full((8,), 4.0, dtype=torch.float64), off)
    dense = J.to_dense()[0].numpy()
    everywhere = networkx.Graph(graph.edges.t().tolist())
    for path in Walks(J).strongest(0, range(8)):
        weights = [
            np.prod([-dense[a, b] / 4 for a, b in itertools.pairwise(nodes)]) / 4
            for nodes in networkx.all_simple_paths(everywhere, path.source, 0)
        ]
        assert path.nodes[-1] == 0
        assert path.weight == pytest.approx(max(weights, key=abs))


def test_on_a_tree_the_path_carries_the_whole_influence_but_the_loops():
    """A chain with tiny couplings: walks that turn back are of the next order."""
    graph = ws.Graph.from_edge_index(torch.tensor([[0, 1, 2], [1, 2, 3]]), 4)
    J = ws.Precision(graph, torch.tensor([1.0, 2.0, 4.0, 8.0]).double(), torch.full((3,), -1e-4).double())
    (path,) = Walks(J).strongest(0, [3])
    assert path.nodes == (3, 2, 1, 0)
    assert path.weight == pytest.approx(influence(J, 0).value[3], rel=1e-6)


def test_paths_skip_unreachable_sources_the_node_itself_and_zero_couplings():
    graph = ws.Graph.from_edge_index(torch.tensor([[0, 1, 3], [1, 2, 4]]), 5)
    J = ws.Precision(graph, torch.ones(5), torch.tensor([-0.5, 0.0, -0.5]))
    assert [path.nodes for path in Walks(J).strongest(0, range(5))] == [(1, 0)]


def test_paths_that_end_another_are_left_out():
    graph = ws.Graph.from_edge_index(torch.tensor([[0, 1, 0], [1, 2, 3]]), 4)
    J = ws.FixedLaplacian(0.9)(graph)
    kept = longest_only(Walks(J).strongest(0, [1, 2, 3]))
    assert [path.nodes for path in kept] == [(2, 1, 0), (3, 0)]


def test_no_edges_and_one_node():
    graph = ws.Graph.from_edge_index(torch.empty(2, 0, dtype=torch.long), 1)
    J = ws.Precision(graph, torch.tensor([4.0]), torch.empty(0))
    assert influence(J, 0).value.tolist() == [0.25]
    assert Walks(J).strongest(0, [0]) == []


def test_wrong_nodes_and_several_heads_are_refused(J):
    with pytest.raises(ValueError, match="node=43; expected 0 to 42"):
        influence(J, 43)
    twice = ws.Precision(J.graph, J.diag.repeat(2, 1), J.off.repeat(2, 1))
    with pytest.raises(ValueError, match="J has 2 heads; choose one"):
        influence(twice, 0)
