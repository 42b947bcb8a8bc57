"""The script for the largest graphs, on a small one."""

import pytest
import torch

import walksum as ws
from benchmarks import large_gpu
from walksum.graph import csr as neighbour_lists

# kernels of 64 bits are compiled for the CPU by this test alone
DEVICES = [pytest.param("cpu", marks=pytest.mark.slow), pytest.param("cuda", marks=pytest.mark.gpu)]


def test_neighbour_lists_in_buckets_solve_like_the_library(monkeypatch):
    monkeypatch.setattr(large_gpu, "DRAWN", 50)
    pairs = torch.randint(100, (2, 400), dtype=torch.int32)
    A = large_gpu.Adjacency(pairs, 101)  # the last node has no edges
    graph = ws.Graph.from_edge_index(pairs, 101)
    assert A.num_directed == 2 * graph.num_edges
    assert torch.equal(A.degree, graph.degree)
    h = torch.randn(101, 3, dtype=torch.float64)
    mu, _, error = A.solve(h, 0.9, tol=1e-12)
    assert error <= 1e-12
    expected = ws.solve(ws.FixedLaplacian(0.9)(graph, h), h, ws.CG(tol=1e-13, preconditioner="jacobi"))
    assert torch.allclose(mu, expected, atol=1e-9)


@pytest.mark.parametrize("device", DEVICES)
def test_neighbour_lists_of_64_bits_give_the_same_solution(device, monkeypatch):
    pairs = torch.randint(80, (2, 300))
    x = torch.randn(80, 5)

    def solved() -> torch.Tensor:
        graph = ws.Graph.from_edge_index(pairs.to(device), 80)
        torch.manual_seed(0)
        model = ws.GLT(5, 8, 1, 2, dropout=0.0, solver="cg").to(device)
        model(x.to(device), graph).square().sum().backward()
        assert (graph.csr.indices.dtype, graph.csr.indptr.dtype) == (kind, torch.int64)
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    kind = torch.int32
    expected = solved()
    kind = torch.int64  # as from 2^31 directed edges on
    monkeypatch.setattr(neighbour_lists, "index_dtype", lambda largest: torch.int64)
    assert torch.allclose(solved(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
def test_a_direction_in_bfloat16_costs_few_steps_and_no_accuracy(monkeypatch):
    from walksum.solvers.cg import cuda

    graph = large_gpu.graphs.lognormal_on("cuda", 20_000, 400_000)
    J, h, seen = ws.FixedDiagonallyDominant()(graph), torch.randn(20_000, 16, device="cuda"), []
    exact = ws.solve(ws.Precision(graph, J.diag.double(), J.off.double()), h.double(), ws.CG(tol=1e-13))
    errors = []
    for cache in (2**60, 0):
        monkeypatch.setattr(cuda, "CACHE", cache)
        mu = ws.solve(J, h, ws.CG(), observe=seen.append)
        errors.append(float((mu - exact).abs().max() / exact.abs().max()))
    assert seen[0].converged
    assert seen[1].converged
    assert seen[1].steps <= 1.5 * seen[0].steps
    assert errors[1] <= 2 * errors[0]


@pytest.mark.gpu
def test_the_kernels_solve_neighbour_lists_like_plain_torch():
    pairs = torch.randint(3000, (2, 40_000), dtype=torch.int32, device="cuda")
    pairs[0, :2000] = 7  # a hub
    h = torch.randn(3001, 3, device="cuda")
    expected, _, error = large_gpu.Adjacency(pairs, 3001).solve(h, 0.9, tol=1e-6)
    mu, _, kernels_error = large_gpu.solve_by_kernels(large_gpu.Adjacency(pairs, 3001), h.clone(), 0.9, tol=1e-6)
    assert max(error, kernels_error) <= 1e-6
    assert torch.allclose(mu, expected, atol=1e-3)
