"""Sums over the edges of one head and their scaling, which the kernels of learned designs share."""

from __future__ import annotations

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.simd import at


@jit
def sum_ends(values, first, second, out):
    out[:] = 0
    for e in range(len(first)):
        out[first[e]] += values[e]
        out[second[e]] += values[e]


@jit
def scale(values, first, second, root, factor, out):
    for e in range(len(first)):
        out[e] = factor * values[e] * at(root, first[e]) * at(root, second[e])


@jit
def relative_gradient(grad, off, first, second, out, share):
    """``q = grad off``, the gradient of the logarithm of every coupling; its sums around nodes, and its total."""
    total = 0.0
    share[:] = 0
    for e in range(len(first)):
        q = grad[e] * off[e]
        out[e] = q
        total += q
        share[first[e]] += q
        share[second[e]] += q
    return total
