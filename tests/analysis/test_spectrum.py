import numpy as np
import pytest
import torch

import walksum as ws
from gallery import GALLERY, binary_tree, grid, islands, path, problem, random_graph
from walksum.analysis.spectrum import (
    classify,
    fiedler_order,
    normalised_adjacency,
    response,
    second_vector,
    spectrum,
)


@pytest.mark.parametrize("name", GALLERY)
def test_normalised_adjacency_is_the_textbook_one(name):
    graph = GALLERY[name]
    A = np.zeros((graph.num_nodes, graph.num_nodes))
    i, j = graph.edges.numpy()
    A[i, j] = A[j, i] = 1
    degree = A.sum(1)
    expected = [
        [A[a, b] / np.sqrt(degree[a] * degree[b]) if A[a, b] else 0 for b in range(len(A))] for a in range(len(A))
    ]
    np.testing.assert_allclose(normalised_adjacency(graph).toarray(), expected, atol=1e-15)


@pytest.mark.parametrize("name", GALLERY)
def test_spectrum_takes_the_adjacency_apart(name):
    graph = GALLERY[name]
    axes = spectrum(graph)
    again = axes.vectors @ torch.diag(axes.values) @ axes.vectors.T
    np.testing.assert_allclose(again, normalised_adjacency(graph).toarray(), atol=1e-12)
    assert bool((axes.values.diff() <= 0).all())
    assert spectrum(graph) is axes


def test_the_order_is_that_of_the_second_eigenvector():
    graph = ws.Graph.from_edge_index(torch.cat([random_graph(20, 40).edges, path(20).edges], 1), 20)
    L = torch.eye(20, dtype=torch.double) - torch.from_numpy(normalised_adjacency(graph).toarray())
    second = torch.linalg.eigh(L).eigenvectors[:, 1].argsort().tolist()
    assert fiedler_order(graph).tolist() in (second, second[::-1])


def test_a_path_is_ordered_from_side_to_side():
    shuffled = torch.randperm(30)
    graph = ws.Graph.from_edge_index(shuffled[path(30).edges], 30)
    order = fiedler_order(graph).tolist()
    assert {*order[:15]} in ({*shuffled[:15].tolist()}, {*shuffled[15:].tolist()})


def test_two_cliques_stay_together():
    pairs = (
        [(a, b) for a in range(6) for b in range(a)] + [(a, b) for a in range(6, 12) for b in range(6, a)] + [(0, 6)]
    )
    graph = ws.Graph.from_edge_index(torch.tensor(pairs).t(), 12)
    assert {*fiedler_order(graph)[:6].tolist()} in ({*range(6)}, {*range(6, 12)})


def test_pieces_by_size_and_nodes_without_edges_last():
    order = fiedler_order(islands()).tolist()
    assert sorted(order) == [*range(7)]
    assert ({*order[:3]}, {*order[3:5]}, order[5:]) == ({0, 1, 2}, {4, 5}, [3, 6])


@pytest.mark.parametrize("count", [0, 1, 3])
def test_graphs_without_edges_have_an_order(count):
    graph = ws.Graph(torch.empty(2, 0, dtype=torch.long), count)
    assert fiedler_order(graph).tolist() == [*range(count)]


def test_leaves_of_one_node_keep_their_numbers_order():
    order = fiedler_order(binary_tree(7)).tolist()
    assert order.index(3) < order.index(4)
    assert order.index(5) < order.index(6)


def test_the_sparse_second_vector_is_the_dense_one():
    A = normalised_adjacency(grid(15, 30))
    dense = np.linalg.eigh(A.toarray())[1][:, -2]
    assert abs(second_vector(A) @ dense) == pytest.approx(1, abs=1e-8)


@pytest.mark.parametrize(("scale", "sign"), [(0.99, "attractive"), (0.5, "attractive"), (0.99, "repulsive")])
def test_fixed_laplacian_answers_by_its_formula(scale, sign):
    graph = random_graph(20, 50)
    J = ws.FixedLaplacian(scale, sign)(graph, h=torch.zeros(1, dtype=torch.double))
    found = response(J)
    s = scale if sign == "attractive" else -scale
    np.testing.assert_allclose(found.gain[0], 1 / (1 - s * found.eigenvalues), rtol=1e-10)
    assert found.diagonal
    assert float(found.spread.max()) < 1e-9
    assert found.kind == ("low-pass" if s > 0 else "high-pass")


@pytest.mark.parametrize("design", ["fixed pairwise normal", "learned diagonally dominant", "learned laplacian"])
def test_response_is_rayleighs_quotient_of_the_dense_inverse(design):
    J, _ = problem(random_graph(12, 30), design, heads=2)
    found, axes = response(J), spectrum(J.graph)
    for head, inverse in enumerate(torch.linalg.inv(J.to_dense())):
        for k, u in enumerate(axes.vectors.T):
            gain = u @ inverse @ u
            assert float(found.gain[head, k]) == pytest.approx(float(gain))
            assert float(found.spread[head, k]) == pytest.approx(float((inverse @ u - gain * u).norm()), abs=1e-10)
    assert not found.diagonal


def test_filters_by_name():
    values = torch.linspace(1, -1, 41)
    assert classify(values, 1 / (1 - 0.9 * values)) == "low-pass"
    assert classify(values, 1 / (1 + 0.9 * values)) == "high-pass"
    assert classify(values, torch.exp(-8 * values**2)) == "band-pass"
    assert classify(values, values**2 + 0.1) == "band-stop"
    assert classify(values, torch.ones(41)) == "flat"
    assert classify(torch.zeros(3), torch.ones(3)) == "flat"


def test_a_spectrum_too_large_says_what_to_do():
    graph = path(3001)
    with pytest.raises(ValueError, match=r"more than 3000 nodes.*ball"):
        spectrum(graph)
