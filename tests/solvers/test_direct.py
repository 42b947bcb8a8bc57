"""Direct against the dense float64 solve: every graph of a small gallery, heads, dtypes, widths; and its failures."""

from __future__ import annotations

import math
import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import walksum as ws
from gallery import dense_solve, path, random_graph
from reference import true_residual
from walksum.backends.cpu.ldl import blas
from walksum.backends.cpu.ldl import symbolic as elimination
from walksum.solvers.column_factor import ColumnFactor
from walksum.solvers.factor import Factor

TOL = {torch.float32: 2e-6, torch.float64: 1e-13}


def graph_of(pairs, n):
    return ws.Graph.from_edge_index(torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t(), n)


def random_pairs(n, count, seed=0):
    return torch.randint(0, n, (count, 2), generator=torch.Generator().manual_seed(seed)).tolist()


def grid_pairs(side):
    across = [(r * side + c, r * side + c + 1) for r in range(side) for c in range(side - 1)]
    return across + [(r * side + c, (r + 1) * side + c) for r in range(side - 1) for c in range(side)]


GALLERY = {
    "path": ([(i, i + 1) for i in range(19)], 20),
    "star": ([(7, i) for i in range(40) if i != 7], 40),
    "grid": (grid_pairs(9), 81),
    "complete": ([(i, j) for i in range(12) for j in range(i)], 12),
    "sparse": (random_pairs(200, 350), 200),
    "dense tail": (random_pairs(150, 1200), 150),
    "disconnected": ([*random_pairs(30, 40), (40, 41), (41, 42), (42, 40)], 50),
    "two nodes": ([(0, 1)], 2),
    "one node": ([], 1),
    "no edge": ([], 5),
}


def precision(graph, heads=1, dtype=torch.float64, seed=0, margin=0.1):
    """Random couplings of both signs, diagonally dominant by ``margin``."""
    generator = torch.Generator().manual_seed(seed)
    off = torch.randn(heads, graph.num_edges, generator=generator, dtype=torch.float64)
    i, j = graph.edges
    diag = torch.full((heads, graph.num_nodes), margin, dtype=torch.float64)
    diag = diag.index_add(1, i, off.abs()).index_add(1, j, off.abs())
    return ws.Precision(graph, diag.to(dtype), off.to(dtype))


@pytest.fixture(params=GALLERY)
def graph(request):
    return graph_of(*GALLERY[request.param])


@pytest.mark.parametrize("dtype", TOL)
@pytest.mark.parametrize("heads", [1, 3, 8, 9, 16])
@pytest.mark.parametrize("width", [1, 3, 33, 64])
def test_equals_the_dense_solve(graph, heads, dtype, width):
    J = precision(graph, heads, dtype)
    h = torch.randn(heads, graph.num_nodes, width, dtype=dtype, generator=torch.Generator().manual_seed(1))
    solution = ws.Direct().prepare(J)(h).check()
    mu = dense_solve(J, h)
    assert solution.value.dtype == dtype
    assert solution.steps == 0
    assert (solution.value - mu).abs().max() <= TOL[dtype] * mu.abs().max()
    eps = torch.finfo(dtype).eps
    assert abs(solution.residual - true_residual(J, solution.value, h)) <= 4 * eps


