"""The CPU kernels as plain Python (``tests/plain_kernels.py``): the same answers, and nothing read or written outside.

Compiled, a kernel that reads behind its array gives some number; here that is an IndexError.
"""

from __future__ import annotations

import os
import subprocess
import sys
from math import nan
from pathlib import Path

import pytest
import torch

import walksum as ws
from gallery import DESIGNS, complete, grid, islands, make_design, random_graph, star
from walksum.backends.cpu.ldl import multifrontal, selected_inverse, symbolic
from walksum.distributed.partition import fennel
from walksum.solvers.column_factor import ColumnFactor
from walksum.solvers.factor import Factor

TESTS = Path(__file__).parent.parent
plain = pytest.mark.skipif("plain_kernels" not in sys.modules, reason="pytest -p plain_kernels")


@pytest.mark.slow
def test_the_kernels_pass_as_plain_python():
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    files = [
        __file__,
        *(TESTS / name for name in ("backends/test_cpu.py", "designs/test_fused.py", "nn/test_dropout.py")),
    ]
    chosen = "not same_bits and not announced and not test_the_kernels"  # large, or about compiling itself
    command = [sys.executable, "-m", "pytest", "-p", "plain_kernels", "-p", "no:cacheprovider", "-k", chosen, *files]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=TESTS.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout or "100%" in done.stdout


def two_cliques(size, shared):
    """Two complete graphs that share some nodes, and one node that hangs on them: fronts with rows below pivots."""
    first, n = torch.combinations(torch.arange(size)).T, 2 * size - shared
    return ws.Graph.from_edge_index(
        torch.cat([first, first + size - shared, torch.tensor([[0], [n]])], 1), num_nodes=n + 1
    )


GRAPHS = {
    "grid": grid(4, 4),
    "star": star(9),
    "islands": islands(),
    "random": random_graph(14, 30),
    "cliques": two_cliques(6, 3),
    "edgeless": ws.Graph.from_edge_index(torch.empty(2, 0, dtype=torch.long), 3),
}
SOLVERS = {
    "direct": ws.Direct(),
    "hybrid": ws.Hybrid(max_degree=2),
    "cg": ws.CG(),
    "gabp": ws.GaBP(tol=1e-10, max_steps=300),
    "gabp sequential": ws.GaBP(tol=1e-10, max_steps=300, schedule="sequential"),
    "chebyshev": ws.Chebyshev(),
}


def dominant(graph, heads, dtype=torch.float64, margin=1.0):
    generator = torch.Generator().manual_seed(0)
    off = torch.randn(heads, graph.num_edges, generator=generator, dtype=torch.float64)
    i, j = graph.edges
    diag = torch.full((heads, graph.num_nodes), margin, dtype=torch.float64)
    return ws.Precision(graph, diag.index_add(1, i, off.abs()).index_add(1, j, off.abs()).to(dtype), off.to(dtype))


@plain
@pytest.mark.parametrize(
    ("solver", "heads", "columns"),
    [("direct", 1, 1), ("direct", 3, 9), ("direct", 8, 8), ("direct", 9, 3), *((name, 2, 9) for name in SOLVERS)],
)
@pytest.mark.parametrize("graph", GRAPHS)
def test_solves_and_gradients_equal_the_dense_ones(solver, graph, heads, columns):
    J = dominant(GRAPHS[graph], heads)
    h = torch.randn(heads, J.num_nodes, columns, dtype=torch.float64)
    ours, dense = ([t.clone().requires_grad_() for t in (J.diag, J.off, h)] for _ in range(2))
    mu = ws.solve(ws.Precision(J.graph, *ours[:2]), ours[2], SOLVERS[solver], on_nonconverged="raise")
    true = torch.linalg.solve(ws.Precision(J.graph, *dense[:2]).to_dense(), dense[2])
    torch.testing.assert_close(mu, true, rtol=1e-8, atol=1e-8)
    weight = torch.randn_like(h)
    for found, expected in zip(
        torch.autograd.grad((weight * mu).sum(), ours), torch.autograd.grad((weight * true).sum(), dense), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-7)


