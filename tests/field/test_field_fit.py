"""Fits by evidence: known parameters are found, intervals cover, spreg finds the same."""

import warnings
from contextlib import closing

import numpy as np
import pytest
import torch
from torch.func import functional_call

import walksum as ws
from gallery import grid, path
from walksum.designs.fields import SAR
from walksum.field import GaussianField, fit_residual_field, maximise
from walksum.field.fit import normalised_adjacency

double = torch.double


def drawn(graph, a, b, noise, seed=0):
    """Values of a field with these parameters, measured at all nodes."""
    _, edge = normalised_adjacency(graph)
    J = ws.Precision(graph, torch.full((graph.num_nodes,), b, dtype=double), -a * b * edge)
    torch.manual_seed(seed)
    x = GaussianField(J).sample()[0]
    return x + noise**0.5 * torch.randn_like(x)


@pytest.mark.parametrize("a", [0.9, -0.9])
def test_parameters_that_made_the_data_are_found(a):
    graph = grid(40, 40)
    y = drawn(graph, a, 4.0, 0.1)
    known = torch.randperm(1600)[:1200]
    field, fit = fit_residual_field(graph, known, y[known])
    assert fit.converged
    assert abs(float(fit.a) - a) < 0.1
    assert 2.5 < float(fit.precision) < 6
    assert abs(float(fit.noise) - 0.1) < 0.06
    given = field.condition(known, y[known], fit.noise)
    rest = torch.ones(1600, dtype=torch.bool)
    rest[known] = False
    deviation = (given.variance + fit.noise).sqrt()[0]
    z = ((y - given.mean[0]) / deviation)[rest].abs()
    assert 0.92 <= float((z < 1.96).double().mean()) <= 0.98
    assert 0.9 < float(fit.scale) < 1.1
    at_optimum = field.log_evidence(known, y[known], fit.noise)
    torch.testing.assert_close(at_optimum, fit.log_evidence, rtol=1e-6, atol=1e-6)
    assert float(at_optimum) > float(fit_residual_field(grid(1, 1600), known, y[known])[1].log_evidence)


def test_columns_become_heads_and_units_do_not_matter():
    graph = grid(15, 15)
    y = torch.stack([drawn(graph, 0.9, 2.0, 0.1, seed=1), drawn(graph, 0.5, 1.0, 0.3, seed=2)], 1)
    known = torch.arange(0, 225, 2)
    field, fit = fit_residual_field(graph, known, y[known])
    assert field.batch_shape == (2,)
    alone = fit_residual_field(graph, known, y[known, 0])[1]
    torch.testing.assert_close(alone.a, fit.a[:1])
    scaled = fit_residual_field(graph, known, 1000 * y[known, 0])[1]
    torch.testing.assert_close(scaled.a, alone.a)
    torch.testing.assert_close(scaled.noise, 1e6 * alone.noise)
    mean = field.condition(known, y[known].t(), fit.noise.unsqueeze(1).expand(-1, len(known))).mean
    assert mean.shape == (2, 225)
    assert fit_residual_field(graph, known, y[known, 0], loops=True, signs=False)[1].a > 0


def test_a_fit_by_estimates_finds_nearly_the_same():
    graph = grid(25, 25)
    y = drawn(graph, 0.9, 4.0, 0.1)
    known = torch.arange(0, 625, 2)
    exact, found = (fit_residual_field(graph, known, y[known], method=m)[1] for m in ("elimination", "estimated"))
    assert abs(float(exact.a - found.a)) < 0.1
    assert abs(float(exact.log_evidence - found.log_evidence)) < 1.0


def test_degenerate_residuals():
    graph = path(30)
    field, fit = fit_residual_field(graph, torch.arange(20), torch.zeros(20))
    assert field.condition(torch.arange(20), torch.zeros(20), fit.noise).mean.abs().max() == 0
    with pytest.raises(ValueError, match="at least 4"):
        fit_residual_field(graph, [0, 1], [1.0, 2.0])
    with pytest.raises(ValueError, match=r"residuals has shape \(3, 1\) for 5 nodes"):
        fit_residual_field(graph, torch.arange(5), torch.zeros(3))
    with pytest.raises(ValueError, match="nodes contains 30"):
        fit_residual_field(graph, [30, 1, 2, 3], torch.zeros(4))


DATA = [
    ("columbus", "columbus.gal", "columbus.dbf", "HOVAL", ["INC", "CRIME"]),
    ("baltim", "baltim_q.gal", "baltim.dbf", "PRICE", ["NROOM", "NBATH", "PATIO", "AGE", "LOTSZ"]),
]


@pytest.mark.parametrize(("name", "neighbours", "table", "target", "features"), DATA, ids=["columbus", "baltimore"])
def test_spreg_finds_the_same_spatial_error_model(name, neighbours, table, target, features):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        libpysal, spreg = pytest.importorskip("libpysal"), pytest.importorskip("spreg")
        with closing(libpysal.io.open(libpysal.examples.get_path(neighbours))) as file:
            weights = file.read()
        weights.transform = "r"
        with closing(libpysal.io.open(libpysal.examples.get_path(table))) as columns:
            y = np.array(columns.by_col(target), float).reshape(-1, 1)
            X = np.array([columns.by_col(f) for f in features], float).T
        oracle = spreg.ML_Error(y, X, weights)

        from walksum.graph.spatial import spatial_graph

        graph = spatial_graph(weights).graph
    design, n = SAR().double(), graph.num_nodes
    Z, t = torch.cat([torch.ones(n, 1), torch.tensor(X)], 1), torch.tensor(y[:, 0])

    def model(raw):
        """The field whose coefficients and variance are the best for this lambda."""
        J = functional_call(design, {"raw": raw.view(1, 1), "log_tau": torch.zeros(1, 1, dtype=double)}, (graph,))
        beta = torch.linalg.solve(Z.T @ (J @ Z), (J @ Z).T @ t)
        r = t - Z @ beta
        variance = (r * (J @ r)).sum() / n
        J = ws.Precision(J.graph, J.diag / variance, J.off / variance)
        return GaussianField(J, loc=Z @ beta, validate_args=False), beta, variance

    found = maximise(lambda raw: model(raw)[0].log_prob(t).squeeze(), [0.0])
    _, beta, variance = model(torch.tensor(found.x))
    np.testing.assert_allclose(found.fun, oracle.logll, rtol=1e-4)
    np.testing.assert_allclose(np.tanh(found.x[0]), oracle.lam, rtol=1e-4)
    np.testing.assert_allclose(beta, oracle.betas[:-1, 0], rtol=1e-4)
    np.testing.assert_allclose(float(variance), float(np.squeeze(oracle.sig2)), rtol=1e-4)
