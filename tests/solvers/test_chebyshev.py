"""Chebyshev iteration and its certified bound."""

from __future__ import annotations

import problems
import pytest
import torch
from conformance import Conformance

import walksum as ws
from gallery import dense_solve
from walksum import backends
from walksum.backends import reference
from walksum.solvers.chebyshev import coupling_bound


class TestChebyshev(Conformance):
    solver = ws.Chebyshev()


@pytest.mark.parametrize("graph", problems.GALLERY)
@pytest.mark.parametrize("heads", [1, 3])
def test_bound_holds(graph, heads):
    J = problems.dominant(problems.GALLERY[graph](), heads)
    normalised = J.normalised().to_dense()
    radius = torch.linalg.eigvalsh((torch.eye(J.num_nodes).double() - normalised).abs()).abs().max()
    assert radius <= coupling_bound(J) * (1 + 1e-12)
    assert coupling_bound(J) < 1


def test_bound_is_exact_for_a_fixed_laplacian():
    graph = problems.star()
    i, j = graph.edges
    root = graph.degree.double().rsqrt()
    J = ws.Precision(graph, torch.ones(graph.num_nodes).double(), -0.99 * root[i] * root[j])
    assert coupling_bound(J) == pytest.approx(0.99, abs=1e-12)


def test_given_bounds_that_hold_are_used():
    J = problems.unit_couplings(problems.grid(12))
    h = problems.normal(J, 5)
    values = torch.linalg.eigvalsh(J.normalised().to_dense()[0])
    tight = ws.Chebyshev(bounds=(float(values[0]), float(values[-1])), tol=1e-12).prepare(J)(h)
    loose = ws.Chebyshev(bounds=(1e-4, 3.0), tol=1e-12, max_steps=5000).prepare(J)(h)
    assert tight.converged
    assert loose.converged
    assert tight.steps < loose.steps
    assert torch.allclose(tight.value, dense_solve(J, h), rtol=1e-9, atol=1e-10)


def test_given_bounds_that_do_not_hold_are_found_out():
    J = problems.unit_couplings(problems.grid(12))
    solution = ws.Chebyshev(bounds=(0.9, 1.1)).prepare(J)(problems.normal(J, 5))
    assert not solution.converged


def test_torch_path_agrees(monkeypatch):
    J = problems.dominant(problems.sparse(), 2)
    h = problems.normal(J, 33)
    fused = ws.Chebyshev().prepare(J)(h)
    monkeypatch.setattr(backends, "backend", lambda tensor: reference)
    plain = ws.Chebyshev().prepare(J)(h)
    assert plain.steps == fused.steps
    assert torch.allclose(plain.value, fused.value, rtol=1e-11, atol=1e-13)