def test_a_non_contiguous_h_and_one_head_without_its_axis():
    J = precision(graph_of(*GALLERY["grid"]), 1, torch.float32)
    h = torch.randn(6, 81).t()
    torch.testing.assert_close(ws.Direct().prepare(J)(h).value, dense_solve(J, h).float()[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["path", "star", "two nodes", "one node"])
def test_a_tree_has_no_fill(name):
    graph = graph_of(*GALLERY[name])
    symbolic = elimination.symbolic(graph)
    assert symbolic.fill == graph.num_nodes - 1


def test_fill_and_operations_are_those_of_the_pattern():
    graph = graph_of(*GALLERY["sparse"])
    symbolic = elimination.symbolic(graph)
    dense = torch.zeros(200, 200, dtype=torch.bool)
    order = torch.from_numpy(symbolic.plan[0]).long()
    position = torch.empty_like(order)
    position[order] = torch.arange(200)
    i, j = position[graph.edges[0]], position[graph.edges[1]]
    dense[i, j] = dense[j, i] = True
    fill, operations = 0, 0
    for k in range(200):
        later = dense[k].nonzero().flatten()
        later = later[later > k]
        dense[later.unsqueeze(1), later] = True
        fill += len(later)
        operations += len(later) * (len(later) + 1) // 2
    assert (symbolic.fill, symbolic.operations) == (fill, operations)
    assert symbolic.fill <= symbolic.size


def test_a_limit_that_is_passed_is_found_early_and_named():
    graph = graph_of(*GALLERY["dense tail"])
    assert elimination.symbolic(graph, 100) is None
    with pytest.raises(ValueError, match=r"max_operations=100.*solver='cg'"):
        ws.Direct(max_operations=100).prepare(precision(graph))
    assert elimination.symbolic(graph).operations > 100
    assert elimination.symbolic(graph, 100) is None
    assert elimination.symbolic(graph) is elimination.symbolic(graph)


def test_hubs_do_not_make_ordering_quadratic():
    leaves = 200_000
    pairs = torch.stack([torch.zeros(leaves, dtype=torch.long), torch.arange(1, leaves + 1)])
    assert elimination.symbolic(ws.Graph.from_edge_index(pairs)).fill == leaves


@pytest.mark.parametrize("heads", [1, 3, 8])
def test_indefinite(heads):
    J = precision(graph_of(*GALLERY["grid"]), heads)
    J.diag[-1, 40] = 0.01
    prepared = ws.Direct().prepare(J)
    solution = prepared(torch.ones(heads, 81, 2, dtype=torch.float64))
    assert solution.status is ws.Status.not_positive_definite
    assert solution.value.isnan().all()
    assert prepared.marginal_variance.isnan().all()
    assert prepared.factor.logdet().isnan().all()


def test_singular_is_not_positive_definite():
    graph = graph_of(*GALLERY["sparse"])
    weights = torch.rand(graph.num_edges, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    i, j = graph.edges
    degree = torch.zeros(200, dtype=torch.float64).index_add(0, i, weights).index_add(0, j, weights)
    J = ws.Precision(graph, degree, -weights)
    assert ws.Direct().prepare(J)(torch.ones(1, 200, 1, dtype=torch.float64)).status is ws.Status.not_positive_definite


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("heads", [1, 3, 8])
@pytest.mark.parametrize("where", ["diag", "off", "h"])
def test_nonfinite(bad, heads, where):
    J = precision(graph_of(*GALLERY["grid"]), heads, torch.float32)
    h = torch.ones(heads, 81, 40)
    {"diag": J.diag, "off": J.off, "h": h}[where].view(-1)[-3] = bad
    solution = ws.Direct().prepare(J)(h)
    assert solution.status is ws.Status.nonfinite
    assert not solution.residual <= 1


def test_float32_stays_accurate_for_bad_condition():
    graph = graph_of(grid_pairs(40), 1600)
    J = precision(graph, 1, torch.float32)
    J = ws.Precision(
        graph, torch.zeros(1600).index_add(0, graph.edges.flatten(), torch.ones(6240)) + 5e-5, -torch.ones(3120)
    )
    assert torch.linalg.cond(J.to_dense()[0].double()) > 1e5
    h = torch.randn(1, 1600, 8, generator=torch.Generator().manual_seed(0))
    mu = dense_solve(J, h)
    assert (ws.Direct().prepare(J)(h).check().value - mu).abs().max() <= 4e-6 * mu.abs().max()


def test_refinement_reaches_the_rounding_of_the_answer():
    J = precision(graph_of(*GALLERY["grid"]), 2, torch.float32, margin=1e-3)
    h = torch.randn(2, 81, 40, generator=torch.Generator().manual_seed(0))
    mu = dense_solve(J, h)
    plain, refined = (ws.Direct(refine=k).prepare(J)(h).check() for k in (0, 1))
    assert (refined.value - mu.float()).abs().max() <= 1.2e-7 * mu.abs().max()
    assert (refined.value - mu).abs().mean() < 0.7 * (plain.value - mu).abs().mean()
    assert refined.residual == pytest.approx(true_residual(J, refined.value, h), abs=2e-7)


def test_tolerance_is_never_overstated():
    J = precision(graph_of(*GALLERY["grid"]), 1, torch.float32)
    solution = ws.Direct(tol=1e-12).prepare(J)(torch.randn(1, 81, 4))
    assert solution.residual > 1e-12
    assert solution.status is ws.Status.stalled


@pytest.mark.parametrize("heads", [1, 3, 8])
@pytest.mark.parametrize("dtype", TOL)
def test_marginal_variance_and_log_determinant(graph, heads, dtype):
    J = precision(graph, heads, dtype)
    prepared, dense = ws.Direct().prepare(J), J.to_dense().double()
    variance = torch.linalg.inv(dense).diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(prepared.marginal_variance.double(), variance, rtol=TOL[dtype] * 10, atol=0)
    torch.testing.assert_close(prepared.factor.logdet().double(), torch.logdet(dense), rtol=1e-6, atol=1e-6)
    assert prepared.marginal_variance.dtype == dtype


@pytest.mark.parametrize("heads", [1, 3, 8])
def test_factor_gives_logdet_selected_inverse_and_samples(graph, heads):
    J = precision(graph, heads)
    factor, inverse = Factor.of(J), torch.linalg.inv(J.to_dense())
    torch.testing.assert_close(factor.logdet(), torch.logdet(J.to_dense()), rtol=1e-10, atol=1e-10)
    diag, off = factor.selected_inverse()
    i, j = graph.edges
    torch.testing.assert_close(diag, inverse.diagonal(dim1=1, dim2=2), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(off, inverse[:, i, j], rtol=1e-9, atol=1e-11)
    half = factor.half_solve(torch.eye(graph.num_nodes, dtype=torch.float64).expand(heads, -1, -1))
    torch.testing.assert_close(half @ half.mT, inverse, rtol=1e-10, atol=1e-11)


LARGE = {"mesh": (grid_pairs(30), 900), "core": (random_pairs(500, 1500), 520)}  # fronts that go to BLAS


@pytest.mark.parametrize("name", LARGE)
def test_large_fronts_give_what_small_ones_do(name):
    graph = graph_of(*LARGE[name])
    J = precision(graph, 2)
    factor, inverse, (i, j) = Factor.of(J), torch.linalg.inv(J.to_dense()), graph.edges
    assert factor.symbolic.room[1] > 40
    torch.testing.assert_close(factor.logdet(), torch.logdet(J.to_dense()), rtol=1e-11, atol=0)
    diag, off = factor.selected_inverse()
    torch.testing.assert_close(diag, inverse.diagonal(dim1=1, dim2=2), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(off, inverse[:, i, j], rtol=1e-8, atol=1e-10)
    for columns in (1, 7, 40):
        h = torch.randn(2, graph.num_nodes, columns, dtype=torch.float64)
        mu, error = factor.solve(h)
        torch.testing.assert_close(mu, inverse @ h, rtol=1e-8, atol=1e-9)
        assert error < 1e-14


@pytest.mark.parametrize("node", range(0, 900, 100))
def test_an_indefinite_front_is_named_wherever_it_is(node):
    J = precision(graph_of(*LARGE["mesh"]))
    J.diag[0, node] *= 0.2
    assert torch.linalg.eigvalsh(J.to_dense()).min() < 0
    assert Factor.of(J).failure is ws.Status.not_positive_definite


@pytest.mark.parametrize("bad", [torch.ones(1, 81, 2), torch.ones(81, 2).double(), torch.ones(1, 80, 2).double()])
def test_a_factor_refuses_values_of_another_shape_or_dtype(bad):
    factor = Factor.of(precision(graph_of(*GALLERY["grid"])))
    for take in (factor.solve, factor.half_solve):
        with pytest.raises(ValueError, match=r"takes torch.float64 \[1, 81, F\]"):
            take(bad)


def test_only_the_memory_of_a_factor_that_is_gone_is_used_again(monkeypatch):
    monkeypatch.setattr("walksum.solvers.factor.LARGE", 1)
    graph = graph_of(*GALLERY["grid"])
    one, two = (Factor.of(precision(graph, seed=seed)) for seed in (0, 1))
    expected = one.logdet().clone()
    assert two.failure is None
    place = two.L.data_ptr()
    assert place != one.L.data_ptr()
    del two
    three = Factor.of(precision(graph, seed=2))
    assert three.failure is None
    assert three.L.data_ptr() == place
    torch.testing.assert_close(three.logdet(), torch.logdet(precision(graph, seed=2).to_dense()))
    assert torch.equal(one.logdet(), expected)
    inverse = torch.linalg.inv(precision(graph, seed=0).to_dense())
    torch.testing.assert_close(one.selected_inverse()[0], inverse.diagonal(dim1=1, dim2=2))


def test_a_graph_without_nodes():
    graph = ws.Graph(torch.empty(2, 0, dtype=torch.long), 0)
    factor = Factor.of(ws.Precision(graph, torch.empty(2, 0), torch.empty(2, 0)))
    assert factor.failure is None
    assert factor.logdet().tolist() == [0, 0]
    assert [part.shape for part in factor.selected_inverse()] == [(2, 0), (2, 0)]


def test_order_of_a_mesh_fills_in_little():
    side = 60
    symbolic = elimination.symbolic(graph_of(grid_pairs(side), side * side))
    assert symbolic.fill < 4 * side**2 * math.log2(side)  # nested dissection proves 31 n log n / 4, practice is below
    assert sorted(symbolic.plan[0]) == list(range(side * side))


def test_factor_of_an_indefinite_matrix_is_named():
    J = precision(graph_of(*GALLERY["grid"]), 2)
    J.diag[-1, 40] = -1.0
    factor = Factor.of(J)
    assert factor.failure is ws.Status.not_positive_definite
    found = factor.logdet(), *factor.selected_inverse(), factor.half_solve(torch.ones(2, 81, 1, dtype=torch.float64))
    assert all(part.isnan().all() for part in found)


@pytest.mark.parametrize("heads", [12, 16])
def test_bits_do_not_depend_on_threads(heads):
    graph = graph_of(random_pairs(1500, 4000), 1500)
    J = precision(graph, heads, torch.float32)
    h = torch.randn(heads, 1500, 40)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 1, 2, 3):
            torch.set_num_threads(threads)
            solution = ws.Direct().prepare(J)(h)
            results.append((solution.value, solution.residual))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(results[0][0], value) and results[0][1] == residual for value, residual in results[1:])


def test_works_after_fork():
    J = precision(graph_of(random_pairs(1500, 6000), 1500), 1, torch.float32)
    h = torch.ones(1, 1500, 200)
    expected = ws.Direct().prepare(J)(h).value
    child = os.fork()
    if child == 0:
        same = (ws.Direct().prepare(J)(h).value.numpy() == expected.numpy()).all()  # torch's own threads hang here
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_half_precision_is_refused():
    J = precision(graph_of(*GALLERY["path"]), 1, torch.bfloat16)
    with pytest.raises(ValueError, match=r"bfloat16.*use J.to"):
        ws.Direct().prepare(J)


@st.composite
def graphs(draw):
    n = draw(st.integers(1, 40))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=120))
    return graph_of(pairs, n)


