"""Log-determinant, selected inverse and variances against dense float64; gradients of every order on offer."""

import os

import pandas as pd
import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import walksum as ws
from gallery import DESIGNS, GALLERY, complete, cycle, grid, path, problem, random_graph
from walksum.field import Estimate, EstimateWarning, logdet, marginals, sample, selected_inverse
from walksum.field import factors as ways

EXACT = ("elimination", "dense")


def close(found, wanted, tol=1e-9):
    scale = wanted.abs().max().clamp_min(1e-300) if wanted.numel() else 1.0
    assert torch.isfinite(found).all()
    assert ((found - wanted).abs().max() / scale if wanted.numel() else 0.0) <= tol


@pytest.mark.parametrize("method", EXACT)
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("name", GALLERY)
def test_equal_the_dense_matrix(name, design, method):
    J, _ = problem(GALLERY[name], design, heads=3)
    dense, (i, j) = J.to_dense(), J.graph.edges
    inverse, reports = torch.linalg.inv(dense), []
    close(logdet(J, method, observe=reports.append), torch.logdet(dense))
    S = selected_inverse(J, method, observe=reports.append)
    close(S.diag, inverse.diagonal(dim1=1, dim2=2))
    close(S.off, inverse[:, i, j])
    close(marginals(J, method, observe=reports.append), S.diag)
    assert [r.quantity for r in reports] == ["logdet", "selected_inverse", "marginals"]
    assert all(r.method == method and r.exact and r.status is ws.Status.converged and r.seconds > 0 for r in reports)


def dataset_graph(name):
    if name == "Cora":
        from walksum.data.datasets import load

        return ws.Graph.from_edge_index(load("cora").edge_index, 2708)
    return counties()


def counties():
    folder = os.path.join(os.environ["WALKSUM_DATA"], "counties")
    ids = pd.Index(pd.read_csv(f"{folder}/nodes.csv", dtype=str)["fips"])
    edges = pd.read_csv(f"{folder}/edges.csv", dtype=str)
    ends = [torch.from_numpy(ids.get_indexer(edges[c]).astype("int64")) for c in ("source", "target")]
    return ws.Graph.from_edge_index(torch.stack(ends), len(ids))


@pytest.mark.data
@pytest.mark.parametrize("name", ["counties", "Cora"])
def test_equal_the_dense_matrix_on_real_graphs(name):
    from walksum.field import GaussianField

    graph = dataset_graph(name)
    J = ws.FixedLaplacian(0.99)(graph, torch.empty(0, dtype=torch.double))
    L = torch.linalg.cholesky(J.to_dense()[0])
    inverse, (i, j) = torch.cholesky_inverse(L), graph.edges
    close(logdet(J, "elimination"), 2 * L.diagonal().log().sum().view(1))
    S = selected_inverse(J, "elimination")
    close(S.diag[0], inverse.diagonal())
    close(S.off[0], inverse[i, j])
    field, nodes = GaussianField(J, method="elimination"), torch.arange(0, graph.num_nodes, 3)
    y = torch.randn(nodes.numel(), dtype=torch.double)
    close(field.covariance(nodes[:5])[0], inverse[:, nodes[:5]])
    for noise in (None, 0.3):
        K = inverse[nodes][:, nodes] + (0.0 if noise is None else noise) * torch.eye(nodes.numel(), dtype=torch.double)
        gain = torch.linalg.solve(K, inverse[nodes]).T
        given = field.condition(nodes, y, noise)
        close(given.mean[0], gain @ y)
        close(given.variance[0], (inverse.diagonal() - (gain * inverse[:, nodes]).sum(1)))
        normal = torch.distributions.MultivariateNormal(torch.zeros_like(y), K)
        close(field.log_evidence(nodes, y, noise), normal.log_prob(y).view(1))


@pytest.mark.parametrize("method", EXACT)
@pytest.mark.parametrize("name", ["grid", "islands", "complete", "no edges"])
def test_gradients_of_first_and_second_order(name, method):
    J, _ = problem(GALLERY[name], "learned laplacian", heads=2)
    values = J.diag.clone().requires_grad_(), J.off.clone().requires_grad_()

    def of_logdet(diag, off):
        return logdet(ws.Precision(J.graph, diag, off), method)

    def of_inverse(diag, off):
        return tuple(selected_inverse(ws.Precision(J.graph, diag, off), method))

    assert gradcheck(of_logdet, values)
    assert gradgradcheck(of_logdet, values)
    assert gradcheck(of_inverse, values)


