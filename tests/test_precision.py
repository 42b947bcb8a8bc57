import numpy as np
import pytest
import scipy.sparse as sp
import torch

import walksum as ws
from gallery import DESIGNS, GALLERY, complete, cycle, path, problem, random_graph


@pytest.fixture(params=[1, 3])
def J(request):
    return problem(GALLERY["random"], "learned diagonally dominant", request.param)[0]


def test_keeps_values_in_the_order_of_the_edges():
    graph = path(3)
    J = ws.Precision(graph, torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0, 5.0]))
    assert J.diag.shape == (1, 3)
    assert J.off.shape == (1, 2)
    assert J.to_dense()[0].tolist() == [[1, 4, 0], [4, 2, 5], [0, 5, 3]]


def test_product_is_the_dense_product(J):
    x = torch.randn(J.heads, J.num_nodes, 3, dtype=torch.double)
    torch.testing.assert_close(J @ x, J.to_dense() @ x)


def test_one_head_takes_matrices_and_vectors():
    J, _ = problem(GALLERY["grid"], "fixed laplacian", 1)
    x = torch.randn(J.num_nodes, 3, dtype=torch.double)
    torch.testing.assert_close(J @ x, J.to_dense()[0] @ x)
    torch.testing.assert_close(J @ x[:, 0], J.to_dense()[0] @ x[:, 0])


def test_product_differentiates_twice(J):
    x = torch.randn(J.heads, J.num_nodes, 2, dtype=torch.double, requires_grad=True)
    values = [J.diag.clone().requires_grad_(), J.off.clone().requires_grad_(), x]

    def product(diag, off, x):
        return ws.Precision(J.graph, diag, off) @ x

    assert torch.autograd.gradcheck(product, values)
    assert torch.autograd.gradgradcheck(product, values)


def test_normalised_has_unit_diagonal_and_the_same_correlations(J):
    N = J.normalised()
    assert torch.equal(N.diag, torch.ones_like(J.diag))
    D = torch.diag_embed(J.diag.rsqrt())
    torch.testing.assert_close(N.to_dense(), D @ J.to_dense() @ D)


def test_scipy_is_the_dense_matrix(J):
    np.testing.assert_allclose(J.to_scipy(J.heads - 1).toarray(), J.to_dense()[-1].numpy())
    np.testing.assert_allclose(J.to_scipy().toarray(), torch.block_diag(*J.to_dense()).numpy())


def radius(J: ws.Precision) -> float:
    R = torch.eye(J.num_nodes) - J.normalised().to_dense()
    return float(torch.linalg.eigvalsh(R.abs()).abs().max())


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("name", GALLERY)
def test_walk_summability_interval_contains_the_radius(name, design):
    J, _ = problem(GALLERY[name], design, 2)
    lower, upper = J.walk_summability()
    assert lower <= radius(J) * (1 + 1e-12)
    assert radius(J) <= upper * (1 + 1e-12)
    assert upper - lower <= 2e-3
    assert J.is_walk_summable


@pytest.mark.parametrize("size", [300, 1000])  # both beyond the dense branch
def test_walk_summability_of_larger_graphs(size):
    J, _ = problem(random_graph(size, 3 * size), "fixed laplacian", 1)
    lower, upper = J.walk_summability()
    assert lower <= 0.99 * (1 + 1e-9)
    assert upper * (1 + 1e-12) >= 0.99
    assert upper - lower < 2e-3


def test_the_border_is_found_from_both_sides():
    graph = cycle(6)  # |R| of the unnormalised cycle has radius 2 |off|
    for off, summable in ((0.499, True), (0.501, False)):
        J = ws.Precision(graph, torch.ones(6).double(), torch.full((6,), off, dtype=torch.double))
        assert J.is_walk_summable is summable
        lower, upper = J.walk_summability()
        assert lower <= 2 * off * (1 + 1e-12)
        assert 2 * off <= upper * (1 + 1e-12)


def test_positive_definite_need_not_be_walk_summable():
    J = ws.Precision(complete(4), torch.ones(4).double(), torch.full((6,), 0.4).double())
    assert float(torch.linalg.eigvalsh(J.to_dense()).min()) > 0
    assert not J.is_walk_summable
    assert J.walk_summability()[0] > 1


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_a_matrix_that_cannot_be_normalised_is_not_walk_summable(bad):
    J = ws.Precision(path(3), torch.tensor([1.0, bad, 1.0]), torch.tensor([0.1, 0.1]))
    assert not J.is_walk_summable


def test_moves_and_casts():
    J, _ = problem(GALLERY["path"], "fixed laplacian", 1)
    assert J.to(torch.float32).dtype == torch.float32
    assert J.to("meta").graph.device.type == "meta"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda g: ws.Precision(g, torch.ones(4), torch.ones(2)), r"diag has shape \(1, 4\); expected \[H, 3\]"),
        (lambda g: ws.Precision(g, torch.ones(3), torch.ones(3)), r"off has shape \(1, 3\); expected \[H, 2\]"),
        (lambda g: ws.Precision(g, torch.ones(2, 3), torch.ones(1, 2)), r"2 head\(s\).*with 1; they must agree"),
        (lambda g: ws.Precision(g, torch.ones(3).long(), torch.ones(2)), r"diag has dtype torch.int64"),
        (lambda g: ws.Precision(g, torch.ones(3).double(), torch.ones(2)), r"they must agree"),
        (lambda g: ws.Precision(g, torch.ones(3, device="meta"), torch.ones(2)), r"diag is on meta but the graph"),
        (lambda g: ws.Precision(g, torch.ones(3), torch.ones(2)) @ torch.ones(4, 2), r"takes \[1, 3, F\] or \[3, F\]"),
    ],
)
def test_bad_input_says_what_to_do(make, message):
    with pytest.raises(ValueError, match=message):
        make(path(3))