@settings(max_examples=60, deadline=None)
@given(graphs(), st.sampled_from([1, 2]), st.integers(1, 40))
def test_any_graph(graph, heads, width):
    J = precision(graph, heads)
    h = torch.randn(heads, graph.num_nodes, width, dtype=torch.float64)
    solution = ws.Direct().prepare(J)(h).check()
    torch.testing.assert_close(solution.value, dense_solve(J, h), rtol=1e-10, atol=1e-10)


def test_hubs_that_share_their_leaves_are_eliminated_last():
    leaves, hubs = 20_000, 3
    pairs = torch.cartesian_prod(torch.arange(hubs), torch.arange(hubs, hubs + leaves)).t()
    graph = ws.Graph.from_edge_index(pairs)
    symbolic = elimination.symbolic(graph, 1e6)
    assert set(symbolic.plan[0][-hubs:]) == set(range(hubs))
    assert symbolic.fill == leaves * hubs + hubs * (hubs - 1) // 2
    plan = ws.Hybrid().plan(graph)  # which ends its search early
    assert 0 < plan.eliminated < plan.eliminated + plan.core_nodes == graph.num_nodes


@pytest.mark.parametrize("name", ["sparse", "disconnected", "no edge"])
@pytest.mark.parametrize("heads", [1, 3, 8])
@pytest.mark.parametrize("columns", [5, 8, 16, 64])
def test_gradients_of_whole_blocks_equal_those_of_a_dense_solve(name, heads, columns):
    J = precision(graph_of(*GALLERY[name]), heads)
    h = torch.randn(heads, J.num_nodes, columns, dtype=torch.float64)
    grad = torch.randn_like(h)
    ours, dense = ([t.clone().requires_grad_() for t in (J.diag, J.off, h)] for _ in range(2))
    ws.solve(ws.Precision(J.graph, *ours[:2]), ours[2], solver="direct").backward(grad)
    torch.linalg.solve(ws.Precision(J.graph, *dense[:2]).to_dense(), dense[2]).backward(grad)
    for a, b in zip(ours, dense, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-9, atol=1e-9)


