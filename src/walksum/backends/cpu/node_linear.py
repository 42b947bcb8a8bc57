"""A linear layer with what stands before it, in one pass over the nodes: norm, activation, dropout, product, residual.

Rows are made ready a tile at a time and multiplied while they are in the first cache. Nothing between input and output
is written to memory; the backward pass makes it again. The weights of a layer of common width stay in the first cache
too, so that a plain loop over them is as quick as the product of large matrices can be.

Arrays come by address, see :mod:`walksum.backends.cpu.pointers`. ``before`` is what happens to a row first:

- gamma, beta, size, epsilon: layer normalisation of each group of ``size`` columns; a size of 0 is none.
- slope: of a leaky ReLU below zero; 0 is a ReLU, 1 is none.
- seed, threshold, scale: as in :func:`walksum.backends.cpu.dropout.dropout`; a threshold of 0 is none.
"""

from __future__ import annotations

import numpy as np

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.dropout import _bits, _hash
from walksum.backends.cpu.pointers import vector
from walksum.backends.cpu.simd import add_up, at, fma, load, nonzero, positive, put, slopes, splat, store, width
from walksum.backends.cpu.sparse_rows import _any

TILE = 48  # rows: with 64 columns, two tiles and the weights fill a first cache of 48 KB


SPARE = 4  # tiles of a space


@jit
def forward(start, stop, lanes, narrow, zero, shape, before, x, table, bias, residual, out):
    """``out = ready(x) table + bias + residual`` for the rows ``start:stop``.

    lanes, narrow: output channels that are multiplied and input channels that are normalised at once, see simd.py.
    shape: nodes, inputs and outputs. table ``[inputs, outputs]``; residual 0 is none.
    """
    nodes, inputs, outputs = shape
    X, Y, W = vector(x, nodes * inputs, zero), vector(out, nodes * outputs, zero), vector(table, inputs * outputs, zero)
    R, b = vector(residual, nodes * outputs, zero), vector(bias, outputs, zero)
    space = np.empty(SPARE * TILE * inputs, X.dtype)
    tiles, plain = _tiles(space, inputs, zero), before[2] == 0 and before[4] == 1 and before[6] == 0
    for first in range(start, stop, TILE):
        rows = min(TILE, stop - first)
        for i in range(first * outputs, (first + rows) * outputs, outputs):
            for c in range(0, outputs, width(lanes)):
                offset = load(lanes, b, c)
                if residual:
                    offset = offset + load(lanes, R, i + c)
                store(Y, i + c, offset)
        if plain:
            _add_product(lanes, X, first * inputs, inputs, 1, rows, inputs, W, outputs, Y, first * outputs)
        else:
            for k in range(rows):
                _make_ready(narrow, zero, X, first + k, k, inputs, before, tiles)
            _add_product(lanes, tiles[0], 0, inputs, 1, rows, inputs, W, outputs, Y, first * outputs)
    return space.size  # which keeps it until here


