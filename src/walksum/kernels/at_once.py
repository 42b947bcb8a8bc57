"""Passes of a small solve in one call: crossing into compiled code takes as long as a sweep over a hundred nodes."""

from __future__ import annotations

import numpy as np

from walksum.kernels.compile import jit
from walksum.kernels.cpu import _dot_rows
from walksum.kernels.ldl import FINE, factorise
from walksum.kernels.ldl_group import factorise_groups
from walksum.kernels.triangular import solve
from walksum.kernels.triangular_group import solve_groups


@jit
def factorise_and_solve(heads, groups, tail, units, lanes, plan, where, columns, h, mu):
    """The worst backward error, or less the outcome of a factorisation that failed."""
    outcome = factorise_groups(0, groups, tail, plan, where) if groups else factorise(0, heads, tail, plan, where)
    if outcome != FINE:
        return -np.float64(outcome)
    return solve(0, units, lanes, plan, where, columns, h, mu)


@jit
def factorise_and_solve_groups(groups, tail, units, plan, where, columns, h, mu):
    """The same for whole groups of eight heads."""
    outcome = factorise_groups(0, groups, tail, plan, where)
    if outcome != FINE:
        return -np.float64(outcome)
    return solve_groups(0, units, plan, where, columns, h, mu)


@jit
def solve_and_dot(units, lanes, plan, where, columns, h, g, shape, upper, mu, diag, off):
    """A solve, then the gradients given the mu of the forward pass; the columns of a head are one block of lanes."""
    worst = solve(0, units, lanes, plan, where, columns, h, g)
    _dot_rows(0, shape[1], lanes, where[0], shape, upper, g, mu, diag, off, -1.0)
    return worst
