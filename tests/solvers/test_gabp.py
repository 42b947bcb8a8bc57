"""GaBP: fused and in torch, against Algorithm 1 written edge by edge."""

from __future__ import annotations

import problems
import pytest
import torch
from conformance import Conformance

import walksum as ws
from gallery import dense_solve
from reference import true_residual
from walksum.solvers.gabp.solver import PreparedGaBP

SCHEDULES = ("parallel", "sequential")


class TestUndamped(Conformance):
    solver = ws.GaBP(damping=1.0, tol=2e-7, max_steps=4000)
    float64 = 1e-4


class TestDamped(TestUndamped):
    solver = ws.GaBP(tol=2e-7, max_steps=4000)


class TestAdaptive(TestUndamped):
    solver = ws.GaBP(damping="adaptive", tol=2e-7, max_steps=4000)


class TestSequential(TestUndamped):
    solver = ws.GaBP(damping=1.0, schedule="sequential", tol=2e-7, max_steps=4000)


def algorithm_1(J: ws.Precision, h: torch.Tensor, tol: float, damping: float, max_steps: int):
    """The paper's Algorithm 1, one message at a time: mu of one head and the number of steps."""
    A, n = J.to_dense()[0].tolist(), J.num_nodes
    near = {i: [j for j in range(n) if j != i and A[i][j] != 0] for i in range(n)}
    pi = {(i, j): 0.0 for i in range(n) for j in near[i]}
    eta = {(i, j): torch.zeros(h.size(1)).double() for i in range(n) for j in near[i]}
    for step in range(1, max_steps + 1):
        new_pi, new_eta, change = {}, {}, 0.0
        for i, j in pi:
            alpha = A[i][i] + sum(pi[k, i] for k in near[i] if k != j)
            beta = h[i] + sum(eta[k, i] for k in near[i] if k != j)
            d_pi, d_eta = -(A[i][j] ** 2) / alpha - pi[i, j], -A[i][j] * beta / alpha - eta[i, j]
            change = max(change, abs(d_pi), float(d_eta.abs().max()))
            new_pi[i, j], new_eta[i, j] = pi[i, j] + damping * d_pi, eta[i, j] + damping * d_eta
        pi, eta = new_pi, new_eta
        if change <= tol:
            break
    mu = [(h[i] + sum(eta[k, i] for k in near[i])) / (A[i][i] + sum(pi[k, i] for k in near[i])) for i in range(n)]
    return torch.stack(mu), step


