"""Kernels in Triton for CUDA float32: the same functions as in ``reference``, deterministic, no E x F temporaries."""

from __future__ import annotations

import torch
from torch import Tensor

from walksum.backends.cuda.triton.edges import edge_dot, value_gradients
from walksum.backends.cuda.triton.matrix import Control, Matrix
from walksum.backends.cuda.triton.scalars import ERROR, RESIDUAL, SCALE, SIZE
from walksum.backends.reference import neighbour_sum
from walksum.graph import Graph


def spmm(graph: Graph, diag: Tensor, off: Tensor, x: Tensor) -> Tensor:
    """``J x``: diag ``[H, N]``, off ``[H, E]``, x ``[H, N, F]`` -> ``[H, N, F]``."""
    if x.numel() == 0:
        return torch.zeros_like(x)
    return Matrix.of(graph, diag, off).product(x.contiguous())


def norm_inf(graph: Graph, diag: Tensor, off: Tensor) -> Tensor:
    """``|J|_inf`` of each head, ``[H]``."""
    return Matrix.of(graph, diag, off).norm_inf()


def backward_error(graph: Graph, diag: Tensor, off: Tensor, mu: Tensor, h: Tensor, J_norm: Tensor) -> Tensor:
    """Normwise backward error of every column, ``[H, F]``, without storing the residual."""
    matrix = Matrix.of(graph, diag, off)
    control = Control.for_shape(mu.shape, matrix.programs(mu.size(2)), J_norm.contiguous(), 0.0, 0)
    control.scalars[SCALE.value] = 1.0
    control.scalars[SIZE.value] = h.abs().amax(1)
    matrix.product(mu.contiguous(), None, RESIDUAL.value, control, h=h.contiguous())
    return control.scalars[ERROR.value]


__all__ = ["spmm", "edge_dot", "value_gradients", "neighbour_sum", "norm_inf", "backward_error"]
