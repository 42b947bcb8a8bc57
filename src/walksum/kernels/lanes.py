"""Vector registers for numba: rows of 8, 16 or 32 numbers that stay in registers across a loop.

LLVM cannot prove that two rows of one array do not overlap, so plain loops store and reload the accumulating row at
every step. These intrinsics name the vectors outright. ``lanes`` is a tuple with one item for every eight numbers: its
length is part of its type, so the width is known when the kernel is compiled.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model

L8, L32 = (0,), (0, 0, 0, 0)


class Vector(types.Type):
    """``8 * len(lanes)`` numbers of one dtype."""

    def __init__(self, dtype: Any, count: int):
        self.dtype, self.count = dtype, count
        super().__init__(name=f"Vector({dtype}, {count})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vector):
        element = manager.lookup(vector.dtype).get_value_type()
        super().__init__(manager, vector, ir.VectorType(element, vector.count))


@intrinsic
def load(typingctx: Any, array: Any, offset: Any, lanes: Any) -> Any:
    """The numbers of the contiguous 1-d ``array`` from ``offset`` on."""
    result = Vector(array.dtype, 8 * lanes.count)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature, args, result)
        return builder.load(pointer, align=result.dtype.bitwidth // 8)

    return result(array, types.intp, lanes), codegen


@intrinsic
def at(typingctx: Any, array: Any, index: Any) -> Any:
    """``array[index]`` without the test for a negative index, which costs a fifth of a sweep."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.load(builder.gep(data, [args[1]]))

    return array.dtype(array, types.intp), codegen


@intrinsic
def store(typingctx: Any, array: Any, offset: Any, vector: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature, args, vector)
        builder.store(args[2], pointer, align=vector.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), codegen


@intrinsic
def splat(typingctx: Any, number: Any, lanes: Any) -> Any:
    """The same number in every place."""
    result = Vector(number, 8 * lanes.count)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _broadcast(builder, args[0], result)

    return result(number, lanes), codegen


@intrinsic
def repeat(typingctx: Any, vector: Any, lanes: Any) -> Any:
    """The vector again and again, until ``8 * len(lanes)`` places are full."""
    result = Vector(vector.dtype, 8 * lanes.count)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        places = [place % vector.count for place in range(result.count)]
        kind = ir.VectorType(ir.IntType(32), result.count)
        return builder.shuffle_vector(args[0], ir.Constant(args[0].type, ir.Undefined), ir.Constant(kind, places))

    return result(vector, lanes), codegen


@intrinsic
def minus_product(typingctx: Any, total: Any, factor: Any, vector: Any) -> Any:
    """``total - factor * vector`` with one rounding; ``factor`` is a vector, or a number for all places."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        factor_value = args[1] if isinstance(factor, Vector) else _broadcast(builder, args[1], vector)
        negative = builder.fneg(factor_value)
        return _call(builder, "llvm.fma", [negative, args[2], args[0]], vector)

    return total(total, factor if isinstance(factor, Vector) else vector.dtype, vector), codegen


@intrinsic
def times(typingctx: Any, factor: Any, vector: Any) -> Any:
    """``factor * vector``; ``factor`` is a vector, or a number for all places."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        factor_value = args[0] if isinstance(factor, Vector) else _broadcast(builder, args[0], vector)
        return builder.fmul(factor_value, args[1])

    return vector(factor if isinstance(factor, Vector) else vector.dtype, vector), codegen


@intrinsic
def largest(typingctx: Any, bound: Any, vector: Any) -> Any:
    """``max(bound, |vector|)``, place by place; NaN wins, so that it cannot be lost."""
    bits = vector.dtype.bitwidth

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # as integers, the bits of |x| are ordered like the numbers, with NaN above infinity
        kind = ir.VectorType(ir.IntType(bits), vector.count)
        a, b = (builder.bitcast(value, kind) for value in args)
        b = builder.and_(b, ir.Constant(kind, [2 ** (bits - 1) - 1] * vector.count))
        return builder.bitcast(builder.select(builder.icmp_signed(">", a, b), a, b), args[0].type)

    return vector(bound, vector), codegen


def _call(builder: Any, name: str, values: list[Any], vector: Vector) -> Any:
    kind = values[0].type
    mangled = f"{name}.v{vector.count}f{vector.dtype.bitwidth}"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * len(values)), mangled)
    return builder.call(function, values)


def _pointer(context: Any, builder: Any, signature: Any, args: Any, vector: Vector) -> Any:
    array = context.make_array(signature.args[0])(context, builder, args[0])
    address = builder.gep(array.data, [args[1]])
    kind = context.data_model_manager.lookup(vector).get_value_type()
    return builder.bitcast(address, kind.as_pointer())


def _broadcast(builder: Any, number: Any, vector: Vector) -> Any:
    kind = ir.VectorType(number.type, vector.count)
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), number, cgutils.int32_t(0))
    places = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), places)
