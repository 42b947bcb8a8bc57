"""Launching Triton kernels on the device of their tensors."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor

from walksum._torch import raw_stream


def launch(kernel: Any, grid: tuple[int, int, int], like: Tensor, *args: Any, warps: int = 4, **meta: Any) -> Any:
    """``kernel[grid](*args)`` on the device of ``like``; an empty grid is no launch."""
    if 0 in grid:
        return None
    with on_device(like.device):
        return kernel[grid](*args, num_warps=warps, **meta)


def on_device(device: torch.device) -> contextlib.AbstractContextManager:
    """Makes it the current one where it is not, which is rare and costs a little."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(device)


class CachedLaunch:
    """A launch that is made again and again with other tensors of the same kind, and with the same numbers.

    Triton looks at every argument of every launch to find the kernel compiled for it, which takes longer than a small
    kernel runs. Here that happens once; afterwards the kernel found is launched itself. Tensors at odd addresses,
    other devices and versions of Triton that launch otherwise go the long way.
    """

    possible = True  # with this version of Triton

    def __init__(self, kernel: Any, grid: tuple[int, int, int], numbers: tuple, warps: int, **meta: Any):
        self.kernel, self.grid, self.numbers, self.warps, self.meta = kernel, grid, numbers, warps, meta
        names = [parameter.name for parameter in getattr(kernel, "params", ())]
        self.rest = (*numbers, *(meta[name] for name in names if name in meta))  # constants come last in a kernel
        self.device = -1
        self.compiled: Any = None  # for that device

    def __call__(self, *tensors: Tensor) -> None:
        places = [t.data_ptr() for t in tensors]
        aligned = not any(place & 15 for place in places)
        if aligned and self.compiled is not None and self._directly(places):
            return
        found = launch(self.kernel, self.grid, tensors[0], *tensors, *self.numbers, warps=self.warps, **self.meta)
        if aligned and CachedLaunch.possible and hasattr(found, "packed_metadata"):
            self.device, self.compiled = tensors[0].device.index or 0, found

    def _directly(self, places: list[int]) -> bool:
        if torch.cuda.current_device() != self.device:
            return False
        found, stream = self.compiled, raw_stream(self.device)
        about = (stream, found.function, found.packed_metadata, None, None, None)
        try:
            found.run(*self.grid, *about, *places, *self.rest)
        except TypeError:
            CachedLaunch.possible, self.compiled = False, None
            return False
        return True
