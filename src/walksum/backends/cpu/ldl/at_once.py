"""Two passes of a small solve in one call: entering compiled code takes as long as a sweep over a hundred nodes."""

from __future__ import annotations

import numpy as np

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.ldl.numeric import FINE, factorise
from walksum.backends.cpu.ldl.sweeps import solve
from walksum.backends.cpu.products import dot_rows


@jit
def factorise_and_solve(units, lanes, plan, where, tail, blas, columns, h, mu):
    """The worst backward error, or less the outcome of a factorisation that failed."""
    outcome = factorise(0, where[1], plan, where, tail, blas)
    if outcome != FINE:
        return -np.float64(outcome)
    return solve(0, units, lanes, plan, where, columns, h, mu)


@jit
def solve_and_dot(units, lanes, plan, where, columns, h, g, shape, upper, strides, mu, diag, off):
    """A solve, then the gradients of J's values given the mu of the forward pass; the worst backward error."""
    worst = solve(0, units, lanes, plan, where, columns, h, g)
    dot_rows(0, shape[1], lanes, where[0], shape, upper, strides, g, mu, diag, off, -1.0)
    return worst
