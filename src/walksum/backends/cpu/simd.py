"""Lanes: a row of 8, 16 or 32 columns as one value that LLVM keeps in vector registers.

Numba has no arrays of fixed size, so a loop over columns would carry its sums through memory. Here a row is a
single LLVM vector: ``fma(J[e], load(lanes, x, k), total)`` is one or two instructions on AVX-512, four on AVX2, and
legal on every target.

``lanes`` is an unsigned integer of as many bits as there are lanes (``np.uint32(0)`` means 32). Only its type
counts: numba then compiles each width for itself, and telling them apart costs nothing at a call.
"""

from __future__ import annotations

import math
import operator
from functools import cache
from typing import Any

import numpy as np

from walksum.backends.cpu.numba_api import (
    AbstractTemplate,
    TypingError,
    cgutils,
    get_host_cpu_features,
    infer_global,
    intrinsic,
    ir,
    lower_builtin,
    models,
    register_model,
    signature,
    types,
)

WIDTHS = {8: np.uint8(0), 16: np.uint16(0), 32: np.uint32(0), 64: np.uint64(0)}


def lanes_for(columns: int) -> Any:
    """The narrowest lanes that hold so many columns."""
    return WIDTHS[8 if columns <= 8 else 16 if columns <= 16 else 32 if columns <= 32 else 64]


def registers(columns: int, itemsize: int) -> Any:
    """The widest lanes that divide so many columns, of which four rows and one more fit the vector registers."""
    return WIDTHS[math.gcd(columns, (256 if _has_avx512() else 64) // itemsize)]


@cache
def _has_avx512() -> bool:
    return bool(get_host_cpu_features().get("avx512f"))


class Lanes(types.Type):
    def __init__(self, dtype: Any, count: int):
        self.dtype, self.count = dtype, count
        super().__init__(name=f"Lanes({dtype}, {count})")


@register_model(Lanes)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, fe_type: Any):
        super().__init__(manager, fe_type, ir.VectorType(manager.lookup(fe_type.dtype).get_value_type(), fe_type.count))


def row_pointer(context: Any, builder: Any, array_type: Any, array: Any, row: Any, vector: Any) -> Any:
    """Rows may lie apart (a block of columns of a wider matrix); the columns of a row are always neighbours."""
    struct = context.make_array(array_type)(context, builder, array)
    step = builder.mul(row, builder.extract_value(struct.strides, 0))
    start = builder.gep(builder.bitcast(struct.data, ir.IntType(8).as_pointer()), [step])
    return builder.bitcast(start, vector.as_pointer())


def _broadcast(builder: Any, scalar: Any, vector: Any) -> Any:
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), mask)


def _call(builder: Any, name: str, vectors: list) -> Any:
    """An LLVM function from vectors of one type to the same type."""
    vector = vectors[0].type
    suffix = f"v{vector.count}{vector.element.intrinsic_name}"
    kind = ir.FunctionType(vector, [vector] * len(vectors))
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"{name}.{suffix}"), vectors)


def _as_vector(context: Any, builder: Any, value: Any, source: Any, target: Lanes) -> Any:
    vector = context.get_value_type(target)
    if isinstance(source, Lanes):
        return _round(builder, value, source, target, vector)
    return _broadcast(builder, context.cast(builder, value, source, target.dtype), vector)


def _round(builder: Any, value: Any, source: Lanes, target: Lanes, vector: Any) -> Any:
    if source.dtype == target.dtype:
        return value
    wider = target.dtype.bitwidth > source.dtype.bitwidth
    return builder.fpext(value, vector) if wider else builder.fptrunc(value, vector)


