"""Sparse features times a dense matrix on a CPU, with dropout of the features on the way."""

from __future__ import annotations

import numpy as np

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.dropout import _bits, _hash
from walksum.backends.cpu.simd import at, fma, load, splat, store, width


@jit
def product(start, stop, lanes, given, out, seeds, threshold, scale, indptr, indices, values, place):
    """``out[s] = drop(X) given[s]`` for given ``[S, K, C]``, out ``[S, N, C]``, X ``[N, K]`` by rows.

    ``place[p]`` numbers entry p for its mask, so that X by rows and by columns drop the same entries. A unit of work is
    one member and two neighbouring blocks of lanes: both share the mask.
    """
    step = width(lanes)
    pairs, zero = given.shape[2] // (2 * step), scale * 0
    for unit in range(start, stop):
        s, first = unit // pairs, 2 * step * (unit % pairs)
        left, right = given[s, :, first : first + step], given[s, :, first + step : first + 2 * step]
        to_left, to_right = out[s, :, first : first + step], out[s, :, first + step : first + 2 * step]
        seed = seeds[s]
        for row in range(len(indptr) - 1):
            a, b = splat(lanes, zero), splat(lanes, zero)
            for p in range(at(indptr, row), at(indptr, row + 1)):
                # a product with zero, not a branch: no processor can foresee dropout
                value = at(values, p) * (scale if _kept(seed, at(place, p), threshold) else zero)
                k = at(indices, p)
                a, b = fma(value, load(lanes, left, k), a), fma(value, load(lanes, right, k), b)
            store(to_left, row, a)
            store(to_right, row, b)


@jit
def _kept(seed, position, threshold):
    return _bits(_hash(seed, position >> 2), position & 3) >= np.uint64(threshold)
