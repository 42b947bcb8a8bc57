"""The walk sum: J^-1 h as a sum over all walks, cut off after k steps."""

from __future__ import annotations

import torch
from torch import Tensor

from walksum.ops import spmm
from walksum.precision import Precision


@torch.no_grad()
def walk_sums(J: Precision, h: Tensor, most: int) -> Tensor:
    r"""Sums over walks of up to k steps, k = 0 ... ``most``: ``[most + 1, H, N, F]``, in the dtype of J.

    .. math:: \mu_k = D^{-1/2} \sum_{l=0}^{k} R^l D^{-1/2} h, \qquad R = I - D^{-1/2} J D^{-1/2}

    Entry ij of :math:`R^l` is the sum over all walks of l steps from j to i, each the product of its edges. For a
    walk-summable J the sums approach :math:`J^{-1} h`, and the order in which walks are added does not matter.
    """
    h = h.unsqueeze(0) if h.dim() == 2 else h
    root = J.diag.sqrt().unsqueeze(-1)
    off = -J.normalised().off
    term = total = h / root
    found = [total / root]
    for _ in range(most):
        term = spmm(J.graph, torch.zeros_like(J.diag), off, term)
        total = total + term
        found.append(total / root)
    return torch.stack(found)
