import torch

from walksum.nn.mlp import MLP


def test_equals_the_formula_whatever_the_edges():
    torch.manual_seed(0)
    model, x = MLP(6, 3).double().eval(), torch.randn(10, 6, dtype=torch.float64)
    hidden = (x @ model.first.weight.T + model.first.bias).relu()
    expected = hidden @ model.second.weight.T + model.second.bias
    assert torch.allclose(model(x, torch.tensor([[0, 1], [1, 2]])), expected)
    assert torch.allclose(model(x), expected)
