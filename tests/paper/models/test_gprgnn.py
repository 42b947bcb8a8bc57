import pytest
import torch
from toy_graph import randomise

from walksum.paper.models.message_passing import APPNP, GPRGNN


@pytest.mark.parametrize("power", [0, 1, 3])
def test_one_hot_gamma_is_that_power_of_the_adjacency(toy, power):
    model = randomise(GPRGNN(6, 3, steps=3))
    model.gamma.data = torch.eye(4)[power]
    expected = torch.linalg.matrix_power(toy.gcn(), power) @ model.predict(toy.x)
    assert torch.allclose(model(toy.x, toy.edge_index), expected)


def test_starts_as_appnp(toy):
    start, appnp = GPRGNN(6, 3).eval(), APPNP(6, 3).eval()
    appnp.predict.load_state_dict(start.predict.state_dict())
    assert start.gamma.sum().item() == pytest.approx(1)
    assert torch.allclose(start(toy.x, toy.edge_index), appnp(toy.x, toy.edge_index))
