"""Columns into the scratch of an iteration and back: in the order of its sweeps, scaled to size one; their errors."""

from __future__ import annotations

import numpy as np

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.simd import at, largest, load, prefetch, splat, store, width
from walksum.backends.cpu.tiling import AHEAD


@jit
def pack(lanes, h, start, stop, order, b, sizes):
    """Columns in the new order, scaled by a power of two: exact, and their squares cannot overflow."""
    whole, columns = stop - start == width(lanes), h[:, start:stop]
    if not whole:
        columns = np.zeros_like(b)
        for i in range(h.shape[0]):  # slices that are assigned take numba a second for every kernel that packs
            for c in range(stop - start):
                columns[i, c] = h[i, start + c]
    column_sizes(lanes, columns, sizes)  # which is the residual of x = 0
    scale, exponent = np.ones((1, b.shape[1]), h.dtype), np.zeros(b.shape[1], np.int64)
    limit = 120 if h.itemsize == 4 else 1000
    for c in range(stop - start):
        if sizes[0, c] > 0:
            exponent[c] = max(-limit, min(limit, np.int64(np.floor(np.log2(sizes[0, c])))))
            scale[0, c] = 2.0 ** -exponent[c]
            sizes[0, c] *= scale[0, c]
            sizes[2, c] = sizes[0, c]
    _gather(lanes, columns, order, load(lanes, scale, 0), b)
    return exponent


@jit
def column_sizes(lanes, h, sizes):
    """The largest of every column, into the first row of sizes."""
    most = splat(lanes, 0.0)
    for i in range(h.shape[0]):
        most = largest(most, load(lanes, h, i))
    store(sizes, 0, most)


@jit
def _gather(lanes, h, order, scale, b):
    for i in range(order.size):
        if i + AHEAD < order.size:
            prefetch(lanes, h, at(order, i + AHEAD))
        store(b, i, scale * load(lanes, h, at(order, i)))


@jit
def unpack(lanes, x, exponent, start, stop, order, out):
    """Back to the old order and size."""
    scale, whole = np.zeros((1, x.shape[1]), x.dtype), stop - start == width(lanes)
    for c in range(stop - start):
        scale[0, c] = 2.0 ** exponent[c]
    columns = out[:, start:stop] if whole else np.empty_like(x)
    factor = load(lanes, scale, 0)
    for i in range(order.size):
        store(columns, at(order, i), factor * load(lanes, x, i))
    if not whole:
        for i in range(out.shape[0]):
            for c in range(stop - start):
                out[i, start + c] = columns[i, c]


@jit
def lost(most, exponent, number):
    """The backward error of what leaves the range of the dtype on the way back, from the largest of every column."""
    error = 0.0
    for c in range(most.size):
        size = most[c] * 2.0 ** exponent[c]
        if size > number.max:
            return np.inf
        if most[c] > 0 and size < number.tiny:
            error = max(error, min(1.0, number.tiny * number.eps / size))
    return error


@jit
def ratio(residual, norm, size_x, size_h):
    """``residual / (norm size_x + size_h)``; a sum that overflows would make a quotient of 0 of any residual."""
    scale = norm * size_x + size_h
    if scale < np.inf:
        return residual / scale
    size = max(size_x, size_h)
    return residual / size / (norm * (size_x / size) + size_h / size)
