"""Marginal variances: the diagonal of J^-1."""

from __future__ import annotations

import torch
from torch import Tensor

from walksum.precision import Precision
from walksum.solvers import Direct, GaBP

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