def test_backward_reports_its_own_residual():
    J = precision(graph_of(*GALLERY["sparse"]), 1, torch.float32)
    h, seen = torch.randn(1, J.num_nodes, 16, requires_grad=True), []
    learned = ws.Precision(J.graph, J.diag.clone().requires_grad_(), J.off)
    ws.solve(learned, h, solver=ws.Direct(tol=1e-12), observe=seen.append, on_nonconverged="ignore").sum().backward()
    forward, backward = seen
    assert (forward.direction, backward.direction) == ("forward", "backward")
    assert backward.status is ws.Status.stalled
    assert backward.residual == pytest.approx(true_residual(J, backward.value, torch.ones_like(h)), abs=2e-7)


BY_COLUMNS = {name: GALLERY[name] for name in ("sparse", "grid", "star")} | {
    "full tail": ([(i, j) for i in range(60) for j in range(i)] + [(59, 60), (60, 61)], 62),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("heads", "columns"), [(1, 5), (3, 8), (8, 8), (8, 3), (16, 9), (17, 16)])
@pytest.mark.parametrize("name", BY_COLUMNS)
def test_elimination_by_columns_gives_what_supernodes_give(name, heads, columns, dtype):
    J = precision(graph_of(*BY_COLUMNS[name]), heads, dtype)
    h = torch.randn(heads, J.num_nodes, columns, dtype=dtype, generator=torch.Generator().manual_seed(1))
    prepared, supernodes = ws.Direct().prepare(J), Factor.of(J)
    assert isinstance(prepared.factor, ColumnFactor)
    found, expected = prepared(h), dense_solve(J, h)
    assert found.converged
    assert (found.value - expected).abs().max() <= 50 * TOL[dtype] * expected.abs().max()
    assert torch.allclose(prepared.factor.logdet().double(), supernodes.logdet(), rtol=1e-6)


