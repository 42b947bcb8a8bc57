"""The inner loops: one module a backend, the same functions in each.

``reference`` is plain torch and runs everywhere. :func:`backend` names the module for a tensor; code above
this package never asks where a tensor lives.
"""

from __future__ import annotations

import importlib.util
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
        from walksum.backends.cuda.triton import (
            products as gpu,  # imports triton, which machines without a GPU need not have
        )

        return gpu
    return reference


def find(tensor: Tensor, name: str) -> Callable[..., Any] | None:
    """A kernel that only some backends have; None where the caller must do without it."""
    return getattr(backend(tensor), name, None)


@lru_cache
def _numba() -> ModuleType:
    from walksum.backends.cpu import products as cpu  # numba takes a second to import: only where it is used

    return cpu


def uses_triton(tensor: Tensor) -> bool:
    return tensor.is_cuda and tensor.dtype == torch.float32 and has_triton()


@lru_cache
def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
