"""Solves whose status is read later. What needs a GPU is in test_cuda.py."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import torch
from problems import dominant, normal, path

import walksum as ws
from walksum.backends import cuda
from walksum.solvers.base import Prepared, Solver
from walksum.solvers.deferred import DeferredOutcome, DeferredSolution, Ending, read_unread
from walksum.solving import Reports


class Counted(DeferredOutcome):
    """Counts how often it is read."""

    def __init__(self, value, *ending):
        super().__init__(value, torch.zeros(3, 1, 2), 1e-6)
        self.found, self.reads = Ending(*ending), 0

    def read(self):
        self.reads += 1
        return self.found


class LateSolver(Solver):
    """Solves densely but does not say how it ended until it is asked."""

    def __init__(self, status=ws.Status.converged):
        object.__setattr__(self, "status", status)
        object.__setattr__(self, "launched", [])

    def prepare(self, J):
        return LatePrepared(J, self)


class LatePrepared(Prepared):
    def run_deferred(self, h):
        mu = torch.linalg.solve(self.J.to_dense(), h)
        self.solver.launched.append(Counted(mu, self.solver.status, 7, 1e-9))
        return self.solver.launched[-1]

    def run(self, h):
        raise AssertionError("launched, so there is nothing to run")


def problem():
    J = dominant(path(6))
    values = [t.clone().requires_grad_() for t in (J.diag, J.off, normal(J, 2))]
    return ws.Precision(J.graph, *values[:2]), values[2]


def test_a_status_that_is_ignored_is_not_waited_for_until_someone_reads_it():
    (J, h), solver, seen = problem(), LateSolver(), []
    ws.solve(J, h, solver, observe=seen.append, on_nonconverged="ignore").sum().backward()
    assert [outcome.reads for outcome in solver.launched] == [0, 0]
    assert [s.direction for s in seen] == ["forward", "backward"]
    assert (seen[0].status, seen[0].steps, seen[0].residual) == (ws.Status.converged, 7, 1e-9)
    assert seen[0].converged
    assert [outcome.reads for outcome in solver.launched] == [1, 0]
    exact = [t.grad for t in (J.diag, J.off, h)]
    again, h2 = problem()
    ws.solve(again, h2, "dense").sum().backward()
    for found, expected in zip(exact, (again.diag.grad, again.off.grad, h2.grad), strict=True):
        torch.testing.assert_close(found, expected)


def test_a_status_that_someone_must_hear_is_read_at_once():
    (J, h), solver = problem(), LateSolver(ws.Status.stalled)
    with pytest.warns(ws.SolveWarning, match="LateSolver stopped improving"):
        mu = ws.solve(J, h, solver)
    with pytest.warns(ws.SolveWarning, match="backward pass"):
        mu.sum().backward()
    with pytest.raises(ws.SolveError, match="7 steps"):
        ws.solve(J, h, solver, on_nonconverged="raise")


def test_a_training_pass_on_a_gpu_is_warned_of_when_the_next_one_begins():
    (J, _), mu = problem(), torch.ones(1, 6, 2)
    prepared, reports = LateSolver().prepare(J), Reports(None, "warn", later=True)
    ended = [DeferredOutcome(mu, torch.full((3, 1, 2), float(cuda.STALLED)), 1e-6) for _ in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reports.deferred(prepared, ended[0])
        reports.for_backward().deferred(prepared, ended[1])
    good = DeferredOutcome(mu, torch.zeros(3, 1, 2), 1e-6)
    with pytest.warns(ws.SolveWarning) as told:
        reports.deferred(prepared, good)
    assert ["backward pass" in str(each.message) for each in told] == [False, True]
    reports.deferred(prepared, ended[0])
    with pytest.warns(ws.SolveWarning, match="stopped improving"):
        read_unread()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda solution: pickle.loads(pickle.dumps(solution))])
def test_a_deferred_solution_is_copied_as_what_it_found(copied):
    solution = DeferredSolution(Counted(torch.ones(2), ws.Status.stalled, 3, 0.5), "CG", "forward")
    twin = copied(solution)
    assert type(twin) is ws.Solution
    assert (twin.status, twin.steps, twin.residual, twin.solver) == (ws.Status.stalled, 3, 0.5, "CG")
    assert "stalled" in repr(solution)


def test_a_captured_solve_is_read_afresh_until_its_ending_is_set():
    outcome = Counted(torch.ones(2), ws.Status.converged, 3, 0.5)
    solution = DeferredSolution(outcome, "CG", "forward", captured=True)
    assert solution.steps == solution.steps == 3
    assert outcome.reads == 2
    solution.set_ending(outcome.ending(np.full((3, 1, 2), 5.0)))
    assert (solution.status, solution.steps, solution.residual) == (ws.Status.max_steps_reached, 5, 5.0)
    assert outcome.reads == 2


@pytest.mark.parametrize(
    ("state", "residual", "status"),
    [
        (cuda.VERIFIED, 1e-8, ws.Status.converged),
        (cuda.VERIFIED, 1e-3, ws.Status.max_steps_reached),
        (cuda.STALLED, 1e-3, ws.Status.stalled),
        (cuda.EXHAUSTED, 1e-3, ws.Status.max_steps_reached),
        (cuda.INDEFINITE, 0.0, ws.Status.not_positive_definite),
        (cuda.OVERFLOW, 0.0, ws.Status.overflow),
        (cuda.NONFINITE, 0.0, ws.Status.nonfinite),
    ],
)
def test_the_numbers_of_a_report(state, residual, status):
    outcome = DeferredOutcome(torch.ones(2), torch.zeros(3, 1, 2), 1e-6)
    report = np.array([[[cuda.VERIFIED, state]], [[3, 9]], [[1e-8, residual]]])
    assert outcome.ending(report)[:2] == (status, 9)