@pytest.mark.parametrize("heads", [1, 8])
@pytest.mark.parametrize("node", [0, 30, 61])
@pytest.mark.parametrize(("value", "status"), [(-1.0, "not_positive_definite"), (math.nan, "nonfinite")])
def test_elimination_by_columns_names_its_failures(heads, node, value, status):
    J = precision(graph_of(*BY_COLUMNS["full tail"]), heads)
    J.diag[heads - 1, node] = value
    prepared = ws.Direct().prepare(J)
    assert isinstance(prepared.factor, ColumnFactor)
    assert prepared(torch.ones(heads, 62, 2, dtype=torch.float64)).status is ws.Status[status]
    assert prepared.factor.logdet().isnan().all()


def test_full_columns_at_the_end_are_found():
    full, star = (elimination.all_columns(graph_of(*BY_COLUMNS[name])) for name in ("full tail", "star"))
    assert (full.tail, full.num_nodes) == (2, 62)
    assert star.tail == star.num_nodes


def test_blas_has_its_threads_back_after_small_fronts():
    set_threads = blas._thread_setter()
    if set_threads is None:
        pytest.skip("scipy's BLAS is not OpenBLAS")
    before = set_threads(2)
    try:
        with blas.threads_for(10), blas.threads_for(20):
            assert set_threads(1) == 1
        assert set_threads(2) == 2
        with blas.threads_for(blas.LARGE_FRONT):
            assert set_threads(2) == 2
    finally:
        set_threads(before)


