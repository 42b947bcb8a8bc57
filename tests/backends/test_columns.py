"""columns.cu without a GPU: the host's compiler, and fibers in place of threads. On a GPU: solvers/test_cuda.py."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import walksum as ws
from walksum.backends.cuda import EXHAUSTED, INDEFINITE, NONFINITE, OVERFLOW, STALLED, STATES, VERIFIED
from walksum.backends.cuda.columns import row_layout, settings
from walksum.backends.cuda.columns.row_layout import CHUNK, LEVELS, layout_rows
from walksum.backends.cuda.columns.settings import Device, choose
from walksum.solvers.cg.cuda_columns import FILES
from walksum.solvers.deferred import REPORT

COMPILER = shutil.which("g++") or shutil.which("c++")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
HERE, KERNELS = Path(__file__).parent, Path(ws.__file__).parent / "backends/cuda/columns"
THREADS = 64
LONGEST = CHUNK * LEVELS
FORWARD, BACKWARD, SHUFFLED = 0, 1, 2  # in which the threads take their turns: see cuda_on_host.h
WRAPPER = """
extern "C" int solve(float *diag, float *off, float *h, float *out, float *report, int *order, unsigned short *index,
                     int *tail_start, int *levels, int *edge, int *ends, float *values, float *root, int *numbers,
                     float *limits, int heads, int num_edges, int which) {
    const int places = numbers[1], slots = numbers[4];
    turns = which;
    run_blocks((std::max(places, slots) + THREADS - 1) / THREADS, heads, THREADS, false, [=] {
        lay_out(diag, off, values, root, order, edge, ends, numbers[0], num_edges, places, slots);
    });
    return run_blocks(numbers[2], heads, THREADS, true, [=] {
        solve_columns(values, root, h, out, report, order, index, tail_start, reinterpret_cast<int4 *>(levels),
                      numbers[0], places, numbers[2], numbers[3], slots, numbers[5], limits[0], limits[1]);
    });
}
"""


class Library:
    """columns.cu for the host, with some constants defined, and perhaps without the lines that hold some text."""

    def __init__(self, folder, cluster, rows, without=None, **defined):
        text = "".join((KERNELS / file).read_text() for file in FILES)
        if without is not None:
            assert without in text
            text = "".join(line for line in text.splitlines(keepends=True) if without not in line)
        sizes = {
            "CLUSTER": cluster,
            "THREADS": THREADS,
            "ROWS": rows,
            "LEVELS": LEVELS,
            "LEAN": 0,
            "KEEP": 0,
            **STATES,
            **defined,
        }
        head = "".join(f"#define {key} {value}\n" for key, value in sizes.items())
        (folder / "columns.cpp").write_text(head + (HERE / "cuda_on_host.h").read_text() + text + WRAPPER)
        options = ["-std=c++20", "-O1", "-shared", "-fPIC", "-w", "-U_FORTIFY_SOURCE"]  # it forbids the jumps of fibers
        command = [COMPILER, *options, "-o", str(folder / "columns.so"), str(folder / "columns.cpp")]
        subprocess.run(command, check=True, capture_output=True)
        self.code = ctypes.CDLL(str(folder / "columns.so"))


class Libraries:
    """Built when a graph of another size needs one."""

    def __init__(self, folders, cluster, **about):
        self.folders, self.cluster, self.about, self.known = folders, cluster, about, {}

    def __call__(self, places):
        rows = -(-places // (self.cluster * THREADS))
        if rows not in self.known:
            self.known[rows] = Library(self.folders.mktemp("columns"), self.cluster, rows, **self.about)
        return self.known[rows].code


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Libraries by their constants."""
    known = {}

    def of(cluster, **about):
        key = (cluster, *sorted(about.items()))
        return known.setdefault(key, Libraries(tmp_path_factory, cluster, **about))

    return of


@pytest.fixture(params=[1, 2, 4])
def library(request, built):
    return built(request.param)


def solve(library, J, h, tol=2e-6, aim=2**-28, max_steps=500, turns=FORWARD):
    mu, report, ended = attempt(library, J, h, tol, aim, max_steps, turns)
    assert ended
    return mu, report


