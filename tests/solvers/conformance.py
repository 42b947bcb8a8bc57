"""What every iterative solver must do beside test_conformance.py; a test file for a solver lists these as its tests."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from pathlib import Path

import problems
import pytest
import torch

import walksum as ws
from gallery import dense_solve
from reference import true_residual


def runs(thread: Path) -> bool:
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0] == "R"
    except OSError:  # it has ended
        return False


def others_sleep() -> None:
    """Wait until no other thread of this process runs: one that ends may hold a lock of MKL, which a fork keeps."""
    deadline = time.monotonic() + 10
    while sum(map(runs, Path("/proc/self/task").glob("*"))) > 1 and time.monotonic() < deadline:
        time.sleep(0.01)


class Conformance:
    """Subclass with ``solver``, a solver with its default tolerance."""

    solver: ws.Solver
    float32, float64 = 1e-4, 1e-9  # forward error allowed against the dense twin

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("columns", [1, 3, 33, 64])
    @pytest.mark.parametrize("heads", [1, 3])
    @pytest.mark.parametrize("graph", problems.GALLERY)
    def test_equals_the_dense_twin(self, graph, heads, columns, dtype):
        J = problems.dominant(problems.GALLERY[graph](), heads, dtype)
        h = problems.normal(J, columns)
        h[:, :, 0] = 0
        solution = self.solver.prepare(J)(h)
        exact = dense_solve(J, h)
        assert solution.status is ws.Status.converged, solution.describe()
        assert (solution.value - exact).abs().max() <= getattr(self, str(dtype)[6:]) * exact.abs().max()
        assert (solution.value[:, :, 0] == 0).all()
        measured = true_residual(J, solution.value, h)
        assert abs(solution.residual - measured) <= 0.02 * measured + torch.finfo(dtype).eps

    def test_negative_diagonal_is_not_positive_definite(self):
        J = problems.dominant(problems.scattered())
        J.diag[0, 0] = -1
        assert self.solver.prepare(J)(problems.normal(J, 3)).status is ws.Status.not_positive_definite

    def test_same_bits_for_any_number_of_threads(self):
        J = problems.dominant(problems.sparse(400, 4000), 1, torch.float32)
        h, threads = problems.normal(J, 80), torch.get_num_threads()
        try:
            torch.set_num_threads(1)
            one, again = self.solver.prepare(J)(h), self.solver.prepare(J)(h)
            torch.set_num_threads(2)
            two = self.solver.prepare(J)(h)
        finally:
            torch.set_num_threads(threads)
        assert torch.equal(one.value, again.value)
        assert torch.equal(one.value, two.value)
        assert one.residual == two.residual

    def test_two_python_threads_at_once(self):
        J = problems.dominant(problems.sparse(300, 900), 2)
        h, prepared, found = problems.normal(J, 40), self.solver.prepare(J), [None] * 4
        expected = self.solver.prepare(J)(h).value

        def work(k):
            found[k] = prepared(h).value

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert all(torch.equal(value, expected) for value in found)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
    @pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
    def test_after_fork(self):
        J = problems.dominant(problems.sparse(400, 4000), 1, torch.float32)
        h = problems.normal(J, 80)
        expected = self.solver.prepare(J)(h).value
        context = multiprocessing.get_context("fork")
        receive, send = context.Pipe(duplex=False)

        def child():
            torch.set_num_threads(1)  # torch's own threads do not survive a fork
            send.send(bool(torch.equal(self.solver.prepare(J)(h).value, expected)))

        others_sleep()
        process = context.Process(target=child)
        process.start()
        try:
            assert receive.poll(60)
            assert receive.recv()
        finally:
            process.kill()
            process.join(10)