@jit
def backward(start, stop, lanes, outer, narrow, zero, shape, before, x, weight, grad, d_x, sums, room):
    """``d_x`` for the rows ``start:stop``, and what they add to the gradients of weight, bias, gamma and beta.

    Rows whose ``grad`` is zero cost a look. lanes, outer: input and output channels that are taken at once. sums: these
    four gradients one after the other, zeros for each block of ``room`` rows.
    """
    (nodes, inputs, outputs), size = shape, before[2]
    X, D, G = vector(x, nodes * inputs, zero), vector(d_x, nodes * inputs, zero), vector(grad, nodes * outputs, zero)
    W, space = vector(weight, inputs * outputs, zero), np.empty(TILE * (SPARE * inputs + outputs), X.dtype)
    tiles, of_bias = _tiles(space, inputs, zero), outputs * inputs
    given = vector(space.ctypes.data + SPARE * TILE * inputs * space.itemsize, TILE * outputs, zero)
    total, rows, count = of_bias + outputs + 2 * size, np.empty(TILE, np.int64), 0
    S = vector(sums + start // room * total * space.itemsize, total, zero)
    for i in range(start, stop):
        if _any(G, i * outputs, outputs):
            put(rows, count, i)
            for c in range(0, outputs, width(outer)):
                entries = load(outer, G, i * outputs + c)
                store(given, count * outputs + c, entries)
                store(S, of_bias + c, load(outer, S, of_bias + c) + entries)
            _make_ready(narrow, zero, X, i, count, inputs, before, tiles)
            count += 1
        else:
            for c in range(0, inputs, width(lanes)):
                store(D, i * inputs + c, splat(lanes, zero))
        if count == TILE or (i == stop - 1 and count > 0):
            _add_product(lanes, given, 0, 1, outputs, outputs, count, tiles[0], inputs, S, 0)
            for c in range(0, count * inputs, width(lanes)):
                store(tiles[0], c, splat(lanes, zero))
            _add_product(lanes, given, 0, outputs, 1, count, outputs, W, inputs, tiles[0], 0)
            for k in range(count):
                _go_back(narrow, zero, at(rows, k), k, inputs, before, tiles, S, of_bias + outputs, D)
            count = 0
    return space.size


@jit
def _tiles(space, columns, zero):
    """Rows made ready, their factors, what a norm made of them, and its roots."""
    place, step = space.ctypes.data, TILE * columns
    return (
        vector(place, step, zero),
        vector(place + step * space.itemsize, step, zero),
        vector(place + 2 * step * space.itemsize, step, zero),
        vector(place + 3 * step * space.itemsize, step, zero),
    )


@jit
def _add_product(lanes, x, first, across, along, rows, inner, table, columns, out, start):
    """``out += X table`` from place ``start`` on, with ``X[i, k] = x[first + i across + k along]``, ``[rows, inner]``.

    Four rows share a load of the table ``[inner, columns]``.
    """
    whole = rows - rows % 4
    for i in range(0, whole, 4):
        for c in range(0, columns, width(lanes)):
            row, place = start + i * columns + c, first + i * across
            y0, y1 = load(lanes, out, row), load(lanes, out, row + columns)
            y2, y3 = load(lanes, out, row + 2 * columns), load(lanes, out, row + 3 * columns)
            for k in range(inner):
                entry, weight = place + k * along, load(lanes, table, k * columns + c)
                y0 = fma(at(x, entry), weight, y0)
                y1 = fma(at(x, entry + across), weight, y1)
                y2 = fma(at(x, entry + 2 * across), weight, y2)
                y3 = fma(at(x, entry + 3 * across), weight, y3)
            store(out, row, y0)
            store(out, row + columns, y1)
            store(out, row + 2 * columns, y2)
            store(out, row + 3 * columns, y3)
    for i in range(whole, rows):
        for c in range(0, columns, width(lanes)):
            y = load(lanes, out, start + i * columns + c)
            for k in range(inner):
                y = fma(at(x, first + i * across + k * along), load(lanes, table, k * columns + c), y)
            store(out, start + i * columns + c, y)


@jit
def _make_ready(narrow, zero, x, row, to, columns, before, tiles):
    """Row ``row`` of x becomes row ``to`` of the first tile, as the product takes it."""
    (gamma, beta, size, epsilon, slope, seed, threshold, scale), (ready, factor, unit, root) = before, tiles
    place, first, least = row * columns, to * columns, np.uint64(threshold)
    if threshold > 0:
        for block in range(columns // 4):  # four entries per hash, written out as in dropout.py
            z, k = _hash(seed, place // 4 + block), first + 4 * block
            put(factor, k, scale if _bits(z, 0) >= least else zero)
            put(factor, k + 1, scale if _bits(z, 1) >= least else zero)
            put(factor, k + 2, scale if _bits(z, 2) >= least else zero)
            put(factor, k + 3, scale if _bits(z, 3) >= least else zero)
    if size == 0:
        for k in range(0, columns, width(narrow)):
            _activate(narrow, load(narrow, x, place + k), slope, threshold, factor, ready, first + k)
        return
    g, b, share = vector(gamma, size, zero), vector(beta, size, zero), 1 / size
    for c in range(0, columns, size):
        total, squares = splat(narrow, zero), splat(narrow, zero)
        for k in range(c, c + size, width(narrow)):
            total = total + load(narrow, x, place + k)
        mean = add_up(total) * share
        for k in range(c, c + size, width(narrow)):
            centred = load(narrow, x, place + k) - mean
            squares = fma(centred, centred, squares)
        inverse = 1 / np.sqrt(add_up(squares) * share + epsilon)
        put(root, first + c, inverse)
        for k in range(0, size, width(narrow)):
            normal, into = (load(narrow, x, place + c + k) - mean) * inverse, first + c + k
            store(unit, into, normal)
            _activate(
                narrow, fma(normal, load(narrow, g, k), load(narrow, b, k)), slope, threshold, factor, ready, into
            )


@jit
def _activate(narrow, value, slope, threshold, factor, ready, place):
    """``ready = factor value``, where the slope of the activation joins the factor of dropout."""
    if slope == 0:  # unlike 0 times a number, ReLU makes 0 of minus infinity; its gradient at NaN is that above zero
        value = positive(value)
        slant = nonzero(value)
    else:
        slant = slopes(value, slope)
    if threshold > 0:
        slant = slant * load(narrow, factor, place)
    store(factor, place, slant)
    store(ready, place, slant * value)


@jit
def _go_back(narrow, zero, row, to, columns, before, tiles, sums, first_sum, d_x):
    """The gradient of row ``row`` of x, from that of what was made ready of it, row ``to`` of the first tile."""
    (d_ready, factor, unit, root), size, W = tiles, before[2], width(narrow)
    place, first = row * columns, to * columns
    if size == 0:
        for k in range(0, columns, W):
            store(d_x, place + k, load(narrow, d_ready, first + k) * load(narrow, factor, first + k))
        return
    gamma, share = vector(before[0], size, zero), 1 / size
    for c in range(0, columns, size):
        # y = gamma u + beta, u = (x - mean) root: d_x = root (d_u - mean(d_u) - u mean(u d_u))
        total, along = splat(narrow, zero), splat(narrow, zero)
        for k in range(0, size, W):
            here, normal = first + c + k, load(narrow, unit, first + c + k)
            d = load(narrow, d_ready, here) * load(narrow, factor, here)
            store(sums, first_sum + k, fma(d, normal, load(narrow, sums, first_sum + k)))
            store(sums, first_sum + size + k, d + load(narrow, sums, first_sum + size + k))
            d = d * load(narrow, gamma, k)
            store(d_ready, here, d)
            total, along = total + d, fma(d, normal, along)
        mean, slope, inverse = add_up(total) * share, add_up(along) * share, at(root, first + c)
        for k in range(c, c + size, W):
            d, normal = load(narrow, d_ready, first + k), load(narrow, unit, first + k)
            store(d_x, place + k, (d - mean - normal * slope) * inverse)
