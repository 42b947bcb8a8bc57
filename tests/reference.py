"""Slow twins, written for reading."""

from __future__ import annotations

import torch

import walksum as ws


def gabp_by_loops(J: ws.Precision, h: torch.Tensor, damping: float, tol: float, max_steps: int):
    """Algorithm 1 edge by edge, one head, one column. Returns mu, marginal precisions, steps."""
    n = J.num_nodes
    A = J.to_dense()[0].tolist()
    h = h.tolist()
    neighbours = [[k for k in range(n) if k != i and A[i][k] != 0] for i in range(n)]
    pi = {(i, j): 0.0 for i in range(n) for j in neighbours[i]}
    eta = dict(pi)
    steps, change = 0, float("inf")
    while change > tol and steps < max_steps:
        new_pi, new_eta = {}, {}
        for i, j in pi:
            alpha = A[i][i] + sum(pi[k, i] for k in neighbours[i] if k != j)
            beta = h[i] + sum(eta[k, i] for k in neighbours[i] if k != j)
            new_pi[i, j] = -(A[i][j] ** 2) / alpha
            new_eta[i, j] = -A[i][j] * beta / alpha
        change = max([0.0] + [max(abs(new_pi[e] - pi[e]), abs(new_eta[e] - eta[e])) for e in pi])
        for e in pi:
            pi[e] = (1 - damping) * pi[e] + damping * new_pi[e]
            eta[e] = (1 - damping) * eta[e] + damping * new_eta[e]
        steps += 1
    precision = [A[i][i] + sum(pi[k, i] for k in neighbours[i]) for i in range(n)]
    information = [h[i] + sum(eta[k, i] for k in neighbours[i]) for i in range(n)]
    mu = torch.tensor([e / p for e, p in zip(information, precision, strict=True)], dtype=torch.double)
    return mu, torch.tensor(precision, dtype=torch.double), steps


def true_residual(J: ws.Precision, mu: torch.Tensor, h: torch.Tensor) -> float:
    """The backward error, from the dense matrix in float64."""
    A, mu, h = J.to_dense().double(), mu.double(), h.double()
    error = (h - A @ mu).abs().amax(1)
    scale = A.abs().sum(2).amax(1).unsqueeze(1) * mu.abs().amax(1) + h.abs().amax(1)
    return float(torch.where(error == 0, error, error / scale).max()) if h.numel() else 0.0
