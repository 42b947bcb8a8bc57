"""What is prepared for a J is kept with it: judged by its live values, and never copied or sent along."""

import copy
import gc
import pickle
import subprocess
import sys

import pytest
import torch
from problems import dominant, grid, normal

import walksum as ws
from gallery import dense_solve
from reference import true_residual

SOLVERS = {
    "gabp": ws.GaBP(tol=1e-5),
    "gabp sequential": ws.GaBP(tol=1e-5, schedule="sequential"),
    "gabp by messages": ws.GaBP(tol=1e-6, stop="messages"),
    "cg": ws.CG(),
    "cg jacobi": ws.CG(preconditioner="jacobi"),
    "dense": ws.Dense(),
    "inverse": ws.Inverse(),
    "inverse half": ws.Inverse("half"),
    "direct": ws.Direct(),
    "hybrid": ws.Hybrid(max_degree=2),
    "chebyshev": ws.Chebyshev(),
    "multigrid": ws.Multigrid(),
    "unrolled": ws.Unrolled(steps=200, tol=1e-5),
    "auto": "auto",
}


def through_numpy(values, factor):
    values.detach().numpy()[:] *= factor


def through_data(values, factor):
    values.data.mul_(factor)


def other_memory(values, factor):
    values.data = values.data * factor


@pytest.mark.parametrize("change", [through_numpy, through_data, other_memory])
@pytest.mark.parametrize("place", ["diag", "off", "both"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_values_changed_behind_the_version_counter(solver, place, change):
    J = dominant(grid(), 1, torch.float32)
    h, seen = normal(J, 3), []
    ws.solve(J, h, SOLVERS[solver], observe=seen.append)
    if place != "off":
        change(J.diag, 2.0)
    if place != "diag":
        change(J.off, 0.5 if place == "off" else 2.0)
    mu = ws.solve(J, h, SOLVERS[solver], observe=seen.append)
    assert seen[1].converged
    assert seen[1].residual <= 2e-5
    assert seen[1].residual == pytest.approx(true_residual(J, mu, h), rel=0.1, abs=2e-7)
    torch.testing.assert_close(mu.double(), dense_solve(J, h), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("solver", [name for name in SOLVERS if name != "auto"])
def test_a_prepared_solver_follows_the_values_too(solver):
    J = dominant(grid(), 1, torch.float32)
    h = normal(J, 3)
    prepared = SOLVERS[solver].prepare(J)
    through_numpy(J.diag, 3.0)
    solution = prepared(h)
    assert solution.converged
    torch.testing.assert_close(solution.value.double(), dense_solve(J, h), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("solver", [name for name in SOLVERS if name != "unrolled"])
def test_values_changed_between_forward_and_backward(solver):
    J = dominant(grid(), 1, torch.float32)
    h, seen = normal(J, 3).requires_grad_(), []
    mu = ws.solve(J, h, SOLVERS[solver], observe=seen.append)
    through_numpy(J.diag, 3.0)
    grad = torch.ones_like(mu)
    mu.backward(grad)
    assert seen[1].converged
    torch.testing.assert_close(h.grad.double(), dense_solve(J, grad), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_deep_copy_stands_on_its_own(solver):
    J = dominant(grid(), 1, torch.float32)
    J = ws.Precision(J.graph, torch.nn.Parameter(J.diag), torch.nn.Parameter(J.off))
    h, seen = normal(J, 3), []
    expected = dense_solve(J, h).detach()
    ws.solve(J, h, SOLVERS[solver])
    for copied in (copy.deepcopy(J), copy.copy(J), pickle.loads(pickle.dumps(J))):
        assert not copied.prepared
    copied = copy.deepcopy(J)
    with torch.no_grad():
        J.diag.mul_(3)
    del J
    gc.collect()
    junk = [torch.full((1, 49), torch.nan) for _ in range(100)]
    mu = ws.solve(copied, h, SOLVERS[solver], observe=seen.append)
    assert seen[0].converged
    assert len(junk) == 100
    torch.testing.assert_close(mu.detach().double(), expected, rtol=1e-3, atol=1e-3)


LOADED = """
import pickle, sys, torch, walksum as ws
J, h, expected, solver = pickle.load(open(sys.argv[1], "rb"))
mu = ws.solve(J, h, solver, on_nonconverged="raise")
assert torch.allclose(mu, expected, rtol=1e-3, atol=1e-3)
"""


def test_a_solved_precision_travels_to_another_process(tmp_path):
    J = dominant(grid(), 1, torch.float32)
    J.diag.add_(0)  # version 1, which loading leaves too
    J.off.add_(0)
    h = normal(J, 3)
    solved = [ws.solve(J, h, solver) for solver in ("auto", "direct", "hybrid", "cg")]
    (tmp_path / "J.pkl").write_bytes(pickle.dumps((J, h, solved[0], "direct")))
    done = subprocess.run([sys.executable, "-c", LOADED, str(tmp_path / "J.pkl")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("solver", ["direct", "hybrid", "cg", "gabp"])
def test_what_is_prepared_cannot_be_copied(solver, copied):
    prepared = SOLVERS[solver].prepare(dominant(grid()))
    with pytest.raises(TypeError, match=r"cannot be copied or pickled.*solver\.prepare\(J\)"):
        copied(prepared)
    if solver == "direct":
        with pytest.raises(TypeError, match="Factor cannot be copied or pickled"):
            copied(prepared.factor)


@pytest.mark.parametrize("solver", [ws.Direct(), ws.Dense(), ws.Inverse()])
def test_the_tolerance_of_elimination_grows_with_the_root_of_the_size(solver):
    eps = torch.finfo(torch.float64).eps
    assert solver.prepare(dominant(grid(4))).tol == 16 * eps
    assert solver.prepare(dominant(grid(20))).tol == pytest.approx(20 * eps)
