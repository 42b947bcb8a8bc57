"""Formulas of the ends of edges against torch operations of the same meaning, in value and every derivative."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from walksum import Graph
from walksum.designs.base import LARGEST, clipped
from walksum.designs.edge_formulas import cosine_of_ends, gaussian_of_ends, symmetric_scaling
from walksum.ops import edge_sum, end_sum

EDGES = torch.tensor([[0, 0, 1, 2, 3], [1, 2, 2, 3, 4]])
GRAPH = Graph.from_edge_index(EDGES, 6)  # node 5 has no edges
LOW, HIGH = EDGES


def random(*shape):
    return torch.randn(*shape, dtype=torch.double, generator=torch.Generator().manual_seed(0))


def plain_sum(values):
    return values.new_zeros(values.size(0), 6).index_add(1, LOW, values).index_add(1, HIGH, values)


def plain_scaling(diag, off):
    root = torch.where(diag > 0, diag, 1.0).sqrt()
    return off / root[:, LOW] / root[:, HIGH]


def plain_cosine(s):
    return torch.cosine_similarity(s[:, LOW], s[:, HIGH], -1)


DEGREES = random(2, 6).abs() + 0.5
FORMULAS = {
    "edge_sum": (lambda v: edge_sum(GRAPH, v), plain_sum, (random(2, 5),)),
    "end_sum": (lambda v: end_sum(GRAPH, v), lambda v: v[:, LOW] + v[:, HIGH], (random(2, 6),)),
    "scaling": (lambda d, v: symmetric_scaling(GRAPH, d, v), plain_scaling, (DEGREES, random(2, 5))),
    "gaussian": (
        lambda s: gaussian_of_ends(GRAPH, s),
        lambda s: (-(s[:, LOW] - s[:, HIGH]).square().sum(-1) / 2).exp(),
        (random(2, 6, 3),),
    ),
    "cosine": (lambda s: cosine_of_ends(GRAPH, s), plain_cosine, (random(2, 6, 3),)),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formula(name):
    formula, plain, inputs = FORMULAS[name]
    torch.testing.assert_close(formula(*inputs), plain(*inputs))
    inputs = [t.clone().requires_grad_() for t in inputs]
    assert gradcheck(formula, inputs, check_forward_ad=True)
    assert gradgradcheck(formula, inputs)
    batches = [torch.stack([t, 2 * t]).detach() for t in inputs]
    torch.testing.assert_close(
        torch.vmap(formula)(*batches), torch.stack([plain(*(t[k] for t in batches)) for k in (0, 1)])
    )
    found, wanted = (torch.autograd.grad(f(*(t.float() for t in inputs)).sin().sum(), inputs) for f in (formula, plain))
    for each, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(each, other, rtol=1e-4, atol=1e-5)


def test_extremes():
    assert torch.equal(symmetric_scaling(GRAPH, torch.zeros(1, 6), torch.ones(1, 5)), torch.ones(1, 5))
    far = torch.zeros(1, 6, 1)
    far[0, 1] = 1e4
    far.requires_grad_()
    value = gaussian_of_ends(GRAPH, far)
    assert float(value.detach().min()) > 0
    (gradient,) = torch.autograd.grad(value.sum(), far)
    assert not gradient[0, 1].any()  # clipped there
    tiny = torch.full((1, 6, 2), 1e-45)
    torch.testing.assert_close(cosine_of_ends(GRAPH, tiny), torch.ones(1, 5))
    assert not cosine_of_ends(GRAPH, torch.zeros(1, 6, 2)).any()


def test_clipped_leaves_what_lies_within():
    x = torch.randn(4, 3)
    assert clipped(x) is x
    assert float(clipped(torch.tensor([[1e9, -1e30]])).abs().max()) == LARGEST
    assert clipped(torch.tensor([[float("nan")]])).isnan().all()
    torch.testing.assert_close(torch.vmap(clipped)(10 * LARGEST * torch.ones(2, 3)), LARGEST * torch.ones(2, 3))
