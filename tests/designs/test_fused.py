"""The kernels of learned designs equal their twins in torch operations, with their derivatives to any order."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.nn import GATConv

import walksum as ws
from walksum.designs import fused, make_design

DESIGNS = ("laplacian", "diagonally-dominant", "pairwise-normal")


def problem(dtype, heads=3, channels=8, nodes=40):
    generator = torch.Generator().manual_seed(0)
    pairs = torch.randint(nodes - 2, (2, 2 * nodes), generator=generator)  # the last nodes have no edges
    x = torch.randn(nodes, 6, generator=generator, dtype=dtype, requires_grad=True)
    h = torch.randn(heads, nodes, channels, generator=generator, dtype=dtype)
    h[:, 1] = 0  # no direction
    return ws.Graph.from_edge_index(pairs, nodes), x, h.requires_grad_()


def gradients(design, graph, x, h):
    off = design(graph, x, h).off
    weight = torch.randn(off.shape, generator=torch.Generator().manual_seed(1), dtype=off.dtype).to(off.device)
    found = torch.autograd.grad((off * weight).sum(), [x, h, *design.parameters()], allow_unused=True)
    return [off.detach(), *found]


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize(("heads", "channels"), [(1, 64), (8, 8), (3, 24)])
def test_kernels_equal_their_twins(name, heads, channels, monkeypatch):
    for dtype, tol in ((torch.float64, 1e-12), (torch.float32, 2e-5)):
        graph, x, h = problem(dtype, heads, channels)
        design = make_design(name, True, 6, channels, heads).to(dtype)
        assert fused.serves(graph, channels, x, h)
        kernel = gradients(design, graph, x, h)
        with monkeypatch.context() as patch:
            patch.setattr(fused, "serves", lambda *given: False)
            twin = gradients(design, graph, x, h)
        for mine, theirs in zip(kernel, twin, strict=True):
            assert (mine is None) == (theirs is None)
            if mine is not None:
                torch.testing.assert_close(mine, theirs, rtol=tol, atol=tol * float(theirs.abs().max()))


@pytest.mark.parametrize("name", DESIGNS)
def test_derivatives(name):
    graph, x, h = problem(torch.float64, heads=2, nodes=7)
    h = (h.detach() + 0.1).requires_grad_()
    design = make_design(name, True, 6, 8, 2).double()
    assert fused.serves(graph, 8, x, h)

    def couplings(x, h, *_):
        return design(graph, x, h).off

    inputs = (x, h, *design.parameters())
    assert gradcheck(couplings, inputs, fast_mode=True)
    assert gradgradcheck(couplings, inputs, fast_mode=True)
    given = x.detach(), h.detach()
    _, forward = torch.func.jvp(couplings, given, tuple(map(torch.ones_like, given)))
    with torch.autograd.forward_ad.dual_level():
        dual = (torch.autograd.forward_ad.make_dual(t, torch.ones_like(t)) for t in given)
        tangent = torch.autograd.forward_ad.unpack_dual(couplings(*dual)).tangent
    torch.testing.assert_close(forward, tangent)


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("size", [1e-30, 1e-20, 1e20, 1e30])
def test_numbers_near_the_ends_of_float32(name, size, monkeypatch):
    graph, x, h = problem(torch.float32)
    h = (h.detach() * size).requires_grad_()
    design = make_design(name, True, 6, 8, 3)
    off = design(graph, x, h).off
    with monkeypatch.context() as patch:
        patch.setattr(fused, "serves", lambda *given: False)
        twin = design(graph, x, h).off
    assert bool(off.isfinite().all())
    torch.testing.assert_close(off, twin, rtol=1e-4, atol=1e-5)


def test_what_the_kernels_do_not_serve():
    graph, x, h = problem(torch.float32)
    assert not fused.serves(graph.with_weight(torch.ones(graph.num_edges)), 8, x, h)
    assert not fused.serves(graph, 7, x, h)
    assert not fused.serves(graph, 8, x, h.double())
    assert not fused.serves(ws.Graph(torch.empty(2, 0, dtype=torch.int64), 40), 8, x, h)
    assert not fused.serves(graph, 8, x.bfloat16(), h.bfloat16())


@pytest.mark.gpu
@pytest.mark.parametrize("name", DESIGNS)
def test_a_gpu_gives_the_same(name):
    graph, x, h = problem(torch.float32, heads=8)
    design = make_design(name, True, 6, 8, 8)
    here = gradients(design, graph, x, h)
    there = gradients(design.cuda(), graph.to("cuda"), *(t.detach().cuda().requires_grad_() for t in (x, h)))
    for mine, theirs in zip(here, there, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            torch.testing.assert_close(mine, theirs.cpu(), rtol=1e-3, atol=1e-4 * float(mine.abs().max()))


def test_kernels_and_twins_clip_at_the_same_numbers():
    from walksum.backends.cpu import couplings
    from walksum.designs import base, edge_formulas

    assert couplings.SMALLEST == edge_formulas.SMALLEST
    assert couplings.LARGEST == base.LARGEST


class Count(TorchDispatchMode):
    """Counts the operations that torch dispatches."""

    def __init__(self):
        super().__init__()
        self.operations = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.operations += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", DESIGNS)
def test_a_layer_takes_hardly_more_operations_than_attention(name):
    edges = problem(torch.float32)[0].edges
    edges, x = torch.cat([edges, edges.flip(0)], 1), torch.randn(40, 64, requires_grad=True)
    counted = []
    for layer in (ws.GLTConv(64, 8, heads=8, design=name), GATConv(64, 8, heads=8)):
        layer(x, edges).sum().backward()  # what depends on the graph alone is made
        with Count() as count:
            layer(x, edges).sum().backward()
        counted.append(count.operations)
    assert counted[0] < 1.1 * counted[1]
