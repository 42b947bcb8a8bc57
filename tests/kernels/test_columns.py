"""columns.cu without a GPU: the host's compiler and threads in place of a block. On a GPU: solvers/test_cuda.py."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

import walksum as ws
from walksum.kernels.column_deal import LONG, column_deal
from walksum.solvers.cuda_columns import threads_for
from walksum.solvers.verdict import INDEFINITE, NONFINITE, REPORT, STALLED

COMPILER = shutil.which("g++") or shutil.which("c++")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
HERE, SOURCE = Path(__file__).parent, Path(ws.__file__).parent / "kernels" / "columns.cu"
THREADS = 64
VERIFIED, EXHAUSTED = 2, 5
WRAPPER = """
extern "C" void solve(float *values, float *pivot, float *h, float *out, float *report, int *order,
                      unsigned short *index, int *long_start, int *slice_start, int *numbers, float *limits,
                      int heads) {
    run_blocks(numbers[2], heads, THREADS, [=] {
        solve_columns(values, pivot, h, out, report, order, index, long_start, slice_start, numbers[0], numbers[1],
                      numbers[2], numbers[3], numbers[4], numbers[5], numbers[6], limits[0], limits[1]);
    });
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    built = {}

    def of(rows):
        if rows not in built:
            folder = tmp_path_factory.mktemp(f"rows{rows}")
            defined = f"#define THREADS {THREADS}\n#define ROWS {rows}\n"
            text = defined + (HERE / "cuda_on_host.h").read_text() + SOURCE.read_text() + WRAPPER
            (folder / "columns.cpp").write_text(text)
            options = ["-std=c++20", "-O1", "-pthread", "-shared", "-fPIC", "-w"]
            command = [COMPILER, *options, "-o", str(folder / "columns.so"), str(folder / "columns.cpp")]
            subprocess.run(command, check=True, capture_output=True)
            built[rows] = ctypes.CDLL(str(folder / "columns.so"))
        return built[rows]

    return of


def solve(library, J, h, tol=2e-6, aim=2**-28, max_steps=500, jacobi=True):
    deal = column_deal(J.graph, THREADS // 32)
    edge, order = deal.edge[: deal.num_slots].long(), deal.order.long()
    values = torch.where(edge >= 0, J.off[:, edge.clamp(min=0)], 0.0).contiguous()
    pivot = torch.where(order >= 0, J.diag[:, order.clamp(min=0)], 1.0).contiguous()
    mu, report = torch.zeros_like(h), torch.zeros(REPORT, h.size(0), h.size(2))
    sizes = (J.num_nodes, deal.places, h.size(2), deal.num_long, deal.num_slots, int(jacobi), max_steps)
    numbers = np.array(sizes, np.int32)
    limits = np.array([tol, aim], np.float32)
    tensors = (values, pivot, h, mu, report, deal.order, deal.index, deal.long_start, deal.slice_start)
    places = [ctypes.c_void_p(t.data_ptr()) for t in tensors]
    places += [ctypes.c_void_p(a.ctypes.data) for a in (numbers, limits)]
    library(-(-deal.places // THREADS)).solve(*places, h.size(0))
    return mu, report


def problem(nodes=70, edges=150, heads=2, columns=3, seed=0, hub=True):
    random = torch.Generator().manual_seed(seed)
    ends = torch.randint(0, nodes, (2, edges), generator=random)
    if hub:  # longer than LONG, and longer than a warp
        ends = torch.cat([ends, torch.stack([torch.zeros(40, dtype=torch.long), torch.arange(1, 41)])], 1)
    graph = ws.Graph.from_edge_index(ends, nodes)
    off = torch.rand(heads, graph.num_edges, generator=random) - 0.5
    J = ws.Precision(graph, torch.ones(heads, nodes), off)
    around = J.to_dense().abs().sum(-1) - 1
    J = ws.Precision(graph, around + 0.3 + torch.rand(heads, nodes, generator=random), off)
    return J, torch.randn(heads, nodes, columns, generator=random)


def exact(J, h):
    return torch.linalg.solve(J.to_dense().double(), h.double())


def relative(mu, truth):
    return float((mu.double() - truth).norm() / truth.norm())


@needs_compiler
@pytest.mark.parametrize("jacobi", [True, False])
def test_equals_the_dense_twin(library, jacobi):
    J, h = problem()
    assert int(J.graph.degree.max()) > LONG
    mu, report = solve(library, J, h, jacobi=jacobi)
    assert (report[0] == VERIFIED).all()
    assert relative(mu, exact(J, h)) < 1e-6
    residual = (h - J.to_dense() @ mu).abs().amax(1) / (
        J.to_dense().abs().sum(-1).amax(1, keepdim=True) * mu.abs().amax(1)
    )
    assert (report[2] < 2e-6).all()
    assert residual.max() < 1e-5


@needs_compiler
@pytest.mark.parametrize("nodes", [1, 2, 31, 33, 130])
def test_any_number_of_nodes(library, nodes):
    J, h = problem(nodes, 2 * nodes, hub=False)
    mu, report = solve(library, J, h)
    assert (report[0] == VERIFIED).all()
    assert relative(mu, exact(J, h)) < 1e-6


@needs_compiler
def test_no_edges_at_all(library):
    J = ws.Precision(ws.Graph(torch.zeros(2, 0, dtype=torch.long), 5), torch.full((1, 5), 2.0), torch.zeros(1, 0))
    h = torch.randn(1, 5, 2)
    mu, _ = solve(library, J, h)
    torch.testing.assert_close(mu, h / 2)


@needs_compiler
@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_any_size_of_h(library, size):
    J, h = problem()
    h[..., 1] = 0
    mu, report = solve(library, J, h * size)
    assert (report[0] == VERIFIED).all()
    assert (mu[..., 1] == 0).all()
    assert relative(mu.double() / size, exact(J, h)) < 1e-6


@needs_compiler
def test_what_fails_says_so(library):
    J, h = problem()
    broken = h.clone()
    broken[1, 3, 2] = torch.nan
    mu, report = solve(library, J, broken)
    assert report[0, 1, 2] == NONFINITE
    assert mu[1, :, 2].isnan().all()
    assert (report[0].flatten()[:-1] == VERIFIED).all()
    negative = ws.Precision(J.graph, -J.diag, J.off)
    assert (solve(library, negative, h)[1][0] == INDEFINITE).all()
    weak = ws.Precision(J.graph, 0.2 * J.diag, J.off)  # a positive diagonal, and yet not positive definite
    assert torch.linalg.eigvalsh(weak.to_dense())[:, 0].max() < 0
    mu, report = solve(library, weak, h)
    assert (report[0] == INDEFINITE).any()
    assert mu[report[0, :, None].expand_as(mu) == INDEFINITE].isnan().all()


@needs_compiler
def test_never_converged_beyond_its_word(library):
    J, h = problem()
    _, report = solve(library, J, h, max_steps=2)
    assert (report[0] == EXHAUSTED).all()
    assert (report[1] == 2).all()
    assert (report[2] > 1e-6).all()
    _, report = solve(library, J, h, tol=1e-30, aim=1e-7)
    assert (report[0] == STALLED).any()
    assert (report[2] > 0).any()


def test_every_slot_has_its_place():
    J, _ = problem()
    graph, deal = J.graph, column_deal(J.graph, 2)
    order = deal.order.long()
    assert order[order >= 0].sort().values.tolist() == list(range(graph.num_nodes))
    assert (graph.degree[order[: deal.num_long]] > LONG).all()
    found = deal.edge[deal.edge >= 0]
    assert found.bincount().tolist() == [2] * graph.num_edges
    assert deal.slice_start[-1] == deal.num_slots


@pytest.mark.parametrize(("nodes", "threads"), [(1, 64), (183, 96), (2708, 1024), (19717, 1024)])
def test_threads_of_a_block(nodes, threads):
    assert threads_for(nodes) == threads