@pytest.mark.parametrize("graph", ["path", "star", "grid", "complete", "sparse", "scattered"])
@pytest.mark.parametrize("damping", [0.5, 1.0])
def test_messages_rule_is_algorithm_1(graph, damping):
    J = problems.dominant(problems.GALLERY[graph]())
    h = problems.normal(J, 3)
    expected, steps = algorithm_1(J, h[0], 1e-6, damping, 500)
    solver = ws.GaBP(damping=damping, tol=1e-6, stop="messages", max_steps=500)
    for prepared in (solver.prepare(J), PreparedGaBP(J, solver)):
        solution = prepared(h)
        assert solution.steps == steps
        assert torch.allclose(solution.value[0], expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(("heads", "columns"), [(1, 70), (3, 5)])
def test_fused_messages_rule_stops_all_columns_and_heads_together(heads, columns):
    J = problems.dominant(problems.sparse(), heads)
    h = problems.normal(J, columns)
    h[..., -1] *= 1e4  # one column needs more steps; the others must take them too
    solver = ws.GaBP(stop="messages")
    fused, plain = solver.prepare(J)(h), PreparedGaBP(J, solver)(h)
    assert fused.steps == plain.steps
    assert torch.allclose(fused.value, plain.value, rtol=1e-12, atol=1e-14)


def test_messages_rule_depends_on_the_scale_and_the_status_tells():
    J = problems.unit_couplings(problems.grid(12))
    h = problems.normal(J, 3)
    small = ws.GaBP(stop="messages").prepare(J)(1e-4 * h)
    assert small.steps < ws.GaBP(stop="messages").prepare(J)(h).steps
    assert small.status is ws.Status.stalled
    assert ws.GaBP().prepare(J)(1e-4 * h).converged


def test_exact_on_a_tree_after_its_diameter():
    J = problems.dominant(problems.path(12))
    h = problems.normal(J, 3)
    exact = dense_solve(J, h)
    after = [ws.GaBP(damping=1.0, tol=1e-15, max_steps=k).prepare(J)(h).value for k in (10, 11)]
    assert torch.allclose(after[1], exact, rtol=1e-12, atol=1e-14)
    assert not torch.allclose(after[0], exact, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("graph", ["path", "star", "edgeless"])
def test_marginal_precision_is_exact_on_trees(graph, fused):
    J, solver = problems.dominant(problems.GALLERY[graph](), 2), ws.GaBP()
    prepared = solver.prepare(J) if fused else PreparedGaBP(J, solver)
    exact = 1 / torch.linalg.inv(J.to_dense()).diagonal(dim1=1, dim2=2)
    assert torch.allclose(prepared.marginal_precision, exact, rtol=1e-10)


@pytest.mark.parametrize("damping", [0.5, 1.0, "adaptive"])
@pytest.mark.parametrize("stop", ["residual", "messages"])
def test_not_walk_summable_never_converges_wrongly(damping, stop):
    J = problems.frustrated()
    h = problems.normal(J, 3)
    solution = ws.GaBP(damping=damping, stop=stop).prepare(J)(h)
    if stop == "residual":
        assert solution.status is ws.Status.diverged
    elif solution.converged:
        assert true_residual(J, solution.value, h) <= 1e-6


def test_adaptive_beats_undamped_where_messages_oscillate():
    graph = problems.complete(20)
    J = ws.Precision(graph, torch.full((20,), 19.2).double(), torch.ones(graph.num_edges).double())
    h = problems.normal(J, 4)
    steps = {d: ws.GaBP(damping=d).prepare(J)(h).steps for d in ("adaptive", 1.0)}
    assert steps["adaptive"] < 0.5 * steps[1.0]


@pytest.mark.parametrize("damping", [1.0, 0.5])
def test_torch_and_fused_agree(damping):
    J = problems.dominant(problems.sparse(), 3)
    h, solver = problems.normal(J, 33), ws.GaBP(damping=damping, tol=1e-13)
    fused, plain = solver.prepare(J)(h), PreparedGaBP(J, solver)(h)
    assert fused.converged
    assert plain.converged
    assert torch.allclose(fused.value, plain.value, rtol=1e-9, atol=1e-12)


def test_max_steps():
    J = problems.unit_couplings(problems.grid(20))
    solution = ws.GaBP(max_steps=7).prepare(J)(problems.normal(J, 40))
    assert solution.status is ws.Status.max_steps_reached
    assert solution.steps == 7


def in_turn(J: ws.Precision, h: torch.Tensor, damping: float, sweeps: int) -> torch.Tensor:
    """Messages one at a time, each from the newest ones; nodes in order, then in reverse. The precisions first."""
    A, n = J.to_dense()[0].tolist(), J.num_nodes
    near = {i: [j for j in range(n) if j != i and A[i][j] != 0] for i in range(n)}
    pi, eta = {}, {(i, j): torch.zeros(h.size(1)).double() for i in range(n) for j in near[i]}
    for _ in range(200):
        pi = {
            (i, j): -(A[i][j] ** 2) / (A[i][i] + sum(pi.get((k, i), 0.0) for k in near[i] if k != j))
            for i in range(n)
            for j in near[i]
        }
    for sweep in range(sweeps):
        for i in range(n) if sweep % 2 == 0 else reversed(range(n)):
            new = {}
            for j in near[i]:
                alpha = A[i][i] + sum(pi[k, i] for k in near[i] if k != j)
                beta = h[i] + sum(eta[k, i] for k in near[i] if k != j)
                new[i, j] = eta[i, j] + damping * (-A[i][j] * beta / alpha - eta[i, j])
            eta |= new
    return torch.stack(
        [(h[i] + sum(eta[k, i] for k in near[i])) / (A[i][i] + sum(pi[k, i] for k in near[i])) for i in range(n)]
    )


@pytest.mark.parametrize("graph", ["path", "grid", "complete", "sparse", "scattered"])
@pytest.mark.parametrize("damping", [0.5, 1.0])
@pytest.mark.parametrize("sweeps", [1, 2, 5])
def test_sequential_is_one_message_after_the_other(graph, damping, sweeps):
    J = problems.dominant(problems.GALLERY[graph]())
    h = problems.normal(J, 3)
    solver = ws.GaBP(damping=damping, schedule="sequential", tol=1e-300, max_steps=sweeps)
    solution = solver.prepare(J)(h)
    assert solution.steps == sweeps
    assert torch.allclose(solution.value[0], in_turn(J, h[0], damping, sweeps), rtol=1e-10, atol=1e-12)


def test_sequential_takes_two_sweeps_along_a_path():
    J = problems.dominant(problems.path(12))
    h = problems.normal(J, 3)
    solution = ws.GaBP(damping=1.0, schedule="sequential", tol=1e-15, max_steps=2).prepare(J)(h)
    assert torch.allclose(solution.value, dense_solve(J, h), rtol=1e-12, atol=1e-14)


def test_sequential_takes_fewer_steps():
    J = problems.unit_couplings(problems.grid(12))
    h = problems.normal(J, 3)
    steps = {s: ws.GaBP(damping=1.0, schedule=s, tol=1e-10).prepare(J)(h).check().steps for s in SCHEDULES}
    assert steps["sequential"] < 0.8 * steps["parallel"]


def test_a_tolerance_below_rounding_ends_soon_and_says_so():
    J = problems.dominant(problems.sparse()).to(torch.float32)
    h = problems.normal(J, 40).float()
    good = ws.GaBP(damping=1.0, schedule="sequential", tol=2e-7).prepare(J)(h)
    end = ws.GaBP(damping=1.0, schedule="sequential", tol=1e-12).prepare(J)(h)
    assert good.converged
    assert end.status is ws.Status.stalled
    assert end.steps <= 3 * good.steps
    assert end.residual == pytest.approx(true_residual(J, end.value, h), rel=0.05)


@pytest.mark.parametrize("settings", [{}, {"damping": "adaptive"}, {"schedule": "sequential"}])
def test_a_singular_matrix_is_said_to_diverge(settings):
    J = ws.Precision(problems.path(2), torch.ones(2).double(), -torch.ones(1).double())
    solution = ws.GaBP(**settings).prepare(J)(torch.randn(2, 3).double())
    assert solution.status is ws.Status.diverged


@pytest.mark.parametrize("stop", ["residual", "messages"])
def test_a_mean_that_overflows_is_told(stop):
    J = problems.dominant(problems.path(), 1, torch.float32)
    J = ws.Precision(J.graph, J.diag * 1e-37, J.off * 1e-37)
    solution = ws.GaBP(damping=1.0, stop=stop, max_steps=50).prepare(J)(1e20 * problems.normal(J, 3))
    assert solution.status is ws.Status.overflow


@pytest.mark.parametrize("kind", ["cpu", "reference"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_marginals_without_a_fixed_point_are_an_error(kind, dtype):
    J = problems.frustrated(4, 0.6).to(dtype)  # positive definite; the variance of every node is 1.96
    prepared = ws.GaBP().prepare(J) if kind == "cpu" else PreparedGaBP(J, ws.GaBP())
    with pytest.raises(ws.SolveError, match=r"not walk-summable.*Direct\(\)\.prepare\(J\)\.marginal_variance"):
        _ = prepared.marginal_precision
    exact = torch.linalg.inv(J.to_dense()).diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(ws.Direct().prepare(J).marginal_variance, exact)
    with pytest.raises(ws.SolveError, match="raise max_steps"):
        _ = PreparedGaBP(problems.dominant(problems.path(40)), ws.GaBP(max_steps=2)).marginal_precision
