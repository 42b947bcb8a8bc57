"""The GPU solvers against float64 dense solves: on a GPU, or through Triton's interpreter without one."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")

import walksum
from walksum import CG, GaBP, Precision, Status
from walksum.backends.cuda.columns import settings
from walksum.backends.cuda.triton import cg, gabp, matrix
from walksum.backends.cuda.triton.plan import Tile, feature_width
from walksum.graph import Graph
from walksum.solvers.cg import cuda as cuda_cg
from walksum.solvers.cg.cuda import PreparedCudaCG
from walksum.solvers.cg.cuda_columns import columns_fit
from walksum.solvers.gabp import cuda as cuda_gabp
from walksum.solvers.gabp.cuda import PreparedCudaGaBP
from walksum.solvers.gabp.solver import PreparedGaBP

# the interpreter computes with numpy, which warns of the NaN and infinity that some tests feed in
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture
def device(triton_device, monkeypatch):
    if triton_device == "cpu":  # where a launch costs more than a look
        monkeypatch.setattr(cuda_cg, "STEPS_AHEAD", 4)
        monkeypatch.setattr(cuda_gabp, "ROUND", 4)
        monkeypatch.setattr(matrix, "spmm_tile", many_rows)  # the interpreter takes its time for every program
    return triton_device


def many_rows(num_features, num_rows=0):
    return Tile(edges=8, rows=8, features=feature_width(num_features), warps=4)


def dominant(device, num_nodes=12, num_pairs=30, heads=2, margin=0.3, seed=0):
    """A diagonally dominant, so walk-summable, J."""
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.randint(0, num_nodes, (2, num_pairs), generator=generator)
    graph = Graph.from_edge_index(pairs, num_nodes).to(device)
    off = (2 * torch.rand(heads, graph.num_edges, generator=generator) - 1).to(device)
    i, j = graph.edges
    diag = torch.full((heads, num_nodes), margin, device=device)
    return Precision(graph, diag.index_add(1, i, off.abs()).index_add(1, j, off.abs()), off)


def columns(J, count, seed=1):
    shape = (J.heads, J.num_nodes, count)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(J.device)


def dense_solve(J, h):
    return torch.linalg.solve(J.to_dense().double(), h.double())


def assert_solves(solution, J, h, tol):
    assert solution.status is Status.converged
    mu = dense_solve(J, h)
    error = (solution.value.double() - mu).abs().amax((0, 1)) / mu.abs().amax((0, 1)).clamp_min(1e-300)
    # J of these tests has a condition number below 100
    assert float(error.max()) <= 100 * tol
    r = h.double() - J.to_dense().double() @ solution.value.double()
    norm = J.to_dense().double().abs().sum(2).amax(1)[:, None]
    scale = norm * solution.value.double().abs().amax(1) + h.double().abs().amax(1)
    true = torch.where(scale == 0, scale, r.abs().amax(1) / scale.clamp_min(1e-300)).max()
    assert float(true) <= tol + 1e-6
    assert abs(solution.residual - float(true)) <= 0.1 * tol + 1e-6


def in_pieces(monkeypatch):
    """Treat the small graphs of these tests as large ones: hubs split, sums in kernels of their own."""
    monkeypatch.setattr(matrix, "FEW", 0)
    monkeypatch.setattr(cg, "FEW", 0)
    monkeypatch.setattr(matrix, "MANY", 2)
    monkeypatch.setattr(cg, "UPDATES", 2)
    monkeypatch.setattr(gabp, "ONE_LAUNCH", -1)
    monkeypatch.setattr(matrix.Matrix.__init__, "__defaults__", (None, 5))
    for name, value in {"HELD": 4, "GROUPS": (2,), "FEWEST": 2048, "MOST": 8}.items():
        monkeypatch.setattr(gabp, name, value)


@pytest.fixture(params=["by columns", "in steps", "in steps with hubs", "in pieces"])
def way(request, monkeypatch, device):
    if request.param != "by columns":
        monkeypatch.setattr(cuda_cg, "column_launch", lambda *about: None)
    elif device == "cpu":
        pytest.skip("tests/backends/test_columns.py does without a GPU")
    if request.param == "in pieces":
        in_pieces(monkeypatch)
    if request.param == "in steps with hubs":
        monkeypatch.setattr(matrix.Matrix.__init__, "__defaults__", (None, 5))
    return request.param


def test_cg(device, way):
    J = dominant(device)
    h = columns(J, 5)
    assert_solves(PreparedCudaCG(J, CG(tol=1e-5))(h), J, h, 1e-5)


def test_cg_without_preconditioner(device):
    J = dominant(device, heads=1)
    h = columns(J, 3)
    assert_solves(PreparedCudaCG(J, CG(preconditioner="none"))(h), J, h, 2e-6)


@pytest.mark.parametrize("leaves", [70, 1100])
def test_cg_with_a_hub(device, leaves):
    ends = torch.stack([torch.zeros(leaves, dtype=torch.long), torch.arange(1, leaves + 1)])
    graph = Graph.from_edge_index(torch.cat([ends, ends[:, :40].roll(1, 1)], 1), leaves + 1).to(device)
    J = Precision(graph, 1.0 + graph.degree, -torch.ones(graph.num_edges, device=device))
    assert columns_fit(graph) == (device == "cuda")
    solution, h = PreparedCudaCG(J, CG())(columns(J, 2)), columns(J, 2)
    assert solution.converged
    torch.testing.assert_close(solution.value.double(), dense_solve(J, h), rtol=1e-5, atol=1e-5)


def test_no_column_fails_silently_beside_one_that_does(device):
    J = dominant(device)
    h = columns(J, 12)
    h[1, 3, 10] = torch.inf
    solution = PreparedCudaCG(J, CG())(h)
    assert solution.status is Status.nonfinite
    assert solution.value[1, :, 10].isnan().all()


def test_buffers_are_shared_by_different_J_but_never_mixed_up(device):
    J = dominant(device)
    other = Precision(J.graph, J.diag + 1, -0.5 * J.off)
    first, second = PreparedCudaCG(J, CG()), PreparedCudaCG(other, CG())
    for seed in range(3 if device == "cuda" else 1):
        h = columns(J, 4, seed)
        one, two = first(h), second(h)
        assert_solves(one, J, h, 2e-6)
        assert_solves(two, other, h, 2e-6)


def test_columns_of_any_size(device, way):
    J = dominant(device)
    h = columns(J, 4)
    h[0, :, 0], h[:, :, 1], h[:, :, 2] = 0, 1e30 * h[:, :, 1], 1e-30 * h[:, :, 2]
    assert_solves(PreparedCudaCG(J, CG())(h), J, h, 2e-6)
    assert_solves(PreparedCudaGaBP(J, GaBP(damping=1))(h), J, h, 1e-6)


@pytest.mark.parametrize("num_nodes", [1, 6])
def test_graphs_without_edges(device, num_nodes):
    J = dominant(device, num_nodes, 0)
    h = columns(J, 2)
    assert_solves(PreparedCudaCG(J, CG())(h), J, h, 2e-6)
    assert_solves(PreparedCudaGaBP(J, GaBP())(h), J, h, 2e-6)


@pytest.mark.parametrize("where", ["h", "diag", "off"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_bad_numbers_are_reported(device, where, bad):
    J = dominant(device)
    h = columns(J, 3)
    diag, off = J.diag.clone(), J.off.clone()
    {"h": h, "diag": diag, "off": off}[where].view(-1)[5] = bad
    J = Precision(J.graph, diag, off)
    assert PreparedCudaCG(J, CG())(h).status is Status.nonfinite
    assert PreparedCudaGaBP(J, GaBP())(h).status is Status.nonfinite


@pytest.mark.parametrize(("prepare", "solver"), [(PreparedCudaCG, CG()), (PreparedCudaGaBP, GaBP(damping=1))])
def test_a_mu_beyond_float32_is_an_overflow(device, prepare, solver):
    J = dominant(device, margin=1.0)
    tiny = Precision(J.graph, 1e-15 * J.diag, 1e-15 * J.off)
    found = prepare(tiny, solver)(1e30 * columns(tiny, 2))
    assert found.status is Status.overflow


def test_indefinite_matrices_are_refuted(device):
    J = dominant(device)
    h = columns(J, 3)
    negative = Precision(J.graph, -J.diag, J.off)
    assert PreparedCudaCG(negative, CG())(h).status is Status.not_positive_definite
    assert PreparedCudaGaBP(negative, GaBP())(h).status is Status.not_positive_definite
    indefinite = Precision(J.graph, 0.1 * J.diag, J.off)
    assert bool((torch.linalg.eigvalsh(indefinite.to_dense()) < 0).any())
    assert PreparedCudaCG(indefinite, CG())(h).status is Status.not_positive_definite


def test_steps_run_out(device):
    J = dominant(device, margin=0.01)
    h = columns(J, 3)
    solution = PreparedCudaCG(J, CG(max_steps=2))(h)
    assert (solution.status, solution.steps) == (Status.max_steps_reached, 2)
    assert solution.residual > 1e-4
    assert PreparedCudaGaBP(J, GaBP(max_steps=4))(h).status is Status.max_steps_reached


def test_an_accuracy_beyond_float32_is_not_claimed(device):
    J = dominant(device, heads=1)
    solution = PreparedCudaCG(J, CG(tol=1e-12, max_steps=300))(columns(J, 2))
    assert solution.status is Status.stalled
    assert 1e-12 < solution.residual < 1e-5


@pytest.mark.parametrize("damping", [1.0, 0.5])
def test_gabp(device, way, damping):
    J = dominant(device, margin=1.0)
    h = columns(J, 3)
    prepared = PreparedCudaGaBP(J, GaBP(damping=damping, tol=1e-5))
    assert_solves(prepared(h), J, h, 1e-5)
    twin = PreparedGaBP(J, GaBP(damping=damping, tol=1e-5))
    assert torch.allclose(prepared.marginal_precision, twin.marginal_precision, rtol=1e-4)


@pytest.mark.parametrize(
    ("before", "residual", "ahead"),
    [
        (math.inf, 1e-2, 10),  # the first look: nothing is known
        (1e-2, 1e-4, 12),  # two digits in ten steps, a little more than two are missing
        (1e-2, 2e-6, 2),  # nearly there
        (1e-2, 0.99e-2, 40),  # slow, but the rate may change
        (1e-3, 1e-2, 10),  # growing
        (1e-2, math.nan, 10),
    ],
)
def test_gabp_looks_when_the_rate_says_it_is_done(before, residual, ahead):
    assert cuda_gabp.steps_ahead(before, residual, 0.9e-6, 10) == ahead


def test_gabp_by_messages_takes_the_steps_of_its_plain_twin(device, way):
    J = dominant(device, margin=1.0)
    h = columns(J, 3)
    solver = GaBP(damping=0.8, tol=1e-4, stop="messages")
    solution, twin = PreparedCudaGaBP(J, solver)(h), PreparedGaBP(J, solver)(h)
    assert (solution.status, solution.steps) == (twin.status, twin.steps)
    assert torch.allclose(solution.value, twin.value, atol=1e-5)


@pytest.mark.parametrize("stop", ["residual", "messages"])
def test_gabp_reports_divergence(device, stop):
    # complete graph: pi has a fixed point from diag^2 = 4 (n - 2) on, but eta shrinks only from diag = n - 1 on
    graph = Graph.from_edge_index(torch.ones(8, 8).nonzero().t(), 8).to(device)
    J = Precision(graph, torch.full((8,), 4.91, device=device), torch.full((28,), -1.0, device=device))
    solution = PreparedCudaGaBP(J, GaBP(damping=1, stop=stop))(columns(J, 2))
    assert solution.status is Status.diverged
    assert solution.steps < 150


@pytest.mark.gpu
@pytest.mark.parametrize("solver", [CG(tol=1e-6), GaBP(damping=1, tol=1e-6)])
def test_gradients_agree_with_float64_on_the_cpu(solver):
    J = dominant("cpu", 40, 120)
    h, weight = columns(J, 6), columns(J, 6, seed=2)

    def gradients(device, dtype, solver):
        diag, off, b = (t.detach().to(device, dtype).requires_grad_() for t in (J.diag, J.off, h))
        mu = walksum.solve(Precision(J.graph.to(device), diag, off), b, solver, on_nonconverged="raise")
        (mu * weight.to(device, dtype)).sum().backward()
        return [t.grad.cpu().double() for t in (diag, off, b)]

    for found, expected in zip(
        gradients("cuda", torch.float32, solver), gradients("cpu", torch.float64, "dense"), strict=True
    ):
        assert float((found - expected).norm() / expected.norm()) < 1e-4


@pytest.mark.gpu
def test_cg_gives_the_same_bits_every_time():
    J = dominant("cuda", 2000, 9000)
    h = columns(J, 16)
    first = PreparedCudaCG(J, CG())(h).value
    for _ in range(3):
        assert torch.equal(PreparedCudaCG(J, CG())(h).value, first)


def assert_fits_and_solves(J, h):
    assert columns_fit(J.graph)
    solution = PreparedCudaCG(J, CG())(h)
    assert solution.converged
    twin = walksum.solve(J.to(torch.float64), h.double(), CG(tol=1e-13), on_nonconverged="raise")
    assert float((solution.value - twin).norm() / twin.norm()) < 1e-6


@pytest.mark.gpu
@pytest.mark.parametrize("num_nodes", [183, 3000, 9000, 20000, 27000])
def test_graphs_of_many_sizes_fit(num_nodes):
    J = dominant("cuda", num_nodes, 4 * num_nodes, heads=2, margin=1.0)
    assert_fits_and_solves(J, columns(J, 9))


@pytest.mark.gpu
@pytest.mark.parametrize("keep", [0, 1, 2])
@pytest.mark.parametrize("cluster", [1, 2, 4])
def test_blocks_that_share_a_column(monkeypatch, cluster, keep):
    if cluster > 1 and torch.cuda.get_device_capability()[0] < settings.HOPPER:
        pytest.skip("no clusters")
    monkeypatch.setattr(settings, "CLUSTER", cluster)
    monkeypatch.setattr(settings, "_levels", lambda *_: 4)
    monkeypatch.setattr(settings, "_able", lambda graph, _, size: replace(settings.setting_for(graph, size), keep=keep))
    J = dominant("cuda", 3000, 12_000, heads=2)
    for h in (columns(J, 5), columns(J, 70)):
        assert_solves(PreparedCudaCG(J, CG())(h), J, h, 2e-6)
        first, *others = (PreparedCudaCG(J, CG())(h).value for _ in range(5))
        assert all(torch.equal(first, other) for other in others)
    h[1, 3, 4] = torch.nan
    outcome = PreparedCudaCG(J, CG()).run_deferred(h)
    assert outcome.read().status is Status.nonfinite
    assert outcome.value.isnan().sum() == J.num_nodes  # of that column alone


@pytest.mark.gpu
def test_a_column_too_large_for_one_block():
    if torch.cuda.get_device_capability()[0] < settings.HOPPER:
        pytest.skip("no clusters")
    J = dominant("cuda", 50_000, 150_000, heads=1, margin=1.0)
    assert_fits_and_solves(J, columns(J, 40))


@pytest.mark.gpu
def test_solves_on_two_streams_at_once_are_not_mixed_up():
    J = dominant("cuda", 3000, 9000, heads=1)
    rights = [columns(J, 64, seed) for seed in range(2)]
    expected = [PreparedCudaCG(J, CG())(h).value for h in rights]
    torch.cuda.synchronize()
    streams, found = [torch.cuda.Stream() for _ in rights], []
    for _ in range(20):
        for stream, h in zip(streams, rights, strict=True):
            with torch.cuda.stream(stream):
                found.append(PreparedCudaCG(J, CG()).run_deferred(h))
    torch.cuda.synchronize()
    for k, outcome in enumerate(found):
        assert outcome.read().status is Status.converged  # from another stream than its own
        assert torch.equal(outcome.value, expected[k % 2])
