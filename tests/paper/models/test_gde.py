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
    assert model.evaluations == 4


def test_dropout_is_frozen_within_a_forward(toy):
    """With a noisy field an adaptive solver's step count explodes; with frozen masks it stays small."""
    model = GDE(6, 3, method="dopri5").train()
    model(toy.x, toy.edge_index)
    noisy = model.evaluations
    model.eval()
    model(toy.x, toy.edge_index)
    assert noisy <= 4 * model.evaluations
