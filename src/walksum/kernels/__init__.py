"""The inner loops: one module a backend, the same functions in each.

``reference`` is plain torch and runs everywhere. :func:`backend` names the module for a tensor; code above
this package never asks where a tensor lives.
"""

from __future__ import annotations

from types import ModuleType

from torch import Tensor

from walksum.kernels import reference


def backend(tensor: Tensor) -> ModuleType:
    """The kernels for this tensor's device and dtype."""
    return reference
