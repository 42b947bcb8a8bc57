import numpy as np
import pytest
import torch

from gallery import DESIGNS, cycle, dense_solve, islands, problem, random_graph
from walksum.analysis.inverse import walk_sums


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("graph", [cycle(6), islands()], ids=["cycle", "islands"])
def test_the_sums_approach_the_solution(design, graph):
    J, h = problem(graph, design, heads=2)
    rate = J.walk_summability()[1]
    sums, exact = walk_sums(J, h, 40), dense_solve(J, h)
    errors = (sums - exact).flatten(1).norm(dim=1)
    assert float(errors[-1]) <= 10 * rate**40 * float(errors[0]) + 1e-12
    assert bool((errors[1:] <= errors[:-1] * 2 + 1e-12).all())


def test_each_sum_is_the_polynomial_of_the_dense_matrix():
    J, h = problem(random_graph(9, 20), "learned diagonally dominant", heads=2)
    dense = J.to_dense()
    root = dense.diagonal(dim1=1, dim2=2).sqrt()
    R = torch.eye(9) - dense / root.unsqueeze(1) / root.unsqueeze(2)
    expected = sum(torch.linalg.matrix_power(R, k) for k in range(4)) @ (h / root.unsqueeze(2)) / root.unsqueeze(2)
    np.testing.assert_allclose(walk_sums(J, h, 3)[-1], expected, atol=1e-12)


def test_no_walk_is_each_node_alone():
    J, h = problem(cycle(5), "fixed laplacian", heads=1)
    sums = walk_sums(J, h[0], 0)
    assert sums.shape == (1, 1, 5, 2)
    np.testing.assert_allclose(sums[0], h / J.diag.unsqueeze(-1))
