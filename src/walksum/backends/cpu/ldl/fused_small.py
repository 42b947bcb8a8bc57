"""Passes of a small solve in one call: crossing into compiled code takes as long as a sweep over a hundred nodes.

So does handing over a dozen arrays: the plan comes as the address of its ``book`` (addresses and lengths).
"""

from __future__ import annotations

import numpy as np

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.ldl.numeric import FINE, factorise
from walksum.backends.cpu.ldl.numeric8 import factorise_groups
from walksum.backends.cpu.ldl.sweeps import solve
from walksum.backends.cpu.ldl.sweeps8 import solve_groups
from walksum.backends.cpu.pointers import vector
from walksum.backends.cpu.products import _dot_rows


@jit
def read(book):
    """The plan of :class:`walksum.backends.cpu.ldl.symbolic.Symbolic` from the address of its book."""
    B, narrow, wide = vector(book, 20, np.int64(0)), np.int32(0), np.int64(0)
    columns = vector(B[2], B[3], wide), vector(B[4], B[5], narrow), vector(B[6], B[7], narrow)
    by_row = vector(B[8], B[9], wide), vector(B[10], B[11], narrow), vector(B[12], B[13], narrow)
    of_J = vector(B[14], B[15], wide), vector(B[16], B[17], narrow), vector(B[18], B[19], narrow)
    return vector(B[0], B[1], narrow), *columns, *by_row, *of_J


@jit
def factorise_and_solve(heads, groups, tail, units, lanes, book, where, columns, h, mu):
    """The worst backward error, or less the outcome of a factorisation that failed."""
    plan = read(book)
    outcome = factorise_groups(0, groups, tail, plan, where) if groups else factorise(0, heads, tail, plan, where)
    if outcome != FINE:
        return -np.float64(outcome)
    return solve(0, units, lanes, plan, where, columns, h, mu)


@jit
def factorise_and_solve_groups(groups, tail, units, book, where, columns, h, mu):
    """The same for whole groups of eight heads."""
    plan = read(book)
    outcome = factorise_groups(0, groups, tail, plan, where)
    if outcome != FINE:
        return -np.float64(outcome)
    return solve_groups(0, units, plan, where, columns, h, mu)


@jit
def solve_and_dot(units, lanes, book, where, columns, h, g, shape, upper, mu, diag, off):
    """A solve, then the gradients given the mu of the forward pass; the columns of a head are one block of lanes."""
    worst = solve(0, units, lanes, read(book), where, columns, h, g)
    _dot_rows(0, shape[1], lanes, where[0], shape, upper, g, mu, diag, off, -1.0)
    return worst
