"""The script for the largest graphs, on a small one."""

import torch

import walksum as ws
from benchmarks import large_gpu


def test_neighbour_lists_in_buckets_solve_like_the_library(monkeypatch):
    monkeypatch.setattr(large_gpu, "SLOTS", 37)
    monkeypatch.setattr(large_gpu, "DRAWN", 50)
    pairs = torch.randint(100, (2, 400), dtype=torch.int32)
    A = large_gpu.Adjacency(pairs, 101)  # the last node has no edges
    graph = ws.Graph.from_edge_index(pairs, 101)
    assert A.num_directed == 2 * graph.num_edges
    assert torch.equal(A.degree, graph.degree)
    h = torch.randn(101, 3, dtype=torch.float64)
    mu, _, error = large_gpu.solve(A, h, 0.9, tol=1e-12)
    assert error <= 1e-12
    expected = ws.solve(ws.FixedLaplacian(0.9)(graph, h), h, ws.CG(tol=1e-13, preconditioner="jacobi"))
    assert torch.allclose(mu, expected, atol=1e-9)
