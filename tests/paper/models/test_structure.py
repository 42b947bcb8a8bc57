"""The per-graph memory and the normalised adjacencies."""

import torch
from toy_graph import densify

from walksum.paper.models.structure import PerGraph, gcn_edges, random_walk_edges


def test_an_edge_index_changed_in_place_is_noticed(toy):
    memory = PerGraph(lambda edge_index, num_nodes, dtype: edge_index.sum().item())
    edges = toy.edge_index.clone()
    before = memory(edges, toy.x)
    edges[0, 0] += 1
    assert memory(edges, toy.x) == before + 1


def test_dtype_and_size_are_part_of_the_key(toy):
    memory = PerGraph(gcn_edges)
    assert memory(toy.edge_index, toy.x)[1].dtype == torch.float64
    assert memory(toy.edge_index, toy.x.float())[1].dtype == torch.float32
    assert memory(toy.edge_index, torch.zeros(12, 1))[0].max() == 11


def test_random_walk_weights_sum_to_one_into_every_node(toy):
    directed = toy.edge_index[:, ::3]
    dense = densify(random_walk_edges(directed, toy.num_nodes, torch.float64), toy.num_nodes)
    assert torch.allclose(dense.sum(1), torch.ones(toy.num_nodes))
