from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import walksum as ws
from gallery import cycle, grid, path, problem, random_graph
from reference import true_residual
from walksum.analysis.convergence import (
    layer_systems,
    residual_curve,
    residual_curves,
    standard_solvers,
    step_counts,
    steps_by_epoch,
)


@pytest.fixture(scope="module")
def system():
    return problem(grid(7, 8), "fixed diagonally dominant", heads=2)


@pytest.mark.parametrize("name", standard_solvers())
def test_the_last_point_is_the_solvers_own_report(name, system):
    J, h = system
    solver = standard_solvers(tol=1e-9)[name]
    curve, alone = residual_curve(J, h, solver, name), solver.prepare(J)(h)
    assert curve.converged
    assert alone.converged
    assert (curve.steps[-1], curve.residuals[-1]) == (alone.steps, alone.residual)
    assert curve.name == name
    assert curve.steps == sorted({*curve.steps})


@pytest.mark.parametrize("name", ["GaBP, undamped", "CG, Jacobi", "CG, DIC", "Chebyshev"])
def test_every_point_is_a_true_residual(name, system):
    J, h = system
    solver = standard_solvers()[name]
    curve = residual_curve(J, h, solver)
    for steps, residual in list(zip(curve.steps, curve.residuals, strict=True))[:8]:
        mu = replace(solver, max_steps=steps).prepare(J)(h).value
        assert residual == pytest.approx(true_residual(J, mu, h), rel=1e-6, abs=1e-15)


def test_gabp_that_stops_by_residual(system):
    J, h = system
    curve = residual_curve(J, h, ws.GaBP(damping=1.0, tol=1e-8))
    assert all(residual < 1 for residual in curve.residuals)
    assert curve.steps[-1] == ws.GaBP(damping=1.0, tol=1e-8).prepare(J)(h).steps


@pytest.mark.parametrize("solver", [ws.Direct(), ws.Dense(), ws.Hybrid(max_degree=60)])
def test_a_direct_method_is_one_point(solver, system):
    curve = residual_curve(*system, solver)
    assert curve.steps == [0]
    assert curve.residuals[0] < 1e-14


def test_a_solver_that_does_not_get_there_says_so():
    J, h = problem(cycle(40), "fixed laplacian", heads=1)
    curve = residual_curve(J, h, ws.GaBP(tol=1e-12, max_steps=30, stop="messages"))
    assert curve.status is ws.Status.max_steps_reached
    assert curve.steps[-1] == 30


def test_forward_and_backward():
    J, h = problem(random_graph(20, 40), "learned laplacian", heads=2)
    found = residual_curves(J, h, torch.randn_like(h), {"CG": ws.CG()})
    assert [curve.direction for curve in found] == ["forward", "backward"]


def test_counts_are_dense_then_sparse():
    assert step_counts(5) == [1, 2, 3, 4, 5]
    counts = step_counts(1000)
    assert counts[:16] == [*range(1, 17)]
    assert counts[-1] == 1000
    assert len(counts) < 60


@pytest.mark.parametrize("learned", [False, True])
def test_systems_of_a_model_are_those_it_solved(learned):
    torch.manual_seed(0)
    graph, x = random_graph(12, 30), torch.randn(12, 6)
    model = ws.GLT(6, 8, 2, 3, heads=2, design="laplacian", learned=learned)
    for layer in model.mixers:
        layer.keep_values = True
    systems = layer_systems(model, x, graph, lambda output: output.square().sum())
    assert len(systems) == 2
    for (J, h, grad), layer in zip(systems, model.mixers, strict=True):
        assert J.dtype == h.dtype == torch.float64
        mu = torch.linalg.solve(J.to_dense(), h)
        solved = layer.last_solve.value.reshape(mu.shape)  # in float32
        assert float((mu - solved).abs().max() / mu.abs().max()) < 1e-6
        g = torch.linalg.solve(J.to_dense(), grad)
        back = layer.last_backward_solve.value.reshape(g.shape)
        assert float((g - back).abs().max() / g.abs().max()) < 1e-6
        assert float(grad.abs().max()) > 0
    assert all(parameter.grad is None for parameter in model.parameters())


def test_steps_by_epoch_reads_what_training_recorded():
    history = [SimpleNamespace(forward_steps=k, backward_steps=2 * k) for k in (3, 4)]
    assert steps_by_epoch(history) == ([3, 4], [6, 8])
    assert steps_by_epoch([]) is None
    assert steps_by_epoch([SimpleNamespace(number=1)]) is None


def test_one_node():
    J, h = problem(path(1), "fixed laplacian", heads=1)
    assert all(curve.converged for curve in residual_curves(J, h))
