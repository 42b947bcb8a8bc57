"""Products that skip zeros: of input features, and of nodes without a gradient."""

import copy

import pytest
import torch
from torch import nn

import walksum as ws
from walksum.nn import input_linear, node_linear
from walksum.nn.dropout import Dropout
from walksum.nn.input_linear import InputLinear
from walksum.nn.node_linear import NodeLinear


@pytest.fixture(autouse=True)
def small_ones_too(monkeypatch):
    monkeypatch.setattr(input_linear, "SMALL", 0)
    monkeypatch.setattr(node_linear, "SMALL", 0)


def bag_of_words(rows, columns, dtype=torch.float64, share=0.1):
    generator = torch.Generator().manual_seed(rows + columns)
    kept = torch.rand(rows, columns, generator=generator) < share
    return torch.randn(rows, columns, generator=generator, dtype=dtype) * kept


def skipped(x, layer):
    return input_linear._takes(x, layer.weight) and input_linear._mostly_zeros(x)


@pytest.mark.parametrize("shape", [(1, 40), (7, 31), (50, 32), (5000, 20)])
@pytest.mark.parametrize("channels", [8, 70])  # one block of 8 lanes, two of 64
def test_input_product_and_gradients_are_the_dense_ones(shape, channels):
    x = bag_of_words(*shape)
    layer, dropout = InputLinear(shape[1], channels).double(), Dropout(0.4)
    torch.manual_seed(3)
    out = layer(x, dropout)
    torch.manual_seed(3)
    dense = nn.functional.linear(dropout(x), layer.weight, layer.bias)
    torch.testing.assert_close(out, dense)
    grad = torch.randn_like(out)
    mine = torch.autograd.grad(out, (layer.weight, layer.bias), grad)
    torch.testing.assert_close(mine, torch.autograd.grad(dense, (layer.weight, layer.bias), grad))


def test_every_density_up_to_the_last_number():
    for share in (0.0, 0.05, 1.0):  # the sample tells few non-zeros where the rest holds many: buffers grow
        x = bag_of_words(640, 65, share=share)
        x[::10] = 0
        layer = InputLinear(65, 8).double()
        assert skipped(x, layer)
        torch.testing.assert_close(layer(x), nn.functional.linear(x, layer.weight, layer.bias))


def test_input_product_at_any_number_of_threads_has_the_same_bits():
    x, layer, found = bag_of_words(9000, 300, torch.float32), InputLinear(300, 64), []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            out = layer(x)
            found.append((out, *torch.autograd.grad(out, layer.weight, out.detach())))
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_input_product_sees_changes_that_leave_no_trace():
    x, layer = bag_of_words(40, 30), InputLinear(30, 8).double()
    layer(x)
    x.numpy()[3] = 5.0
    torch.testing.assert_close(layer(x), nn.functional.linear(x, layer.weight, layer.bias))


def test_nan_is_not_skipped():
    x, layer = bag_of_words(40, 30), InputLinear(30, 8).double()
    x[2, 7] = torch.nan
    assert skipped(x, layer)
    assert layer(x, Dropout(0.9)).isnan().any(1).nonzero().flatten().tolist() == [2]


def test_input_product_differentiates_twice():
    x, layer = bag_of_words(12, 9), InputLinear(9, 3).double()
    assert skipped(x, layer)

    def seeded(weight, bias):
        torch.manual_seed(1)
        return torch.func.functional_call(layer, {"weight": weight, "bias": bias}, (x, Dropout(0.3)))

    weights = (layer.weight, layer.bias)
    assert torch.autograd.gradcheck(seeded, weights)
    assert torch.autograd.gradgradcheck(seeded, weights)


@pytest.mark.parametrize("dropout", [None, nn.Dropout(0.5), Dropout(0.5).eval(), Dropout(0.0), Dropout(1.0)])
def test_other_dropouts(dropout):
    x, layer = bag_of_words(20, 30), InputLinear(30, 8).double()
    torch.manual_seed(1)
    out = layer(x, dropout)
    torch.manual_seed(1)
    torch.testing.assert_close(
        out, nn.functional.linear(x if dropout is None else dropout(x), layer.weight, layer.bias)
    )


def test_dense_features_and_those_with_a_gradient_take_the_dense_way():
    layer = InputLinear(30, 8).double()
    assert not skipped(torch.randn(20, 30, dtype=torch.float64), layer)
    assert not skipped(bag_of_words(20, 30).requires_grad_(), layer)
    assert not skipped(bag_of_words(20, 30, torch.float32), layer)
    assert not skipped(bag_of_words(30, 20).t(), layer)


@pytest.mark.parametrize("with_gradient", [(), (3,), (0, 5, 39), tuple(range(40))])
@pytest.mark.parametrize("channels", [3, 40])
def test_few_nodes_with_a_gradient(with_gradient, channels):
    layer, x = NodeLinear(9, channels).double(), torch.randn(40, 9, dtype=torch.float64, requires_grad=True)
    plain, grad = nn.Linear(9, channels).double(), torch.zeros(40, channels, dtype=torch.float64)
    plain.load_state_dict(layer.state_dict())
    grad[list(with_gradient), -1] = torch.randn(len(with_gradient), dtype=torch.float64)
    mine = torch.autograd.grad(layer(x), (x, *layer.parameters()), grad)
    torch.testing.assert_close(mine, torch.autograd.grad(plain(x), (x, *plain.parameters()), grad))


def test_node_product_differentiates_twice():
    layer, x = NodeLinear(3, 2).double(), torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x, *_: layer(x), (x, *layer.parameters()))


def test_a_model_gives_what_it_gives_without_skipping(monkeypatch):
    edges, x = torch.randint(200, (2, 500), generator=torch.Generator().manual_seed(0)), bag_of_words(200, 50)
    model = ws.GLT(50, 16, 2, 3, heads=2).double()
    other = copy.deepcopy(model)
    gradients = []
    for each in (model, other):
        torch.manual_seed(5)
        each(x, edges)[:7].square().sum().backward()
        gradients.append([p.grad for p in each.parameters()])
        monkeypatch.setattr(input_linear, "SMALL", 1 << 30)
        monkeypatch.setattr(node_linear, "SMALL", 1 << 30)
    torch.testing.assert_close(*gradients)


def test_lazy_width():
    model = ws.GLT(-1, 16, 1, 3)
    model(bag_of_words(30, 12, torch.float32), torch.tensor([[0, 1], [1, 2]]))
    assert type(model.embed) is InputLinear
    assert model.embed.in_features == 12
