"""Algebraic multigrid as a preconditioner."""

from __future__ import annotations

import sys

import numpy as np
import problems
import pytest
import torch
from conformance import Conformance

import walksum as ws

pytest.importorskip("pyamg")


class TestSmoothed(Conformance):
    solver = ws.Multigrid()


def weak_ground(n: int) -> ws.Precision:
    """A grid's Laplacian with a ground of 1e-4: condition 1e5."""
    graph = problems.grid(n)
    return ws.Precision(graph, graph.degree.double() + 1e-4, -torch.ones(graph.num_edges).double())


@pytest.mark.parametrize("coarsening", ["smoothed", "classical"])
def test_steps_hardly_grow_with_the_grid(coarsening):
    steps = []
    for n in (16, 64):
        J = weak_ground(n)
        solution = ws.Multigrid(tol=1e-12, coarsening=coarsening).prepare(J)(problems.normal(J, 3))
        assert solution.converged
        steps.append(solution.steps)
    assert steps[1] <= 2 * steps[0] + 4


def test_same_hierarchy_every_time_and_numpy_left_alone():
    J = weak_ground(20)
    h = problems.normal(J, 3)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = ws.Multigrid().prepare(J)(h).value
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002
    assert torch.equal(first, ws.Multigrid().prepare(J)(h).value)


def test_missing_pyamg_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyamg", None)
    with pytest.raises(ImportError, match=r"pip install walksum\[multigrid\]"):
        ws.Multigrid().prepare(weak_ground(4))


def test_a_matrix_that_cannot_be_coarsened_is_not_positive_definite():
    graph = problems.path(300)
    J = problems.dominant(graph)
    J = ws.Precision(graph, 0.1 * J.diag, J.off)
    assert ws.Multigrid().prepare(J)(problems.normal(J, 3)).status is ws.Status.not_positive_definite


@pytest.mark.parametrize("coarsening", ["smoothed", "classical"])
def test_a_small_indefinite_matrix_is_named(coarsening):  # small enough to be the coarsest one
    graph = problems.path(10)
    J = ws.Precision(graph, torch.ones(10).double(), torch.full((9,), -1.2).double())
    solution = ws.Multigrid(coarsening=coarsening).prepare(J)(problems.normal(J, 3))
    assert solution.status is ws.Status.not_positive_definite
