"""Eight heads of eight columns as one value of 64 lanes, head after head.

One number per head, eight in a row, multiplies the columns of its own head: ``fma(each(numbers), columns, total)``.
"""

from __future__ import annotations

from typing import Any

from walksum.backends.cpu.numba_api import intrinsic, ir, types
from walksum.backends.cpu.simd import WIDTHS, Lanes, row_pointer

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