def test_forward_mode_gives_the_directional_derivative():
    J, _ = problem(GALLERY["grid"], "learned laplacian", heads=2)
    step = torch.randn_like(J.diag)
    _, slope = torch.func.jvp(lambda d: logdet(ws.Precision(J.graph, d, J.off), "dense"), (J.diag,), (step,))
    close(slope, torch.linalg.vecdot(selected_inverse(J).diag, step))


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("method", EXACT)
def test_dual_numbers_of_torch_autograd(method, heads):
    graph = ws.Graph.from_edge_index(torch.tensor([[0, 1, 0], [1, 2, 2]]))
    values = torch.rand(heads, 3, dtype=torch.double) + 3, torch.rand(heads, 3, dtype=torch.double)
    for ask in (ws.logdet, ws.marginals, lambda J, method: ws.selected_inverse(J, method).off):
        call = lambda diag, off, ask=ask: ask(ws.Precision(graph, diag, off), method)  # noqa: E731
        _, wanted = torch.func.jvp(call, values, values)
        with forward_ad.dual_level():
            found = call(*(forward_ad.make_dual(each, each) for each in values))
            torch.testing.assert_close(forward_ad.unpack_dual(found).tangent, wanted)


@pytest.mark.parametrize("method", EXACT)
def test_variances_keep_no_inverse(method):
    ring = torch.arange(50)
    J = ws.FixedLaplacian(0.9)(ws.Graph.from_edge_index(torch.stack([ring, ring.roll(1)])), torch.empty(0).double())
    assert ws.marginals(J, method).untyped_storage().nbytes() == 50 * 8


def test_the_derivative_of_a_large_selected_inverse_is_refused(monkeypatch):
    monkeypatch.setattr("walksum.field.selected.DIFFERENTIATED", 5)
    diag = torch.full((9,), 5.0, requires_grad=True)
    J = ws.Precision(grid(3, 3), diag, -torch.ones(12))
    logdet(J).sum().backward()  # first derivatives are always on offer
    with pytest.raises(ValueError, match="two solves for each of the 9 nodes"):
        marginals(J).sum().backward()


def test_single_precision_is_computed_in_double():
    J, _ = problem(random_graph(60, 150), "fixed laplacian", heads=1)
    low = J.to(torch.float32)
    assert logdet(low).dtype == torch.float32
    close(logdet(low).double(), logdet(low.to(torch.float64)), 1e-6)
    close(marginals(low).double(), marginals(low.to(torch.float64)), 1e-6)


def test_auto_takes_the_dense_matrix_where_elimination_fills_in():
    def chosen(graph):
        return ways.choose_method(ws.FixedDiagonallyDominant()(graph))

    assert chosen(path(500)) == chosen(grid(20, 20)) == chosen(grid(1000, 1000)) == "elimination"
    assert chosen(complete(60)) == "dense"


def test_auto_says_that_it_estimates(monkeypatch):
    monkeypatch.setattr(ways, "OPERATIONS", 10)
    monkeypatch.setattr(ways, "DENSE_ON_CPU", 0)
    J = ws.FixedDiagonallyDominant()(grid(12, 12), torch.empty(0, dtype=torch.double))
    with pytest.warns(EstimateWarning, match="standard error"):
        value = logdet(J)
    with pytest.warns(EstimateWarning, match="standard error"):
        marginals(J)
    close(value, logdet(J, "elimination"), 1e-2)
    with pytest.raises(ValueError, match="selected_inverse is exact"):
        selected_inverse(J)


def test_variances_of_gabp_are_too_small_where_all_couplings_attract_and_exact_on_trees():
    reports = []
    J, _ = problem(cycle(9), "fixed laplacian", heads=1)
    biased = marginals(J, "gabp", observe=reports.append)
    assert (biased < marginals(J)).all()
    assert reports[0].method == "gabp"
    assert not reports[0].exact
    assert "too small" in reports[0].note
    J, _ = problem(GALLERY["tree"], "learned laplacian", heads=2)
    close(marginals(J, "gabp"), marginals(J))


def test_gabp_refuses_what_is_not_walk_summable():
    J = ws.Precision(complete(3), torch.ones(3), torch.full((3,), 0.6))
    assert torch.isfinite(marginals(J)).all()
    with pytest.raises(ws.SolveError, match=r"walk-summable.*rho"):
        marginals(J, "gabp")


@pytest.mark.parametrize("method", [*EXACT, "estimated"])
def test_what_is_no_precision_matrix_is_named(method):
    graph = cycle(40)
    indefinite = ws.Precision(graph, torch.ones(40, dtype=torch.double), torch.ones(40, dtype=torch.double))
    with pytest.raises(ValueError, match="not positive definite"):
        logdet(indefinite, method)
    bad = ws.Precision(graph, torch.full((40,), 3.0), torch.full((40,), torch.nan))
    with pytest.raises(ValueError, match="NaN or infinity"):
        logdet(bad, method)


