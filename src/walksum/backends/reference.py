"""Kernels in plain torch: every device, every dtype, what the fast ones are compared with."""

from __future__ import annotations

import torch
from torch import Tensor

from walksum.graph import Graph


def spmm(graph: Graph, diag: Tensor, off: Tensor, x: Tensor) -> Tensor:
    """``J x``: diag ``[H, N]``, off ``[H, E]``, x ``[H, N, F]`` -> ``[H, N, F]``."""
    i, j = graph.edges
    out = diag.unsqueeze(-1) * x
    off = off.unsqueeze(-1)
    return out.index_add(1, i, off * x[:, j]).index_add(1, j, off * x[:, i])


def edge_dot(graph: Graph, a: Tensor, b: Tensor) -> Tensor:
    """``sum_f a_if b_jf + a_jf b_if`` for every edge: a, b ``[H, N, F]`` -> ``[H, E]``."""
    i, j = graph.edges
    return torch.linalg.vecdot(a[:, i], b[:, j]) + torch.linalg.vecdot(a[:, j], b[:, i])


def value_gradients(graph: Graph, g: Tensor, mu: Tensor) -> tuple[Tensor, Tensor]:
    """``-g_i . mu_i`` and ``-(g_i . mu_j + g_j . mu_i)``: the gradients of diag ``[H, N]`` and off ``[H, E]``."""
    return -torch.linalg.vecdot(g, mu), -edge_dot(graph, g, mu)


def neighbour_sum(graph: Graph, message: Tensor) -> Tensor:
    """Sum of the slots of each row: ``[H, 2E, ...]`` in CSR order -> ``[H, N, ...]``."""
    out = message.new_zeros(message.size(0), graph.num_nodes, *message.shape[2:])
    return out.index_add(1, graph.csr.row, message)


def norm_inf(graph: Graph, diag: Tensor, off: Tensor) -> Tensor:
    """The largest row sum of ``|J|`` of each head, ``[H]``."""
    return spmm(graph, diag.abs(), off.abs(), torch.ones_like(diag).unsqueeze(-1)).amax((1, 2))


def backward_error(graph: Graph, diag: Tensor, off: Tensor, mu: Tensor, h: Tensor, J_norm: Tensor) -> Tensor:
    """``|h - J mu|_inf / (|J|_inf |mu|_inf + |h|_inf)`` of every column, ``[H, F]``."""
    error = (h - spmm(graph, diag, off, mu)).abs().amax(1)
    J_norm, size_mu, size_h = J_norm.unsqueeze(1), mu.abs().amax(1), h.abs().amax(1)
    scale = J_norm * size_mu + size_h
    # a sum that overflows would make a quotient of 0 of any residual
    size = torch.maximum(size_mu, size_h)
    apart = error / size / (J_norm * (size_mu / size) + size_h / size)
    return torch.where(error == 0, error, torch.where(scale < torch.inf, error / scale, apart))
