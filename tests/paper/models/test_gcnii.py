import math

import torch
from toy_graph import randomise

from walksum.paper.models.message_passing import GCNII


def test_equals_the_dense_formula(toy):
    model = randomise(GCNII(6, 3, num_layers=3, alpha=0.2, theta=0.5))
    first = h = model.embed(toy.x).relu()
    for depth, layer in enumerate(model.layers, start=1):
        beta = math.log(0.5 / depth + 1)
        support = 0.8 * toy.gcn() @ h + 0.2 * first
        h = ((1 - beta) * support + beta * support @ layer.weight1).relu()
    assert torch.allclose(model(toy.x, toy.edge_index), model.readout(h))


def test_alpha_one_does_not_see_the_graph(toy):
    model = randomise(GCNII(6, 3, alpha=1.0))
    assert torch.allclose(model(toy.x, toy.edge_index), model(toy.x, toy.edge_index[:, :0]))
