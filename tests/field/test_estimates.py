"""Estimates: right on average, and their standard errors cover."""

import pytest
import torch

import walksum as ws
from gallery import grid, path, random_graph
from walksum.designs.fields import Matern
from walksum.field import Estimate, EstimateWarning, logdet, marginals, sample
from walksum.field import factors as ways

double = torch.double
TRIALS = 200


def systems():
    empty = torch.empty(0, dtype=double)
    return {
        "attractive": ws.FixedLaplacian(0.95)(random_graph(150, 450, 1), empty),
        "repulsive": ws.FixedDiagonallyDominant("repulsive")(grid(12, 12), empty),
        "not walk-summable": Matern(nu=2, kappa=0.8).double()(grid(12, 12)).detach(),
    }


SYSTEMS = systems()


def covered(truth, estimate):
    """Share of truths within two standard errors over the trials, and mean of the estimates."""
    hits, total = 0.0, torch.zeros_like(truth)
    for seed in range(TRIALS):
        reports = []
        value = estimate(Estimate(probes=32, seed=seed), reports.append)
        assert reports[0].method == "estimated"
        hits += float(((value - truth).abs() <= 2 * reports[0].standard_error).double().mean())
        total += value
    return hits / TRIALS, total / TRIALS


@pytest.mark.parametrize("name", SYSTEMS)
def test_standard_errors_of_the_log_determinant_cover(name):
    J = SYSTEMS[name]
    share, mean = covered(logdet(J), lambda s, observe: logdet(J, "estimated", s, observe))
    assert 0.90 <= share <= 0.99
    assert torch.allclose(mean, logdet(J), rtol=3e-3)


@pytest.mark.parametrize("name", SYSTEMS)
def test_standard_errors_of_the_variances_cover(name):
    J = SYSTEMS[name]
    share, mean = covered(marginals(J), lambda s, observe: marginals(J, "estimated", s, observe))
    assert 0.90 <= share <= 0.99
    assert torch.allclose(mean, marginals(J), rtol=0.2)
    assert (mean / marginals(J)).mean().sub(1).abs() < 0.01


def test_the_gradient_of_an_estimate_is_unbiased():
    J = SYSTEMS["attractive"]
    diag, off = J.diag.clone().requires_grad_(), J.off.clone().requires_grad_()
    exact = torch.autograd.grad(logdet(ws.Precision(J.graph, diag, off)).sum(), (diag, off))
    value = logdet(ws.Precision(J.graph, diag, off), "estimated", Estimate(probes=2000))
    assert torch.allclose(value, logdet(J), rtol=0.01)
    for found, wanted in zip(torch.autograd.grad(value.sum(), (diag, off)), exact, strict=True):
        assert (found - wanted).norm() < 0.2 * wanted.norm()


def test_a_seed_decides_everything_and_more_probes_help():
    J = SYSTEMS["repulsive"]
    assert torch.equal(logdet(J, "estimated", Estimate(seed=3)), logdet(J, "estimated", Estimate(seed=3)))
    assert not torch.equal(logdet(J, "estimated", Estimate(seed=3)), logdet(J, "estimated", Estimate(seed=4)))
    reports = []
    for probes in (16, 256):
        marginals(J, "estimated", Estimate(probes=probes), reports.append)
    ratio = reports[0].standard_error / reports[1].standard_error
    assert 3 < ratio.median() < 6


def test_heads_single_precision_and_trivial_graphs():
    J = SYSTEMS["repulsive"]
    both = ws.Precision(J.graph, torch.cat([J.diag, 2 * J.diag]), torch.cat([J.off, J.off]))
    found = logdet(both, "estimated")
    assert torch.allclose(found, logdet(both), rtol=0.01)
    assert torch.allclose(logdet(both.to(torch.float32), "estimated").double(), found, rtol=1e-5)
    alone = ws.Precision(ws.Graph(torch.empty(2, 0, dtype=torch.long), 5), torch.full((5,), 2.0), torch.empty(0))
    assert torch.allclose(logdet(alone, "estimated"), logdet(alone))
    assert torch.allclose(marginals(alone, "estimated"), marginals(alone))


