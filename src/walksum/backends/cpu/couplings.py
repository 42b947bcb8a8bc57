"""CPU kernels of the learned designs: everything between linear maps and J, forward and backward, in a few passes.

In torch operations a learned J of a few thousand edges takes longer than its factorisation. Nodes are read as rows of
8 to 64 numbers per head; ``by_first`` lists the edges by their first end, ``ends`` by both. What a kernel is given by
address is contiguous, see :mod:`walksum.backends.cpu.pointers`.
"""

from __future__ import annotations

import math

import numpy as np

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.pointers import matrix, vector
from walksum.backends.cpu.simd import add_up, at, fma, load, store, width

SMALLEST_EXPONENT = -50.0  # exp(-50) = 2e-22: below, degree normalisation would divide rounding errors
SMALLEST = math.exp(SMALLEST_EXPONENT) * (1 + 1e-5)  # at most this much is a value that was clipped
LARGEST, SLOPE = 1e6, 0.01
SAFE = 1e-20  # squares between this and its inverse are far from the ends of float32


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
    A, d = matrix(strength, heads, edges, zero), matrix(degree, heads, nodes, zero)
    out, G, C = matrix(off, heads, edges, zero), vector(gate, heads, zero), vector(confidence, nodes * heads, zero)
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
    A, d = matrix(strength, heads, edges, zero), matrix(degree, heads, nodes, zero)
    J_off, G = matrix(off, heads, edges, zero), matrix(grad, heads, edges, zero)
    Y, d_gate = vector(d_y, nodes * row, zero), vector(d_gate, heads, zero)
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


@jit
def cosines(lanes, zero, shape, by_first, h, unit, length, cosine):
    """Unit vectors and lengths of the nodes, ``[H, N, F]`` and ``[H, N]``, and the cosine of every edge ``[H, E]``.

    A zero vector stays, with length 1 and cosine 0.
    """
    (heads, nodes, edges, channels), (ptr, second), W = shape, by_first, width(lanes)
    X, U = vector(h, heads * nodes * channels, zero), vector(unit, heads * nodes * channels, zero)
    size, out = vector(length, heads * nodes, zero), matrix(cosine, heads, edges, zero)
    for r in range(heads * nodes):
        total = load(lanes, X, r * channels) * load(lanes, X, r * channels)
        for c in range(W, channels, W):
            total = fma(load(lanes, X, r * channels + c), load(lanes, X, r * channels + c), total)
        square = add_up(total)
        root = np.sqrt(square) if SAFE < square < 1 / SAFE else _careful_length(X, r, channels)
        size[r] = root
        inverse = 1 / root
        if inverse * root > 0.5:  # not so where the inverse is no normal number
            for c in range(0, channels, W):
                store(U, r * channels + c, inverse * load(lanes, X, r * channels + c))
        else:
            for f in range(r * channels, (r + 1) * channels):
                U[f] = X[f] / root
    for k in range(heads):
        for i in range(nodes):
            mine = (k * nodes + i) * channels
            for e in range(at(ptr, i), at(ptr, i + 1)):
                other = (k * nodes + at(second, e)) * channels
                total = load(lanes, U, mine) * load(lanes, U, other)
                for c in range(W, channels, W):
                    total = fma(load(lanes, U, mine + c), load(lanes, U, other + c), total)
                out[k, e] = add_up(total)


@jit
def _careful_length(X, r, channels):
    """The length of a row whose squares may leave the range of its dtype; 1 for zeros."""
    most, total = 0.0, 0.0
    for f in range(r * channels, (r + 1) * channels):
        v = abs(X[f])
        if not v <= most and most == most:  # NaN enters and stays
            most = np.float64(v)
    if most == 0:
        return X.dtype.type(1)
    for f in range(r * channels, (r + 1) * channels):
        total += (X[f] / most) ** 2
    return X.dtype.type(most * np.sqrt(total))


@jit
def dominant_couplings(zero, shape, ends, cosine, confidence, sign, margin, diag, off):
    """``sign cos_ij / sqrt(D_i D_j)`` with ``D_i = (1 + margin) sum_j |cos_ij| + confidence_i``."""
    (heads, nodes, edges, _), (first, second) = shape, ends
    C, V = matrix(cosine, heads, edges, zero), vector(confidence, nodes * heads, zero)
    D, out = matrix(diag, heads, nodes, zero), matrix(off, heads, edges, zero)
    root, size = np.empty(nodes, V.dtype), np.empty(edges, V.dtype)
    for k in range(heads):
        for e in range(edges):
            size[e] = abs(C[k, e])
        sum_ends(size, first, second, D[k])
        for i in range(nodes):
            D[k, i] = (1 + margin) * D[k, i] + V[i * heads + k]
            root[i] = 1 / np.sqrt(D[k, i])
        scale(C[k], first, second, root, sign, out[k])


