"""J^-1 in float64: times many columns, its diagonal, and as a sum over walks."""

from __future__ import annotations

import torch
from torch import Tensor

from walksum.ops import spmm
from walksum.precision import Precision
from walksum.solvers import Direct, GaBP
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


MOST_OPERATIONS = 3e9  # multiply-adds an exact marginal variance may take: a few seconds


@torch.no_grad()
def marginal_variance(J: Precision) -> tuple[Tensor, str]:
    """(J^-1)_ii of every node, heads averaged ``[N]``, and how it was found."""
    J = J.detach()
    try:
        return Direct(max_operations=MOST_OPERATIONS).prepare(J).marginal_variance.mean(0), "exact (Direct)"
    except ValueError:  # elimination fills in too much
        prepared = GaBP(damping=1.0).prepare(J)
        assert hasattr(prepared, "marginal_precision")
        return (1 / prepared.marginal_precision).mean(0), "approximate on graphs with cycles (GaBP)"


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
