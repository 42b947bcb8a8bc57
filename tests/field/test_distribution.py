"""GaussianField is one more torch distribution, and equals MultivariateNormal."""

import copy
import doctest
import math
import sys

import pytest
import torch
from torch.autograd import gradcheck
from torch.distributions import Independent, MultivariateNormal, kl_divergence

import walksum as ws
from gallery import GALLERY, complete, cycle, grid, path, problem, random_graph
from walksum import field as walksum_field
from walksum.field import GaussianField, sample
from walksum.field.sampling import follow

double = torch.double


def random_precision(seed, heads):
    """Any signs, positive definite, walk-summable or not."""
    generator = torch.Generator().manual_seed(seed)
    graph = random_graph(3 + seed % 12, 4 + seed % 30, seed)
    off = torch.randn(heads, graph.num_edges, generator=generator, dtype=double)
    diag = torch.rand(heads, graph.num_nodes, generator=generator, dtype=double)
    lowest = torch.linalg.eigvalsh(ws.Precision(graph, diag, off).to_dense())[:, :1]
    return ws.Precision(graph, diag - lowest + 0.1, off), generator


@pytest.mark.parametrize("block", range(4))
def test_log_prob_is_that_of_the_multivariate_normal_on_200_systems(block):
    for seed in range(50 * block, 50 * block + 50):
        heads = 1 + seed % 3
        J, generator = random_precision(seed, heads)
        loc = torch.randn(heads, J.num_nodes, generator=generator, dtype=double)
        normal = MultivariateNormal(loc, precision_matrix=J.to_dense())
        field = GaussianField(J, loc=loc) if seed % 2 else GaussianField(J, h=(J @ loc.unsqueeze(2)).squeeze(2))
        value = torch.randn(4, heads, J.num_nodes, generator=generator, dtype=double)
        torch.testing.assert_close(field.log_prob(value), normal.log_prob(value), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(field.entropy(), normal.entropy(), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(field.variance, normal.variance, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(field.mean, loc, rtol=1e-9, atol=1e-9)


def test_conventions_of_torch_distributions():
    J, _ = problem(GALLERY["grid"], "learned laplacian", heads=3)
    field = GaussianField(J, loc=torch.ones(9, dtype=double))
    assert (field.batch_shape, field.event_shape, field.has_rsample) == ((3,), (9,), True)
    assert field.sample().shape == field.mean.shape == field.stddev.shape == field.mode.shape == (3, 9)
    assert field.rsample((2, 5)).shape == (2, 5, 3, 9)
    assert field.log_prob(field.sample((2, 5))).shape == (2, 5, 3)
    assert field.log_prob(torch.zeros(9, dtype=double)).shape == (3,)
    wide = field.expand((4, 3))
    assert wide.batch_shape == (4, 3)
    assert wide.sample((2,)).shape == (2, 4, 3, 9)
    torch.testing.assert_close(
        wide.log_prob(torch.zeros(9, dtype=double))[2], field.log_prob(torch.zeros(9, dtype=double))
    )
    assert Independent(field, 1).log_prob(field.sample()).shape == ()
    assert not field.sample().requires_grad
    with pytest.raises(ValueError, match="3 heads"):
        field.expand((4,))
    one = GaussianField(problem(GALLERY["grid"], "fixed laplacian", heads=1)[0])
    assert one.expand((6,)).entropy().shape == (6,)
    assert one.expand((6,)).rsample().shape == (6, 9)
    torch.testing.assert_close(GaussianField(J, loc=field.loc).h, (J @ field.loc.unsqueeze(2)).squeeze(2))
    assert copy.copy(field).log_prob(field.mean).shape == (3,)


def test_kullback_leibler_on_equal_and_different_patterns():
    p, q = problem(cycle(7), "learned laplacian", heads=2)[0], problem(path(7), "learned laplacian", heads=2, seed=3)[0]
    for a, b in ((p, p), (p, q), (q, p)):
        fields = GaussianField(a, loc=torch.randn(2, 7, dtype=double)), GaussianField(b)
        normals = [MultivariateNormal(f.loc, precision_matrix=f.J.to_dense()) for f in fields]
        torch.testing.assert_close(kl_divergence(*fields), kl_divergence(*normals))
    torch.testing.assert_close(kl_divergence(GaussianField(p), GaussianField(p)), torch.zeros(2, dtype=double))


@pytest.mark.parametrize("heads", [(1, 1), (3, 1), (1, 3), (3, 3)])
def test_kullback_leibler_of_a_field_and_a_multivariate_normal(heads):
    fields, normals = [], []
    for seed, (graph, count) in enumerate(zip((cycle(7), path(7)), heads, strict=True)):
        J = problem(graph, "learned laplacian", heads=count, seed=seed)[0]
        fields.append(GaussianField(J, loc=torch.randn(5, count, 7, dtype=double, requires_grad=True)))
        normals.append(MultivariateNormal(fields[-1].loc, precision_matrix=J.to_dense()))
    expected = kl_divergence(*normals)
    assert expected.shape == (5, max(heads))
    for p, q in (fields, (fields[0], normals[1]), (normals[0], fields[1])):
        found = kl_divergence(p, q)
        torch.testing.assert_close(found, expected)
        wanted = [f.loc for f in fields]
        torch.testing.assert_close(
            torch.autograd.grad(found.sum(), wanted), torch.autograd.grad(expected.sum(), wanted, retain_graph=True)
        )
    with pytest.raises(ValueError, match="same nodes"):
        kl_divergence(fields[0].condition([0], [1.0]), normals[1])


def test_a_small_kullback_leibler_keeps_its_digits_in_float32():
    J = ws.FixedLaplacian(0.9)(path(2000), torch.empty(0))
    fields = [GaussianField(ws.Precision(J.graph, J.diag * factor, J.off)) for factor in (1.0, 1.001)]
    wide = [GaussianField(f.J) for f in fields]  # fields compute in float64
    found, expected = kl_divergence(*fields), kl_divergence(*wide)
    assert (found.dtype, expected.dtype) == (torch.float32, double)
    torch.testing.assert_close(found, expected.float(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("method", ["elimination", "dense", "estimated"])
def test_100000_samples_have_the_covariance(method):
    J = ws.FixedLaplacian(0.9)(random_graph(50, 100, 4), torch.empty(0, dtype=double))
    inverse = torch.linalg.inv(J.to_dense()[0])
    x = sample(J, (100_000,), method, seed=1)[:, 0]
    found = x.T @ x / len(x)
    # the variance of a product of two Gaussians, over the number of samples
    error = ((inverse.square() + inverse.diagonal().outer(inverse.diagonal())) / len(x)).sqrt()
    assert ((found - inverse).abs() / error).max() < 5
    assert ((found - inverse).abs() / error).square().mean().sqrt() < 1.3
    assert torch.equal(sample(J, (3,), method, seed=2), sample(J, (3,), method, seed=2))


def test_samples_of_a_field_with_a_mean_and_heads():
    J, _ = problem(GALLERY["weighted"], "learned laplacian", heads=2)
    field = GaussianField(J, loc=torch.tensor([[1.0], [-1.0]], dtype=double).expand(2, 6))
    x = field.sample((20_000,))
    torch.testing.assert_close(x.mean(0), field.mean, atol=0.05, rtol=0)
    torch.testing.assert_close(x.var(0), field.variance, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("way", ["elimination", "dense", "estimated"])
def test_the_path_of_samples_follows_the_expectation_by_finite_differences(way):
    """Over noise whose second moments are exact, E f is exact, and so must be the gradient of its samples."""
    J, _ = problem(GALLERY["grid"], "learned laplacian", heads=1)
    A = torch.randn(9, 9, dtype=double)
    A = A @ A.T

    def expectation(off):  # of x^T A x
        return (A * torch.linalg.inv(ws.Precision(J.graph, J.diag, off).to_dense()[0])).sum()

    off = J.off.clone().requires_grad_()
    L = torch.linalg.cholesky(torch.linalg.inv(J.to_dense()))
    x = follow(ws.Precision(J.graph, J.diag, off), L * 9**0.5, way)
    value = ((A @ x[0]) * x[0]).sum() / 9
    torch.testing.assert_close(value, expectation(J.off))
    (gradient,) = torch.autograd.grad(value, off)
    for edge in range(3):
        step = torch.zeros_like(J.off)
        step[0, edge] = 1e-5
        slope = (expectation(J.off + step) - expectation(J.off - step)) / 2e-5
        torch.testing.assert_close(gradient[0, edge], slope, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("way", ["elimination", "dense", "estimated"])
def test_second_derivatives_of_samples_are_those_of_the_expectation(way):
    J, _ = problem(GALLERY["grid"], "learned laplacian", heads=1)
    A = torch.randn(9, 9, dtype=double)
    A = A @ A.T
    x = torch.linalg.cholesky(torch.linalg.inv(J.to_dense())) * 9**0.5

    def expectation(off):  # of x^T A x
        return (A * torch.linalg.inv(ws.Precision(J.graph, J.diag, off).to_dense()[0])).sum()

    def value(off):
        moved = follow(ws.Precision(J.graph, J.diag, off), x, way)
        return ((A @ moved[0]) * moved[0]).sum() / 9

    hessian = torch.autograd.functional.hessian
    torch.testing.assert_close(hessian(value, J.off), hessian(expectation, J.off))


@pytest.mark.parametrize("method", ["elimination", "dense", "estimated"])
def test_samples_under_transforms_of_torch_func(method):
    J, _ = problem(GALLERY["grid"], "learned laplacian", heads=2)

    def draw(diag):
        return sample(ws.Precision(J.graph, diag, J.off), (3,), method, seed=1)

    def loss(diag):
        return draw(diag).sin().sum()

    diag, step = J.diag.clone().requires_grad_(), torch.randn_like(J.diag)
    (expected,) = torch.autograd.grad(loss(diag), diag)
    torch.testing.assert_close(torch.func.grad(loss)(J.diag), expected)
    torch.testing.assert_close(torch.func.jvp(loss, (J.diag,), (step,))[1], (expected * step).sum())
    several = torch.stack([2 * J.diag, 3 * J.diag])  # both dominant: estimated samples of both have roots of one kind
    torch.testing.assert_close(torch.vmap(draw)(several), torch.stack([draw(each) for each in several]))

    def rsample(diag):
        return GaussianField(ws.Precision(J.graph, diag, J.off), method=method).rsample((3,))

    first, second = torch.vmap(rsample, randomness="different")(torch.stack([J.diag, J.diag]))
    assert not torch.equal(first, second)


def test_rsample_moves_with_scale_and_mean_sample_by_sample():
    J, _ = problem(GALLERY["grid"], "fixed laplacian", heads=1)

    def draw(scale, loc):
        torch.manual_seed(0)
        return GaussianField(ws.Precision(J.graph, scale * J.diag, scale * J.off), loc=loc).rsample((2,))

    assert gradcheck(
        draw, (torch.tensor(1.5, dtype=double, requires_grad=True), torch.randn(9, dtype=double).requires_grad_())
    )


def test_covariance_and_correlation():
    J, _ = problem(GALLERY["random"], "learned laplacian", heads=2)
    field, inverse = GaussianField(J), torch.linalg.inv(J.to_dense())
    torch.testing.assert_close(field.covariance([3, 0]), inverse[:, :, [3, 0]])
    i, j = torch.tensor([0, 5, 2]), torch.tensor([1, 5, 7])
    deviation = inverse.diagonal(dim1=1, dim2=2).sqrt()
    found = field.correlation(torch.stack([i, j]))
    torch.testing.assert_close(found, inverse[:, i, j] / deviation[:, i] / deviation[:, j])
    assert (found[:, 1] - 1).abs().max() < 1e-12
    given = field.condition([3], [1.0])
    assert (given.covariance([3]) == 0).all()
    with pytest.raises(ValueError, match=r"pairs has shape \(3,\)"):
        field.correlation([0, 1, 2])


def test_correlations_of_many_pairs_hold_a_few_columns_at_once(monkeypatch):
    J = ws.Leroux(lam=0.9).double()(grid(20, 20)).detach()
    field, held = GaussianField(J), []
    columns = field.covariance
    monkeypatch.setattr(field, "covariance", lambda nodes: held.append(len(nodes)) or columns(nodes))
    i, j = J.graph.edges
    S = ws.selected_inverse(J)
    expected = S.off / (S.diag[:, i] * S.diag[:, j]).sqrt()
    torch.testing.assert_close(field.correlation(torch.stack([j, i]).flip(1)), expected.flip(1))
    assert held == [256, 144]
    assert field.correlation(torch.empty(2, 0, dtype=torch.int64)).shape == (1, 0)


def test_gradcheck_of_log_prob():
    J, _ = problem(GALLERY["islands"], "learned laplacian", heads=2)
    inputs = [J.diag, J.off, torch.randn(2, 7, dtype=double), torch.randn(3, 2, 7, dtype=double)]

    def by_loc(diag, off, loc, x):
        return GaussianField(ws.Precision(J.graph, diag, off), loc=loc).log_prob(x)

    def by_h(diag, off, h, x):
        return GaussianField(ws.Precision(J.graph, diag, off), h=h).log_prob(x)

    for function in (by_loc, by_h):
        assert gradcheck(function, [t.clone().requires_grad_() for t in inputs])


def test_an_expanded_field_conditions_and_a_field_of_all_observed_nodes_is_a_point():
    J, _ = problem(GALLERY["path"], "fixed laplacian", heads=1)
    field = GaussianField(J)
    values = torch.randn(5, 1, 2, dtype=double)
    many = field.condition([0, 3], values)
    assert many.batch_shape == (5, 1)
    torch.testing.assert_close(many.mean[2], field.condition([0, 3], values[2]).mean)
    point = field.condition(torch.arange(6), torch.arange(6.0))
    assert (point.variance == 0).all()
    torch.testing.assert_close(point.sample(), torch.arange(6, dtype=double).view(1, 6))
    assert point.log_prob(point.mean) == 0
    assert point.log_prob(point.mean + 1) == -math.inf


def test_bad_arguments():
    J, _ = problem(complete(4), "learned laplacian", heads=2)
    zero = torch.zeros(2, 4, dtype=double)
    with pytest.raises(ValueError, match="h and loc were both given"):
        GaussianField(J, h=zero, loc=zero)
    with pytest.raises(ValueError, match="J is a Tensor"):
        GaussianField(J.to_dense())
    with pytest.raises(ValueError, match=r"loc has shape \(3, 4\); expected \[4\] or \[..., 2, 4\]"):
        GaussianField(J, loc=torch.zeros(3, 4))
    with pytest.raises(ValueError, match=r"h has shape \(5,\)"):
        GaussianField(J, h=torch.zeros(5))
    with pytest.raises(ValueError, match="loc contains NaN"):
        GaussianField(J, loc=torch.full((4,), torch.nan))
    with pytest.raises(ValueError, match="not positive definite"):
        GaussianField(ws.Precision(J.graph, J.diag, 3 * J.off.abs() + 1))
    with pytest.raises(ValueError, match="J contains NaN"):
        GaussianField(ws.Precision(J.graph, J.diag * torch.nan, J.off))
    with pytest.raises(ValueError, match="method='exact'"):
        GaussianField(J, method="exact")
    with pytest.raises(ValueError, match="to be within the support"):
        GaussianField(J).log_prob(torch.full((2, 4), torch.nan, dtype=double))
    GaussianField(ws.Precision(J.graph, J.diag, 3 * J.off.abs() + 1), validate_args=False)  # checked on first use


def test_arguments_are_checked_also_where_torch_compile_was_loaded():
    """torch._dynamo switches the default of torch's distributions off when it is imported."""
    before = torch.distributions.Distribution._validate_args
    torch.distributions.Distribution.set_default_validate_args(False)
    try:
        J, _ = problem(complete(4), "learned laplacian", heads=2)
        with pytest.raises(ValueError, match="not positive definite"):
            GaussianField(ws.Precision(J.graph, J.diag, 3 * J.off.abs() + 1))
    finally:
        torch.distributions.Distribution.set_default_validate_args(before)


def test_examples_in_docstrings(monkeypatch):
    for name in walksum_field.__all__:
        monkeypatch.setattr(ws, name, getattr(walksum_field, name), raising=False)
    modules = [
        sys.modules[f"walksum.field.{name}"]
        for name in ("distribution", "log_determinant", "variances", "sampling", "fit")
    ]
    results = [doctest.testmod(module) for module in modules]
    assert sum(r.failed for r in results) == 0
    assert sum(r.attempted for r in results) >= 8
