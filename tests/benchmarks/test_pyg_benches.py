"""Graphs of the PyG benches are what they say: batches, sampled trees, parts with a halo."""

import torch

import walksum as ws
from benchmarks import batches, minibatch


def test_shapes_of_batches():
    generator = torch.Generator().manual_seed(0)
    for nodes, make in batches.SHAPES.values():
        edge_index = make(generator)
        graph = ws.Graph.from_edge_index(edge_index, nodes)
        assert int(edge_index.max()) < nodes
        assert nodes <= graph.num_edges <= 1.5 * nodes
    small = ws.Graph.from_edge_index(batches.small_graphs(4, 30, generator), 120)
    assert torch.equal(small.components(), torch.arange(4).repeat_interleave(30))


def test_part_with_a_halo():
    graph = ws.Graph.from_edge_index(torch.stack([torch.arange(9), torch.arange(1, 10)]), 10)  # a path
    x = torch.randn(10, 2, dtype=torch.double)
    own = torch.zeros(10, dtype=torch.bool)
    own[4:6] = True
    part = minibatch.make_part(graph, x, own, halo=2)
    assert part.nodes.tolist() == [4, 5, 2, 3, 6, 7]
    assert part.own == 2
    assert part.graph.num_edges == 5
    parts = [minibatch.make_part(graph, x, torch.arange(10) // 5 == k, halo=9) for k in (0, 1)]
    mix = ws.Propagate(0.9)
    torch.testing.assert_close(minibatch.in_parts(mix, parts), mix(x, graph))  # a halo that is the whole graph
    errors = []
    for halo in (0, 1, 3):
        parts = [minibatch.make_part(graph, x, torch.arange(10) // 5 == k, halo) for k in (0, 1)]
        errors.append(minibatch.border_error(x, graph, parts))
    assert errors[0] > errors[1] > errors[2] > 0
