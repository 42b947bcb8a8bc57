import torch
from toy_graph import randomise

from walksum.paper.models.mlp import MLP


def test_equals_the_formula_whatever_the_edges(toy):
    model = randomise(MLP(6, 3))
    hidden = (toy.x @ model.first.weight.T + model.first.bias).relu()
    expected = hidden @ model.second.weight.T + model.second.bias
    assert torch.allclose(model(toy.x, toy.edge_index), expected)
    assert torch.allclose(model(toy.x), expected)
