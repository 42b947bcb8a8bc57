"""Propagate, its bank and predict-then-propagate against dense float64 twins."""

import math

import pytest
import torch
from torch.autograd import gradcheck

from walksum import FixedDiagonallyDominant, FixedLaplacian, Graph
from walksum.nn import GLTConv, PredictThenPropagate, Propagate, PropagateBank
from walksum.nn.propagate import scale_for_reach

EDGES = torch.tensor([[0, 0, 1, 2, 3, 5], [1, 2, 2, 3, 4, 6]])  # a triangle with a tail, a pair, and node 7 alone
N = 8


def dense(scale: float, loops: bool, weight: torch.Tensor | None = None) -> torch.Tensor:
    """P_s, for a signed scale."""
    A = torch.zeros(N, N, dtype=torch.float64)
    A[EDGES[0], EDGES[1]] = torch.ones(6, dtype=torch.float64) if weight is None else weight
    A = A + A.T + (torch.eye(N, dtype=torch.float64) if loops else 0)
    root = A.sum(1).clamp_min(1e-300).rsqrt()
    root[A.sum(1) == 0] = 0
    J = torch.eye(N, dtype=torch.float64) - scale * root[:, None] * A * root
    return (1 - abs(scale)) * torch.linalg.inv(J)


def layer(scale: float, loops: bool = False, **others) -> Propagate:
    return Propagate(abs(scale), coupling="attractive" if scale > 0 else "repulsive", loops=loops, **others)


@pytest.mark.parametrize("scale", [0.5, 0.9, 0.999, -0.5, -0.99])
@pytest.mark.parametrize("loops", [False, True])
def test_equals_the_dense_inverse(scale, loops):
    x = torch.randn(N, 3, dtype=torch.float64)
    weight = torch.rand(6, dtype=torch.float64) + 0.1
    assert torch.allclose(layer(scale, loops)(x, EDGES), dense(scale, loops) @ x, atol=1e-12)
    assert torch.allclose(layer(scale, loops)(x, EDGES, weight), dense(scale, loops, weight) @ x, atol=1e-12)
    assert torch.allclose(layer(scale, loops)(x[:, 0], EDGES), dense(scale, loops) @ x[:, 0], atol=1e-12)


def test_with_loops_it_is_ppnp():
    """Personalised PageRank: Z = alpha (I - (1 - alpha) A_hat)^-1 H, as its own fixed point says."""
    x, alpha = torch.randn(N, 2, dtype=torch.float64), 0.1
    Z = Propagate(1 - alpha, loops=True)(x, EDGES)
    A = torch.zeros(N, N, dtype=torch.float64)
    A[EDGES[0], EDGES[1]] = 1
    A = A + A.T + torch.eye(N)
    A_hat = A / A.sum(1).sqrt()[:, None] / A.sum(1).sqrt()
    assert torch.allclose(Z, (1 - alpha) * A_hat @ Z + alpha * x, atol=1e-12)


def test_gradients_of_features_weights_and_scale():
    x = torch.randn(N, 2, dtype=torch.float64, requires_grad=True)
    weight = (torch.rand(6, dtype=torch.float64) + 0.5).requires_grad_()
    for loops in (False, True):
        mix = Propagate(0.7, loops=loops, learned=True).double()

        def run(x, weight, logit, mix=mix):
            return torch.func.functional_call(mix, {"logit": logit}, (x, EDGES, weight))

        assert gradcheck(run, (x, weight, mix.logit.detach().clone().requires_grad_()))


def test_learned_scale_starts_where_asked_and_moves():
    mix = Propagate(reach=5, learned=True)
    before = mix.scale.item()
    assert before == pytest.approx(scale_for_reach(5), abs=1e-6)
    mix(torch.randn(N, 2), EDGES).square().sum().backward()
    torch.optim.SGD(mix.parameters(), lr=1.0).step()
    assert mix.scale.item() != before
    assert "learned=True" in repr(mix)


def test_permutation_of_nodes():
    x, order = torch.randn(N, 3, dtype=torch.float64), torch.randperm(N)
    place = order.argsort()
    mix = layer(-0.8, loops=True)
    assert torch.allclose(mix(x[order], place[EDGES]), mix(x, EDGES)[order], atol=1e-12)


