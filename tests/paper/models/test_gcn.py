import torch
from toy_graph import randomise

from walksum.paper.models.message_passing import GCN


def test_equals_the_dense_formula(toy):
    model = randomise(GCN(6, 3))
    hidden = (toy.gcn() @ toy.x @ model.first.lin.weight.T + model.first.bias).relu()
    expected = toy.gcn() @ hidden @ model.second.lin.weight.T + model.second.bias
    assert torch.allclose(model(toy.x, toy.edge_index), expected)
