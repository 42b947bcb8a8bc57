"""Conditioning and evidence: dense twins, scikit-learn's Gaussian process, gradients, bad input."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.autograd import gradcheck
from torch.distributions import MultivariateNormal

import walksum as ws
from gallery import GALLERY, path, problem, random_graph
from walksum.field import GaussianField

double = torch.double


def observed(name, heads, method, seed=0):
    J, _ = problem(GALLERY[name], "learned laplacian", heads=heads)
    torch.manual_seed(seed)
    n = max(1, J.num_nodes // 2)
    field = GaussianField(J, loc=torch.randn(heads, J.num_nodes, dtype=double), method=method)
    return (
        field,
        torch.randperm(J.num_nodes)[:n],
        torch.randn(heads, n, dtype=double),
        torch.rand(n, dtype=double) + 0.1,
    )


@pytest.mark.parametrize("method", ["elimination", "dense"])
@pytest.mark.parametrize("name", GALLERY)
def test_condition_and_evidence_equal_the_dense_formulas(name, method):
    field, nodes, y, noises = observed(name, 3, method)
    S = torch.linalg.inv(field.J.to_dense())
    among = S[:, nodes][:, :, nodes]
    for noise in (None, 0.2, noises, noises.expand(3, -1) * torch.tensor([[1.0], [2.0], [3.0]], dtype=double)):
        K = (
            among
            if noise is None
            else among + torch.diag_embed(torch.as_tensor(noise, dtype=double).expand(3, len(nodes)))
        )
        gain = S[:, :, nodes] @ torch.linalg.inv(K)
        given = field.condition(nodes, y, noise)
        wanted = field.loc + (gain @ (y - field.loc[:, nodes]).unsqueeze(2)).squeeze(2)
        torch.testing.assert_close(given.mean, wanted, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(
            given.variance, (S - gain @ S[:, nodes]).diagonal(dim1=1, dim2=2), rtol=1e-9, atol=1e-9
        )
        dense = MultivariateNormal(field.loc[:, nodes], K)
        torch.testing.assert_close(field.log_evidence(nodes, y, noise), dense.log_prob(y), rtol=1e-9, atol=1e-9)


def test_columns_of_a_table_are_read_in_the_order_of_their_rows():
    J, _ = problem(path(6), "fixed laplacian", 1)
    field, label = GaussianField(J), [9, 7, 8]
    columns = [pd.Series(column, label) for column in ([1, 3, 4], [0.1, 0.2, 0.3], [1.0, 2.0, 3.0])]
    fixed = [column.to_numpy() for column in columns]
    for array in fixed:
        array.flags.writeable = False  # as pandas 3 gives them
    expected = field.condition(*(column.tolist() for column in columns))
    for given in (columns, fixed):
        found = field.condition(*given)
        assert torch.equal(found.mean, expected.mean)
        assert torch.equal(found.variance, expected.variance)
    nodes = pd.Series(range(6), range(10, 16))
    fits = [
        ws.fit_residual_field(J.graph, *each)[1] for each in ((nodes, nodes * 0.7), (range(6), nodes.to_numpy() * 0.7))
    ]
    assert torch.equal(fits[0].noise, fits[1].noise)


def test_observing_in_two_steps_is_observing_at_once():
    field, _, _, _ = observed("random", 2, "auto")
    nodes, y = torch.tensor([6, 1, 4]), torch.randn(2, 3, dtype=double)
    at_once = field.condition(nodes, y)
    by_steps = field.condition(nodes[:1], y[:, :1]).condition(nodes[1:], y[:, 1:])
    torch.testing.assert_close(by_steps.mean, at_once.mean)
    torch.testing.assert_close(by_steps.variance, at_once.variance)
    chained = field.log_evidence(nodes[:1], y[:, :1]) + field.condition(nodes[:1], y[:, :1]).log_evidence(
        nodes[1:], y[:, 1:]
    )
    torch.testing.assert_close(chained, field.log_evidence(nodes, y))
    assert by_steps.free.tolist() == [0, 2, 3, 5, 7]
    mixed = field.condition(nodes[:1], y[:, :1]).condition(nodes[1:], y[:, 1:], noise=0.5)
    assert (mixed.variance[:, 6] == 0).all()
    assert (mixed.variance[:, [1, 4]] > 0).all()
    x = at_once.sample((7,))
    torch.testing.assert_close(x[..., nodes], y.expand(7, 2, 3))
    dense = MultivariateNormal(field.loc, precision_matrix=field.J.to_dense())
    torch.testing.assert_close(at_once.log_prob(x), dense.log_prob(x) - field.log_evidence(nodes, y))
    with pytest.raises(ValueError, match="observed exactly before"):
        at_once.condition([1], [0.0])


def test_small_noise_tends_to_exact_observations_and_all_nodes_to_log_prob():
    field, nodes, y, _ = observed("grid", 2, "auto")
    torch.testing.assert_close(field.condition(nodes, y, 1e-9).mean, field.condition(nodes, y).mean, atol=1e-6, rtol=0)
    x = torch.randn(2, 9, dtype=double)
    torch.testing.assert_close(field.log_evidence(torch.arange(9), x), field.log_prob(x))
    mask = torch.zeros(9, dtype=torch.bool)
    mask[nodes] = True
    order = nodes.argsort()
    torch.testing.assert_close(field.log_evidence(mask, y[:, order]), field.log_evidence(nodes, y))
    assert field.log_evidence([], torch.empty(2, 0, dtype=double)).abs().max() < 1e-12


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("name", ["grid", "islands"])
def test_gradcheck_of_the_evidence(name, noisy):
    field, nodes, y, noise = observed(name, 2, "auto")
    inputs = [field.J.diag, field.J.off, field.loc, y, noise]

    def evidence(diag, off, loc, y, noise):
        f = GaussianField(ws.Precision(field.J.graph, diag, off), loc=loc)
        return f.log_evidence(nodes, y, noise if noisy else None)

    def conditional(diag, off, loc, y, noise):
        f = GaussianField(ws.Precision(field.J.graph, diag, off), loc=loc).condition(nodes, y, noise if noisy else None)
        return f.mean, f.variance

    assert gradcheck(evidence, [t.detach().clone().requires_grad_() for t in inputs])
    assert gradcheck(conditional, [t.detach().clone().requires_grad_() for t in inputs])


def test_gradcheck_of_the_evidence_in_the_information_vector():
    field, nodes, y, _ = observed("grid", 2, "auto")

    def evidence(h):
        return GaussianField(field.J, h=h).log_evidence(nodes, y, 0.3)

    assert gradcheck(evidence, torch.randn(2, 9, dtype=double, requires_grad=True))


def test_second_derivatives_of_the_evidence():
    field, nodes, y, _ = observed("path", 1, "auto")
    J, off = field.J, field.J.off.clone().requires_grad_()

    def evidence(b):
        return GaussianField(ws.Precision(J.graph, b * J.diag, b * off)).log_evidence(nodes, y, 0.3).sum()

    assert torch.autograd.gradgradcheck(evidence, torch.tensor(1.3, dtype=double, requires_grad=True))


def test_an_expanded_field_takes_one_noise_per_batch():
    field, nodes, y, noise = observed("grid", 1, "auto")
    wide, noises = field.expand((3,)), noise * torch.tensor([[1.0], [2.0], [3.0]], dtype=double)
    evidence, given = wide.log_evidence(nodes, y, noises), wide.condition(nodes, y, noises)
    assert evidence.shape == (3,)
    for k in range(3):
        torch.testing.assert_close(evidence[k], field.log_evidence(nodes, y, noises[k])[0])
        torch.testing.assert_close(given.variance[k], field.condition(nodes, y, noises[k]).variance[0])


def test_leave_one_out_is_what_refitting_gives():
    field, nodes, y, noise = observed("random", 2, "auto")
    mean, variance = field.leave_one_out(nodes, y, noise)
    for k in range(len(nodes)):
        rest = [i for i in range(len(nodes)) if i != k]
        given = field.condition(nodes[rest], y[:, rest], noise[rest])
        torch.testing.assert_close(mean[:, k], given.mean[:, nodes[k]])
        torch.testing.assert_close(variance[:, k], given.variance[:, nodes[k]] + noise[k])
    with pytest.raises(ValueError, match="noise=None"):
        field.leave_one_out(nodes, y, None)


@pytest.mark.parametrize("noise", [1e-6, 0.1, 1.0, 1e6])
def test_what_is_left_out_is_unknown_where_no_other_observation_tells_its_level(noise):
    edges = torch.tensor([[0, 1, 2, 4, 5], [1, 2, 3, 5, 6]])  # two components
    graph, y = ws.Graph.from_edge_index(edges, 7), [1.0, 2.0, 3.0]
    intrinsic = GaussianField(ws.Intrinsic(ridge=0).double()(graph).detach(), validate_args=False)
    mean, variance = intrinsic.leave_one_out([0, 2, 5], y, noise)
    torch.testing.assert_close(mean[0, :2], torch.tensor([2.0, 1.0], dtype=double))
    torch.testing.assert_close(variance[0, :2], torch.full((2,), 2 + 2 * noise, dtype=double))
    assert mean[0, 2].isnan()
    assert variance[0, 2] == torch.inf
    nearly = GaussianField(ws.Precision(graph, intrinsic.J.diag + 1e-10, intrinsic.J.off))
    mean, variance = nearly.leave_one_out([0, 2, 5], y, noise)  # 5 is left with what its component has beside it
    expected = torch.linalg.inv(nearly.J.to_dense()[0, 4:, 4:])[1, 1] + noise
    torch.testing.assert_close(variance[0, 2], expected, rtol=1e-4, atol=0)
    assert mean[0, 2].abs() < 1e-3  # the prior mean, not the value itself


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["elimination", "dense"])
def test_conditioning_on_a_gpu(method):
    field, nodes, y, noise = observed("random", 2, method)
    there = GaussianField(field.J.to("cuda"), loc=field.loc.cuda(), method=method)
    for variance in (None, noise):
        given = there.condition(nodes, y, variance)
        assert given.mean.is_cuda
        torch.testing.assert_close(given.mean.cpu(), field.condition(nodes, y, variance).mean)
        torch.testing.assert_close(given.variance.cpu(), field.condition(nodes, y, variance).variance)
        evidence = there.log_evidence(nodes, y, variance)
        torch.testing.assert_close(evidence.cpu(), field.log_evidence(nodes, y, variance))


def test_scikit_learns_gaussian_process_with_this_kernel():
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import Kernel, StationaryKernelMixin

    J = ws.FixedLaplacian(0.95)(random_graph(80, 200, 2), torch.empty(0, dtype=double))
    inverse = torch.linalg.inv(J.to_dense()[0]).numpy()

    class Inverse(StationaryKernelMixin, Kernel):
        def __init__(self):
            pass

        def __call__(self, X, Y=None, eval_gradient=False):
            rows = X[:, 0].astype(int)
            return inverse[np.ix_(rows, rows if Y is None else Y[:, 0].astype(int))]

        def diag(self, X):
            return inverse.diagonal()[X[:, 0].astype(int)].copy()

    nodes, y = np.arange(0, 80, 2), np.random.default_rng(0).standard_normal(40)
    process = GaussianProcessRegressor(Inverse(), alpha=0.3, optimizer=None).fit(nodes[:, None], y)
    mean, deviation = process.predict(np.arange(80)[:, None], return_std=True)
    given = GaussianField(J).condition(nodes, y, 0.3)
    np.testing.assert_allclose(given.mean[0], mean, atol=1e-9)
    np.testing.assert_allclose(given.stddev[0], deviation, atol=1e-9)
    np.testing.assert_allclose(
        GaussianField(J).log_evidence(nodes, y, 0.3)[0], process.log_marginal_likelihood_value_, rtol=1e-9
    )


@pytest.mark.parametrize(
    ("nodes", "values", "noise", "message"),
    [
        ([0, 0], [1.0, 2.0], None, "nodes contains 0 2 times"),
        ([0, 9], [1.0, 2.0], None, "nodes contains 9; the field has nodes 0 to 8"),
        ([-1, 2], [1.0, 2.0], None, "nodes contains -1"),
        ([0.5, 2.0], [1.0, 2.0], None, "expected whole numbers"),
        (torch.ones(4, dtype=torch.bool), [1.0] * 4, None, r"mask of shape \(4,\); expected \[9\]"),
        ([0, 1], [1.0], None, r"values has shape \(1,\) for 2 nodes"),
        ([0, 1], [1.0, float("nan")], None, "values contains NaN"),
        ([0, 1], [[1.0, 2.0]] * 3, None, r"does not fit the heads \(2,\)"),
        ([0, 1], [1.0, 2.0], -0.1, "noise must be positive"),
        ([0, 1], [1.0, 2.0], 0.0, "use noise=None"),
        ([0, 1], [1.0, 2.0], [0.1, float("inf")], "noise must be positive and finite"),
        ([0, 1], [1.0, 2.0], [0.1, 0.1, 0.1], r"noise has shape \(3,\)"),
        ([0, 1], [1.0, 2.0], [[0.1, 0.1]] * 3, r"noise has shape \(3, 2\)"),
        ([0, 1], [1.0, 2.0], 1e-320, "inverse lies beyond the largest number of torch.float64"),
        ([0, 1], [1.0, 2.0], "a", "noise holds something else than real numbers"),
        ([0, 1], [1.0, None], None, "values holds something else than real numbers"),
        ([0, 1], np.array([1.0, 2.0j]), None, "values has dtype complex128; expected real numbers, use values.real"),
        ([0, 1], torch.tensor([1.0, 2.0j]), None, "values has dtype torch.complex64"),
        ([0, 1], np.ma.masked_equal([1.0, 2.0], 2), None, "values has 1 masked numbers; leave them out"),
        (np.ma.masked_equal([0, 1], 1), [1.0, 2.0], None, "nodes has 1 masked numbers"),
    ],
)
def test_bad_observations_are_named(nodes, values, noise, message):
    field = GaussianField(problem(GALLERY["grid"], "learned laplacian", heads=2)[0])
    for call in (field.condition, field.log_evidence):
        with pytest.raises(ValueError, match=message):
            call(nodes, values, noise)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("noise", [1e-12, 1e-6, 1.0, 1e6])
def test_leave_one_out_keeps_its_digits_beside_any_noise(noise, dtype):
    chain = ws.Graph.from_edge_index(torch.stack([torch.arange(7), torch.arange(1, 8)]))
    J = ws.Precision(chain, torch.full((8,), 2.5, dtype=dtype), torch.full((7,), -1.0, dtype=dtype))
    nodes, y = torch.tensor([0, 2, 4, 6]), torch.tensor([1.0, -1.0, 0.5, 2.0], dtype=torch.float64)
    mean, variance = GaussianField(J).leave_one_out(nodes, y, noise)
    K = torch.linalg.inv(J.to_dense()[0].double())[nodes][:, nodes] + noise * torch.eye(4, dtype=torch.float64)
    inverse = torch.linalg.inv(K)
    tol = 1e-6 if dtype == torch.float32 else 1e-9
    assert variance.dtype == dtype
    assert torch.allclose(variance[0].double(), 1 / inverse.diagonal(), rtol=tol)
    assert torch.allclose(mean[0].double(), y - inverse @ y / inverse.diagonal(), rtol=tol, atol=tol)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("method", ["elimination", "dense", "estimated"])
@pytest.mark.parametrize("noise", [1e-30, 1e-16, 1e-10])
def test_tiny_noise_costs_no_digits(noise, method, dtype):
    J = problem(GALLERY["grid"], "learned laplacian", heads=2)[0].to(dtype)
    nodes, y = torch.tensor([0, 4, 7]), torch.tensor([1.1, -2.3, 0.57], dtype=double)
    field, tol = GaussianField(J, method=method), 1e-5 if dtype == torch.float32 else 1e-10
    S = torch.linalg.inv(J.to_dense().double())
    K = S[:, nodes][:, :, nodes] + noise * torch.eye(3, dtype=double)
    mean = (S[:, :, nodes] @ torch.linalg.solve(K, y).unsqueeze(2)).squeeze(2)
    torch.testing.assert_close(field.condition(nodes, y, noise).mean.double(), mean, rtol=tol, atol=tol)
    y = y.to(dtype).requires_grad_()
    evidence = field.log_evidence(nodes, y, noise)
    slope = torch.autograd.grad(evidence.sum(), y)[0].double()
    torch.testing.assert_close(slope, -torch.linalg.solve(K, y.detach().double()).sum(0), rtol=tol, atol=tol)
    expected = MultivariateNormal(torch.zeros(3, dtype=double), K).log_prob(y.detach().double())
    tol = 0.02 if method == "estimated" else tol  # of log-determinants
    torch.testing.assert_close(evidence.detach().double(), expected, rtol=tol, atol=tol)


def test_observations_of_another_byte_order():
    field = GaussianField(problem(path(4), "fixed laplacian", 1)[0])
    given = field.condition(np.array([0, 2], ">i4"), np.array([1.0, 2.0], ">f8"), np.array([0.1, 0.2], ">f4"))
    torch.testing.assert_close(given.mean, field.condition([0, 2], [1.0, 2.0], [0.1, 0.2]).mean, rtol=1e-6, atol=0)


def test_noise_has_the_heads_of_J_and_no_further_batch():
    J = problem(path(4), "learned laplacian", heads=2)[0]
    field, noise = GaussianField(J, loc=torch.zeros(5, 2, 4, dtype=torch.double)), torch.tensor([0.1, 0.2])
    expected = field.condition([0, 2], [1.0, 2.0], noise)
    for shape in ((1, 2), (2, 2)):
        given = field.condition([0, 2], [1.0, 2.0], noise.expand(shape))
        torch.testing.assert_close((given.mean, given.variance), (expected.mean, expected.variance))
    for shape in ((5, 2), (5, 2, 2)):
        with pytest.raises(ValueError, match="one per head"):
            field.condition([0, 2], [1.0, 2.0], noise.expand(shape))


def test_exact_observations_under_transforms_of_torch_func():
    J = problem(GALLERY["grid"], "learned laplacian", heads=2)[0]

    def evidence(diag):
        return GaussianField(ws.Precision(J.graph, diag, J.off)).log_evidence([1, 4], [1.0, -1.0]).sum()

    diag = J.diag.clone().requires_grad_()
    (expected,) = torch.autograd.grad(evidence(diag), diag)
    torch.testing.assert_close(torch.func.grad(evidence)(J.diag), expected)
    torch.testing.assert_close(evidence(J.diag), evidence(diag).detach())  # nothing of a transform is kept