def attempt(library, J, h, tol=2e-6, aim=2**-28, max_steps=500, turns=FORWARD):
    layout = layout_rows(J.graph, library.cluster)
    mu, report = torch.zeros_like(h), torch.zeros(REPORT, h.size(0), h.size(2))
    values, root = torch.zeros(J.heads, layout.num_slots), torch.zeros(J.heads, layout.places)
    sizes = (J.num_nodes, layout.places, h.size(2), layout.tails, layout.num_slots, max_steps)
    numbers, limits = torch.tensor(sizes, dtype=torch.int32), torch.tensor([tol, aim])
    tables = (layout.order, layout.index, layout.tail_start, layout.levels, layout.edge, layout.ends)
    tensors = (J.diag, J.off, h, mu, report, *tables, values, root, numbers, limits)
    places = [ctypes.c_void_p(t.data_ptr()) for t in tensors]
    return mu, report, library(layout.places).solve(*places, J.heads, J.graph.num_edges, turns)


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
def test_what_leaves_the_range_of_float32_is_no_answer(library):
    """mu beyond it, or J scaled to a unit diagonal: J and h are finite, and no infinity is called converged."""
    J, h = problem()
    tiny = ws.Precision(J.graph, 1e-20 * J.diag, 1e-20 * J.off)
    mu, report = solve(library, tiny, 1e30 * h)
    assert (report[0] == OVERFLOW).all()
    assert mu.isnan().all()
    diag, off = J.diag.clone(), J.off.clone()
    diag[0, J.graph.edges[:, 5]], off[0, 5] = 1e-30, 1e30
    mu, report = solve(library, ws.Precision(J.graph, diag, off), h)
    assert report[0].tolist() == [[OVERFLOW] * 2, [VERIFIED] * 2]
    h[0, 3, 0] = torch.inf
    assert solve(library, ws.Precision(J.graph, diag, off), h)[1][0, 0].tolist() == [NONFINITE, OVERFLOW]


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


@needs_compiler
@pytest.mark.parametrize("cluster", [1, 2, 4])
def test_the_order_of_threads_and_messages_does_not_matter(built, cluster):
    """Or else there is a barrier missing."""
    J, h = problem(nodes=150, heads=1, columns=1)
    first = solve(built(cluster), J, h)
    for turns in (FORWARD, BACKWARD, SHUFFLED):
        mu, report = solve(built(cluster), J, h, turns=turns)
        assert torch.equal(mu, first[0])
        assert torch.equal(report, first[1])


@needs_compiler
@pytest.mark.parametrize(
    ("cluster", "barrier"),
    [
        (1, "the wait"),
        (2, "the wait"),
        (2, "p is there for all"),
        (2, "the tails are there"),
        (2, "all blocks run"),
    ],
)
def test_a_missing_barrier_would_be_noticed(built, cluster, barrier):
    J, h = problem(nodes=150, heads=1, columns=1)
    broken = built(cluster, without=f";  // {barrier}")
    runs = [attempt(broken, J, h, turns=turns, max_steps=60) for turns in (FORWARD, BACKWARD, SHUFFLED)]
    right = [bool(ended) and relative(mu, exact(J, h)) < 1e-6 for mu, _, ended in runs]
    assert not all(right) or not all(torch.equal(mu, runs[0][0]) for mu, _, _ in runs)


@needs_compiler
@pytest.mark.parametrize("about", [{"LEAN": 1}, {"__CUDA_ARCH__": 750}, {"KEEP": 1}, {"KEEP": 2}])
@pytest.mark.parametrize("cluster", [1, 2])
def test_other_ways_to_keep_and_to_add_up(built, cluster, about):
    J, h = problem(nodes=150, heads=1)
    mu, report = solve(built(cluster, **about), J, h)
    assert torch.equal(mu, solve(built(cluster), J, h)[0])
    assert (report[0] == VERIFIED).all()


@pytest.mark.parametrize("cluster", [1, 2, 4])
@pytest.mark.parametrize(("nodes", "edges"), [(90, 150), (401, 1500), (7, 0), (1, 0)])
def test_every_slot_has_its_place(cluster, nodes, edges):
    """The tables give back the matrix, entry by entry."""
    J, _ = problem(nodes, edges, hub=edges > 0)
    layout = layout_rows(J.graph, cluster)
    order, index, edge = layout.order.long(), layout.index.view(torch.uint16).long(), layout.edge.long()
    found, share = torch.zeros(nodes, nodes), layout.places // cluster
    for block, (table, tails) in enumerate(zip(layout.levels.tolist(), layout.tail_start.tolist(), strict=True)):
        start, rest, count, _ = table[-1]
        assert start % CHUNK == rest % CHUNK == count % CHUNK == 0
        for place in range(share):
            row, slots = order[block * share + place], row_slots(table, tails, place)
            assert all(0 <= slot < count for slot in slots)
            for slot in slots:
                if edge[start + slot] >= 0:
                    found[row, order[index[start + slot]]] += J.off[0, edge[start + slot]]
    assert torch.equal(found, J.to_dense()[0] - torch.diag(J.diag[0]))
    assert order[order >= 0].sort().values.tolist() == list(range(nodes))
    padding = int((layout.edge < 0).sum())
    threes = int(((J.graph.degree % CHUNK == 3) & (J.graph.degree < LONGEST)).sum())
    assert padding <= threes + (LEVELS + 1) * cluster * (CHUNK - 1)


