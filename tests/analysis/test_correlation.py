import numpy as np
import pytest
import torch

import walksum as ws
from gallery import DESIGNS, grid, path, problem, random_graph
from walksum.analysis import correlation as module
from walksum.analysis.correlation import correlation, coupling, ordered
from walksum.analysis.spectrum import fiedler_order


def twin(J):
    covariance = torch.linalg.inv(J.to_dense().double())
    scale = covariance.diagonal(dim1=1, dim2=2).sqrt()
    return covariance / scale.unsqueeze(1) / scale.unsqueeze(2)


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("graph", [random_graph(30, 60), grid(25, 25)], ids=["dense", "sparse"])
def test_correlation_is_the_normalised_inverse(design, graph):
    J, _ = problem(graph, design, heads=2)
    np.testing.assert_allclose(correlation(J), twin(J), atol=1e-10)
    nodes = torch.tensor([7, 3, 20])
    np.testing.assert_allclose(correlation(J, nodes), twin(J)[:, nodes][:, :, nodes], atol=1e-10)


def test_float32_is_computed_in_float64():
    J = ws.FixedLaplacian()(path(10))
    assert correlation(J).dtype == torch.float64
    np.testing.assert_allclose(correlation(J), twin(J), atol=1e-12)


def test_couplings_are_partial_correlations():
    J, _ = problem(random_graph(12, 30), "learned diagonally dominant", heads=2)
    nodes = torch.arange(12)
    diag = J.to_dense().diagonal(dim1=1, dim2=2).sqrt()
    expected = -J.to_dense() / diag.unsqueeze(1) / diag.unsqueeze(2)
    expected.diagonal(dim1=1, dim2=2).zero_()
    np.testing.assert_allclose(coupling(J, nodes), expected, atol=1e-14)


def test_ordered_by_fiedler_and_averaged_over_heads():
    J, _ = problem(random_graph(30, 60), "learned laplacian", heads=3)
    shown, order = ordered(J), fiedler_order(J.graph)
    assert shown.note == ""
    assert shown.nodes.tolist() == order.tolist()
    np.testing.assert_allclose(shown.matrix, twin(J)[:, order][:, :, order].mean(0), atol=1e-10)
    np.testing.assert_allclose(ordered(J, head=1).matrix, twin(J)[1][order][:, order], atol=1e-10)


def test_of_a_large_graph_some_nodes_are_shown_and_said_to_be(monkeypatch):
    monkeypatch.setattr(module, "SAMPLE", 5)
    J, _ = problem(path(40), "fixed laplacian", heads=1)
    shown = ordered(J, most=20)
    assert shown.matrix.shape == shown.coupling.shape == (5, 5)
    assert shown.note == "5 of 40 nodes, evenly spaced in Fiedler order"
    np.testing.assert_allclose(shown.matrix, twin(J)[0][shown.nodes][:, shown.nodes], atol=1e-10)


def test_wrong_use_is_told():
    J, _ = problem(path(4), "fixed laplacian", heads=1)
    with pytest.raises(ValueError, match=r"head=1; .* has heads 0 to 0"):
        ordered(J, head=1)
    with pytest.raises(ValueError, match=r"nodes=None.*above 3000 nodes"):
        correlation(problem(path(3001), "fixed laplacian", heads=1)[0])
    with pytest.raises(ValueError, match="not positive definite"):
        correlation(ws.Precision(J.graph, J.diag, 9 * J.off))


@pytest.mark.data
def test_fixed_designs_on_wisconsin_have_the_papers_signs():
    """Attractive fixed designs correlate every pair of a connected graph positively; pairwise normal does not."""
    from walksum.data import load

    data = load("wisconsin")
    graph = ws.Graph.from_edge_index(data.edge_index, data.num_nodes)
    x = data.x.double()
    for design, positive in (
        (ws.FixedLaplacian(), True),
        (ws.FixedDiagonallyDominant(), True),
        (ws.FixedPairwiseNormal(), False),
    ):
        shown = ordered(design(graph, x, x.unsqueeze(0)))
        assert bool((shown.matrix > 0).all()) is positive
