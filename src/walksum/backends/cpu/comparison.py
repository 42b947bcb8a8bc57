"""Whether the values of J are still what they were: compared bit by bit, in one call."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.pointers import vector


def same_values(diag: Tensor, off: Tensor, kept_diag: Tensor, kept_off: Tensor) -> bool:
    """Whether two pairs of tensors hold the same bits; several times as fast as ``torch.equal``, and NaN equals NaN."""
    if diag.shape != kept_diag.shape or off.shape != kept_off.shape:
        return False
    if diag.dtype is not kept_diag.dtype or off.dtype is not kept_off.dtype:
        return False
    if not (diag.is_contiguous() and off.is_contiguous() and kept_diag.is_contiguous() and kept_off.is_contiguous()):
        return torch.equal(diag, kept_diag) and torch.equal(off, kept_off)
    addresses = diag.data_ptr(), kept_diag.data_ptr(), off.data_ptr(), kept_off.data_ptr()
    return _same_bytes(*addresses, diag.nbytes, off.nbytes)


@jit
def _same_bytes(a, b, c, d, of_a, of_c):
    return _differing(a, b, of_a) == 0 and _differing(c, d, of_c) == 0


@jit
def _differing(a, b, count):
    """The bits that differ anywhere; a loop without an exit, of which LLVM makes vectors."""
    words = count // 8
    x, y, found = vector(a, words, np.uint64(0)), vector(b, words, np.uint64(0)), np.uint64(0)
    for k in range(words):
        found |= x[k] ^ y[k]
    x_end, y_end = vector(a + 8 * words, count % 8, np.uint8(0)), vector(b + 8 * words, count % 8, np.uint8(0))
    for k in range(count % 8):
        found |= np.uint64(x_end[k] ^ y_end[k])
    return found
