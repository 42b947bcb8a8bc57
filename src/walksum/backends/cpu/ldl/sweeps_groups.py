"""Solves with the factors of eight heads side by side: :mod:`walksum.backends.cpu.ldl.sweeps` for eight heads at once.

A sweep over few columns spends its time on finding entries; here each is found once for eight heads. The numbers of a
group lie entry by entry, eight in a row, the way :mod:`walksum.backends.cpu.ldl.numeric_groups` made them. Eight
columns of eight heads are one value of 64 lanes, head after head: ``fma(each(numbers), columns, total)`` multiplies the
columns of each head by its own number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.ldl.numeric import opened
from walksum.backends.cpu.ldl.numeric_groups import interleaved_values
from walksum.backends.cpu.ldl.sweeps import AHEAD, worse
from walksum.backends.cpu.numba_api import intrinsic, ir, types
from walksum.backends.cpu.packing import ratio
from walksum.backends.cpu.pointers import vector
from walksum.backends.cpu.simd import WIDTHS, Lanes, at, fma, largest, load, prefetch, row_pointer, store

HEADS = COLUMNS = 8
L8, L64 = WIDTHS[HEADS], WIDTHS[HEADS * COLUMNS]


def _mask(places: Any) -> Any:
    places = list(places)
    return ir.Constant(ir.VectorType(ir.IntType(32), len(places)), places)


@intrinsic
def each(typingctx: Any, numbers: Any) -> Any:
    """Eight numbers, each eight times in a row."""
    result = Lanes(numbers.dtype, HEADS * COLUMNS)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.shuffle_vector(args[0], args[0], _mask(k // COLUMNS for k in range(HEADS * COLUMNS)))

    return result(numbers), codegen


@intrinsic
def gather(typingctx: Any, array: Any, start: Any, step: Any) -> Any:
    """Eight columns of each head from a vector: those of head k from ``start + k step`` on."""
    result = Lanes(array.dtype, HEADS * COLUMNS)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        parts = [builder.load(p, align=array.dtype.bitwidth // 8) for p in _places(context, builder, sig, args)]
        while len(parts) > 1:
            whole = _mask(range(2 * parts[0].type.count))
            parts = [builder.shuffle_vector(a, b, whole) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    return result(array, start, step), codegen


@intrinsic
def scatter(typingctx: Any, array: Any, start: Any, step: Any, value: Any) -> Any:
    """Write what :func:`gather` reads."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        for k, place in enumerate(_places(context, builder, sig, args)):
            part = builder.shuffle_vector(args[3], args[3], _mask(range(COLUMNS * k, COLUMNS * (k + 1))))
            builder.store(part, place, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, start, step, value), codegen


def _places(context: Any, builder: Any, sig: Any, args: Any) -> list[Any]:
    vector = ir.VectorType(context.get_value_type(sig.args[0].dtype), COLUMNS)
    place, step = (context.cast(builder, args[k], sig.args[k], types.intp) for k in (1, 2))
    found = []
    for _ in range(HEADS):
        found.append(row_pointer(context, builder, sig.args[0], args[0], place, vector))
        place = builder.add(place, step)
    return found


WIDTH = HEADS * COLUMNS


@jit
def solve(start, stop, plan, where, columns, strides, h, mu):
    """mu of the blocks ``start:stop`` of eight columns of eight heads, a multiple of eight each; the worst error.

    ``strides`` are those of h and mu from head to head and from node to node.
    """
    diag, off, factor, inverse, _, norms = opened(plan, where)
    zero, heads, n, nnz = diag.dtype.type(0), len(diag), diag.shape[1], factor.shape[1]
    H, X = vector(h, heads * n * columns, zero), vector(mu, heads * n * columns, zero)
    L, D, (J_diag, J_off) = factor.reshape(heads * nnz), inverse.reshape(heads * n), interleaved_values(plan, where)
    x, edges, worst = np.empty(WIDTH * n, diag.dtype), off.shape[1], 0.0
    for unit in range(start, stop):
        group, first = unit // (columns // COLUMNS), unit % (columns // COLUMNS) * COLUMNS
        step, apart = strides
        begin = HEADS * group * step + first
        _forward(x, H, begin, step, apart, L[HEADS * group * nnz :], plan)
        _backward(x, X, begin, step, apart, L[HEADS * group * nnz :], D[HEADS * group * n :], plan)
        of_J = J_diag[HEADS * group * n :], J_off[HEADS * group * edges :], norms[HEADS * group :]
        worst = worse(worst, _measured(x, H, begin, step, apart, of_J, plan))
    return worst


@jit
def _forward(x, h, begin, step, apart, L, plan):
    order, rowptr, rowcol, rowslot = plan[0], plan[4], plan[5], plan[6]
    for i in range(len(order)):
        total = gather(h, begin + apart * at(order, i), step)
        for q in range(at(rowptr, i), at(rowptr, i + 1)):
            entry = -1.0 * load(L8, L, HEADS * at(rowslot, q))
            total = fma(each(entry), load(L64, x, WIDTH * at(rowcol, q)), total)
        store(x, WIDTH * i, total)


@jit
def _backward(x, mu, begin, step, apart, L, D, plan):
    order, colptr, rows = plan[0], plan[1], plan[2]
    for k in range(len(order) - 1, -1, -1):
        total = each(load(L8, D, HEADS * k)) * load(L64, x, WIDTH * k)
        for p in range(at(colptr, k), at(colptr, k + 1)):
            total = fma(each(-1.0 * load(L8, L, HEADS * p)), load(L64, x, WIDTH * at(rows, p)), total)
        store(x, WIDTH * k, total)
        scatter(mu, begin + apart * at(order, k), step, total)


@jit
def _measured(x, h, begin, step, apart, of_J, plan):
    """The worst normwise backward error ``|h - J x| / (|J| |x| + |h|)`` of the block's columns."""
    order, adjptr, adjcol, adjedge, (J_diag, J_off, norms) = plan[0], plan[7], plan[8], plan[9], of_J
    tops = np.zeros(3 * WIDTH, x.dtype)
    top_h = top_x = top_r = load(L64, tops, 0)
    for i in range(len(order)):
        v = at(order, i)
        total, own = gather(h, begin + apart * v, step), load(L64, x, WIDTH * i)
        top_h, top_x = largest(top_h, total), largest(top_x, own)
        total = fma(each(-1.0 * load(L8, J_diag, HEADS * v)), own, total)
        for p in range(at(adjptr, i), at(adjptr, i + 1)):
            if p + AHEAD < len(adjcol):
                prefetch(L64, x, WIDTH * at(adjcol, p + AHEAD))
            entry = -1.0 * load(L8, J_off, HEADS * at(adjedge, p))
            total = fma(each(entry), load(L64, x, WIDTH * at(adjcol, p)), total)
        top_r = largest(top_r, total)
    store(tops, 0, top_h)
    store(tops, WIDTH, top_x)
    store(tops, 2 * WIDTH, top_r)
    worst = 0.0
    for f in range(WIDTH):
        if tops[2 * WIDTH + f] != 0:  # 0 / 0 counts as 0
            worst = worse(worst, ratio(tops[2 * WIDTH + f], norms[f // COLUMNS], tops[WIDTH + f], tops[f]))
    return worst
