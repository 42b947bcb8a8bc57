"""Linear constraints on a field, against the dense Gaussian on the subspace."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import walksum as ws
from gallery import GALLERY, grid, problem, random_graph
from walksum.field import GaussianField

double = torch.double
close = torch.testing.assert_close


def dense_twin(J, loc, A, e):
    """Mean and covariance given A x = e, for one head: within a basis of what A leaves free."""
    start = torch.linalg.pinv(A) @ e
    basis = torch.linalg.svd(A)[2][len(A) :].T
    inner = basis.T @ J @ basis
    mean = start + basis @ torch.linalg.solve(inner, basis.T @ J @ (loc - start))
    return mean, basis @ torch.linalg.inv(inner) @ basis.T, basis, inner


def check(field, A, e):
    given = field.constrain(A, e)
    A = torch.as_tensor(A.toarray() if sp.issparse(A) else A)
    x = given.sample((20000,))
    close(x @ A.T, e.expand(20000, field.J.heads, -1), rtol=1e-8, atol=1e-8)
    for head, J in enumerate(field.J.to_dense()):
        mean, covariance, basis, inner = dense_twin(J, field.loc[head], A, e)
        close(given.mean[head], mean, rtol=1e-8, atol=1e-8)
        close(given.variance[head], covariance.diagonal(), rtol=1e-8, atol=1e-10)
        close(torch.cov(x[:, head].T), covariance, rtol=0, atol=0.06 * float(covariance.abs().max()))
        free = torch.distributions.MultivariateNormal(basis.T @ mean, precision_matrix=inner)
        close(given.log_prob(x[:5])[:, head], free.log_prob(x[:5, head] @ basis), rtol=1e-8, atol=1e-8)
        close(given.entropy()[head], free.entropy(), rtol=1e-8, atol=1e-8)
    assert (given.log_prob(x[:5] + 0.1) == -math.inf).all()


def test_a_field_given_linear_constraints_is_the_dense_gaussian_on_their_subspace():
    graph = random_graph(12, 25)
    J = ws.Precision(
        graph, graph.degree.double() + torch.tensor([[0.5], [2.0]]), -torch.ones(2, graph.num_edges).double()
    )
    field = GaussianField(J, loc=torch.randn(2, 12, dtype=double))
    A = np.random.default_rng(0).normal(size=(2, 12)) * [[1.0], [100.0]]
    check(field, A, torch.tensor([1.0, -300.0], dtype=double))
    check(field, sp.csr_matrix(np.ones((1, 12))), torch.zeros(1, dtype=double))


def test_columns_of_the_covariance_are_those_of_the_dense_field():
    graph, ones = grid(3, 3), torch.ones(9, dtype=torch.double)
    laplacian = torch.diag(graph.degree.double()) - torch.from_numpy(graph.to_scipy().toarray())
    walk = GaussianField(ws.Precision.from_scipy(laplacian.numpy()), validate_args=False)
    zero = walk.constrain(ones)
    torch.testing.assert_close(zero.covariance([4, 0])[0], torch.linalg.pinv(laplacian)[:, [4, 0]])
    torch.testing.assert_close(zero.covariance(range(9)).diagonal(dim1=1, dim2=2), zero.variance)
    assert torch.equal(zero.mode, zero.mean)

    proper, A = (
        GaussianField(problem(graph, "fixed laplacian", 2)[0]).condition([2], [1.0]),
        torch.stack([ones, ones.cumsum(0)]),
    )
    covariance = proper.covariance(range(9))
    cross = covariance @ A.T
    expected = covariance - cross @ torch.linalg.solve(A @ cross, cross.mT)
    torch.testing.assert_close(proper.constrain(A).covariance(range(9)), expected)


def test_rows_of_a_sparse_tensor():
    field, A = GaussianField(problem(grid(2, 3), "fixed laplacian", 1)[0]), torch.eye(6)[[1, 3]]
    assert torch.equal(field.constrain(A.to_sparse()).mean, field.constrain(A).mean)


def test_an_intrinsic_field_takes_the_constraint_that_spans_its_null_space():
    graph = grid(4, 3)
    weight = torch.rand(graph.num_edges, dtype=double) + 0.1
    diag = torch.zeros(12, dtype=double).index_add(0, graph.edges.flatten(), weight.repeat(2))
    laplacian = ws.Precision(graph, diag, -weight)
    check(GaussianField(laplacian, validate_args=False), torch.ones(1, 12, dtype=double), torch.zeros(1, dtype=double))
    D = sp.diags([1.0, -2.0, 1.0], [0, 1, 2], shape=(10, 12))
    walk = GaussianField(ws.Precision.from_scipy(D.T @ D), validate_args=False)
    line = torch.stack([torch.ones(12, dtype=double), torch.arange(12, dtype=double)])
    check(walk, line, torch.tensor([0.0, 3.0], dtype=double))
    with pytest.raises(
        ValueError, match="constrained by the A whose rows span its null space"
    ):  # rank 10 of 12, one row
        walk.constrain(line[:1])


def test_an_intrinsic_field_takes_islands_and_further_rows_beside_its_null_space():
    edges = torch.tensor([[0, 1, 2, 4, 5], [1, 2, 3, 5, 6]])  # 7 has no edge
    graph = ws.Graph.from_edge_index(edges, 8)
    weight = torch.tensor([1e-3, 1.0, 30.0, 2.0, 0.5], dtype=double)
    diag = torch.zeros(8, dtype=double).index_add(0, graph.edges.flatten(), weight.repeat(2))
    field = GaussianField(ws.Precision(graph, diag, -weight), validate_args=False)
    parts = torch.zeros(4, 8, dtype=double)
    parts[0, :4], parts[1, 4:7], parts[2, 7], parts[3] = 1, 1, 1, torch.arange(8.0) ** 2
    check(field, parts[:3], torch.tensor([0.0, 1.0, 2.0], dtype=double))
    check(field, parts, torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=double))
    with pytest.raises(ValueError, match="not positive definite"):  # x_0 = x_1 leaves the level of a part open
        GaussianField(field.J, validate_args=False).constrain(torch.eye(8)[:1] - torch.eye(8)[1:2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("ridge", [1e-12, 1e-8, 1e-4])
def test_the_digits_do_not_depend_on_how_nearly_singular_J_is_along_A(ridge, dtype):
    graph, zero = random_graph(40, 60), torch.zeros(40, dtype=double)
    J = ws.Precision(graph, (graph.degree.double() + ridge).to(dtype), -torch.ones(graph.num_edges, dtype=dtype))
    given = GaussianField(J, validate_args=False).constrain(torch.ones(40))
    _, covariance, _, inner = dense_twin(J.to_dense()[0].double(), zero, torch.ones(1, 40).double(), zero[:1])
    tol = 1e-6 if dtype == torch.float32 else 1e-11
    close(given.variance[0], covariance.diagonal().to(dtype), rtol=tol, atol=0)
    close(given.entropy()[0], torch.distributions.MultivariateNormal(zero[:39], precision_matrix=inner)
          .entropy().to(dtype), rtol=tol, atol=tol)  # fmt: skip
    assert given.sample((50,)).sum(-1).abs().max() < 1e3 * torch.finfo(dtype).eps


def test_constraints_count_the_nodes_that_are_free():
    J = ws.FixedLaplacian(0.9)(grid(4, 3), torch.empty(0, dtype=double))
    given = GaussianField(J).condition([0, 5], [1.0, -2.0]).constrain(torch.ones(12), 3.0)
    rows = torch.zeros(3, 12, dtype=double)
    rows[0], rows[1, 0], rows[2, 5] = 1, 1, 1
    both = GaussianField(J).constrain(rows, [3.0, 1.0, -2.0])
    close(given.mean, both.mean)
    close(given.variance, both.variance, rtol=1e-8, atol=1e-10)
    assert given.sample()[0, 5] == -2


def test_gradients_reach_the_precision():
    J = ws.FixedLaplacian(0.9)(grid(3, 2), torch.empty(0, dtype=double))
    A = torch.ones(6, dtype=double)

    def numbers(diag):
        given = GaussianField(ws.Precision(J.graph, diag, J.off)).constrain(A, 1.0)
        return given.mean, given.variance, given.entropy()

    torch.autograd.gradcheck(numbers, (J.diag.clone().requires_grad_(),))


def test_vmap_over_observations_and_constraints():
    field = GaussianField(ws.FixedLaplacian(0.9)(grid(3, 2), torch.empty(0, dtype=double)))
    calls = (
        lambda v: field.condition([0, 3], v, 0.1).mean,
        lambda v: field.log_evidence([0, 3], v),
        lambda v: field.condition([0, 3], [1.0, 2.0], v.exp()).mean,
        lambda v: field.constrain(torch.eye(2, 6), v).mean,
    )
    values = torch.randn(3, 2, dtype=double)
    for call in calls:
        close(torch.vmap(call)(values), torch.stack([call(v) for v in values]))


@pytest.mark.parametrize(
    ("A", "e", "message"),
    [
        (torch.ones(2, 5), 0.0, r"A has shape \(2, 5\); expected finite numbers \[k, 12\]"),
        (torch.full((12,), math.nan), 0.0, "expected finite numbers"),
        (torch.ones(2, 12), 0.0, "A has 2 rows, linearly dependent"),
        (torch.ones(2, 12) + 1e-12 * torch.eye(2, 12, dtype=double), 0.0, "A has 2 rows, linearly dependent"),
        (torch.ones(12), torch.ones(3), r"e has shape \(3,\); expected a finite number for each of the 1 rows"),
        (torch.ones(12), torch.ones(3, 2, 1), r"e has shape \(3, 2, 1\); the field has heads \(3,\)"),
    ],
)
def test_bad_constraints_are_refused(A, e, message):
    J = ws.FixedLaplacian(0.9)(grid(4, 3), torch.empty(0, dtype=double))
    field = GaussianField(ws.Precision(J.graph, J.diag.expand(3, -1), J.off.expand(3, -1)))
    with pytest.raises(ValueError, match=message):
        field.constrain(A, e)


def test_constraints_under_transforms_and_their_own_gradients():
    J = problem(GALLERY["grid"], "learned laplacian", heads=2)[0]
    A, e = torch.randn(2, 9, dtype=torch.double), torch.randn(2, dtype=torch.double)

    def numbers(diag, A, e):
        given = GaussianField(ws.Precision(J.graph, diag, J.off)).constrain(A, e)
        return torch.cat([given.mean.flatten(), given.variance.flatten(), given.entropy()])

    inputs = [t.clone().requires_grad_() for t in (J.diag, A, e)]
    assert torch.autograd.gradcheck(numbers, inputs)
    expected = torch.autograd.functional.jacobian(lambda diag: numbers(diag, A, e), J.diag)
    for jacobian in (torch.func.jacrev, torch.func.jacfwd):
        torch.testing.assert_close(jacobian(numbers)(J.diag, A, e), expected)


def test_samples_that_are_held_at_zero_have_a_density():
    for seed in range(10):
        draw = np.random.default_rng(seed)
        W = np.triu(draw.normal(size=(12, 12)) * (draw.random((12, 12)) < 0.3), 1)
        W = W + W.T
        field = GaussianField(ws.Precision.from_scipy(W + np.diag(abs(W).sum(1) + draw.random(12) + 0.5)))
        held = field.constrain(np.eye(12)[[3, 7]])
        x = held.sample((20,))
        assert held.log_prob(x).isfinite().all()
        assert (held.log_prob(x + 1e-3) == -math.inf).all()


@pytest.mark.parametrize("noise", [None, 0.3, 1e-12, [0.1, 0.2, 0.3, 0.4, 0.5]])
def test_observations_of_a_constrained_field_have_an_evidence(noise):
    graph, nodes = grid(4, 3), [7, 0, 3, 11, 4]
    laplacian = torch.diag(graph.degree.double()) - torch.from_numpy(graph.to_scipy().toarray())
    A = torch.stack([torch.ones(12), torch.arange(12.0) ** 2]).double()
    y, e = torch.randn(3, 1, 5, dtype=double), torch.tensor([0.5, -20.0], dtype=double)
    for ridge in (0.0, 0.1):  # intrinsic, proper
        J = laplacian + ridge * torch.eye(12)
        given = GaussianField(ws.Precision.from_scipy(J.numpy()), validate_args=False).constrain(A, e)
        mean, covariance, _, _ = dense_twin(J, torch.zeros(12, dtype=double), A, e)
        added = torch.tensor(noise or 0.0, dtype=double).expand(5).diag()
        K = covariance[nodes][:, nodes] + added
        expected = torch.distributions.MultivariateNormal(mean[nodes], K).log_prob(y)
        close(given.log_evidence(nodes, y, noise), expected, rtol=1e-8, atol=1e-8)
        gain = torch.linalg.solve(K, covariance[nodes]).T
        posterior = given.condition(nodes, y, noise)
        close(posterior.mean, mean + (y - mean[nodes]) @ gain.T, rtol=1e-8, atol=1e-8)
        close(posterior.variance[0, 0], (covariance - gain @ covariance[nodes]).diagonal(), rtol=1e-8, atol=1e-10)


def test_the_evidence_of_an_intrinsic_field_is_differentiable():
    graph, y = grid(3, 3), torch.randn(4, dtype=double)

    def evidence(tau, noise):
        J = ws.Precision(graph, tau * graph.degree, -tau.expand(-1, graph.num_edges))
        return GaussianField(J, validate_args=False).constrain(torch.ones(9)).log_evidence([0, 2, 4, 5], y, noise)

    tau, noise = torch.tensor([[0.5], [2.0]], dtype=double), torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=double)
    assert torch.autograd.gradcheck(evidence, (tau.requires_grad_(), noise.requires_grad_()))
