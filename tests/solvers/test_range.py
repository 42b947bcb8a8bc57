"""Near the ends of the range a residual is still measured: no overflow makes a wrong mu look converged."""

import numpy as np
import problems
import pytest
import torch

import walksum as ws
from walksum.backends import reference
from walksum.solvers.base import backward_error, norm_inf

HASTY = (
    ws.GaBP(max_steps=2),
    ws.GaBP(max_steps=2, schedule="sequential"),
    ws.CG(max_steps=2),
    ws.Chebyshev(max_steps=2),
)
HASTY += (ws.CG(max_steps=2, preconditioner="jacobi"), ws.Hybrid(max_degree=1, inner=ws.CG(max_steps=2)))


def true_error(J, mu, h):
    A, mu, h = (np.asarray(t[0], dtype=np.longdouble) for t in (J.to_dense(), mu, h))
    r = np.abs(h - A @ mu).max(0)
    return float((r / (np.abs(A).sum(1).max() * np.abs(mu).max(0) + np.abs(h).max(0))).max())


@pytest.mark.parametrize("columns", [1, 5, 40])
@pytest.mark.parametrize("solver", HASTY, ids=str)
def test_a_sum_that_overflows_does_not_hide_the_residual(solver, columns):
    J = problems.dominant(problems.grid())
    h = problems.normal(J, columns)
    h = h / h.abs().amax() * 1.5e308  # |J| |mu| + |h| is beyond the range of float64, h and mu are not
    solution = solver.prepare(J)(h)
    error = true_error(J, solution.value, h) if bool(solution.value.isfinite().all()) else np.inf
    assert error > 1e-4
    assert not solution.converged


@pytest.mark.parametrize("heads", [1, 8])
@pytest.mark.parametrize("name", ["direct", "dense", "hybrid", "auto"])
def test_what_is_right_up_there_is_called_so(name, heads):
    J = problems.dominant(problems.path(), heads)
    h = problems.normal(J, 8)
    h = h / h.abs().amax() * 1e308
    found = []
    mu = ws.solve(J, h, name, found.append, "ignore")
    if found[0].converged:
        assert true_error(J, mu, h) < 1e-14
        assert found[0].residual == pytest.approx(true_error(J, mu, h), abs=1e-15)
    else:
        assert found[0].status in (ws.Status.overflow, ws.Status.stalled)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_kernels_measure_wrong_answers_alike(dtype):
    J = problems.dominant(problems.grid(), 2, dtype)
    h = problems.normal(J, 3)
    h = h / h.abs().amax() * (0.8 * torch.finfo(dtype).max)
    mu = h / J.diag.unsqueeze(-1) / 2
    scaled = backward_error(J, mu / 1e20, h / 1e20, norm_inf(J))
    plain = reference.backward_error(J.graph, J.diag, J.off, mu, h, reference.norm_inf(J.graph, J.diag, J.off))
    assert torch.allclose(plain, scaled, rtol=1e-3)
    assert torch.allclose(backward_error(J, mu, h, norm_inf(J)), scaled, rtol=1e-3)
    assert (scaled > 1e-2).all()
