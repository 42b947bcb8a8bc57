import torch
from toy_graph import randomise

from walksum.paper.models.message_passing import APPNP


def test_many_steps_reach_ppnps_inverse(toy):
    model = randomise(APPNP(6, 3, steps=400, alpha=0.1))
    ppnp = 0.1 * torch.linalg.inv(torch.eye(toy.num_nodes) - 0.9 * toy.gcn())
    assert torch.allclose(model(toy.x, toy.edge_index), ppnp @ model.predict(toy.x))


def test_few_steps_are_the_truncated_series(toy):
    model = randomise(APPNP(6, 3, steps=2, alpha=0.3))
    h, walk = model.predict(toy.x), 0.7 * toy.gcn()
    assert torch.allclose(model(toy.x, toy.edge_index), 0.3 * h + 0.3 * walk @ h + walk @ walk @ h)