def sparse_example(dtype=np.float64):
    rows, columns, values = [0, 1, 0, 1, 1, 2, 2, 3], [0, 1, 1, 0, 2, 1, 2, 3], [3, 4, -1, -1, 2, 2, 5, 1]
    return sp.coo_matrix((np.array(values, dtype), (rows, columns)), (4, 4))


@pytest.mark.parametrize("kind", ["bsr", "coo", "csc", "csr", "dia", "dok", "lil", "dense", "csr_array"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.int8])
def test_from_scipy_takes_every_format(kind, dtype):
    matrix = sparse_example(dtype)
    special = {"dense": matrix.toarray(), "csr_array": sp.csr_array(matrix)}
    J = ws.Precision.from_scipy(special[kind] if kind in special else matrix.asformat(kind))
    assert J.dtype == (torch.float32 if dtype == np.float32 else torch.float64)
    assert J.graph.num_edges == 2
    np.testing.assert_array_equal(J.to_scipy(0).toarray(), matrix.toarray())


def test_from_scipy_takes_numbers_of_another_byte_order():
    matrix = sparse_example(np.float32).tocsr()
    swapped = sp.csr_matrix((matrix.data.astype(">f4"), matrix.indices, matrix.indptr), matrix.shape)
    for given in (swapped, matrix.toarray().astype(">f4")):
        J = ws.Precision.from_scipy(given)
        assert J.dtype == torch.float32
        np.testing.assert_array_equal(J.to_scipy(0).toarray(), matrix.toarray())


def damaged(kind, part, value):
    """A matrix one of whose indices was changed after scipy had looked at it."""
    matrix = sparse_example().asformat(kind)
    (matrix.coords[0] if part == "coords" else getattr(matrix, part))[1] = value
    return matrix


def test_entries_of_one_place_are_added_as_numbers_and_not_as_bytes():
    twice = sp.coo_matrix((np.array([200, 200, 1], np.uint8), ([0, 0, 1], [0, 0, 1])), shape=(2, 2))
    assert ws.Precision.from_scipy(twice).diag.tolist() == [[400, 1]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_becomes_float32_in_scipy(dtype):
    J = problem(path(5), "fixed laplacian", 1)[0].to(dtype)
    assert np.array_equal(J.to_scipy(0).toarray(), J.to_dense()[0].float())
    assert J.is_walk_summable


def test_from_scipy_takes_the_rounding_of_a_product():
    factor = sp.random(60, 60, 0.05, random_state=0) + sp.identity(60)
    product = (factor.T @ factor).tocsc()
    product.data *= 1 + 1e-15 * np.arange(product.nnz) / product.nnz
    np.testing.assert_allclose(ws.Precision.from_scipy(product).to_scipy(0).toarray(), product.toarray(), atol=1e-12)
    assert ws.Precision.from_scipy(sp.csr_matrix((0, 0))).num_nodes == 0


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (sp.triu(sparse_example()), r"not symmetric: \[0, 1\] is -1 and \[1, 0\] is 0; of one triangle"),
        (sparse_example().astype(complex), r"dtype complex128; expected real"),
        (np.eye(2) + 0j, r"dtype complex128; expected real numbers; use matrix.real"),
        (np.ma.masked_equal(sparse_example().toarray(), 2), r"matrix has 2 masked numbers; leave them out, or fill"),
        (damaged("csr", "indices", 9), r"matrix is a damaged csr matrix: .*; make it anew from its entries"),
        (damaged("csc", "indices", 10**8), r"matrix is a damaged csc matrix"),
        (damaged("csc", "indices", -1), r"matrix is a damaged csc matrix"),
        (damaged("csr", "indptr", 7), r"matrix is a damaged csr matrix"),
        (damaged("bsr", "indices", 9), r"matrix is a damaged bsr matrix"),
        (damaged("coo", "coords", 9), r"matrix is a damaged coo matrix"),
        (np.ones((2, 3)), r"shape \(2, 3\).*expected real numbers \[N, N\]"),
        (sp.diags([1.0, np.nan]), r"NaN"),
        ([[1.0]], r"matrix is a list; expected a scipy sparse matrix"),
        (torch.eye(2), r"matrix is a Tensor; expected a scipy sparse matrix"),
    ],
)
def test_from_scipy_refuses_what_is_no_precision(matrix, message):
    with pytest.raises(ValueError, match=message):
        ws.Precision.from_scipy(matrix)


def test_the_interval_of_a_graph_in_many_equal_pieces_is_the_same_in_every_call():
    first = torch.arange(0, 900, 3)
    paths = torch.cat([torch.stack([first, first + 1]), torch.stack([first + 1, first + 2])], 1)
    J = ws.FixedLaplacian(0.9)(ws.Graph.from_edge_index(paths, 900)).to(torch.float64)
    assert len({ws.Precision(J.graph, J.diag, J.off).walk_summability() for _ in range(3)}) == 1