@intrinsic
def width(typingctx: Any, lanes: Any) -> Any:
    """The number of lanes, a constant of the compiler."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return context.get_constant(types.intp, lanes.bitwidth)

    return types.intp(lanes), codegen


@intrinsic
def at(typingctx: Any, array: Any, index: Any) -> Any:
    """``array[index]`` of a contiguous vector without Python's negative indices, which cost as much as the sums."""
    if array.layout != "C" or array.ndim != 1:
        raise TypingError(f"at() takes a contiguous vector, not {array}")

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        place = context.cast(builder, args[1], sig.args[1], types.intp)
        return builder.load(builder.gep(data, [place]), align=array.dtype.bitwidth // 8)

    return array.dtype(array, index), codegen


@intrinsic
def put(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    """``array[index] = value`` of a contiguous vector, as :func:`at` reads it."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        place = context.cast(builder, args[1], sig.args[1], types.intp)
        number = context.cast(builder, args[2], sig.args[2], array.dtype)
        builder.store(number, builder.gep(data, [place]), align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, index, value), codegen


@intrinsic
def load(typingctx: Any, lanes: Any, array: Any, row: Any) -> Any:
    """Row ``row`` of a matrix."""
    result = Lanes(array.dtype, lanes.bitwidth)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        row = context.cast(builder, args[2], sig.args[2], types.intp)
        pointer = row_pointer(context, builder, sig.args[1], args[1], row, context.get_value_type(result))
        return builder.load(pointer, align=array.dtype.bitwidth // 8)

    return result(lanes, array, row), codegen


@intrinsic
def store(typingctx: Any, array: Any, row: Any, value: Any) -> Any:
    """Write row ``row`` of a matrix, rounded to its dtype."""
    target = Lanes(array.dtype, value.count)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        row = context.cast(builder, args[1], sig.args[1], types.intp)
        vector = context.get_value_type(target)
        pointer = row_pointer(context, builder, sig.args[0], args[0], row, vector)
        builder.store(_round(builder, args[2], value, target, vector), pointer, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, row, value), codegen


@intrinsic
def prefetch(typingctx: Any, lanes: Any, array: Any, row: Any) -> Any:
    """Ask for row ``row`` of a matrix ahead of its use."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        row = context.cast(builder, args[2], sig.args[2], types.intp)
        byte, i32 = ir.IntType(8), ir.IntType(32)
        pointer = row_pointer(context, builder, sig.args[1], args[1], row, byte)
        kind = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), i32, i32, i32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        for offset in range(0, lanes.bitwidth * array.dtype.bitwidth // 8, 64):
            line = builder.gep(pointer, [ir.Constant(ir.IntType(64), offset)])
            builder.call(function, [line, i32(0), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(lanes, array, row), codegen


@intrinsic
def splat(typingctx: Any, lanes: Any, value: Any) -> Any:
    """The same number in every lane."""
    result = Lanes(value, lanes.bitwidth)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _broadcast(builder, args[1], context.get_value_type(result))

    return result(lanes, value), codegen


@intrinsic
def fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """``a b + c`` in the dtype of c, fused where the machine can; a may be a number."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vectors = [_as_vector(context, builder, v, t, c) for v, t in zip(args, sig.args, strict=True)]
        return _call(builder, "llvm.fmuladd", vectors)

    return c(a, b, c), codegen


@intrinsic
def largest(typingctx: Any, a: Any, b: Any) -> Any:
    """``max(a, |b|)`` lane by lane; NaN stays."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        # as integers, floats without a sign keep their order, and NaN is the largest
        vector = context.get_value_type(a)
        integers = ir.VectorType(ir.IntType(a.dtype.bitwidth), a.count)
        most = builder.bitcast(args[0], integers)
        value = builder.bitcast(_as_vector(context, builder, args[1], b, a), integers)
        value = builder.and_(value, ir.Constant(integers, [2 ** (a.dtype.bitwidth - 1) - 1] * a.count))
        return builder.bitcast(builder.select(builder.icmp_unsigned(">", value, most), value, most), vector)

    return a(a, b), codegen


@intrinsic
def slopes(typingctx: Any, value: Any, slope: Any) -> Any:
    """1 in the lanes where ``value`` is above zero, ``slope`` in the others, as torch has it at zero."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector = context.get_value_type(value)
        below = _as_vector(context, builder, args[1], sig.args[1], value)
        kept = builder.fcmp_ordered(">", args[0], ir.Constant(vector, [0.0] * value.count))
        return builder.select(kept, ir.Constant(vector, [1.0] * value.count), below)

    return value(value, slope), codegen


@intrinsic
def positive(typingctx: Any, value: Any) -> Any:
    """``value`` in the lanes where it is not at or below zero, 0 in the others; NaN stays."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        zeros = ir.Constant(context.get_value_type(value), [0.0] * value.count)
        return builder.select(builder.fcmp_ordered("<=", args[0], zeros), zeros, args[0])

    return value(value), codegen


@intrinsic
def nonzero(typingctx: Any, value: Any) -> Any:
    """1 in the lanes where ``value`` is not zero, NaN among them, 0 in the others."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        zeros, ones = (ir.Constant(context.get_value_type(value), [x] * value.count) for x in (0.0, 1.0))
        return builder.select(builder.fcmp_unordered("!=", args[0], zeros), ones, zeros)

    return value(value), codegen


@intrinsic
def add_up(typingctx: Any, value: Any) -> Any:
    """The sum of all lanes, by halves."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        total, count = args[0], value.count
        while count > 1:
            count //= 2
            halves = [ir.Constant(ir.VectorType(ir.IntType(32), count), list(range(k, k + count))) for k in (0, count)]
            total = builder.fadd(*(builder.shuffle_vector(total, total, half) for half in halves))
        return builder.extract_element(total, ir.Constant(ir.IntType(32), 0))

    return value.dtype(value), codegen


def _register(symbol: Any, instruction: str) -> None:
    @infer_global(symbol)
    class Template(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            lanes = [a for a in args if isinstance(a, Lanes)]
            if lanes and all(isinstance(a, Lanes | types.Float) for a in args):
                return signature(max(lanes, key=lambda a: a.dtype.bitwidth), *args)
            return None

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        a, b = (_as_vector(context, builder, v, t, sig.return_type) for v, t in zip(args, sig.args, strict=True))
        return getattr(builder, instruction)(a, b)

    for kinds in ((Lanes, Lanes), (Lanes, types.Float), (types.Float, Lanes)):
        lower_builtin(symbol, *kinds)(lower)


_register(operator.add, "fadd")
_register(operator.sub, "fsub")
_register(operator.mul, "fmul")
