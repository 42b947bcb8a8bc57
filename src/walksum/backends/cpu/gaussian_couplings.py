"""CPU kernels of the learned Laplacian: everything between linear maps and J, forth and back, in a few passes.

In torch operations a learned J of a few thousand edges takes longer than its factorisation. Nodes are read as rows of
8 to 64 numbers per head; ``by_first`` lists the edges by their first end, ``ends`` by both. What a kernel is given by
address is contiguous, see :mod:`walksum.backends.cpu.pointers`.
"""

from __future__ import annotations

import math

import numpy as np

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.edge_sums import relative_gradient, scale, sum_ends
from walksum.backends.cpu.pointers import matrix, vector
from walksum.backends.cpu.simd import add_up, at, fma, load, store, width

SMALLEST_EXPONENT = -50.0  # exp(-50) = 2e-22: below, degree normalisation would divide rounding errors
SMALLEST = math.exp(SMALLEST_EXPONENT) * (1 + 1e-5)  # at most this much is a value that was clipped
LARGEST, SLOPE = 1e6, 0.01


@jit
def gaussian_exponents(lanes, zero, shape, by_first, y, s, out):
    """``s = LeakyReLU(y)`` within LARGEST, and ``-|s_i - s_j|^2 / 2`` of every head and edge, at least -50."""
    (heads, nodes, edges, channels, row), (ptr, second), W = shape, by_first, width(lanes)
    used = heads * channels
    Y, S, out = vector(y, nodes * row, zero), vector(s, nodes * used, zero), matrix(out, heads, edges, zero)
    for i in range(nodes):
        for f in range(used):
            v = Y[i * row + f]
            v = v if v > 0 else Y.dtype.type(SLOPE) * v
            v = Y.dtype.type(LARGEST) if v > LARGEST else v
            S[i * used + f] = Y.dtype.type(-LARGEST) if v < -LARGEST else v
    for i in range(nodes):
        for k in range(heads):
            mine = i * used + k * channels
            for e in range(at(ptr, i), at(ptr, i + 1)):
                other = at(second, e) * used + k * channels
                apart = load(lanes, S, mine) - load(lanes, S, other)
                total = apart * apart
                for c in range(W, channels, W):
                    apart = load(lanes, S, mine + c) - load(lanes, S, other + c)
                    total = fma(apart, apart, total)
                exponent = -0.5 * add_up(total)
                out[k, e] = SMALLEST_EXPONENT if exponent < SMALLEST_EXPONENT else exponent


@jit
def laplacian_couplings(zero, shape, ends, strength, gate, confidence, bound, degree, off):
    """``gate A_ij / sqrt(D_i D_j)`` with ``D_i = d_i (1 + bound confidence_i)`` and d the sums of A."""
    (heads, nodes, edges, _, _), (first, second) = shape, ends
    A, d, out = (
        matrix(strength, heads, edges, zero),
        matrix(degree, heads, nodes, zero),
        matrix(off, heads, edges, zero),
    )
    G, C = vector(gate, heads, zero), vector(confidence, nodes * heads, zero)
    root = np.empty(nodes, G.dtype)
    for k in range(heads):
        sum_ends(A[k], first, second, d[k])
        for i in range(nodes):
            D = d[k, i] * (1 + bound * C[i * heads + k])
            root[i] = 1 / np.sqrt(D) if D > 0 else 1
        scale(A[k], first, second, root, G[k], out[k])


@jit
def laplacian_gradient(lanes, zero, shape, by_first, ends, values, bound, grad, d_y, d_gate):
    """The gradients of y (columns of s, then of the confidences) and of the logarithm of each gate."""
    (heads, nodes, edges, channels, row), (ptr, second), W = shape, by_first, width(lanes)
    used, (s, strength, degree, confidence, off) = heads * channels, values
    S, C = vector(s, nodes * used, zero), vector(confidence, nodes * heads, zero)
    A, d, J_off = (
        matrix(strength, heads, edges, zero),
        matrix(degree, heads, nodes, zero),
        matrix(off, heads, edges, zero),
    )
    G, Y, d_gate = matrix(grad, heads, edges, zero), vector(d_y, nodes * row, zero), vector(d_gate, heads, zero)
    weight, share = np.empty((heads, edges), S.dtype), np.empty(nodes, S.dtype)
    for k in range(heads):
        d_gate[k] = relative_gradient(G[k], J_off[k], ends[0], ends[1], weight[k], share)
        for i in range(nodes):
            half, c = -share[i] / 2, C[i * heads + k]
            alone = not d[k, i] > 0
            Y[i * row + used + k] = 0 if alone else half * bound * c * (1 - c) / (1 + bound * c)
            share[i] = 0 if alone else half / d[k, i]
        for e in range(edges):
            a = A[k, e]
            q = weight[k, e] + a * (at(share, ends[0][e]) + at(share, ends[1][e]))
            weight[k, e] = q if a > SMALLEST else 0
    _clear(Y, nodes, row, used)
    for i in range(nodes):
        for k in range(heads):
            for c in range(0, channels, W):
                at_i, mine = i * row + k * channels + c, load(lanes, S, i * used + k * channels + c)
                total = load(lanes, Y, at_i)
                for e in range(at(ptr, i), at(ptr, i + 1)):
                    j = at(second, e)
                    pull = weight[k, e] * (load(lanes, S, j * used + k * channels + c) - mine)
                    total, at_j = total + pull, j * row + k * channels + c
                    store(Y, at_j, load(lanes, Y, at_j) - pull)
                store(Y, at_i, total)
    for i in range(nodes):
        for f in range(used):
            v = S[i * used + f]
            slope = S.dtype.type(1) if v > 0 else S.dtype.type(SLOPE)
            Y[i * row + f] = 0 if v >= LARGEST or v <= -LARGEST else slope * Y[i * row + f]


@jit
def _clear(Y, nodes, row, used):
    for i in range(nodes):
        Y[i * row : i * row + used] = 0
