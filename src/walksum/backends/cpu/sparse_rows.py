"""Products of a dense matrix that holds mostly zeros: each row is scanned, and only what is not zero is multiplied.

A scan costs little beside a dense product, so nothing is kept from one call to the next and no change is ever missed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.dropout import _bits, _hash
from walksum.backends.cpu.numba_api import intrinsic, ir, types
from walksum.backends.cpu.simd import at, fma, load, store, width

SCANNED = 32  # numbers compared with zero at once


@intrinsic
def _nonzero(typingctx: Any, array: Any, start: Any) -> Any:
    """Bit k tells whether number ``start + k`` of a flat array is not zero (NaN is not), for k up to SCANNED."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        element = context.get_value_type(array.dtype)
        vector = ir.VectorType(element, SCANNED)
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        place = builder.gep(data, [context.cast(builder, args[1], sig.args[1], types.intp)])
        row = builder.load(builder.bitcast(place, vector.as_pointer()), align=array.dtype.bitwidth // 8)
        bits = builder.fcmp_unordered("!=", row, ir.Constant(vector, [0.0] * SCANNED))
        return builder.zext(builder.bitcast(bits, ir.IntType(SCANNED)), ir.IntType(64))

    return types.uint64(array, start), codegen


@intrinsic
def _lowest(typingctx: Any, bits: Any) -> Any:
    """The place of the lowest bit that is set."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), codegen


@jit
def _append(x, row, columns, seed, threshold, scale, index, value, count):
    """Add the entries of a row that are not zero and that dropout keeps, times ``scale``; how many there are then.

    The mask is that of :func:`walksum.backends.cpu.dropout.dropout` over the whole matrix.
    """
    first, least, one = row * columns, np.uint64(threshold), np.uint64(1)
    for start in range(0, columns, SCANNED):
        left = columns - start
        if first + start + SCANNED <= x.size:
            bits = _nonzero(x, first + start)
            if left < SCANNED:
                bits &= (one << np.uint64(left)) - one
        else:  # the end of the last rows: reading on would leave the array
            bits = np.uint64(0)
            for k in range(min(left, SCANNED)):
                bits |= np.uint64(at(x, first + start + k) != 0) << np.uint64(k)
        while bits != 0:
            k = start + _lowest(bits)
            bits &= bits - one
            entry, place = at(x, first + k), first + k
            index[count], value[count] = k, entry * scale
            # a sum, not a branch: a branch on random numbers is mispredicted
            count += _bits(_hash(seed, place >> 2), place & 3) >= least or entry != entry
    return count


@jit
def _grown(array, size):
    longer = np.empty(size, array.dtype)
    longer[: array.size] = array
    return longer


@jit
def product(start, stop, lanes, x, columns, weight, bias, out, seed, threshold, scale):
    """``out = drop(x) weight + bias`` for the rows ``start:stop``; returns their entries: row pointers, index, value.

    lanes: the width of a block of channels, see simd.py. x: flat, rows of ``columns`` entries. weight, bias, out:
    ``[columns, B, width]``, ``[B, width]`` and ``[N, B, width]``, the first two axes in one. seed, threshold, scale: as
    in :func:`walksum.backends.cpu.dropout.dropout`; a threshold of 0 drops nothing.
    """
    blocks, size = bias.shape[0], columns + (stop - start) * (columns // 8)
    pointer = np.zeros(stop - start + 1, np.int64)
    index, value = np.empty(size, np.int32), np.empty(size, x.dtype)
    for i in range(start, stop):
        first = pointer[i - start]
        if first + columns > index.size:
            index, value = _grown(index, 2 * index.size + columns), _grown(value, 2 * value.size + columns)
        last = _append(x, i, columns, seed, threshold, scale, index, value, first)
        pointer[i - start + 1] = last
        for b in range(blocks):
            total = load(lanes, bias, b)
            for e in range(first, last):
                total = fma(at(value, e), load(lanes, weight, blocks * at(index, e) + b), total)
            store(out, blocks * i + b, total)
    count = pointer[stop - start]
    return pointer, index[:count].copy(), value[:count].copy()


@jit
def transposed_product(lanes, pointer, index, value, columns, grad, blocks):
    """``X^T grad``, ``[columns B, width]``, for the entries of the rows that ``grad [n B, width]`` belongs to."""
    total = np.zeros((columns * blocks, width(lanes)), value.dtype)
    for i in range(pointer.size - 1):
        for b in range(blocks):
            mine = load(lanes, grad, blocks * i + b)
            for e in range(pointer[i], pointer[i + 1]):
                row = blocks * at(index, e) + b
                store(total, row, fma(at(value, e), mine, load(lanes, total, row)))
    return total


@jit
def nonzero_rows(x, found):
    """Write the rows of a matrix that are not zero into ``found``; how many, or -1 where it has no room for all."""
    count, columns, flat = 0, x.shape[1], x.reshape(-1)
    for i in range(x.shape[0]):
        if _any(flat, i * columns, columns):
            if count == found.size:
                return -1
            found[count] = i
            count += 1
    return count


@jit
def _any(x, first, columns):
    whole = columns - columns % SCANNED
    for start in range(first, first + whole, SCANNED):
        if _nonzero(x, start) != 0:
            return True
    rest = 0
    for k in range(first + whole, first + columns):
        rest += at(x, k) != 0
    return rest > 0