@jit
def dominant_gradient(zero, shape, ends, values, sign, margin, grad, d_cosine, d_confidence):
    """The gradients of every cosine ``[H, E]`` and confidence ``[N, H]``."""
    (heads, nodes, edges, _), (first, second), (cosine, diag, off) = shape, ends, values
    C, D, J_off = matrix(cosine, heads, edges, zero), matrix(diag, heads, nodes, zero), matrix(off, heads, edges, zero)
    G, out = matrix(grad, heads, edges, zero), matrix(d_cosine, heads, edges, zero)
    d_V = vector(d_confidence, nodes * heads, zero)
    share, root = np.empty(nodes, d_V.dtype), np.empty(nodes, d_V.dtype)
    for k in range(heads):
        relative_gradient(G[k], J_off[k], first, second, out[k], share)
        for i in range(nodes):
            share[i] = -share[i] / (2 * D[k, i])
            d_V[i * heads + k] = share[i]
            root[i] = 1 / np.sqrt(D[k, i])
        for e in range(edges):
            i, j, c = first[e], second[e], C[k, e]
            around = (1 + margin) * (at(share, i) + at(share, j))
            out[k, e] = sign * G[k, e] * at(root, i) * at(root, j) + (around if c > 0 else -around if c < 0 else 0)


@jit
def pairwise_logits(lanes, zero, shape, ends, h, own, other, bias, maps, logits):
    """The linear maps of every node ``[2, H, N]``, and their sums at both ends of every edge ``[2, H, E]``."""
    (heads, nodes, edges, channels), (first, second), W = shape, ends, width(lanes)
    X, size = vector(h, heads * nodes * channels, zero), heads * channels
    A, B = vector(own, size, zero), vector(other, size, zero)
    M, L, b = matrix(maps, 2 * heads, nodes, zero), matrix(logits, 2 * heads, edges, zero), vector(bias, heads, zero)
    for k in range(heads):
        for i in range(nodes):
            row = (k * nodes + i) * channels
            x = load(lanes, X, row)
            mine, theirs = x * load(lanes, A, k * channels), x * load(lanes, B, k * channels)
            for c in range(W, channels, W):
                x = load(lanes, X, row + c)
                mine = fma(x, load(lanes, A, k * channels + c), mine)
                theirs = fma(x, load(lanes, B, k * channels + c), theirs)
            M[k, i], M[heads + k, i] = add_up(mine) + b[k], add_up(theirs)
        for e in range(edges):
            i, j = first[e], second[e]
            L[k, e], L[heads + k, e] = M[k, i] + M[heads + k, j], M[k, j] + M[heads + k, i]


@jit
def pairwise_couplings(zero, shape, ends, cosine, precisions, epsilon, diag, off):
    """``epsilon sqrt(a_ij c_ij) cos_ij / sqrt(D_i D_j)`` with D the sums of each node's a or c."""
    (heads, nodes, edges, _), (first, second) = shape, ends
    C, P = matrix(cosine, heads, edges, zero), matrix(precisions, 2 * heads, edges, zero)
    D, out = matrix(diag, heads, nodes, zero), matrix(off, heads, edges, zero)
    root = np.empty(nodes, C.dtype)
    for k in range(heads):
        D[k] = 0
        for e in range(edges):
            D[k, first[e]] += P[k, e]
            D[k, second[e]] += P[heads + k, e]
            out[k, e] = np.sqrt(P[k, e] * P[heads + k, e]) * C[k, e]
        for i in range(nodes):
            root[i] = 1 / np.sqrt(D[k, i]) if D[k, i] > 0 else 1
        scale(out[k], first, second, root, epsilon, out[k])


