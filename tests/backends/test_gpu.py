"""The Triton kernels against the plain torch ones: on a GPU, or through Triton's interpreter without one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

pytest.importorskip("triton")

from walksum import backends
from walksum.backends import reference
from walksum.backends.cuda.triton import layer_norm, products
from walksum.backends.cuda.triton.edges import row_sums, slot_values
from walksum.backends.cuda.triton.matrix import Matrix
from walksum.backends.cuda.triton.plan import row_plan
from walksum.designs import LearnedLaplacian, fused, make_design
from walksum.graph import Graph

HERE = os.path.dirname(__file__)
# the interpreter computes with numpy, which warns of the NaN and infinity that some tests feed in
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture
def device(triton_device):
    return triton_device


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels run on the GPU itself")
def test_the_gpu_tests_pass_in_the_interpreter():
    # in a process of its own: Triton reads the switch once, when it is first imported
    files = [__file__, os.path.join(HERE, "..", "solvers", "test_cuda.py")]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", "cpu", *files]
    done = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def random_problem(device, num_nodes, num_pairs, heads, columns, seed=0):
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.randint(0, num_nodes, (2, num_pairs), generator=generator)
    graph = Graph.from_edge_index(pairs, num_nodes).to(device)
    diag = 1 + torch.rand(heads, num_nodes, generator=generator)
    off = torch.randn(heads, graph.num_edges, generator=generator)
    x = torch.randn(heads, num_nodes, columns, generator=generator)
    return graph, diag.to(device), off.to(device), x.to(device)


def exact_spmm(graph, diag, off, x):
    return reference.spmm(graph, diag.double(), off.double(), x.double())


def assert_near(found, expected, tol=2e-6):
    assert found.dtype == torch.float32
    scale = expected.detach().abs().max() if expected.numel() else 1.0
    assert torch.allclose(found.detach().double(), expected.detach(), rtol=0, atol=float(tol * scale))


SHAPES = [(1, 0, 1, 3), (5, 0, 2, 1), (20, 60, 1, 1), (20, 60, 3, 5), (30, 90, 1, 64), (9, 30, 2, 130)]


@pytest.mark.parametrize("shape", SHAPES)
def test_spmm(device, shape):
    graph, diag, off, x = random_problem(device, *shape)
    assert_near(products.spmm(graph, diag, off, x), exact_spmm(graph, diag, off, x))


def test_spmm_of_no_columns(device):
    graph, diag, off, x = random_problem(device, 5, 10, 2, 0)
    assert products.spmm(graph, diag, off, x).shape == (2, 5, 0)


def test_spmm_takes_any_strides(device):
    graph, diag, off, _ = random_problem(device, 10, 30, 2, 4)
    x = torch.randn(10, 4, 2, device=device).permute(2, 0, 1)
    expanded = off[:1].expand(2, -1)
    assert_near(products.spmm(graph, diag, expanded, x), exact_spmm(graph, diag, expanded, x))


@pytest.mark.parametrize("hub", [2, 7])
@pytest.mark.parametrize("columns", [3, 12, 40])
def test_hubs_are_split(device, hub, columns):
    graph, diag, off, x = random_problem(device, 20, 100, 2, columns)
    matrix = Matrix(graph, diag, slot_values(graph, off), hub=hub)
    assert matrix.plan.num_hubs > 0
    out = torch.full_like(x, torch.nan)
    assert_near(matrix.product(x, out), exact_spmm(graph, diag, off, x))


def test_one_number_for_all_couplings(device):
    graph, diag, off, x = random_problem(device, 20, 60, 2, 5)
    off = torch.tensor([[-1.0], [0.5]], device=device).expand_as(off)
    matrix = Matrix.of(graph, diag, off, look=True)
    assert matrix.values is None
    assert_near(matrix.product(x), exact_spmm(graph, diag, off, x))


def test_bfloat16_input_is_summed_in_float32(device):
    graph, diag, off, x = random_problem(device, 20, 60, 1, 16)
    half = x.to(torch.bfloat16)
    assert_near(Matrix.of(graph, diag, off).product(half), exact_spmm(graph, diag, off, half))


def test_spmm_is_the_same_every_time(device):
    graph, diag, off, x = random_problem(device, 40, 300, 1, 16)
    matrix = Matrix(graph, diag, slot_values(graph, off), hub=8)
    assert torch.equal(matrix.product(x), matrix.product(x))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_bad_numbers_reach_the_norm(device, bad):
    graph, diag, off, _ = random_problem(device, 10, 30, 2, 1)
    expected = reference.spmm(graph, diag, off.abs(), torch.ones(2, 10, 1, device=device)).amax((1, 2))
    assert torch.allclose(Matrix.of(graph, diag, off).norm_inf(), expected)
    off[1, 3] = bad
    norm = Matrix.of(graph, diag, off).norm_inf()
    assert torch.isfinite(norm[0])
    assert not torch.isfinite(norm[1])


@pytest.mark.parametrize("bad", [None, float("nan"), float("inf")])
def test_backward_error(device, bad):
    graph, diag, off, mu = random_problem(device, 10, 30, 2, 3)
    h = exact_spmm(graph, diag, off, mu).float() + 1e-3 * torch.randn(2, 10, 3, device=device)
    h[0, :, 1] = mu[0, :, 1] = 0
    norm = products.norm_inf(graph, diag, off)
    if bad is not None:
        mu[1, 3, 2] = bad
    found = products.backward_error(graph, diag, off, mu, h, norm)
    r = h.double() - exact_spmm(graph, diag, off, mu)
    scale = norm.double()[:, None] * mu.double().abs().amax(1) + h.double().abs().amax(1)
    expected = torch.where(r.abs().amax(1) == 0, 0.0, r.abs().amax(1) / scale)
    finite = torch.isfinite(expected)
    assert torch.equal(torch.isfinite(found), finite)
    assert finite.all() == (bad is None)
    assert torch.allclose(found[finite].double(), expected[finite], rtol=1e-3)


@pytest.mark.parametrize("shape", SHAPES)
def test_edge_dot(device, shape):
    graph, _, _, a = random_problem(device, *shape)
    b = torch.randn(a.shape, generator=torch.Generator().manual_seed(1)).to(device)
    assert_near(products.edge_dot(graph, a, b), reference.edge_dot(graph, a.double(), b.double()))
    for _ in range(2):  # the second time, on a GPU, by the shortcut
        for found, expected in zip(
            products.value_gradients(graph, a, b), reference.value_gradients(graph, a.double(), b.double()), strict=True
        ):
            assert_near(found, expected)


def test_row_sums(device):
    graph, diag, off, _ = random_problem(device, 30, 200, 2, 1)
    message = slot_values(graph, off)
    assert torch.equal(message, off[:, graph.csr.edge])
    expected = diag.double() + reference.neighbour_sum(graph, message.double())
    assert_near(row_sums(graph, diag, message), expected)


def test_a_plan_covers_every_row_and_every_slot_once(device):
    graph, *_ = random_problem(device, 40, 300, 1, 1)
    plan = row_plan(graph, 9, (2, 4))
    rows = torch.cat([plan.order.long(), plan.hubs])
    assert torch.equal(rows.sort().values, torch.arange(40, device=device))
    for first, last, longest in plan.groups:
        assert int(graph.degree[plan.order[first:last].long()].max()) <= longest
    assert int(graph.degree[plan.hubs].min()) > 9
    for hub, node in enumerate(plan.hubs.tolist()):
        begin, end = plan.piece_start[hub], plan.piece_start[hub + 1]
        covered = [
            slot
            for b, e in zip(plan.piece_begin[begin:end].tolist(), plan.piece_end[begin:end].tolist(), strict=True)
            for slot in range(b, e)
        ]
        assert covered == list(range(int(graph.csr.indptr[node]), int(graph.csr.indptr[node + 1])))


@pytest.mark.gpu
def test_float32_on_cuda_is_served_by_triton():
    assert backends.backend(torch.zeros(1, device="cuda")) is products
    assert backends.backend(torch.zeros(1, device="cuda", dtype=torch.float64)) is reference


def test_the_cpu_is_not_served_by_triton():
    assert backends.backend(torch.zeros(1)) is not products


COUPLINGS = [("laplacian", 1, 8), ("laplacian", 3, 5), ("diagonally-dominant", 2, 8), ("diagonally-dominant", 1, 70)]


@pytest.mark.parametrize(("name", "heads", "channels"), COUPLINGS)
def test_learned_couplings(device, name, heads, channels, monkeypatch):
    graph, _, _, h = random_problem(device, 20, 40, heads, channels, seed=3)
    h[:, 1] = 0  # no direction
    x = torch.cat([h[0].cpu(), torch.randn(20, 3, generator=torch.Generator().manual_seed(1))], 1).to(device)
    x[3] *= 1e9  # so large that maps and exponents are clipped
    design = make_design(name, True, x.size(1), channels, heads).to(device)
    if name == "laplacian":
        design = LearnedLaplacian(x.size(1), heads, similarity_channels=channels).to(device)
    if device == "cpu":
        monkeypatch.setattr(backends, "uses_triton", lambda t: t.dtype == torch.float32)
    assert fused.serves(graph, channels, x, h)
    weight = torch.randn(heads, graph.num_edges, generator=torch.Generator().manual_seed(2))
    found = couplings_and_gradients(design, graph, x, h, weight)
    again = couplings_and_gradients(design, graph, x, h, weight)
    monkeypatch.setattr(fused, "serves", lambda *given: False)
    twin = couplings_and_gradients(design.double().cpu(), graph.to("cpu"), x.double().cpu(), h.double().cpu(), weight)
    for mine, once_more, exact in zip(found, again, twin, strict=True):
        assert torch.equal(mine, once_more)
        assert_near(mine.cpu(), exact, 2e-5)


def couplings_and_gradients(design, graph, x, h, weight):
    x, h = x.clone().requires_grad_(), h.clone().requires_grad_()
    off = design(graph, x, h).off
    found = torch.autograd.grad((off * weight.to(off)).sum(), [x, h, *design.parameters()], allow_unused=True)
    return [off.detach(), *(t for t in found if t is not None)]


@pytest.mark.parametrize("shape", [(1, 3), (5, 3), (40, 64), (3, 8, 8), (70, 130), (2, 1024)])
def test_layer_norm_and_its_gradients(device, shape, monkeypatch):
    monkeypatch.setattr(layer_norm, "PROGRAMS", 2)  # more groups of rows than programs
    torch.manual_seed(0)
    x, grad = (10 * torch.randn(shape) + 3 for _ in range(2))
    gamma, beta = torch.randn(2, shape[-1])
    twins = [t.double().requires_grad_() for t in (x, gamma, beta)]
    expected = torch.nn.functional.layer_norm(twins[0], shape[-1:], *twins[1:], 1e-5)
    x, gamma, beta, grad = (t.to(device) for t in (x, gamma, beta, grad))
    assert_near(layer_norm.forward(x, gamma, beta, 1e-5).cpu(), expected.detach())
    found = layer_norm.backward(x, gamma, grad, 1e-5)
    for mine, theirs in zip(found, torch.autograd.grad(expected, twins, grad.cpu().double()), strict=True):
        assert_near(mine.cpu(), theirs, 1e-5)


def test_layer_norm_leaves_to_torch_what_kernels_cannot_read(device, monkeypatch):
    from walksum.nn import layer_norm as module

    monkeypatch.setattr(module, "LARGE", 0)
    monkeypatch.setattr(module, "uses_triton", lambda t: t.dtype == torch.float32)
    norm, x = module.LayerNorm(16).to(device), torch.randn(5, 16, device=device)
    assert type(norm(x).grad_fn).__name__ == "_LayerNormBackward"
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert norm(mode.from_tensor(x)).shape == (5, 16)
    norm.weight = torch.nn.Parameter(torch.ones(8, device=device))
    with pytest.raises(RuntimeError, match="shape"):
        norm(x)


@pytest.mark.gpu
def test_layer_norm_of_a_captured_step_is_that_of_torch(monkeypatch):
    from walksum.nn import layer_norm as module

    torch.manual_seed(0)
    x = torch.randn(300, 4, 16, device="cuda", requires_grad=True)
    norm = module.LayerNorm(16).cuda()
    with torch.no_grad():
        norm.weight.normal_(), norm.bias.normal_()
    kept = []
    for large in (module.LARGE, 0):
        monkeypatch.setattr(module, "LARGE", large)
        y = norm(x)
        first = torch.autograd.grad(y.sin().sum(), (x, *norm.parameters()), create_graph=True)
        kept.append([y, *first, *torch.autograd.grad(first[0].square().sum(), (x, norm.weight))])
    assert type(norm(x).grad_fn).__name__ == "_LayerNormBackward"
    for theirs, mine in zip(*kept, strict=True):
        assert_near(mine, theirs.double(), 1e-5)
