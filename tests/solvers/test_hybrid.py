"""Hybrid: exact where elimination takes everything, otherwise as good as the solver of its core."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_direct import GALLERY, TOL, graph_of, precision, random_pairs

import walksum as ws
from gallery import dense_solve
from reference import true_residual
from walksum.backends.cpu.ldl import symbolic

CORE = graph_of(random_pairs(300, 1500), 320)  # degree 10 and twenty isolated nodes: a core remains


@pytest.fixture(params=[*GALLERY, "core"])
def graph(request):
    return CORE if request.param == "core" else graph_of(*GALLERY[request.param])


@pytest.mark.parametrize("dtype", TOL)
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("width", [1, 33])
@pytest.mark.parametrize("max_degree", [1, 3, 8])
def test_equals_the_dense_solve(graph, heads, dtype, width, max_degree):
    J = precision(graph, heads, dtype, margin=1.0)
    h = torch.randn(heads, graph.num_nodes, width, dtype=dtype, generator=torch.Generator().manual_seed(1))
    solution = ws.Hybrid(max_degree).prepare(J)(h).check()
    mu = dense_solve(J, h)
    assert (solution.value - mu).abs().max() <= 40 * TOL[dtype] * mu.abs().max()
    assert abs(solution.residual - true_residual(J, solution.value, h)) <= 4 * torch.finfo(dtype).eps


@pytest.mark.parametrize("heads", [1, 8, 16])  # whole groups of heads lie side by side
def test_exact_without_steps_when_nothing_is_left(heads):
    graph = graph_of(*GALLERY["star"])
    assert ws.Hybrid(1).plan(graph) == (40, 0, 0)
    J, h = precision(graph, heads), torch.ones(heads, 40, 2, dtype=torch.float64)
    solution = ws.Hybrid(1).prepare(J)(h).check()
    assert solution.steps == 0
    torch.testing.assert_close(solution.value, dense_solve(J, h), rtol=1e-11, atol=1e-11)


def test_the_core_is_the_schur_complement():
    J = precision(CORE, 2)
    prepared = ws.Hybrid(6).prepare(J)
    core, nodes = prepared.core.J, torch.from_numpy(prepared.nodes).long()
    plan = ws.Hybrid(6).plan(CORE)
    assert (plan.core_nodes, plan.core_edges) == (core.num_nodes, core.graph.num_edges)
    assert 0 < plan.core_nodes < plan.core_nodes + plan.eliminated == CORE.num_nodes
    assert core.graph.degree.min() > 6
    inverse = torch.linalg.inv(J.to_dense())[:, nodes.unsqueeze(1), nodes]
    torch.testing.assert_close(core.to_dense(), torch.linalg.inv(inverse), rtol=1e-9, atol=1e-9)
    assert core.is_walk_summable
    same = ws.Graph.from_edge_index(core.graph.edges, core.num_nodes)
    assert torch.equal(same.edges, core.graph.edges)


def test_an_overflow_of_the_core_does_not_hide_an_infinite_h():
    J = precision(CORE, 1, torch.float32, margin=1.0)
    J = ws.Precision(CORE, 1e-30 * J.diag, 1e-30 * J.off)
    h = torch.full((1, CORE.num_nodes, 1), 1e20)
    assert ws.Hybrid().prepare(J)(h).status is ws.Status.overflow
    h[0, -1] = torch.inf  # of an isolated node, which never reaches the core
    assert ws.Hybrid().prepare(J)(h).status is ws.Status.nonfinite


def test_any_solver_runs_on_the_core():
    J = precision(CORE, 2, margin=1.0)
    h = torch.randn(2, CORE.num_nodes, 3, dtype=torch.float64)
    for inner in (ws.Direct(), ws.Dense(), ws.GaBP(), ws.CG(tol=1e-12)):
        solution = ws.Hybrid(inner=inner).prepare(J)(h).check()
        tol = getattr(inner, "tol", None) or 1e-12
        assert (solution.value - dense_solve(J, h)).abs().max() <= 100 * tol
    assert solution.steps > 0


def test_steps_and_failure_of_the_core_are_reported():
    J = precision(CORE, 1, margin=1e-3)
    h = torch.randn(1, CORE.num_nodes, 3, dtype=torch.float64)
    solution = ws.Hybrid(inner=ws.CG(max_steps=2)).prepare(J)(h)
    assert solution.status is ws.Status.max_steps_reached
    assert solution.steps == 2
    assert solution.residual == pytest.approx(true_residual(J, solution.value, h), rel=1e-6)


def test_its_tolerance_reaches_the_core_and_holds_for_the_whole():
    J = precision(CORE, 1, margin=1e-2)
    h = torch.randn(1, CORE.num_nodes, 3, dtype=torch.float64)
    loose, tight = (ws.Hybrid(tol=tol).prepare(J)(h).check() for tol in (1e-3, 1e-13))
    assert tight.residual <= 1e-13 < loose.residual <= 1e-3
    assert loose.steps < tight.steps


@pytest.mark.parametrize("node", [0, 310])
def test_indefinite(node):
    J = precision(CORE)
    J.diag[0, node] = -1.0
    solution = ws.Hybrid().prepare(J)(torch.ones(1, CORE.num_nodes, 2, dtype=torch.float64))
    assert solution.status is ws.Status.not_positive_definite


@pytest.mark.parametrize("where", ["diag", "off", "h"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_nonfinite(where, bad):
    J = precision(CORE, 2, torch.float32)
    h = torch.ones(2, CORE.num_nodes, 3)
    {"diag": J.diag, "off": J.off, "h": h}[where].view(-1)[-3] = bad
    assert ws.Hybrid().prepare(J)(h).status is ws.Status.nonfinite


def test_structures_are_made_once_per_graph():
    J = precision(CORE)
    first, second = (ws.Hybrid().prepare(J) for _ in range(2))
    assert first.factor.symbolic is second.factor.symbolic is symbolic.partial_symbolic(CORE, 8)
    assert first.core.J.graph is second.core.J.graph


def test_bits_do_not_depend_on_threads():
    J = precision(CORE, 12, torch.float32)
    h = torch.randn(12, CORE.num_nodes, 100)
    before, values = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            values.append(ws.Hybrid(inner=ws.Direct()).prepare(J)(h).value)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*values)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 30), st.integers(0, 150), st.integers(0, 1000), st.integers(1, 6))
def test_any_graph(n, count, seed, max_degree):
    J = precision(graph_of(random_pairs(n, count, seed), n), 2, margin=0.5)
    h = torch.randn(2, n, 3, dtype=torch.float64)
    solution = ws.Hybrid(max_degree).prepare(J)(h).check()
    torch.testing.assert_close(solution.value, dense_solve(J, h), rtol=1e-9, atol=1e-9)


def test_why_the_core_has_no_solution_is_told():
    J = precision(CORE, margin=1.0)
    inner = ws.GaBP(damping=1.0, schedule="sequential")
    weak = ws.Precision(CORE, J.diag * 0.6, J.off)  # its core is not walk-summable
    solution = ws.Hybrid(2, inner).prepare(weak)(torch.ones(1, 320, 2, dtype=torch.float64))
    assert solution.status is ws.Status.diverged