@jit
def pairwise_gradient(zero, shape, ends, values, epsilon, grad, d_cosine, d_precisions):
    """The gradients of every cosine ``[H, E]`` and of a and c ``[2, H, E]``."""
    (heads, nodes, edges, _), (first, second), (precisions, diag, off) = shape, ends, values
    P, D = matrix(precisions, 2 * heads, edges, zero), matrix(diag, heads, nodes, zero)
    J_off, G = matrix(off, heads, edges, zero), matrix(grad, heads, edges, zero)
    d_C, d_P = matrix(d_cosine, heads, edges, zero), matrix(d_precisions, 2 * heads, edges, zero)
    share, root = np.empty(nodes, G.dtype), np.empty(nodes, G.dtype)
    for k in range(heads):
        relative_gradient(G[k], J_off[k], first, second, d_C[k], share)
        for i in range(nodes):
            alone = not D[k, i] > 0
            share[i] = 0 if alone else -share[i] / (2 * D[k, i])
            root[i] = 1 if alone else 1 / np.sqrt(D[k, i])
        for e in range(edges):
            i, j, q, a, c = first[e], second[e], d_C[k, e] / 2, P[k, e], P[heads + k, e]
            d_P[k, e], d_P[heads + k, e] = q / a + at(share, i), q / c + at(share, j)
            d_C[k, e] = epsilon * np.sqrt(a * c) * G[k, e] * at(root, i) * at(root, j)


@jit
def gradient_of_cosines(lanes, zero, shape, by_first, values, grad, out):
    """The gradient of the rows of cosines, ``sum_j grad_ij (u_j - cos_ij u_i) / length_i``, ``[H, N, F]``."""
    (heads, nodes, edges, channels), (ptr, second), W = shape, by_first, width(lanes)
    unit, length, cosine = values
    U, size = vector(unit, heads * nodes * channels, zero), vector(length, heads * nodes, zero)
    C, G = matrix(cosine, heads, edges, zero), matrix(grad, heads, edges, zero)
    Y = vector(out, heads * nodes * channels, zero)
    Y[:] = 0
    for k in range(heads):
        for i in range(nodes):
            row = (k * nodes + i) * channels
            for c in range(0, channels, W):
                mine, total = load(lanes, U, row + c), load(lanes, Y, row + c)
                for e in range(at(ptr, i), at(ptr, i + 1)):
                    there = (k * nodes + at(second, e)) * channels + c
                    g, back, theirs = G[k, e], -G[k, e] * C[k, e], load(lanes, U, there)
                    total = fma(g, theirs, fma(back, mine, total))
                    store(Y, there, fma(g, mine, fma(back, theirs, load(lanes, Y, there))))
                store(Y, row + c, total)
        for r in range(k * nodes, (k + 1) * nodes):
            inverse = 1 / size[r]
            if inverse * size[r] > 0.5:
                for f in range(r * channels, (r + 1) * channels, W):
                    store(Y, f, inverse * load(lanes, Y, f))
            else:  # the inverse of a length close to 0 is no number of this dtype
                for f in range(r * channels, (r + 1) * channels):
                    Y[f] /= size[r]


@jit
def gradient_of_logits(lanes, zero, shape, ends, h, maps, d_logits, d_maps, d_h, d_weights):
    """Adds what :func:`pairwise_logits` gives to the gradient of h; the gradients of own, other ``[2, H, F]``, bias."""
    (heads, nodes, edges, channels), (first, second), W = shape, ends, width(lanes)
    own, other = maps
    X, size = vector(h, heads * nodes * channels, zero), heads * channels
    A, B = vector(own, size, zero), vector(other, size, zero)
    L, M = matrix(d_logits, 2 * heads, edges, zero), matrix(d_maps, 2 * heads, nodes, zero)
    Y, d_W = vector(d_h, heads * nodes * channels, zero), vector(d_weights, (2 * channels + 1) * heads, zero)
    M[:] = 0
    d_W[:] = 0
    for k in range(heads):
        mine, theirs = M[k], M[heads + k]
        for e in range(edges):
            i, j, a, c = first[e], second[e], L[k, e], L[heads + k, e]
            mine[i] += a
            theirs[j] += a
            mine[j] += c
            theirs[i] += c
        total = 0.0
        for i in range(nodes):
            total += mine[i]
        d_W[2 * heads * channels + k] = total
        for c in range(0, channels, W):
            weight_a, weight_b = load(lanes, A, k * channels + c), load(lanes, B, k * channels + c)
            sum_a, sum_b = load(lanes, d_W, k * channels + c), load(lanes, d_W, (heads + k) * channels + c)
            for i in range(nodes):
                row = (k * nodes + i) * channels + c
                x = load(lanes, X, row)
                sum_a, sum_b = fma(mine[i], x, sum_a), fma(theirs[i], x, sum_b)
                store(Y, row, fma(mine[i], weight_a, fma(theirs[i], weight_b, load(lanes, Y, row))))
            store(d_W, k * channels + c, sum_a)
            store(d_W, (heads + k) * channels + c, sum_b)
