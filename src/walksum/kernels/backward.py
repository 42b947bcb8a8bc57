"""The backward pass of a solve in one call: g, its backward error, and the gradients of J's values."""

from __future__ import annotations

from walksum.kernels.compile import jit
from walksum.kernels.cpu import _dot_rows
from walksum.kernels.triangular import solve


@jit
def solve_and_dot(units, lanes, plan, where, columns, h, g, shape, upper, mu, diag, off):
    """A solve, then the gradients given the mu of the forward pass; the columns of a head are one block of lanes."""
    worst = solve(0, units, lanes, plan, where, columns, h, g)
    _dot_rows(0, shape[1], lanes, where[0], shape, upper, g, mu, diag, off, -1.0)
    return worst
