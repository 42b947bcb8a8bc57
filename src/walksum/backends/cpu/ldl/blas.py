"""BLAS and LAPACK of scipy from compiled code.

Fortran takes every argument by reference. :func:`call` tells by the type what an argument is: a ``uint8`` is a
character, an ``int32`` an integer, a ``float64`` a number, and an ``int64`` the address of an array.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.numba_api import TypingError, cgutils, get_cython_function_address, intrinsic, ir, types

LOWER, NO, YES, LEFT, RIGHT = (np.uint8(ord(c)) for c in "LNTLR")
INT = np.int32  # of Fortran

LARGE_FRONT = 2048  # rows of a front from which the threads of BLAS pay

_lock, _inside, _before = threading.Lock(), 0, 0


@cache
def addresses() -> tuple[int, ...]:
    """Of dpotrf, dtrsm, dsyrk, dgemm, dsymm and dpotri, as the kernels take them."""
    lapack, names = ("dpotrf", "dpotri"), ("dpotrf", "dtrsm", "dsyrk", "dgemm", "dsymm", "dpotri")
    modules = ("scipy.linalg.cython_lapack" if name in lapack else "scipy.linalg.cython_blas" for name in names)
    return tuple(get_cython_function_address(*place) for place in zip(modules, names, strict=True))


@contextmanager
def threads_for(rows: int) -> Iterator[None]:
    """BLAS on one thread, unless fronts have this many rows: waiting for its other threads takes longer than the
    product of a small front, and our own threads have a head each."""
    global _inside, _before
    set_threads = None if rows >= LARGE_FRONT else _thread_setter()
    if set_threads is None:
        yield
        return
    with _lock:  # the number holds for the whole process: the first one in lowers it, the last one out restores it
        _inside += 1
        if _inside == 1:
            _before = set_threads(1)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                set_threads(_before)


@cache
def _thread_setter() -> Callable[[int], int] | None:
    """OpenBLAS's function that sets the number of threads and returns the one before; None in another library."""
    from scipy.linalg import cython_blas

    try:
        found = ctypes.CDLL(cython_blas.__file__).openblas_set_num_threads_local  # looks into linked libraries, too
    except (AttributeError, OSError):
        return None
    found.argtypes, found.restype = [ctypes.c_int], ctypes.c_int
    return found


@intrinsic
def call(typingctx: Any, address: Any, arguments: Any) -> Any:
    """A Fortran subroutine by its address, with a tuple of arguments."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointers = []
        for kind, value in zip(sig.args[1], cgutils.unpack_tuple(builder, args[1]), strict=True):
            if kind not in (types.uint8, types.int32, types.float64, types.int64):
                raise TypingError(f"call() takes uint8, int32, float64 and addresses as int64, not {kind}")
            if kind == types.int64:
                pointers.append(builder.inttoptr(value, ir.IntType(8).as_pointer()))
            else:
                slot = cgutils.alloca_once_value(builder, value)
                pointers.append(builder.bitcast(slot, ir.IntType(8).as_pointer()))
        kind = ir.FunctionType(ir.VoidType(), [p.type for p in pointers])
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), pointers)
        return context.get_dummy_value()

    return types.void(types.int64, arguments), codegen


@jit
def potrf(blas, n, A, lda, info):
    """``A = L L^T`` in place, the lower triangle; ``info[0]`` is 0, or the column that stopped it."""
    call(blas[0], (LOWER, INT(n), A, INT(lda), np.int64(info.ctypes.data)))


@jit
def trsm_right(blas, transpose, m, n, L, ldl, B, ldb):
    """``B <- B L^-T`` for the character T, ``B L^-1`` for N; ``B [m, n]``."""
    call(blas[1], (RIGHT, LOWER, transpose, NO, INT(m), INT(n), 1.0, L, INT(ldl), B, INT(ldb)))


@jit
def syrk(blas, n, k, A, lda, beta, C, ldc):
    """``C <- beta C - A A^T``, the lower triangle; ``A [n, k]``."""
    call(blas[2], (LOWER, NO, INT(n), INT(k), -1.0, A, INT(lda), beta, C, INT(ldc)))


@jit
def gemm_transposed(blas, m, n, k, A, lda, B, ldb, beta, C, ldc):
    """``C <- beta C - A^T B``; ``A [k, m]``, ``B [k, n]``."""
    call(blas[3], (YES, NO, INT(m), INT(n), INT(k), -1.0, A, INT(lda), B, INT(ldb), beta, C, INT(ldc)))


@jit
def symm(blas, m, n, A, lda, B, ldb, C, ldc):
    """``C <- -A B`` for a symmetric ``A [m, m]`` of which the lower triangle is read."""
    call(blas[4], (LEFT, LOWER, INT(m), INT(n), -1.0, A, INT(lda), B, INT(ldb), 0.0, C, INT(ldc)))


@jit
def potri(blas, n, A, lda, info):
    """``A^-1`` from L, in place, the lower triangle."""
    call(blas[5], (LOWER, INT(n), A, INT(lda), np.int64(info.ctypes.data)))
