"""J^-1 times many columns in float64: what every picture of J^-1 is made from."""

from __future__ import annotations

import torch
from torch import Tensor

from walksum.precision import Precision
from walksum.solving import solve

DENSE_LIMIT = 500  # below, a dense factor costs nothing and needs no compiled kernels


@torch.no_grad()
def apply_inverse(J: Precision, columns: Tensor) -> Tensor:
    """:math:`J^{-1} B` for ``columns`` B ``[N, C]``, every head: ``[H, N, C]``, float64, on the CPU."""
    exact = J.detach().to("cpu").to(torch.float64)
    B = columns.detach().to("cpu").to(torch.float64)
    if J.num_nodes > DENSE_LIMIT:
        mu = solve(exact, B.expand(J.heads, -1, -1).contiguous(), on_nonconverged="ignore")
        bad = not bool(torch.isfinite(mu).all())
    else:
        factor, info = torch.linalg.cholesky_ex(exact.to_dense())
        bad = bool((info != 0).any())
        mu = torch.cholesky_solve(B.expand(J.heads, -1, -1), factor)
    if bad:
        raise ValueError(f"{J} is not positive definite or holds NaN; there is no Gaussian with this precision")
    return mu


def units(num_nodes: int, nodes: Tensor | None = None) -> Tensor:
    """The columns of the identity that belong to ``nodes``, ``[N, n]``; all of them by default."""
    nodes = torch.arange(num_nodes) if nodes is None else nodes.cpu()
    columns = torch.zeros(num_nodes, nodes.numel(), dtype=torch.float64)
    columns[nodes, torch.arange(nodes.numel())] = 1
    return columns
