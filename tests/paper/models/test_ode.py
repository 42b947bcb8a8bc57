import pytest
import torch
from torchdiffeq import odeint

from walksum.paper.models.continuous import integrate


def spiral(t, y):
    return y @ torch.tensor([[-0.1, 2.0], [-2.0, -0.1]]) + t.sin()


@pytest.mark.parametrize(("time", "step"), [(1.0, 1.0), (3.0, 0.5)])
def test_rk4_is_torchdiffeqs(time, step):
    y = torch.tensor([[1.0, 0.5]])
    expected = odeint(spiral, y, torch.tensor([0, time]), method="rk4", options={"step_size": step})[-1]
    assert torch.allclose(integrate(spiral, y, time, step), expected, rtol=1e-12)


def test_rk4_is_of_fourth_order():
    y = torch.tensor([[1.0, 0.5]])
    exact = odeint(spiral, y, torch.tensor([0.0, 2.0]), rtol=1e-12, atol=1e-13)[-1]
    errors = [(integrate(spiral, y, 2.0, step=step) - exact).abs().max() for step in (0.1, 0.05)]
    assert errors[0] / errors[1] == pytest.approx(16, rel=0.15)


def test_a_step_that_does_not_divide_the_time_still_ends_there():
    out = integrate(lambda t, y: torch.ones_like(y), torch.zeros(1), 2.5, step=1.0)
    assert out.item() == pytest.approx(2.5)


def test_time_must_be_positive():
    with pytest.raises(ValueError, match="time=0"):
        integrate(spiral, torch.zeros(1, 2), 0)
