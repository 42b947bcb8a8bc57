"""The CPU kernels as plain Python: ``pytest -p plain_kernels`` (with ``tests`` on PYTHONPATH).

Compiled, a kernel reads whatever lies behind an array, and a line tracer sees nothing of it. Here numba hands back the
functions as they are written, and each intrinsic has a twin in numpy, where reading or writing outside of an array is
an IndexError. Slow: for small systems only.
"""

from __future__ import annotations

import ctypes

import numba
import numpy as np
from numba.core.extending import _Intrinsic

np.seterr(all="ignore")  # compiled code divides by zero in silence


def plain(function=None, **options):
    if function is None:
        return plain
    function.compile = None  # walksum puts its own in this place
    return function


def width(lanes):
    return 8 * lanes.itemsize


def checked(array, start, count):
    if not 0 <= start <= len(array) - count:
        raise IndexError(f"entries {start} to {start + count} of {len(array)}")
    return slice(start, start + count)


def at(array, index):
    assert array.ndim == 1
    assert array.flags.c_contiguous
    checked(array, index, 1)
    return array[index]


def row_of(array, row, count):
    """The memory of a row of lanes: of a matrix its row, of a vector the entries from there on."""
    if array.ndim == 1:
        return array[checked(array, row, count)]
    checked(array, row, 1)
    return array[row, checked(array[row], 0, count)]


def load(lanes, array, row):
    return row_of(array, row, width(lanes)).copy()


def store(array, row, value):
    row_of(array, row, len(value))[:] = value


def prefetch(lanes, array, row):
    """Nothing: a hint."""


def splat(lanes, value):
    return np.full(width(lanes), value)


def fma(a, b, c):
    return np.asarray(a, c.dtype) * np.asarray(b, c.dtype) + c


def largest(a, b):
    return np.maximum(a, abs(b)).astype(a.dtype)


def add_up(value):
    while len(value) > 1:
        value = value[: len(value) // 2] + value[len(value) // 2 :]
    return value[0]


def each(numbers):
    return np.repeat(numbers, 8)


def gather(array, start, step):
    return np.concatenate([array[checked(array, start + k * step, 8)] for k in range(8)])


def scatter(array, start, step, value):
    for k in range(8):
        array[checked(array, start + k * step, 8)] = value[8 * k : 8 * k + 8]


def vector(address, count, zero):
    zero = np.asarray(zero)
    return np.frombuffer((ctypes.c_char * (int(count) * zero.itemsize)).from_address(int(address)), zero.dtype)


def call(address, arguments):
    kinds = {np.uint8: ctypes.c_uint8, np.int32: ctypes.c_int32, float: ctypes.c_double, np.float64: ctypes.c_double}
    given = [
        ctypes.c_void_p(int(a)) if type(a) not in kinds else ctypes.byref(kinds[type(a)](a.real)) for a in arguments
    ]
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(given))(address)(*given)


TWINS = (width, at, load, store, prefetch, splat, fma, largest, add_up, each, gather, scatter, vector, call)
numba.njit = plain
_Intrinsic.__call__ = lambda self, *args: {twin.__name__: twin for twin in TWINS}[self._name](*args)
