import pytest
import torch
from toy_graph import densify, randomise

from walksum.paper.models.continuous import CGNN, integrate, orthonormalised, weighted_loop_edges


def smoothing(toy):
    return densify(weighted_loop_edges(toy.edge_index, toy.num_nodes, torch.float64), toy.num_nodes)


def test_adjacency_is_the_undirected_one_with_weighted_loops(toy):
    looped = toy.dense() + 0.555 * torch.eye(toy.num_nodes)
    scale = looped.sum(1).rsqrt()
    assert torch.allclose(smoothing(toy), scale[:, None] * looped * scale)
    assert torch.linalg.eigvalsh(smoothing(toy)).max() == pytest.approx(1)


def test_field_equals_the_dense_formula(toy):
    model = randomise(CGNN(6, 3, num_nodes=toy.num_nodes, hidden_channels=4, weights=True))
    edges = weighted_loop_edges(toy.edge_index, toy.num_nodes, torch.float64)
    h, u = torch.randn(toy.num_nodes, 8), model.basis
    w = u @ torch.diag(model.spectrum.clamp(0, 1)) @ u.T
    eye = torch.eye(toy.num_nodes)
    expected = model.rate.sigmoid() / 2 * ((smoothing(toy) - eye) @ h) + h @ (w - torch.eye(8))
    assert torch.allclose(model.drift(h, edges), expected)


def test_basis_returns_to_orthonormal_after_steps(toy):
    model = CGNN(6, 3, num_nodes=toy.num_nodes, hidden_channels=8, weights=True)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        optimiser.zero_grad()
        model(toy.x, toy.edge_index).square().sum().backward()
        optimiser.step()
        strayed = (model.basis.T @ model.basis - torch.eye(16)).abs().max()
        model.after_step()
        kept = (model.basis.T @ model.basis - torch.eye(16)).abs().max()
        assert kept < strayed
    assert strayed > 1e-3
    assert kept < 1e-2


def test_orthonormalisation_keeps_rotations_and_converges_quadratically():
    rotation = torch.linalg.qr(torch.randn(6, 6)).Q
    assert torch.allclose(orthonormalised(rotation), rotation)
    off = rotation + 1e-3 * torch.randn(6, 6)
    error = [(u.T @ u - torch.eye(6)).abs().max() for u in (off, orthonormalised(off))]
    assert error[1] < 10 * error[0] ** 2


def test_long_time_limit_with_weights_solves_the_linear_system(toy):
    model = randomise(CGNN(6, 3, num_nodes=toy.num_nodes, hidden_channels=4, weights=True))
    model.basis.data = torch.linalg.qr(model.basis.data).Q
    model.spectrum.data = torch.linspace(0.1, 0.6, 8)
    edges = weighted_loop_edges(toy.edge_index, toy.num_nodes, torch.float64)
    source = torch.randn(toy.num_nodes, 8)
    with torch.no_grad():
        h = integrate(lambda t, h: model.drift(h, edges) + source, source, 100.0)
    w = model.basis @ torch.diag(model.spectrum) @ model.basis.T
    spread = torch.diag(model.rate.sigmoid().view(-1) / 2) @ (torch.eye(toy.num_nodes) - smoothing(toy))
    system = torch.kron(spread, torch.eye(8)) + torch.kron(torch.eye(toy.num_nodes), torch.eye(8) - w.T)
    assert torch.allclose(h.flatten(), torch.linalg.solve(system, source.flatten()), atol=1e-8)


def test_long_time_limit_without_weights_solves_it_off_the_null_space(toy):
    model = randomise(CGNN(6, 3, num_nodes=toy.num_nodes, hidden_channels=4))
    edges = weighted_loop_edges(toy.edge_index, toy.num_nodes, torch.float64)
    spread = torch.diag(model.rate.sigmoid().view(-1) / 2) @ (torch.eye(toy.num_nodes) - smoothing(toy))
    source = spread @ torch.randn(toy.num_nodes, 8)  # in the range, where a limit exists
    with torch.no_grad():
        h = integrate(lambda t, h: model.drift(h, edges) + source, source, 2000.0)
    assert torch.allclose(spread @ h, source, atol=1e-8)


def test_forward_is_encoder_ode_and_decoder_of_the_first_half(toy):
    model = randomise(CGNN(6, 3, num_nodes=toy.num_nodes, time=2.0, step=0.05))
    e = model.encode(toy.x)
    spread = model.rate.sigmoid() / 2 * (smoothing(toy) - torch.eye(toy.num_nodes))
    # H(t) = exp(Mt) E + int_0^t exp(Ms) ds E, both from one block exponential.
    block = torch.zeros(2 * toy.num_nodes, 2 * toy.num_nodes)
    block[: toy.num_nodes, : toy.num_nodes] = spread
    block[: toy.num_nodes, toy.num_nodes :] = torch.eye(toy.num_nodes)
    flow = torch.matrix_exp(2.0 * block)[: toy.num_nodes]
    h = flow[:, : toy.num_nodes] @ e + flow[:, toy.num_nodes :] @ e
    assert torch.allclose(model(toy.x, toy.edge_index), model.decode(h.relu()), atol=1e-6)


def test_source_carries_no_gradient(toy):
    """A stable flow forgets its start, so after a long time E could only be reached through the source."""
    model = CGNN(6, 3, num_nodes=toy.num_nodes, weights=True, time=60.0).eval()
    model.spectrum.data.fill_(0)
    model(toy.x, toy.edge_index).sum().backward()
    assert model.encode.weight.grad.abs().max() < 1e-12
    assert model.decode.weight.grad.abs().max() > 1e-3


def test_the_graph_must_have_the_models_number_of_nodes(toy):
    with pytest.raises(ValueError, match="x has 10 nodes, the model num_nodes=9"):
        CGNN(6, 3, num_nodes=9)(toy.x, toy.edge_index)
