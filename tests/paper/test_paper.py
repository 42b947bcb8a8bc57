"""Numbers the paper states, on its data."""

import pytest
import torch

import walksum as ws
from gallery import binary_tree, path, problem


@pytest.fixture(scope="module")
def cora():
    from walksum.data import load

    data = load("cora")
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(data.num_nodes, 4, generator=generator, dtype=torch.double)
    return ws.Graph.from_edge_index(data.edge_index, data.num_nodes), h


PAPER = {"damping": 0.5, "tol": 1e-6, "stop": "messages"}


@pytest.mark.data
def test_fixed_diagonally_dominant_takes_the_papers_number_of_steps(cora):
    graph, h = cora
    solution = ws.GaBP(**PAPER).prepare(ws.FixedDiagonallyDominant()(graph, h=h))(h)
    assert 90 <= solution.steps <= 115


@pytest.mark.data
def test_fixed_laplacian_does_not_converge_in_a_thousand_steps(cora):
    graph, h = cora
    J = ws.FixedLaplacian()(graph, h=h)
    stopped = ws.GaBP(**PAPER).prepare(J)(h)
    assert (stopped.status, stopped.steps) == (ws.Status.max_steps_reached, 1000)
    assert ws.GaBP(**PAPER, max_steps=3000).prepare(J)(h).steps > 1000


@pytest.mark.parametrize(("tree", "diameter"), [(path(9), 8), (binary_tree(15), 6)])
def test_gabp_is_exact_on_a_tree_after_its_diameter(tree, diameter):
    J, h = problem(tree, "fixed diagonally dominant", 1)
    exact = torch.linalg.solve(J.to_dense(), h)
    for steps, good in ((diameter, True), (diameter - 1, False)):
        mu = ws.GaBP(damping=1.0, tol=1e-300, stop="messages", max_steps=steps).prepare(J)(h).value
        assert (float((mu - exact).abs().max()) < 1e-12) is good
