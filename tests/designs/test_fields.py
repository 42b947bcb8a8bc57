"""The fields of spatial statistics equal their formulas, and learn."""

import pytest
import torch

import walksum as ws
from gallery import GALLERY, binary_tree, cycle, path, star
from walksum.designs.fields import CAR, SAR, Intrinsic, Leroux, Matern, RandomWalk, Squared
from walksum.designs.two_hop import two_hop

double = torch.double


def matrices(graph):
    """A, D (isolated nodes count 1), identity, L."""
    weight = torch.ones(graph.num_edges, dtype=double) if graph.edge_weight is None else graph.edge_weight
    A = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=double)
    A[graph.edges[0], graph.edges[1]] = weight
    A = A + A.T
    degree = A.sum(1)
    return A, torch.where(degree > 0, degree, 1.0).diag(), torch.eye(len(A), dtype=double), degree.diag() - A


FORMULAS = {
    "CAR": (CAR(alpha=0.7, tau=2), lambda A, D, E, L: 2 * (D - 0.7 * A)),
    "SAR": (
        SAR(rho=-0.6, tau=3),
        lambda A, D, E, L: 3 * (E + 0.6 * D.inverse() @ A).T @ (E + 0.6 * D.inverse() @ A),
    ),
    "Leroux": (Leroux(lam=0.3), lambda A, D, E, L: 0.7 * E + 0.3 * L),
    "intrinsic": (Intrinsic(tau=2, ridge=1e-3), lambda A, D, E, L: 2 * (L + 1e-3 * E)),
    "Matern 1": (Matern(kappa=0.5), lambda A, D, E, L: 0.25 * E + L),
    "Matern 2": (Matern(nu=2, kappa=0.5, tau=2), lambda A, D, E, L: 2 * (0.25 * E + L) @ (0.25 * E + L)),
}


@pytest.mark.parametrize("graph", GALLERY)
@pytest.mark.parametrize("name", FORMULAS)
def test_formulas(name, graph):
    design, formula = FORMULAS[name]
    J = design.double()(GALLERY[graph])
    torch.testing.assert_close(J.to_dense()[0], formula(*matrices(GALLERY[graph])), rtol=1e-6, atol=1e-6)
    assert (torch.linalg.eigvalsh(J.to_dense()) > 0).all()


def test_random_walks_are_squared_differences():
    D = torch.diff(torch.eye(7, dtype=double), dim=0)
    for order, rows in ((1, D), (2, torch.diff(D, dim=0))):
        J = RandomWalk(order=order, tau=2, ridge=1e-3).double()(path(7))
        torch.testing.assert_close(
            J.to_dense()[0], 2 * (rows.T @ rows + 1e-3 * torch.eye(7, dtype=double)), rtol=1e-6, atol=1e-7
        )
    with pytest.raises(ValueError, match="3 neighbours; RandomWalk takes chains"):
        RandomWalk()(binary_tree(7))


def test_without_a_ridge_they_are_intrinsic():
    graph = path(7)
    ones, steps = torch.ones(7, 1, dtype=double), torch.arange(7, dtype=double).unsqueeze(1)
    for design, null in ((Intrinsic(ridge=0), ones), (RandomWalk(ridge=0), ones),
                         (RandomWalk(order=2, ridge=0), torch.cat([ones, steps], 1))):  # fmt: skip
        J = design.double()(graph).detach()
        assert (J @ null == 0).all()
        free = ws.GaussianField(J, validate_args=False).constrain(null.T)
        torch.testing.assert_close(free.variance, torch.linalg.pinv(J.to_dense()).diagonal(dim1=1, dim2=2))
    for kind in (Intrinsic, RandomWalk):
        with pytest.raises(ValueError, match="ridge=-1; expected a positive finite number or 0"):
            kind(ridge=-1)


@pytest.mark.parametrize("design", [CAR(), SAR(), Leroux(), Intrinsic(), Matern(), RandomWalk()])
def test_edges_in_the_place_of_a_graph_are_refused(design):
    edges = torch.tensor([[0, 1], [1, 2]])
    for given in (edges, path(3).to_scipy()):
        with pytest.raises(ValueError, match=rf"graph is a {type(given).__name__}; expected a Graph"):
            design(given)
    assert design(ws.Graph.from_edge_index(edges)).num_nodes == 3


