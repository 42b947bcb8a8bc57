import torch
import torch.nn.functional as F
from toy_graph import randomise

from walksum.paper.models.continuous import GDE


def test_one_step_equals_rk4_by_hand(toy):
    model = randomise(GDE(6, 3))
    a = toy.gcn()

    def gcn(conv, h):
        return a @ h @ conv.lin.weight.T + conv.bias

    def f(h):
        return gcn(model.outer, F.softplus(gcn(model.inner, h)))

    h = gcn(model.encode, toy.x).relu()
    k1 = f(h)
    k2 = f(h + k1 / 3)
    k3 = f(h - k1 / 3 + k2)
    k4 = f(h + k1 - k2 + k3)
    h = h + (k1 + 3 * k2 + 3 * k3 + k4) / 8
    assert torch.allclose(model(toy.x, toy.edge_index), gcn(model.decode, h))


def test_dropout_is_frozen_within_a_forward(toy):
    model, dropped = GDE(6, 3).train(), []
    model.inner.register_forward_pre_hook(lambda layer, inputs: dropped.append(inputs[0] == 0))
    model(toy.x, toy.edge_index)
    first, *others = dropped[1:]  # the very first state has zeros of its own, from the ReLU
    assert len(others) == 2
    assert first.any()
    assert all((each == first).all() for each in others)