def test_nodes_without_edges():
    x = torch.randn(N, 2, dtype=torch.float64)
    assert torch.allclose(Propagate(0.9)(x, EDGES)[7], 0.1 * x[7])
    assert torch.allclose(Propagate(0.9, loops=True)(x, EDGES)[7], x[7])
    nothing = torch.zeros(2, 0, dtype=torch.long)
    assert torch.allclose(Propagate(0.9, loops=True)(x, nothing), x)


def test_reach_is_where_influence_falls_to_one_in_e():
    path = torch.stack([torch.arange(400), torch.arange(1, 401)])
    x = torch.zeros(401, dtype=torch.float64)
    x[200] = 1
    for reach in (3, 20):
        out = Propagate(reach=reach)(x, path)
        assert float(out[200 + reach] / out[200]) == pytest.approx(1 / math.e, rel=1e-3)


def test_one_factor_serves_every_epoch():
    graph, mix = Graph.from_edge_index(EDGES, N), Propagate(0.9)
    assert mix.precision(graph, torch.float32) is Propagate(0.9).precision(graph, torch.float32)
    mix(torch.randn(N, 2), graph)
    assert mix.last_solve is not None
    assert mix.last_solve.converged


def test_a_design_makes_J():
    x = torch.randn(N, 2, dtype=torch.float64)
    assert torch.allclose(0.1 * Propagate(design=FixedLaplacian(0.9))(x, EDGES), Propagate(0.9)(x, EDGES))
    assert Propagate(design=FixedDiagonallyDominant())(x, EDGES).shape == x.shape


