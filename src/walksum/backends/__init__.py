"""The inner loops: one module per backend, the same functions in each.

``reference`` is plain torch and runs everywhere. :func:`backend` names the module for a tensor; code above
this package never asks where a tensor lives.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from functools import lru_cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from walksum.backends import reference


def backend(tensor: Tensor) -> ModuleType:
    """The kernels for this tensor's device and dtype."""
    if tensor.is_cpu and tensor.dtype in (torch.float32, torch.float64):
        return _numba()
    if uses_triton(tensor):
        from walksum.backends.cuda.triton import products as gpu  # triton, which a machine without a GPU may lack

        return gpu
    return reference


def find(tensor: Tensor, name: str) -> Callable[..., Any] | None:
    """A kernel that only some backends have; None where the caller must do without it."""
    return getattr(backend(tensor), name, None)


@lru_cache
def _numba() -> ModuleType:
    if not has_numba():
        from walksum.backends.cpu.numba_api import MISSING

        warnings.warn(f"kernels in plain torch, many times slower: {MISSING}", RuntimeWarning, stacklevel=3)
        return reference
    from walksum.backends.cpu import products as cpu  # numba takes a second to import: only where it is used

    return cpu


@lru_cache
def has_numba() -> bool:
    """Whether the compiled CPU kernels can be used."""
    from walksum.backends.cpu.numba_api import MISSING

    return MISSING is None


def uses_triton(tensor: Tensor) -> bool:
    return tensor.is_cuda and tensor.dtype == torch.float32 and has_triton()


@lru_cache
def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
