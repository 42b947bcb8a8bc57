"""Compiling CUDA C++ at run time with the compiler that comes with torch, and launching it with little ado."""

from __future__ import annotations

import ctypes
import threading
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

SHARED_MEMORY = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class CudaError(RuntimeError):
    """This torch cannot compile or launch CUDA C++; there are slower ways."""


class Kernel:
    """A compiled function."""

    def __init__(self, function: ctypes.c_void_p, keep: object):
        self.function = function
        self._keep = keep  # the module it lives in
        self.allowed = 0  # bytes of shared memory per block

    def allow_shared_memory(self, size: int) -> None:
        if size > self.allowed:  # never less: others launch it too
            _check(driver().cuFuncSetAttribute(self.function, SHARED_MEMORY, size))
            self.allowed = size

    def bound(
        self, grid: tuple[int, int], threads: int, shared: int, open_tensors: int, *rest: Tensor | int | float
    ) -> Launch:
        """A launch whose first arguments are tensors given each time, and whose others stay."""
        return Launch(self, (*grid, 1, threads, 1, 1, shared), open_tensors, rest)


class Launch:
    """Launches again and again; only pointers are put in, as everything else would take longer than a small kernel."""

    def __init__(
        self, kernel: Kernel, shape: tuple[int, ...], open_tensors: int, rest: tuple[Tensor | int | float, ...]
    ):
        self.kernel, self.shape, self._keep = kernel, shape, rest
        self.open = [ctypes.c_void_p() for _ in range(open_tensors)]
        held = [*self.open, *map(_as_c, rest)]
        self.held, self.places = held, (ctypes.c_void_p * len(held))(*map(ctypes.addressof, held))
        self.lock = threading.Lock()

    def __call__(self, stream: int, *tensors: Tensor) -> None:
        with self.lock:  # the driver copies the arguments before it returns
            for place, tensor in zip(self.open, tensors, strict=True):
                place.value = tensor.data_ptr()
            code = driver().cuLaunchKernel(self.kernel.function, *self.shape, stream, self.places, None)
        _check(code)


def _as_c(arg: Tensor | int | float) -> ctypes._SimpleCData:
    """Floats are float32 in our kernels."""
    if isinstance(arg, Tensor):
        return ctypes.c_void_p(arg.data_ptr())
    return ctypes.c_int(arg) if isinstance(arg, int) else ctypes.c_float(arg)


@lru_cache(maxsize=64)
def compiled(files: tuple[str, ...], name: str, device: int, **defined: int) -> Kernel:
    """Function ``name`` of files beside this one, with some constants defined; raises :class:`CudaError`."""
    source = "".join(f"#define {key} {value}\n" for key, value in defined.items())
    source += "".join((Path(__file__).parent / file).read_text() for file in files)
    try:
        with torch.cuda.device(device):
            found = torch.cuda._compile_kernel(source, name)
            return Kernel(found.func, found)
    except Exception as error:  # private to torch: whatever goes wrong, there are other ways to solve
        raise CudaError(f"{files[-1]}: {error}") from error


@lru_cache(maxsize=1)
def driver() -> ctypes.CDLL:
    found = ctypes.CDLL("libcuda.so.1")
    pointer, number = ctypes.c_void_p, ctypes.c_uint
    found.cuLaunchKernel.argtypes = [pointer, *[number] * 7, pointer, pointer, pointer]
    found.cuFuncSetAttribute.argtypes = [pointer, ctypes.c_int, ctypes.c_int]
    return found


def _check(code: int) -> None:
    if code:
        raise CudaError(f"the CUDA driver answered {code}")
