"""Verdicts that are read later. The interpreter stands in for a GPU; what needs one is marked."""

import copy

import numpy as np
import pytest
import torch
from problems import dominant, normal, path

import walksum as ws
from walksum.solvers.base import Prepared, Solver
from walksum.solvers.late import LateSolution


class Slow:
    """A verdict that counts how often it is asked."""

    def __init__(self, *found):
        self.found, self.asked = found, 0
        self.report = torch.zeros(3, 1, 2)

    def __call__(self):
        self.asked += 1
        return self.found

    def of(self, known):
        return ws.Status.converged, int(known[1].max()), float(known[2].max())


class LateSolver(Solver):
    """Solves densely at once but keeps its verdict to itself until asked."""

    def __init__(self, status=ws.Status.converged):
        object.__setattr__(self, "verdict", Slow(status, 7, 1e-9))

    def prepare(self, J):
        return LatePrepared(J, self)


class LatePrepared(Prepared):
    def __init__(self, J, solver):
        super().__init__(J, "Late")
        self.verdict = solver.verdict

    def later(self, h):
        return torch.linalg.solve(self.J.to_dense(), h), self.verdict

    def run(self, h):
        raise AssertionError("launched, so there is nothing to run")


def problem():
    J = dominant(path(6))
    values = [t.clone().requires_grad_() for t in (J.diag, J.off, normal(J, 2))]
    return ws.Precision(J.graph, *values[:2]), values[2]


def test_an_ignored_verdict_is_not_waited_for_until_someone_reads_it():
    (J, h), solver, seen = problem(), LateSolver(), []
    ws.solve(J, h, solver, observe=seen.append, on_nonconverged="ignore").sum().backward()
    assert solver.verdict.asked == 0
    assert [s.direction for s in seen] == ["forward", "backward"]
    assert (seen[0].status, seen[0].steps, seen[0].residual) == (ws.Status.converged, 7, 1e-9)
    assert seen[0].converged
    assert solver.verdict.asked == 1
    exact = [t.grad for t in (J.diag, J.off, h)]
    again, h2 = problem()
    ws.solve(again, h2, "dense").sum().backward()
    for found, expected in zip(exact, (again.diag.grad, again.off.grad, h2.grad), strict=True):
        torch.testing.assert_close(found, expected)


def test_a_verdict_that_someone_must_hear_is_read_at_once():
    (J, h), solver = problem(), LateSolver(ws.Status.stalled)
    with pytest.warns(ws.SolveWarning, match="Late stopped improving"):
        mu = ws.solve(J, h, solver)
    with pytest.warns(ws.SolveWarning, match="backward pass"):
        mu.sum().backward()
    with pytest.raises(ws.SolveError, match="7 steps"):
        ws.solve(J, h, solver, on_nonconverged="raise")


def test_a_late_solution_is_copied_as_what_it_found():
    solution = LateSolution(torch.ones(2), verdict=Slow(ws.Status.stalled, 3, 0.5), solver="CG")
    copied = copy.deepcopy(solution)
    assert type(copied) is ws.Solution
    assert (copied.status, copied.steps, copied.residual, copied.solver) == (ws.Status.stalled, 3, 0.5, "CG")
    assert "stalled" in repr(solution)


def test_a_captured_verdict_is_read_afresh_until_it_is_settled():
    solution = LateSolution(torch.ones(2), verdict=Slow(ws.Status.converged, 3, 0.5), captured=True)
    assert solution.steps == solution.steps == 3
    assert solution.verdict.asked == 2
    solution.settle(solution.verdict.of(np.full((3, 1, 2), 4.0)))
    assert (solution.steps, solution.residual, solution.verdict.asked) == (4, 4.0, 2)
