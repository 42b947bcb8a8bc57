"""columns.cu without a GPU: the host's compiler, and fibers in place of threads. On a GPU: solvers/test_cuda.py."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import walksum as ws
from walksum.kernels.column_deal import CHUNK, LEVELS, LONGEST, column_deal
from walksum.solvers.cuda_columns import threads_for
from walksum.solvers.verdict import INDEFINITE, NONFINITE, REPORT, STALLED

COMPILER = shutil.which("g++") or shutil.which("c++")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
HERE, SOURCE = Path(__file__).parent, Path(ws.__file__).parent / "kernels" / "columns.cu"
THREADS = 64
VERIFIED, EXHAUSTED = 2, 5
WRAPPER = """
extern "C" void solve(float *diag, float *off, float *h, float *out, float *report, int *order, unsigned short *index,
                      int *tail_start, int *levels, int *edge, int *ends, float *values, float *root, int *numbers,
                      float *limits, int heads, int num_edges) {
    const int places = numbers[1], slots = numbers[4];
    run_blocks((std::max(places, slots) + THREADS - 1) / THREADS, heads, THREADS, [=] {
        lay_out(diag, off, values, root, order, edge, ends, numbers[0], num_edges, places, slots);
    });
    run_blocks(numbers[2], heads, THREADS, [=] {
        solve_columns(values, root, h, out, report, order, index, tail_start, levels, numbers[0], places,
                      numbers[2], numbers[3], slots, numbers[5], limits[0], limits[1]);
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
            options = ["-std=c++20", "-O1", "-shared", "-fPIC", "-w"]
            command = [COMPILER, *options, "-o", str(folder / "columns.so"), str(folder / "columns.cpp")]
            subprocess.run(command, check=True, capture_output=True)
            built[rows] = ctypes.CDLL(str(folder / "columns.so"))
        return built[rows]

    return of


def solve(library, J, h, tol=2e-6, aim=2**-28, max_steps=500):
    deal = column_deal(J.graph)
    mu, report = torch.zeros_like(h), torch.zeros(REPORT, h.size(0), h.size(2))
    values, root = torch.zeros(J.heads, deal.num_slots), torch.zeros(J.heads, deal.places)
    sizes = (J.num_nodes, deal.places, h.size(2), deal.tails, deal.num_slots, max_steps)
    numbers, limits = torch.tensor(sizes, dtype=torch.int32), torch.tensor([tol, aim])
    tables = (deal.order, deal.index, deal.tail_start, deal.levels, deal.edge, deal.ends)
    tensors = (J.diag, J.off, h, mu, report, *tables, values, root, numbers, limits)
    places = [ctypes.c_void_p(t.data_ptr()) for t in tensors]
    library(-(-deal.places // THREADS)).solve(*places, J.heads, J.graph.num_edges)
    return mu, report


def problem(nodes=90, edges=150, heads=2, columns=2, seed=0, hub=True):
    random = torch.Generator().manual_seed(seed)
    ends = torch.randint(0, nodes, (2, edges), generator=random)
    if hub:  # longer than all levels
        ends = torch.cat([ends, torch.stack([torch.zeros(nodes - 1, dtype=torch.long), torch.arange(1, nodes)])], 1)
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
def test_equals_the_dense_twin(library):
    J, h = problem()
    assert int(J.graph.degree.max()) > LONGEST
    mu, report = solve(library, J, h)
    assert (report[0] == VERIFIED).all()
    assert relative(mu, exact(J, h)) < 1e-6
    residual = (h - J.to_dense() @ mu).abs().amax(1) / (
        J.to_dense().abs().sum(-1).amax(1, keepdim=True) * mu.abs().amax(1)
    )
    assert (report[2] < 2e-6).all()
    assert residual.max() < 1e-5


@needs_compiler
@pytest.mark.parametrize("nodes", [1, 33, 130])
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
    broken[1, 3, 1] = torch.nan
    mu, report = solve(library, J, broken)
    assert report[0, 1, 1] == NONFINITE
    assert mu[1, :, 1].isnan().all()
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


@needs_compiler
@pytest.mark.parametrize("where", ["diag", "off"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_J_that_is_no_number(library, where, bad):
    J, h = problem(columns=1)
    diag, off = J.diag.clone(), J.off.clone()
    {"diag": diag, "off": off}[where][0, 7] = bad
    _, report = solve(library, ws.Precision(J.graph, diag, off), h)
    assert report[0, :, 0].tolist() == [NONFINITE, VERIFIED]


def test_every_slot_has_its_place():
    J, _ = problem()
    graph, deal = J.graph, column_deal(J.graph)
    order = deal.order.long()
    assert order[order >= 0].sort().values.tolist() == list(range(graph.num_nodes))
    assert (graph.degree[order[: deal.tails]] > LONGEST).all()
    assert deal.edge[deal.edge >= 0].bincount().tolist() == [2] * graph.num_edges
    first, rows = deal.levels.tolist()
    assert first == [sum(rows[:level]) for level in range(LEVELS)]
    assert deal.tail_start[0] == CHUNK * sum(rows)
    assert deal.num_slots % CHUNK == 0


@pytest.mark.parametrize(("nodes", "threads"), [(1, 64), (183, 96), (2708, 1024), (19717, 512)])
def test_threads_of_a_block(nodes, threads):
    assert threads_for(nodes) == threads
