"""Launching Triton kernels on the device of their tensors."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor


def launch(kernel: Any, grid: tuple[int, int, int], like: Tensor, *args: Any, warps: int = 4, **meta: Any) -> None:
    """``kernel[grid](*args)`` on the device of ``like``; an empty grid is no launch."""
    if 0 in grid:
        return
    with _on(like.device):
        kernel[grid](*args, num_warps=warps, **meta)


def _on(device: torch.device) -> contextlib.AbstractContextManager:
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(device)
