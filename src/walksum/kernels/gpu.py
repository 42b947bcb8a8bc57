"""Kernels in Triton for CUDA float32: the same functions as in ``reference``, deterministic, no E x F temporaries."""

from __future__ import annotations

import torch
from torch import Tensor

from walksum.graph import Graph
from walksum.kernels.gpu_edges import edge_dot
from walksum.kernels.gpu_matrix import Matrix
from walksum.kernels.reference import neighbour_sum


def spmm(graph: Graph, diag: Tensor, off: Tensor, x: Tensor) -> Tensor:
    """``J x``: diag ``[H, N]``, off ``[H, E]``, x ``[H, N, F]`` -> ``[H, N, F]``."""
    if x.numel() == 0:
        return torch.zeros_like(x)
    return Matrix.of(graph, diag, off).product(x.contiguous())


__all__ = ["spmm", "edge_dot", "neighbour_sum"]
