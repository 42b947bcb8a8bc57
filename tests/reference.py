"""What is measured by the library, from dense matrices."""

from __future__ import annotations

import torch

import walksum as ws


def true_residual(J: ws.Precision, mu: torch.Tensor, h: torch.Tensor) -> float:
    """The backward error, from the dense matrix in float64."""
    A, mu, h = J.to_dense().double(), mu.double(), h.double()
    error = (h - A @ mu).abs().amax(1)
    scale = A.abs().sum(2).amax(1).unsqueeze(1) * mu.abs().amax(1) + h.abs().amax(1)
    return float(torch.where(error == 0, error, error / scale).max()) if h.numel() else 0.0
