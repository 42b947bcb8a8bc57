import pytest
import torch

from walksum.nn.dropout import Dropout


@pytest.fixture
def layer():
    return Dropout(0.6)


def test_rate_and_scale(layer):
    out = layer(torch.ones(400, 500))
    assert float((out == 0).double().mean()) == pytest.approx(0.6, abs=4e-3)
    assert out[out != 0].unique().tolist() == pytest.approx([2.5])


def test_rows_columns_and_neighbours_are_independent(layer):
    kept = (layer(torch.ones(1000, 1000)) != 0).double()
    for shift in ((0, 1), (1, 0), (0, 2), (0, 3), (0, 4)):
        assert float((kept * kept.roll(shift, (0, 1))).mean()) == pytest.approx(0.16, abs=3e-3)
    assert float(kept.mean(0).std()) == pytest.approx((0.24 / 1000) ** 0.5, rel=0.15)
    assert float(kept.mean(1).std()) == pytest.approx((0.24 / 1000) ** 0.5, rel=0.15)


def test_repeatable_by_seed_and_different_from_call_to_call(layer):
    x = torch.ones(50, 7)
    torch.manual_seed(1)
    first, second = layer(x), layer(x)
    torch.manual_seed(1)
    assert torch.equal(layer(x), first)
    assert not torch.equal(first, second)


def test_nothing_in_evaluation_and_torchs_own_in_half_precision(layer):
    x = torch.randn(5, 3)
    assert layer.eval()(x) is x
    layer.train()
    assert layer(x.bfloat16()).dtype == torch.bfloat16


def test_derivative_uses_the_same_mask(layer):
    x = torch.randn(6, 5, dtype=torch.double, requires_grad=True)

    def seeded(x):
        torch.manual_seed(3)
        return layer(x)

    out = seeded(x)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(gradient != 0, out != 0)
    assert torch.autograd.gradcheck(seeded, (x,))
    assert torch.autograd.gradgradcheck(seeded, (x,))
    _, tangent = torch.func.jvp(seeded, (x,), (torch.ones_like(x),))
    assert torch.equal(tangent, gradient)


@pytest.mark.parametrize(("randomness", "same"), [("same", True), ("different", False)])
def test_vmap_follows_randomness(layer, randomness, same):
    out = torch.vmap(layer, randomness=randomness)(torch.ones(3, 40, 5))
    assert torch.equal(out[0], out[1]) is same
    gradient = torch.vmap(torch.func.grad(lambda x: layer(x).sum()), randomness=randomness)(torch.ones(3, 40, 5))
    assert torch.equal(gradient[0], gradient[2]) is same


def test_a_probability_of_one_leaves_nothing():
    assert Dropout(1.0)(torch.ones(3, 4)).tolist() == torch.zeros(3, 4).tolist()