def test_too_few_steps_are_reported():
    reports = []
    J = ws.FixedLaplacian(0.9999)(path(400), torch.empty(0, dtype=double))
    logdet(J, "estimated", Estimate(max_steps=10), reports.append)
    assert reports[0].status is ws.Status.max_steps_reached


def test_estimated_variances_have_no_gradient():
    J = SYSTEMS["repulsive"]
    with pytest.raises(ValueError, match="no gradient"):
        marginals(ws.Precision(J.graph, J.diag.clone().requires_grad_(), J.off), "estimated")


def test_indefinite_matrices_are_found_on_the_way():
    J = ws.Precision(grid(12, 12), torch.ones(144, dtype=double), torch.full((264,), -0.4, dtype=double))
    with pytest.raises(ValueError, match="not positive definite"):
        logdet(J, "estimated")


def test_an_indefinite_matrix_is_refused_in_the_same_words_everywhere():
    graph = grid(12, 12)
    off = -torch.ones(graph.num_edges, dtype=torch.double)
    J = ws.Precision(graph, torch.full((144,), 3.0, dtype=torch.double), off)
    field = ws.GaussianField(J, method="estimated")
    x = torch.zeros(144, dtype=torch.double)
    asked = (
        lambda: field.log_prob(x),
        lambda: field.variance,
        lambda: field.condition([0], [1.0], 0.1),
        lambda: field.covariance([3]),
    )
    for ask in asked:
        with pytest.raises(ValueError, match="J is not positive definite, so it is no precision matrix"):
            ask()


def test_the_warning_of_an_estimate_advises_what_exists(monkeypatch):
    monkeypatch.setattr(ways, "OPERATIONS", 1.0)
    monkeypatch.setattr(ways, "DENSE_ON_CPU", 0)
    field = ws.GaussianField(ws.FixedLaplacian(0.5)(grid(6, 6)))
    with pytest.warns(EstimateWarning, match=r"logdet and marginals tell its standard error to their observe="):
        assert field.variance.shape == (1, 36)


@pytest.mark.parametrize("walk_summable", [True, False])
def test_estimates_of_nodes_on_very_different_scales(walk_summable):
    """An iteration that ends by the largest numbers of a column leaves the small ones wrong."""
    torch.manual_seed(0)
    graph = random_graph(60, 150, 1)
    off = torch.randn(1, graph.num_edges, dtype=torch.double)
    rows = ws.Precision(graph, torch.zeros(1, 60, dtype=torch.double), off).to_dense()
    least = rows.abs().sum(-1) if walk_summable else (0.1 - torch.linalg.eigvalsh(rows)[:, :1]).expand(1, 60)
    scale = torch.logspace(-6, 6, 60, dtype=torch.double)[torch.randperm(60)]
    J = ws.Precision(graph, (least + 0.1) * scale**2, off * scale[graph.edges[0]] * scale[graph.edges[1]])
    assert bool(J.is_walk_summable) == walk_summable
    exact, reports = marginals(J), []
    found = marginals(J, "estimated", Estimate(probes=200), observe=reports.append)
    assert ((found - exact).abs() < 6 * reports[0].standard_error + 1e-9 * exact).all()
    assert (reports[0].standard_error < exact).all()
    if walk_summable:
        spread = sample(J, (2000,), "estimated", seed=0).var(0)
        torch.testing.assert_close(spread / exact, torch.ones_like(exact), atol=0.2, rtol=0)


def test_of_no_nodes_nothing_is_estimated():
    J = ws.Precision(ws.Graph.from_edge_index(torch.empty(2, 0, dtype=torch.long), 0), torch.ones(0), torch.ones(0))
    assert ws.logdet(J, "estimated").tolist() == [0]
    assert ws.marginals(J, "estimated").shape == (1, 0)
    assert ws.sample(J, (2,), "estimated").shape == (2, 1, 0)