def test_the_squared_design_is_positive_definite_beyond_walk_summability():
    torch.manual_seed(1)
    design = Squared(5, heads=2, epsilon=0.2).double()
    with torch.no_grad():
        design.project.weight.mul_(10)
    x = torch.randn(9, 5, dtype=double)
    J = design(GALLERY["grid"], x)
    assert (torch.linalg.eigvalsh(J.to_dense()) >= 0.2 - 1e-9).all()
    assert not J.is_walk_summable
    h = torch.randn(2, 9, 3, dtype=double)
    for solver in ("direct", "cg"):
        mu = ws.solve(J, h, solver, on_nonconverged="raise")
        torch.testing.assert_close(mu, torch.linalg.solve(J.to_dense(), h))
    mu.sum().backward()
    assert all(
        p.grad is not None and torch.isfinite(p.grad).all() and p.grad.abs().sum() > 0 for p in design.parameters()
    )


@pytest.mark.parametrize("name", FORMULAS)
def test_parameters_learn_and_heads_are_separate(name):
    kind = type(FORMULAS[name][0])
    settings = {"nu": 2} if name == "Matern 2" else {}
    design = kind(heads=2, **settings).double()
    graph = cycle(6)
    for parameter in design.parameters():
        parameter.data = parameter.data + torch.tensor([[0.0], [0.1]], dtype=double)
    J = design(graph)
    assert J.heads == 2
    assert not torch.allclose(J.diag[0], J.diag[1])

    def quadratic(*values):
        J = torch.func.functional_call(design, dict(zip(names, values, strict=True)), (graph,))
        return J.diag.square().sum() + J.off.pow(3).sum()

    names = [n for n, _ in design.named_parameters()]
    assert torch.autograd.gradcheck(quadratic, [p.detach().clone().requires_grad_() for p in design.parameters()])


def test_learned_edge_weights_get_gradients_through_two_hops():
    weight = torch.rand(5, dtype=double, requires_grad=True)

    def diagonal(weight):
        graph = ws.Graph.from_edge_index(cycle(5).edges, 5, weight)
        return Matern(nu=2).double()(graph).off

    assert torch.autograd.gradcheck(diagonal, weight)


def test_bad_settings():
    for call, message in (
        (lambda: CAR(alpha=1.0), "alpha=1.0"),
        (lambda: SAR(rho=-1.5), "rho=-1.5"),
        (lambda: Leroux(lam=0.0), "lam=0.0"),
        (lambda: Matern(nu=3), "nu=3; expected 1 or 2"),
        (lambda: RandomWalk(order=0), "order=0"),
        (lambda: CAR(tau=-1), "tau=-1"),
        (lambda: CAR(heads=0), "heads=0"),
        (lambda: Squared(3)(path(4)), "reads x"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    negative = ws.Graph.from_edge_index(path(3).edges, 3, torch.tensor([1.0, -1.0]))
    with pytest.raises(ValueError, match="negative value -1"):
        CAR()(negative)


def test_a_hub_is_too_much_for_two_hops(monkeypatch):
    monkeypatch.setattr("walksum.designs.two_hop.MOST_PATHS", 10)
    with pytest.raises(ValueError, match="largest degree 7"):
        two_hop(star(8))


@pytest.mark.parametrize("name", ["car", "sar", "leroux", "intrinsic", "matern", "random-walk", "squared"])
def test_parameters_go_back_to_where_they_started(name):
    layer = ws.GLTConv(3, 2, heads=2, design=name)
    before = {k: p.detach().clone() for k, p in layer.design.named_parameters() if p.shape == (2, 1)}
    assert before
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(7.0)
    layer.reset_parameters()
    assert not any((parameter == 7).any() for parameter in layer.parameters())
    for key, start in before.items():
        torch.testing.assert_close(layer.design.get_parameter(key).detach(), start)
