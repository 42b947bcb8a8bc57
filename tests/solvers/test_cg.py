"""Conjugate gradients, with and without the sweeps."""

from __future__ import annotations

import problems
import pytest
import torch
from conformance import Conformance

import walksum as ws
from gallery import dense_solve
from walksum import backends
from walksum.backends.cpu.sweep_order import halves


class TestDIC(Conformance):
    solver = ws.CG()
    float32 = 4e-6


class TestJacobi(Conformance):
    solver = ws.CG(preconditioner="jacobi")


def test_not_walk_summable_but_positive_definite_falls_back():
    J = problems.frustrated()
    h, prepared = problems.normal(J, 7), ws.CG().prepare(J)
    solution = prepared(h)
    assert prepared.dic is None
    assert solution.converged
    assert torch.allclose(solution.value, dense_solve(J, h), rtol=1e-10)


def test_indefinite_is_said():
    J = problems.indefinite()
    assert ws.CG().prepare(J)(problems.normal(J, 3)).status is ws.Status.not_positive_definite


@pytest.mark.parametrize("preconditioner", ["dic", "jacobi"])
def test_max_steps(preconditioner):
    J = problems.unit_couplings(problems.grid(20))
    solution = ws.CG(max_steps=3, preconditioner=preconditioner).prepare(J)(problems.normal(J, 40))
    assert solution.status is ws.Status.max_steps_reached
    assert solution.steps == 3


def test_an_unreachable_tolerance_is_stalled():
    J = problems.dominant(problems.sparse(200, 800), dtype=torch.float32)
    solution = ws.CG(tol=1e-12).prepare(J)(problems.normal(J, 40))
    assert solution.status is ws.Status.stalled
    assert solution.residual < 1e-7


def test_dic_takes_fewer_steps_than_jacobi():
    J = problems.unit_couplings(problems.grid(40))
    h = problems.normal(J, 8)
    steps = [ws.CG(tol=1e-10, preconditioner=p).prepare(J)(h).steps for p in ("dic", "jacobi")]
    assert steps[0] < 0.6 * steps[1]


def test_float32_reaches_the_forward_error_of_float64_residuals():
    graph = problems.sparse(500, 1500)
    i, j = graph.edges
    root = graph.degree.clamp(min=1).double().rsqrt()
    J = ws.Precision(graph, torch.ones(500), (-0.99 * root[i] * root[j]).float())  # condition about 200
    h = problems.normal(J, 64)
    exact = dense_solve(J, h)
    assert (ws.CG().prepare(J)(h).value - exact).abs().max() <= 4e-6 * exact.abs().max()


@pytest.mark.parametrize("graph", problems.GALLERY)
def test_dic_pivots_and_order(graph):
    J = problems.dominant(problems.GALLERY[graph]())
    factor = backends.find(J.diag, "DIC")(J.graph, J.diag, J.off)
    order = torch.from_numpy(halves(J.graph).order).long()
    assert torch.equal(order.sort().values, torch.arange(J.num_nodes))
    A = J.to_dense()[0][order][:, order]
    d = torch.zeros(J.num_nodes).double()
    for i in range(J.num_nodes):
        d[i] = A[i, i] - sum(A[i, k] ** 2 / d[k] for k in range(i))
    assert torch.allclose(torch.from_numpy(factor.d[0]), d)


@pytest.mark.parametrize("graph", ["sparse", "star", "grid"])
def test_order_peels_by_least_remaining_degree(graph):
    graph = problems.GALLERY[graph]()
    left = {k: set() for k in range(graph.num_nodes)}
    for i, j in graph.edges.T.tolist():
        left[i].add(j)
        left[j].add(i)
    core = 0  # the bucket algorithm never lets a degree fall below the one just peeled
    for node in halves(graph).order.tolist():
        core = max(core, min(map(len, left.values())))
        assert len(left[node]) <= core
        for k in left.pop(node):
            left[k].discard(node)