@pytest.mark.parametrize("heads", [1, 3])
def test_almost_full_columns_at_the_end_are_a_dense_triangle(heads):
    graph = graph_of(random_pairs(160, 480), 160)
    pattern = elimination.all_columns(graph)
    last = pattern.num_nodes - pattern.tail
    assert 0 < last < pattern.num_nodes
    assert pattern.plan[1][-1] - pattern.plan[1][pattern.tail] < last * (last - 1) // 2  # with zeros in between
    J = ws.designs.LearnedLaplacian(4, heads)(graph, torch.randn(160, 4)).detach().to(torch.float64)
    h = torch.randn(heads, 160, 5, dtype=torch.float64)
    factor = ColumnFactor(J, pattern)
    torch.testing.assert_close(factor.solve(h)[0], torch.linalg.solve(J.to_dense(), h), rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(factor.logdet(), torch.logdet(J.to_dense()), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("first", ["solve", "logdet"])
def test_a_factor_is_made_by_whatever_is_asked_first(first, threads):
    J = ws.designs.FixedDiagonallyDominant()(graph_of(grid_pairs(9), 81)).to(torch.float64)
    h, before = torch.randn(1, 81, 8, dtype=torch.float64), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        factor = ColumnFactor(J, elimination.all_columns(J.graph))
        for name in (first, "solve", "logdet"):
            found = factor.solve(h)[0] if name == "solve" else factor.logdet()
            true = torch.linalg.solve(J.to_dense(), h) if name == "solve" else torch.logdet(J.to_dense())
            torch.testing.assert_close(found, true, rtol=1e-11, atol=1e-11)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("solver", [ws.Direct(), ws.Dense(), ws.Inverse()], ids=lambda solver: type(solver).__name__)
@pytest.mark.parametrize("heads", [1, 8])
@pytest.mark.parametrize("edges", [900, 3000])
def test_a_laplacian_is_singular_however_its_pivots_are_rounded(edges, heads, solver):
    for seed in range(15):
        graph = random_graph(300, edges, seed)
        generator = torch.Generator().manual_seed(seed)
        weight = torch.rand(heads, graph.num_edges, dtype=torch.double, generator=generator) + 0.01
        alone = (graph.degree == 0).double().expand(heads, -1)
        diag = alone.index_add(1, graph.edges.flatten(), weight.repeat(1, 2))
        found = solver.prepare(ws.Precision(graph, diag, -weight))(torch.ones(heads, 300, 1).double())
        assert found.status is ws.Status.not_positive_definite


@pytest.mark.parametrize("nodes", [50, 2000, 40_000])
def test_a_condition_number_of_1e12_is_solved(nodes):
    graph = path(nodes)
    J = ws.Precision(graph, graph.degree.double() + 4e-12, -torch.ones(nodes - 1).double())
    assert ws.Direct().prepare(J)(torch.ones(nodes, 1).double()).converged