@plain
@pytest.mark.parametrize(("value", "status"), [(None, ""), (-9.0, "not_positive_definite"), (nan, "nonfinite")])
def test_last_columns_as_a_dense_triangle(value, status, monkeypatch):
    monkeypatch.setattr(symbolic, "DENSE_CALL", -1e6)  # small ones, too
    graph = complete(11)
    J = dominant(graph, 1)  # several heads are factorised side by side, without a triangle
    if value is not None:
        J.diag[0, 4] = value
    h = torch.randn(1, 11, 3, dtype=torch.float64)
    assert symbolic.all_columns(graph).tail < 11
    factor = ColumnFactor(J, symbolic.all_columns(graph))
    found = factor.solve(h)[0]
    if value is None:
        torch.testing.assert_close(found, torch.linalg.solve(J.to_dense(), h))
        torch.testing.assert_close(factor.logdet(), torch.logdet(J.to_dense()))
    else:
        assert factor.failure is ws.Status[status]


@plain
@pytest.mark.parametrize("solver", SOLVERS)
def test_float32(solver):
    J = dominant(GRAPHS["random"], 8, torch.float32)
    h, near = torch.randn(8, 14, 8), SOLVERS[solver] if "gabp" not in solver else ws.GaBP()
    torch.testing.assert_close(ws.solve(J, h, near), torch.linalg.solve(J.to_dense(), h), rtol=1e-4, atol=1e-4)


@plain
@pytest.mark.parametrize("small", [0, 4096])
@pytest.mark.parametrize("graph", GRAPHS)
def test_supernodes(graph, small, monkeypatch):
    for module in (multifrontal, selected_inverse):
        monkeypatch.setattr(module, "SMALL", small)  # 0: every front goes to BLAS
    graph, heads = GRAPHS[graph], 2
    J = dominant(graph, heads)
    factor, inverse, (i, j) = Factor.of(J), torch.linalg.inv(J.to_dense()), graph.edges
    diag, off = factor.selected_inverse()
    torch.testing.assert_close(diag, inverse.diagonal(dim1=1, dim2=2))
    torch.testing.assert_close(off, inverse[:, i, j], rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(factor.logdet(), torch.logdet(J.to_dense()))
    half = factor.half_solve(torch.eye(graph.num_nodes, dtype=torch.float64).expand(heads, -1, -1))
    torch.testing.assert_close(half @ half.mT, inverse, rtol=1e-9, atol=1e-11)
    h = torch.randn(heads, graph.num_nodes, 9, dtype=torch.float64)
    torch.testing.assert_close(factor.solve(h)[0], inverse @ h, rtol=1e-9, atol=1e-11)


@plain
@pytest.mark.parametrize("heads", [1, 8])
@pytest.mark.parametrize("small", [0, 4096])
@pytest.mark.parametrize("graph", ["grid", "cliques"])
@pytest.mark.parametrize(("value", "status"), [(-1.0, "not_positive_definite"), (nan, "nonfinite")])
def test_failures_are_named(graph, small, heads, value, status, monkeypatch):
    monkeypatch.setattr(multifrontal, "SMALL", small)
    J = dominant(GRAPHS[graph], heads)
    J.diag[-1, 7] = value
    for solver in ("direct", "hybrid", "cg", "gabp sequential"):
        found = SOLVERS[solver].prepare(J)(torch.ones(heads, J.num_nodes, 2, dtype=torch.float64))
        assert not found.converged
        if solver == "direct":
            assert found.status is ws.Status[status]
    assert Factor.of(J).failure is ws.Status[status]


@plain
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_designs(design, dtype):
    """With zero features too: a node without a direction has cosine 0."""
    module = make_design(design, 2).to(dtype)
    x, h = torch.randn(14, 5, dtype=dtype), torch.randn(2, 14, 2, dtype=dtype)
    h[:, 3] = 0
    J = module(GRAPHS["random"], x, h)
    assert bool(torch.isfinite(J.diag).all() & torch.isfinite(J.off).all())
    assert J.walk_summability()[1] < 1 + 1e-6


@plain
def test_a_streaming_partition():
    A = GRAPHS["grid"].to_scipy()
    part = fennel(A.indptr, A.indices, torch.arange(16).numpy(), 3, 6, 2)
    assert sorted(set(part.tolist())) == [0, 1, 2]
    assert max((part == k).sum() for k in range(3)) <= 6
