import torch
from toy_graph import randomise

from walksum.paper.models.heterophily import ACMGCN, ACMLayer
from walksum.paper.models.structure import random_walk_edges


def test_mix_weights_sum_to_one_and_depend_on_the_node(toy):
    layer = randomise(ACMLayer(6, 5))
    edges = random_walk_edges(toy.edge_index, toy.num_nodes, torch.float64)
    mix = layer.mix(layer.filtered(toy.x, edges))
    assert mix.shape == (toy.num_nodes, 3)
    assert torch.allclose(mix.sum(1), torch.ones(toy.num_nodes))
    assert mix.std(0).min() > 1e-4


def test_channels_are_low_pass_high_pass_and_identity(toy):
    layer = randomise(ACMLayer(6, 5))
    edges = random_walk_edges(toy.edge_index, toy.num_nodes, torch.float64)
    looped = toy.dense() + torch.eye(toy.num_nodes)
    walk = looped / looped.sum(1, keepdim=True)
    low, high, same = layer.filtered(toy.x, edges)
    assert torch.allclose(low, (walk @ layer.channels[0](toy.x)).relu())
    assert torch.allclose(high, ((torch.eye(toy.num_nodes) - walk) @ layer.channels[1](toy.x)).relu())
    assert torch.allclose(same, layer.channels[2](toy.x).relu())
    mix = layer.mix([low, high, same])
    out = 3 * (mix[:, :1] * low + mix[:, 1:2] * high + mix[:, 2:] * same)
    assert torch.allclose(layer(toy.x, edges), out)


def test_a_constant_signal_has_no_high_pass_part(toy):
    layer = randomise(ACMGCN(6, 3)).first
    edges = random_walk_edges(toy.edge_index, toy.num_nodes, torch.float64)
    high = layer.filtered(torch.ones(toy.num_nodes, 6), edges)[1]
    assert torch.allclose(high, torch.zeros_like(high), atol=1e-12)
