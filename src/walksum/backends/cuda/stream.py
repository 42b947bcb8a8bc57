"""The current CUDA stream as a number: torch's object for it takes longer to make than a small launch."""

from __future__ import annotations

from collections.abc import Callable

import torch


def _public(device: int) -> int:
    return torch.cuda.current_stream(device).cuda_stream


# private to torch: where it is gone, the public way will do
raw_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _public)
