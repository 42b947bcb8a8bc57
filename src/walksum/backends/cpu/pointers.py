"""Arrays by address. A tensor that goes to a kernel as ``tensor.data_ptr()`` takes a tenth of a microsecond; made a
numpy array first, ten times that, and a solve on a small graph hands over a dozen.

The caller makes sure of what an address does not show: contiguous, on the CPU, the dtype of ``zero``, kept alive.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.numba_api import intrinsic, populate_array, types

# tells a kernel the dtype of what it is given
ZERO: dict[Any, Any] = {torch.float32: np.float32(0), torch.float64: np.float64(0)}

# From 4 MB on, numpy asks for huge pages and torch does not: touching small ones for the first time takes longer than
# a sweep through them.
LARGE = 1 << 20
LINE = 64


def contiguous_on_cpu(tensor: Tensor) -> Tensor:
    """The tensor itself where its address may be handed over, else a copy that is contiguous on the CPU."""
    if tensor.is_cpu and tensor.is_contiguous():
        return tensor
    return tensor.detach().cpu().contiguous()


def node_major(tensor: Tensor) -> bool:
    """Whether a tensor ``[H, N, F]`` lies node after node, as a linear layer writes its heads."""
    return tensor.is_cpu and tensor.transpose(0, 1).is_contiguous()


def blank(like: Tensor) -> Tensor:
    """A tensor of the shape and dtype of a contiguous one, not filled."""
    if like.numel() < LARGE:
        return torch.empty_like(like)  # three times as fast as new_empty with a shape
    raw = np.empty(like.numel() + LINE // like.element_size(), ZERO[like.dtype].dtype)
    start = -raw.ctypes.data % LINE // like.element_size()  # torch's own start at a cache line, too
    return torch.from_numpy(raw[start : start + like.numel()]).view(like.shape)


@intrinsic
def vector(typingctx: Any, address: Any, count: Any, zero: Any) -> Any:
    """``count`` numbers of the dtype of ``zero`` from ``address`` on."""
    result = types.Array(zero, 1, "C")

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        array = context.make_array(result)(context, builder)
        place, size = (context.cast(builder, args[k], sig.args[k], types.intp) for k in (0, 1))
        data = builder.inttoptr(place, context.get_data_type(zero).as_pointer())
        step = context.get_constant(types.intp, zero.bitwidth // 8)
        populate_array(array, data=data, shape=[size], strides=[step], itemsize=step, meminfo=None)
        return array._getvalue()

    return result(address, count, zero), codegen


@jit
def matrix(address, rows, columns, zero):
    return vector(address, rows * columns, zero).reshape(rows, columns)
