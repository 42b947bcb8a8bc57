"""Values with batch dimensions as columns of a J of several heads, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from walksum.precision import Precision


def to_columns(J: Precision, x: Tensor) -> Tensor:
    """``[..., H, n]`` as columns of J: ``[H, n, F]``; with one head every leading dimension becomes columns."""
    x = x.to(device=J.device, dtype=J.dtype)
    heads, n = J.heads, x.size(-1)
    if heads > 1:
        x = x.expand(*x.shape[:-2], heads, n) if x.dim() > 1 else x.expand(heads, n)
        x = x.movedim(-2, 0)
    return x.reshape(heads, math.prod(x.shape[:-1]) // heads, n).transpose(1, 2).contiguous()


def to_rows(columns: Tensor, shape: Sequence[int]) -> Tensor:
    """The inverse: ``[H, n, F]`` to ``shape = [..., H, n]``, or ``[H, F]`` to ``shape = [..., H]``."""
    heads, inner = columns.size(0), columns.dim() - 2  # dimensions after the heads
    if inner:
        columns = columns.transpose(1, 2)
    if heads == 1:
        return columns.reshape(*shape)
    at = len(shape) - 1 - inner  # where the heads stand
    return columns.reshape(heads, *shape[:at], *shape[at + 1 :]).movedim(0, at)