def row_slots(table, tails, place):
    """As columns.cu finds them."""
    slots = []
    for first, fours, twos, ones in table[:LEVELS]:
        if place < fours:
            slots += range(first + 4 * place, first + 4 * place + 4)
        elif place < twos:
            slots += range(first + 2 * fours + 2 * place, first + 2 * fours + 2 * place + 2)
        elif place < ones:
            slots.append(first + 2 * fours + twos + place)
    return slots + (list(range(*tails[place : place + 2])) if place + 1 < len(tails) else [])


@pytest.mark.parametrize("cluster", [2, 4])
def test_blocks_have_as_much_to_do(cluster):
    J, _ = problem(401, 1500)
    layout = layout_rows(J.graph, cluster)
    degree = torch.cat([J.graph.degree, torch.zeros(1, dtype=torch.long)])
    load = degree[layout.order.long()].view(cluster, -1).sum(1)
    assert load.max() - load.min() <= J.graph.degree.max()
    assert layout.places % (32 * cluster) == 0


@pytest.mark.parametrize("cluster", [1, 2])
def test_threads_seldom_ask_one_bank_at_once(monkeypatch, cluster):
    edges = problem(1000, 4000, heads=1, hub=False)[0].graph.edges
    spread = waits(layout_rows(ws.Graph(edges, 1000), cluster))
    monkeypatch.setattr(row_layout, "LONGEST", 0)
    assert spread < 0.8 * waits(layout_rows(ws.Graph(edges, 1000), cluster))


def waits(layout):
    """How often a warp looks up neighbours: once for each that shares its bank with others."""
    index, count = layout.index.view(torch.uint16).long(), 0
    for block in range(layout.cluster):
        table, tails = layout.levels[block].tolist(), layout.tail_start[block].tolist()
        rows = [row_slots(table, tails, place) for place in range(layout.places // layout.cluster)]
        for warp in range(0, len(rows), 32):
            for turn in range(max(map(len, rows[warp : warp + 32]))):
                asked = {int(index[table[-1][0] + row[turn]]) for row in rows[warp : warp + 32] if turn < len(row)}
                count += int(torch.tensor([place % 32 for place in asked]).bincount().max())
    return count


H200 = Device(shared=232_448, clusters=True)
A100 = Device(shared=166_912, clusters=False)


def ring(nodes):
    node = torch.arange(nodes)
    return ws.Graph.from_edge_index(torch.stack([node, node.roll(1)]), nodes)


@pytest.mark.parametrize(
    ("nodes", "device", "cluster", "threads"),
    [
        (1, H200, 1, 64),
        (183, H200, 1, 96),
        (2708, H200, 1, 1024),
        (2708, A100, 1, 1024),
        (19717, H200, 2, 1024),
        (50_000, H200, 4, 512),
    ],
)
def test_what_suits(nodes, device, cluster, threads):
    setting = choose(ring(nodes), device)
    assert (setting.cluster, setting.threads) == (cluster, threads)
    assert not setting.spills
    assert setting.rows * setting.threads >= -(-nodes // cluster)


def test_as_many_levels_as_leave_few_tails():
    assert choose(ring(3000), H200).levels == 4
    J, _ = problem(400, 4000)  # most rows have more than four chunks, a few more than eight
    assert choose(J.graph, H200).levels == 8


def test_what_does_not_fit():
    assert choose(ring(60_000), H200) is None
    assert choose(ring(30_000), A100) is None
    assert choose(ring(25_000), A100) is None


def test_settings_can_be_forced(monkeypatch):
    monkeypatch.setattr(settings, "CLUSTER", 4)
    monkeypatch.setattr(settings, "THREADS", 256)
    setting = choose(ring(2708), H200)
    assert (setting.cluster, setting.threads, setting.rows) == (4, 256, 3)