@pytest.mark.parametrize("method", EXACT)
def test_a_laplacian_that_only_rounding_makes_definite_is_refused(method):
    """Weighted Laplacians are singular; rounding turns the last pivot into 1e-15 of either sign."""
    graph = random_graph(300, 900)
    for seed in range(12):
        weight = torch.rand(graph.num_edges, dtype=torch.double, generator=torch.Generator().manual_seed(seed)) + 0.1
        degree = torch.zeros(300, dtype=torch.double).index_add(0, graph.edges.flatten(), weight.repeat(2))
        with pytest.raises(ValueError, match=r"not positive definite.*validate_args=False"):
            logdet(ws.Precision(graph, degree, -weight), method)
        logdet(ws.Precision(graph, degree + 1e-12, -weight), method)  # nearly singular is fine


@pytest.mark.parametrize("call", [logdet, marginals, selected_inverse, sample])
def test_a_matrix_of_another_kind_is_named(call):
    with pytest.raises(ValueError, match=r"J is a Tensor; expected a walksum.Precision \(Precision.from_scipy"):
        call(torch.eye(3))


@pytest.mark.parametrize("method", EXACT)
def test_transforms_of_torch_func(method):
    J, _ = problem(grid(3, 4), "learned laplacian", heads=2)
    J, y = J.detach(), torch.arange(3.0, dtype=torch.double)

    def evidence(t):
        field = ws.GaussianField(ws.Precision(J.graph, t.exp() * J.diag + t, t * J.off), method=method)
        return field.log_evidence([0, 4, 7], y, noise=0.1).sum() + logdet(field.J, method).sum() + field.entropy().sum()

    t = torch.tensor(0.8, dtype=torch.double)
    step = 1e-5
    slope = (evidence(t + step) - evidence(t - step)) / (2 * step)
    curvature = (torch.func.grad(evidence)(t + step) - torch.func.grad(evidence)(t - step)) / (2 * step)
    for first in (torch.func.grad, torch.func.jacrev, torch.func.jacfwd):
        torch.testing.assert_close(first(evidence)(t), slope, rtol=1e-6, atol=1e-6)
    for second in (torch.func.hessian, lambda f: torch.func.jacrev(torch.func.jacrev(f))):
        torch.testing.assert_close(second(evidence)(t), curvature, rtol=1e-6, atol=1e-6)

    shifts = torch.tensor([0.0, 1.0], dtype=torch.double)
    for call in (logdet, marginals):
        batched = torch.vmap(lambda s, f=call: f(ws.Precision(J.graph, J.diag + s, J.off), method))(shifts)
        torch.testing.assert_close(batched[1], call(ws.Precision(J.graph, J.diag + 1, J.off), method))


def test_unknown_methods_and_settings():
    J = ws.FixedDiagonallyDominant()(path(4))
    for call in (logdet, marginals, selected_inverse, sample):
        with pytest.raises(ValueError, match="method='magic'; known: 'auto', 'elimination'"):
            call(J, method="magic")
    with pytest.raises(ValueError, match="probes=3; expected at least 8"):
        Estimate(probes=3)
    with pytest.raises(ValueError, match="tol=-1"):
        Estimate(tol=-1)


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["elimination", "dense", "estimated"])
def test_on_a_gpu(method):
    J = ws.FixedLaplacian(0.9)(random_graph(400, 1200), torch.empty(0, dtype=torch.double))
    there = J.to("cuda")
    tol = 0.1 if method == "estimated" else 1e-9
    found = logdet(there, method)
    assert found.is_cuda
    close(found.cpu(), logdet(J), tol)
    assert sample(there, (3,), method).is_cuda
    if method != "estimated":
        close(marginals(there, method).cpu(), marginals(J), tol)


BEYOND = {
    "marginals": lambda J: ws.marginals(J),
    "selected_inverse": lambda J: ws.selected_inverse(J).diag,
    "variance": lambda J: ws.GaussianField(J).variance,
    "mean": lambda J: ws.GaussianField(J, h=torch.ones(3, dtype=J.dtype)).mean,
}


@pytest.mark.parametrize("ask", BEYOND)
def test_what_float32_cannot_hold_is_refused(ask):
    J = ws.Precision(path(3), torch.full((3,), 2e-39), torch.full((2,), -1e-39))  # variances of 7e38
    with pytest.raises(ValueError, match=r"beyond the largest number of torch.float32, 3.4e\+38; use J.to"):
        BEYOND[ask](J)
    assert float(BEYOND[ask](J.to(torch.float64)).max()) > 3.5e38
