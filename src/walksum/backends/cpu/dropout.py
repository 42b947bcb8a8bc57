"""Dropout on a CPU in one pass: mask bits from a hash of seed and position, never stored."""

from __future__ import annotations

import numpy as np

from walksum.backends.cpu.compile import jit


@jit
def dropout(x, out, seed, threshold, scale):
    """``out = x * scale`` where 16 hashed bits reach ``threshold``, else ``x * 0`` (NaN stays); x and out flat."""
    n, nothing, least = x.size, x.dtype.type(0), np.uint64(threshold)
    # four elements per hash, written out: so LLVM makes vectors of the hashes
    for block in range(n // 4):
        z, first = _hash(seed, block), 4 * block
        out[first] = x[first] * (scale if _bits(z, 0) >= least else nothing)
        out[first + 1] = x[first + 1] * (scale if _bits(z, 1) >= least else nothing)
        out[first + 2] = x[first + 2] * (scale if _bits(z, 2) >= least else nothing)
        out[first + 3] = x[first + 3] * (scale if _bits(z, 3) >= least else nothing)
    for i in range(n - n % 4, n):
        out[i] = x[i] * (scale if _bits(_hash(seed, n // 4), i % 4) >= least else nothing)


@jit
def _hash(seed, position):
    """splitmix64."""
    z = np.uint64(seed) + np.uint64(position + 1) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@jit
def _bits(z, lane):
    return (z >> np.uint64(16 * lane)) & np.uint64(0xFFFF)
