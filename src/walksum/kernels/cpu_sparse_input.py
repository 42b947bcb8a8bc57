"""Sparse features times a dense matrix on a CPU, with dropout of the features on the way."""

from __future__ import annotations

import numpy as np

from walksum.kernels.compile import jit
from walksum.kernels.cpu_dropout import _bits, _hash


@jit
def product(start, stop, weight, out, seeds, threshold, scale, indptr, columns, values):
    """``out[s] = drop(X) weight[s]`` for members start to stop: weight [S, K, C], out [S, N, C], X in CSR."""
    width = weight.shape[2]
    for s in range(start, stop):
        W = weight[s]
        for row in range(len(indptr) - 1):
            acc = out[s, row]
            acc[:] = 0
            for p in range(indptr[row], indptr[row + 1]):
                if _kept(seeds[s], p, threshold):
                    value, line = values[p] * scale, W[columns[p]]
                    for c in range(width):
                        acc[c] += value * line[c]


@jit
def gradient(start, stop, grad, out, seeds, threshold, scale, indptr, rows, values, place):
    """``out[s] = drop(X)^T grad[s]``: X in CSC, ``place`` the position of each entry in CSR, whose mask it has."""
    width = grad.shape[2]
    for s in range(start, stop):
        g = grad[s]
        for column in range(len(indptr) - 1):
            acc = out[s, column]
            acc[:] = 0
            for p in range(indptr[column], indptr[column + 1]):
                if _kept(seeds[s], place[p], threshold):
                    value, line = values[p] * scale, g[rows[p]]
                    for c in range(width):
                        acc[c] += value * line[c]


@jit
def _kept(seed, position, threshold):
    return _bits(_hash(seed, position // 4), position % 4) >= np.uint64(threshold)
