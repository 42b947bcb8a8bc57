r"""Mean and field together: a network trained while its residuals are one draw of a Gaussian field on the graph.

With the field's covariance C, :math:`K = C_{tt} + \sigma^2 I` at the training rows t and residuals
:math:`r = y_t - f(x_t)`, the loss is :math:`r^T K^{-1} r` and a prediction :math:`f(x) + C_{\cdot t} K^{-1} r`. The
field's three numbers are fitted by evidence to the residuals of a linear model before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from walksum.field.fit import residual_precision
from walksum.portfolio.problem import Fold, Problem
from walksum.portfolio.residual import residual_field

LARGEST = 5000  # nodes: the covariance is a dense matrix


@dataclass(frozen=True)
class KnownField:
    r"""The field of one fold's residuals.

    Attributes:
        train: rows whose targets are known ``[n]``, and those targets ``y [n]``.
        weight: :math:`K^{-1}` with a mean diagonal of one ``[n, n]``.
        reach: :math:`C_{\cdot t} K^{-1}` ``[N, n]``.
    """

    train: Tensor
    y: Tensor
    weight: Tensor
    reach: Tensor

    @classmethod
    def of(cls, problem: Problem, columns: np.ndarray, fold: Fold) -> KnownField:
        train = fold[0]
        target = problem.y[train]
        field = residual_field(problem.graph, train, target - _linear(columns[train], target))
        J = residual_precision(problem.graph.to("cpu"), field.a, field.precision).to_dense()[0].to(problem.device)
        covariance = torch.cholesky_inverse(torch.linalg.cholesky(J))
        rows = torch.from_numpy(train).to(problem.device)
        among = covariance[:, rows]
        noise = max(field.noise, 1e-6) * torch.eye(len(rows), dtype=among.dtype, device=among.device)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(among[rows] + noise))
        y = torch.from_numpy(target).float().to(problem.device)
        return cls(rows, y, (inverse / inverse.diagonal().mean()).float(), (among @ inverse).float())

    def loss(self, out: Tensor, place: Tensor) -> Tensor:
        """Of all networks together; ``out [M, rows]``, ``place`` says where the training rows stand in it."""
        r = self.y - out[:, place]
        return ((r @ self.weight) * r).sum() / len(self.y)

    def predict(self, out: Tensor, place: Tensor, rows: Tensor) -> Tensor:
        """``[M, rows]``: the networks' values and what the known residuals say about these rows; a training row's
        own residual is left out."""
        r = self.y - out[:, place]
        value = out + r @ self.reach[rows].T
        value[:, place] = self.y - (r @ self.weight) / self.weight.diagonal()
        return value


def _linear(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    from sklearn.linear_model import RidgeCV

    return RidgeCV(np.logspace(0, 4, 9)).fit(X, y).predict(X)