def test_half_precision_and_vmap():
    x = torch.randn(5, N, 2)
    out = torch.vmap(lambda x: Propagate(0.9)(x, EDGES))(x)
    assert torch.allclose(out[3], Propagate(0.9)(x[3], EDGES), atol=1e-5)
    assert Propagate(0.9)(x[0].half(), EDGES).dtype == torch.float16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scale": 1.0}, "scale=1.0"),
        ({"reach": 0}, "reach=0"),
        ({"reach": "far"}, "reach='far'"),
        ({"reach": 1e12}, "reach=1000000000000.0"),
        ({"coupling": "neutral"}, "coupling='neutral'"),
        ({"design": "laplacian"}, "design='laplacian'"),
        ({"design": FixedLaplacian(), "reach": 3}, "give them to the design"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        Propagate(**arguments)


def test_bad_input():
    with pytest.raises(ValueError, match=r"x has type torch\.int64"):
        Propagate()(torch.arange(N), EDGES)
    with pytest.raises(ValueError, match=r"x has shape \(\); expected"):
        Propagate()(torch.tensor(1.0), EDGES)
    with pytest.raises(ValueError, match=r"x has shape \(1, 8, 2\); with a design"):
        Propagate(design=FixedLaplacian())(torch.zeros(1, N, 2), EDGES)
    with pytest.raises(ValueError, match="negative value -1"):
        Propagate()(torch.zeros(N, 2), EDGES, -torch.ones(6))


def test_bank_mixes_by_its_weights():
    x, scales = torch.randn(N, 3, dtype=torch.float64), (0.0, 0.5, -0.9)
    twins = torch.stack([x, dense(0.5, False) @ x, dense(-0.9, False) @ x])
    assert torch.allclose(PropagateBank(scales, mix="stack")(x, EDGES), twins, atol=1e-12)
    assert torch.allclose(PropagateBank(scales, mix="concat")(x, EDGES), torch.cat(list(twins), 1), atol=1e-12)
    bank = PropagateBank(scales).double()
    assert torch.allclose(bank(x, EDGES), twins.mean(0), atol=1e-12)
    bank(x, EDGES).sum().backward()
    assert torch.allclose(bank.gamma.grad, twins.sum((1, 2)))
    mixed = PropagateBank([Propagate(reach=3), 0.0], mix="stack")
    assert torch.allclose(mixed(x, EDGES)[0], Propagate(reach=3)(x, EDGES))


@pytest.mark.parametrize("scales", [(), (1.0,), (True,), "wide", 0.5])
def test_bank_refuses(scales):
    with pytest.raises(ValueError, match="scales"):
        PropagateBank(scales)


@pytest.mark.parametrize("where", ["outputs", "hidden"])
def test_predict_then_propagate(where):
    torch.manual_seed(0)
    model = PredictThenPropagate(3, 4, 2, bank=(0.0, 0.9, -0.5), where=where, dropout=0.0).double()
    x = torch.randn(N, 3, dtype=torch.float64)
    z = torch.relu(model.first(x))
    P = [torch.eye(N, dtype=torch.float64), dense(0.9, False), dense(-0.5, False)]
    if where == "hidden":
        expected = model.last(torch.cat([p @ z for p in P], 1))
    else:
        expected = sum(p @ model.last(z) for p in P) / 3
    assert torch.allclose(model(x, EDGES), expected, atol=1e-12)
    strong, rest = model.parameter_groups(0.02)
    assert strong["weight_decay"] == 0.02
    assert rest["weight_decay"] == 0
    assert {id(p) for p in strong["params"]} == {id(p) for p in model.first.parameters()}
    assert len(strong["params"]) + len(rest["params"]) == len(list(model.parameters()))


def test_predict_then_propagate_refuses():
    with pytest.raises(ValueError, match="where='inside'"):
        PredictThenPropagate(3, 4, 2, where="inside")
    with pytest.raises(ValueError, match=r"dropout=1\.0"):
        PredictThenPropagate(3, 4, 2, dropout=1.0)
    with pytest.raises(ValueError, match="mix='concat'"):
        PredictThenPropagate(3, 4, 2, bank=PropagateBank(mix="concat"))
    with pytest.raises(ValueError, match="weight_decay=-1"):
        PredictThenPropagate(3, 4, 2).parameter_groups(-1)


def test_one_layer_carries_a_label_along_a_chain_of_a_thousand():
    """Ten chains; only the head of each says its class, and the far end must know it."""
    length, chains = 1000, 10
    heads = length * torch.arange(chains)
    start = torch.cat([head + torch.arange(length - 1) for head in heads])
    x = torch.zeros(length * chains, 2)
    label = torch.arange(chains) % 2
    x[heads, label] = 1.0
    out = Propagate(reach=100)(x, torch.stack([start, start + 1]))
    assert torch.equal(out.argmax(1), label.repeat_interleave(length))


@pytest.mark.parametrize("scale", [0.99995, 0.999999, 1 - 5e-9])
@pytest.mark.parametrize("make", [Propagate, lambda s: GLTConv(3, 3, learned=False, scale=s)])
def test_float32_reaches_as_far_as_float64(scale, make):
    """I - s A rounded to float32 is another matrix once 1 - s is near float32's rounding."""
    torch.manual_seed(0)
    layer, x = make(scale), torch.randn(200, 3)
    chain = torch.stack([torch.arange(199), torch.arange(1, 200)])
    found, wanted = layer(x, chain), layer.double()(x.double(), chain)
    assert found.dtype == torch.float32
    assert (found - wanted).abs().max() <= 1e-3 * wanted.abs().max()


def test_a_learned_scale_that_cannot_be_held_is_refused():
    with pytest.raises(ValueError, match=r"learned=True; a learned scale stays at or below 0.999999"):
        Propagate(reach=1e4, learned=True)
    assert float(Propagate(0.999, learned=True).scale.detach()) == pytest.approx(0.999, abs=1e-6)


@pytest.mark.parametrize("scale", [None, "far"])
def test_a_scale_of_another_kind_is_named(scale):
    with pytest.raises(ValueError, match=r"scale=.*expected a number strictly between 0 and 1"):
        Propagate(scale)


def test_one_column_as_a_vector_side_by_side():
    x, ring = torch.randn(4), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    bank = PropagateBank((0.0, 0.9, -0.9), mix="concat")
    torch.testing.assert_close(bank(x, ring), bank(x.unsqueeze(1), ring))
