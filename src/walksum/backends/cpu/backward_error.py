"""The quotient of a normwise backward error, where its parts come near the end of the range."""

from __future__ import annotations

import numpy as np

from walksum.backends.cpu.compile import jit


@jit
def ratio(residual, norm, size_x, size_h):
    """``residual / (norm size_x + size_h)``; a sum that overflows would make a quotient of 0 of any residual."""
    scale = norm * size_x + size_h
    if scale < np.inf:
        return residual / scale
    size = max(size_x, size_h)
    return residual / size / (norm * (size_x / size) + size_h / size)
